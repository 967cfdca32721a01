"""`deeprec-ext graph JOB`: what each graph pass changed, and which variables lie on which slot and PS."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from deeprec_ext.bounds import whole
from deeprec_ext.cli import placement
from deeprec_ext.cli.cluster.target import on_cluster
from deeprec_ext.cli.console import Console
from deeprec_ext.cli.fitting import Column, Fitted, bar
from deeprec_ext.cli.job import add_job, as_dict, directory_of, print_json
from deeprec_ext.cli.placement import Placement
from deeprec_ext.cli.roles import role_order, slots_text
from deeprec_ext.errors import UnreachableError, UsageError
from deeprec_ext.proto import deeprec_ext_pb2 as pb2
from deeprec_ext.rundir import RunDirectory
from deeprec_ext.units import counted, format_bytes

_UPDATES = {pb2.Variable.DENSE: "dense", pb2.Variable.ROWS: "rows", pb2.Variable.UPDATE_UNSPECIFIED: "never"}
_ROWS, _SLOTS = 10, 16
"""On a terminal: variables of each slot, if there are at most so many slots; else only the slots."""
_FILE_WIDTH = 200


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "graph", help="show what the graph passes changed, and the variables by slot and PS", description=__doc__
    )
    add_job(parser)
    parser.add_argument(
        "--slot", type=whole("slots"), metavar="S", help="the variables of this slot alone, all of them"
    )
    parser.add_argument(
        "--rows", type=whole("rows"), metavar="N",
        help=f"at most so many variables of each slot; 0: all (default on a terminal {_ROWS}, or none of more than "
        f"{_SLOTS} slots; else all)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    if arguments.rows is not None and arguments.rows < 0:
        raise UsageError(f"--rows {arguments.rows}: must be 0 or more")
    if (code := on_cluster("forwarding", arguments)) is not None:
        return code
    directory = directory_of(arguments)
    placed = get(directory)
    if arguments.slot is not None and arguments.slot not in placed.slots():
        raise UsageError(f"--slot {arguments.slot}: the job has slots 0 to {len(placed.slots()) - 1}")
    if arguments.json:
        print_json(describe(placed))
        return 0
    console = Console(wide=_FILE_WIDTH, highlight=False)
    rows = arguments.rows or None
    if arguments.rows is None and console.is_terminal:
        rows = _ROWS if len(placed.slots()) <= _SLOTS else 0
    for part in render(placed, rows, arguments.slot):
        console.print(part)
    return 0


def get(directory: RunDirectory) -> Placement:
    """From the AIMaster while there is one, else from what it left."""
    if directory.in_use():
        with contextlib.suppress(UnreachableError):  # it has just ended, or is just being started again
            return asyncio.run(placement.ask(directory))
    return placement.read(directory)


def render(placed: Placement, rows: int | None, slot: int | None = None) -> Iterable[RenderableType]:
    """
    Args:
      rows: variables of each slot, at most; None: all; 0: only the slots.
      slot: this one alone.
    """
    if not placed.catalogue.variables:
        yield "no variables yet: the chief has not opened its session"
        return
    if slot is None:
        yield pass_table(placed)
        yield ""
        yield ps_table(placed)
        for warning in placed.catalogue.warnings:
            yield Text(f"warning: {warning}", style="yellow")
        yield ""
    for one in placed.slots() if slot is None else [slot]:
        yield slot_title(placed, one)
        most = rows if slot is None else None
        if most == 0:
            continue
        yield Fitted(VARIABLE, [variable_row(variable) for variable in placed.variables(one)], most, "variables of it")
        yield ""
    if rows == 0 and slot is None:
        yield Text("--slot S shows the variables of one", style="dim")


PASS = (
    Column("pass", 10, right=False),
    Column("changed", 7),
    Column("ms", 6, rank=2),
    Column("what", rank=1, right=False),
)
ON_PS = (Column("PS", 6, right=False), Column("variables", 9), Column("bytes", 7), Column("share", 5),
         Column("load", 12, rank=1, right=False), Column("slots", rank=2, right=False))  # fmt: skip
VARIABLE = (Column("bytes", 9), Column("updated", 7, rank=1, right=False), Column("shape", 14, right=False),
            Column("variable", right=False))  # fmt: skip


def pass_table(placed: Placement) -> Fitted:
    """One row per pass, as the chief's newest session reported it."""
    rows = [
        [str(one.get("name", "?")), f"{int(one.get('changed', 0)):,}", f"{1000 * float(one.get('seconds', 0)):.1f}",
         str(one.get("detail", ""))]
        for one in placed.passes
    ]  # fmt: skip
    return Fitted(PASS, rows)


def ps_table(placed: Placement) -> Fitted:
    """One row per PS; the bar is its load, where it was measured."""
    slots: dict[str, list[int]] = defaultdict(list)
    for slot in placed.slots():
        slots[placed.owners.get(slot) or "no PS"].append(slot)
    sizes = {name: sum(placed.bytes(slot) for slot in members) for name, members in slots.items()}
    loads = {name: sum(placed.loads.get(slot, 0.0) for slot in members) for name, members in slots.items()}
    total, load = sum(sizes.values()) or 1, sum(loads.values())
    highest = max(loads.values(), default=0.0)
    rows = [
        [
            name, f"{sum(len(placed.variables(slot)) for slot in slots[name]):,}", format_bytes(sizes[name]),
            f"{100 * sizes[name] / total:.0f} %",
            f"{bar(loads[name] / highest)} {100 * loads[name] / load:.0f} %" if load else "", slots_text(slots[name]),
        ]
        for name in sorted(slots, key=role_order)
    ]  # fmt: skip
    return Fitted(ON_PS, rows)


def slot_title(placed: Placement, slot: int) -> Text:
    """`slot 3 on ps-1: 4 variables, 120 kB, 23 % of the load`."""
    count, load = len(placed.variables(slot)), sum(placed.loads.values())
    text = Text(f"slot {slot}", style="bold", no_wrap=True, overflow="ellipsis")
    facts = [counted(count, "variable"), format_bytes(placed.bytes(slot))]
    if load:
        facts.append(f"{100 * placed.loads.get(slot, 0.0) / load:.0f} % of the load")
    text.append(f" on {placed.owners.get(slot) or 'no PS'}: {', '.join(facts)}", style="not bold")
    return text


def variable_row(variable: pb2.Variable) -> list[str]:
    kind = _UPDATES.get(variable.update, "?") + (" (reference)" if variable.reference else "")
    shape = " × ".join(map(str, variable.shape)) or "scalar"
    return [format_bytes(variable.bytes), kind, shape, variable.name]


def describe(placed: Placement) -> dict[str, Any]:
    """As JSON. `load`: seconds of look-ups and updates per second; null where it was not measured."""
    return {
        "passes": placed.passes,
        "placement": [
            {
                "slot": slot, "ps": placed.owners.get(slot) or None, "bytes": placed.bytes(slot),
                "load": placed.loads.get(slot), "variables": [variable.name for variable in placed.variables(slot)],
            }
            for slot in placed.slots()
        ],
        "catalogue": as_dict(placed.catalogue),
    }  # fmt: skip
