"""`deeprec-ext graph DIR`: the variables of a running job by slot, and what each graph pass changed."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from deeprec_ext.cli.jobs import add_job, as_dict, directory_of, print_json, require_running
from deeprec_ext.launch.client import JobClient
from deeprec_ext.launch.rundir import RunDirectory
from deeprec_ext.proto import deeprec_ext_pb2 as pb2
from deeprec_ext.units import format_bytes

_UPDATES = {pb2.Variable.DENSE: "dense", pb2.Variable.ROWS: "rows", pb2.Variable.UPDATE_UNSPECIFIED: "never"}


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "graph", help="show the variables by slot and what the graph passes changed", description=__doc__
    )
    add_job(parser)
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    reply = asyncio.run(_ask(require_running(directory_of(arguments))))
    passes = json.loads(reply.passes_json) if reply.passes_json else []
    if arguments.json:
        print_json({"catalogue": as_dict(reply.catalogue), "passes": passes})
        return 0
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    if not reply.catalogue.variables:
        console.print("no variables yet: the chief has not opened its session")
        return 0
    console.print(variable_table(reply.catalogue.variables))
    for warning in reply.catalogue.warnings:
        console.print(f"warning: {warning}", markup=False, style="yellow")
    for line in pass_lines(passes):
        console.print(line, markup=False)
    return 0


async def _ask(directory: RunDirectory) -> pb2.GraphReply:
    async with JobClient.of(directory) as client:
        return await client.graph()


def variable_table(variables: Sequence[pb2.Variable]) -> Any:
    """By slot, largest first; a line with the sum after each slot's name."""
    from rich.table import Table

    table = Table(box=None, header_style="dim")
    for title, side in (
        ("slot", "right"),
        ("variable", "left"),
        ("shape", "left"),
        ("updated", "left"),
        ("bytes", "right"),
    ):
        table.add_column(title, justify=side)  # type: ignore[arg-type]
    slots: dict[int, list[pb2.Variable]] = defaultdict(list)
    for variable in variables:
        slots[variable.slot].append(variable)
    for slot, members in sorted(slots.items()):
        total = format_bytes(sum(variable.bytes for variable in members))
        table.add_row(str(slot), f"{len(members)} variables", "", "", total, style="bold")
        for variable in sorted(members, key=lambda one: (-one.bytes, one.name)):
            kind = _UPDATES.get(variable.update, "?") + (" (reference)" if variable.reference else "")
            shape = "×".join(map(str, variable.shape)) or "scalar"
            table.add_row("", variable.name, shape, kind, format_bytes(variable.bytes))
    return table


def pass_lines(passes: Any) -> list[str]:
    """One line per pass, whatever it reports: `slots: moved 12, left 3`."""
    if isinstance(passes, dict):
        passes = [{"name": name, "changed": changed} for name, changed in passes.items()]
    lines = []
    for one in passes:
        if not isinstance(one, dict):
            lines.append(str(one))
            continue
        name = one.get("name") or one.get("pass") or "?"
        rest = {key: value for key, value in one.items() if key not in ("name", "pass")}
        lines.append(f"pass {name}: " + ", ".join(f"{key} {_plain(value)}" for key, value in rest.items()))
    return lines


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
