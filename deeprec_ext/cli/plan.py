"""`deeprec-ext plan`: what would be decided, for a running job, for a record, or for a script before its start. Does nothing.

deeprec-ext plan JOB                     what the autoscaler of this job would decide now, and why
deeprec-ext plan JOB --set gain_min=0.1  the same with another policy, from the newest observation in its record
deeprec-ext plan --replay DIR            makes all recorded decisions again: exit code 1 if one comes out differently
deeprec-ext plan --replay DIR --set …    what another policy would have decided on that history
deeprec-ext plan -- python train.py …    decision 0: the size a script would start with, from the history of jobs
deeprec-ext plan --policy                every setting of the policy with its value and reason
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deeprec_ext.autoscaler.policy.limits import describe
from deeprec_ext.cli.cluster.target import add_options, cluster_of, on_cluster
from deeprec_ext.cli.decisions import predicted, what
from deeprec_ext.cli.job import directory_of, print_json, require_running
from deeprec_ext.errors import UsageError
from deeprec_ext.launch.client import JobClient
from deeprec_ext.rundir import RunDirectory
from deeprec_ext.units import counted, format_seconds

if TYPE_CHECKING:
    from deeprec_ext.autoscaler.policy.decision import Decision
    from deeprec_ext.autoscaler.policy.replay import Replayed
    from deeprec_ext.autoscaler.policy.thresholds import Policy

_SHOWN_MAX = 20
"""Differences shown in full."""


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "plan", help="show what would be decided, and why; replay recorded decisions",
        usage="deeprec-ext plan [[-n NAMESPACE] JOB | --replay DIR | --policy | -- python train.py ...] [--set NAME=VALUE] "
        "[--json]",
        formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__,
    )  # fmt: skip
    parser.add_argument("words", nargs="*", metavar="JOB", help="a running job; or, after --, the command that trains")
    parser.add_argument("--replay", type=Path, metavar="DIR", help="make the decisions recorded in it again")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", dest="changes", help="a setting of the policy"
    )
    parser.add_argument("--policy", action="store_true", help="list the settings of the policy")
    parser.add_argument("--json", action="store_true", help="as JSON")
    add_options(parser)


def run(arguments: argparse.Namespace) -> int:
    from deeprec_ext.autoscaler.policy.thresholds import parse

    given = [bool(arguments.words), arguments.replay is not None, arguments.policy]
    if sum(given) != 1:
        raise UsageError("plan: give one of: a run directory, --replay DIR, --policy, or -- python train.py ...")
    policy = parse(arguments.changes)
    if cluster_of(arguments) is not None:
        return of_tfjob(arguments)
    if arguments.policy:
        return show_policy(policy, arguments.json)
    if arguments.replay is not None:
        return replayed(arguments.replay, policy if arguments.changes else None, arguments.json)
    if len(arguments.words) == 1 and Path(arguments.words[0]).is_dir():
        arguments.job = Path(arguments.words[0])
        return running(directory_of(arguments), policy if arguments.changes else None, arguments.json)
    if len(arguments.words) == 1:
        raise UsageError(f"{arguments.words[0]}: no such run directory; a script is given as -- python train.py ...")
    if arguments.changes:
        raise UsageError("plan: --set changes nothing before the start: the first size comes from the history of jobs")
    return before_the_start(arguments.words, arguments.json)


def of_tfjob(arguments: argparse.Namespace) -> int:
    if len(arguments.words) != 1:
        raise UsageError("plan: of a cluster only a running TFJob can be planned; leave the namespace out for the rest")
    arguments.job = Path(arguments.words[0])
    code = on_cluster("forwarding", arguments)
    assert code is not None
    return code


# ------------------------------------------------------------------------------------------------ a running job


def running(directory: RunDirectory, policy: Policy | None, as_json: bool) -> int:
    """With the job's own policy the AIMaster is asked; with another one the newest recorded observation is decided anew."""
    if policy is None:
        (decision, observation), source = asyncio.run(_preview(require_running(directory))), "now"
    else:
        decision, observation, source = _from_record(directory.path, policy)
    if as_json:
        print_json({"observed": source, **json.loads(decision.to_json()), "observation": json.loads(observation)})
    else:
        print_decision(decision, source)
    return 0


async def _preview(directory: RunDirectory) -> tuple[Decision, str]:
    from deeprec_ext.autoscaler.policy.decision import Decision

    async with JobClient.of(directory) as client:
        decision, observation = await client.preview()
        return Decision.from_json(decision), observation


def _from_record(path: Path, policy: Policy) -> tuple[Decision, str, str]:
    from deeprec_ext.autoscaler.policy.decide import decide
    from deeprec_ext.autoscaler.policy.record import latest

    entry = latest(path)
    ago = f"{format_seconds(max(0.0, time.time() - entry.at))} ago, as recorded"
    return decide(entry.observed, policy), entry.observed.to_json(), ago


def print_decision(decision: Decision, source: str) -> None:
    from rich.text import Text

    from deeprec_ext.cli.console import Console

    console = Console(highlight=False, soft_wrap=True)
    console.print(Text(what(decision), style="bold"), Text(f"(observed {source})", style="dim"))
    console.print(Text(decision.reason))
    if figures := predicted(decision):
        console.print(
            Text(f"{figures}; pause {format_seconds(decision.prediction.pause_seconds)}, done in "
                 f"{format_seconds(decision.prediction.change_seconds)}, confidence {decision.prediction.confidence:.0%}")
        )  # fmt: skip


# ------------------------------------------------------------------------------------------------ a record


def replayed(path: Path, policy: Policy | None, as_json: bool) -> int:
    """1 when a decision comes out differently with the policy it was made with; another policy may decide as it likes."""
    from deeprec_ext.autoscaler.policy.record import read
    from deeprec_ext.autoscaler.policy.replay import replay

    results = replay(read(path), policy)
    other = [one for one in results if not one.same]
    if as_json:
        print_json({
            "decisions": len(results), "different": len(other), "policy": "another" if policy is not None else "as recorded",
            "differences": [_difference(one) for one in other],
        })  # fmt: skip
    else:
        _print_replayed(results, other, policy is not None)
    return 1 if other and policy is None else 0


def _difference(one: Replayed) -> dict[str, Any]:
    return {
        "number": one.entry.decision.number, "time": one.entry.decision.time, "observation_damaged": one.damaged,
        "fields": {name: {"recorded": old, "now": new} for name, (old, new) in one.differences.items()},
    }  # fmt: skip


def _print_replayed(results: Sequence[Replayed], other: Sequence[Replayed], another: bool) -> None:
    from rich.text import Text

    from deeprec_ext.cli.console import Console

    console = Console(highlight=False, soft_wrap=True)
    for one in other[:_SHOWN_MAX]:
        old, new = one.entry.decision, one.decision
        console.print(Text(f"decision {old.number} at {format_seconds(old.time)}:", style="bold"))
        if one.damaged:
            console.print("  the observation is not the one it was made from: the record was changed")
        console.print(Text(f"  recorded  {what(old)}: {old.reason}"))
        console.print(Text(f"  now       {what(new)}: {new.reason}"))
        if (what(old), old.reason) == (what(new), new.reason):
            console.print(Text(f"  differs in {', '.join(one.differences)}"))
    if len(other) > _SHOWN_MAX:
        console.print(f"and {len(other) - _SHOWN_MAX} more; --json has them all")
    by = "by the policy given" if another else "as they were recorded"
    total = counted(len(results), "decision")
    console.print(f"{total} {by}: {len(results) - len(other)} the same, {len(other)} different")


# ------------------------------------------------------------------------------------------------ the policy


def show_policy(policy: Policy, as_json: bool) -> int:
    from deeprec_ext.autoscaler.policy.thresholds import describe

    lines = describe(policy)
    if as_json:
        print_json([{"name": n, "value": v, "default": d, "reason": why} for n, v, d, why in lines])
        return 0
    from rich.table import Table

    from deeprec_ext.cli.console import Console

    table = Table(box=None, header_style="dim")
    for title in ("setting", "value", "reason"):
        table.add_column(title, justify="right" if title == "value" else "left", overflow="fold")
    for name, value, default, why in lines:
        table.add_row(name, f"{value:g}" + ("" if value == default else f" (default {default:g})"), why)
    Console(wide=160, highlight=False).print(table)
    return 0


# ------------------------------------------------------------------------------------------------ before the start


def before_the_start(words: Sequence[str], as_json: bool) -> int:
    """What `deeprec-ext run --autoscale -- …` would start with."""
    from rich.text import Text

    from deeprec_ext.cli import run as run_command
    from deeprec_ext.cli.console import Console

    parser = argparse.ArgumentParser(prog="deeprec-ext run")
    run_command.add_arguments(parser)
    start = run_command.make_plan(parser.parse_args(["--autoscale", "--", *words])).start
    assert start is not None, "no size was named"
    if as_json:
        print_json(dataclasses.asdict(start))
        return 0
    console = Console(highlight=False, soft_wrap=True)
    console.print(Text(f"start with {describe(start.size)}", style="bold"))
    console.print(Text(start.reason))
    return 0
