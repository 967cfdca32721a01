"""`deeprec-ext estimate -- python train.py`: what a script would start with and use, from the model that it declares.

The script runs until its graph is finished, and is ended: nothing is initialised, trained or written. Flags are those of `run`
that say how large a job may become.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deeprec_ext.autoscaler.history.estimates import NAMES, Estimates, estimate, known, lines
from deeprec_ext.autoscaler.history.history import Finished
from deeprec_ext.autoscaler.history.start import Start, first_size
from deeprec_ext.autoscaler.model.memory_model import Layout
from deeprec_ext.autoscaler.observe.features import declared_model, fingerprint_of
from deeprec_ext.autoscaler.observe.observed import Model
from deeprec_ext.autoscaler.policy.limits import describe
from deeprec_ext.cli import run as run_command
from deeprec_ext.cli.job import print_json
from deeprec_ext.errors import UsageError
from deeprec_ext.gazer.host import free_memory_bytes, machine, processors
from deeprec_ext.launch.estimating import declared
from deeprec_ext.launch.plan import RunPlan
from deeprec_ext.launch.records.history import bounds_of, readable_jobs, size_of, started
from deeprec_ext.options import OTHERS, Sizes, rows
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.units import counted, format_bytes, format_seconds, parse_duration

LIMIT = "10m"


@dataclass(frozen=True)
class Estimate:
    model: Model
    declaration: pb.Declaration
    start: Start
    estimates: Estimates  # at the size that the job would start with


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "estimate", help="say what a script would start with and use; train nothing",
        usage="deeprec-ext estimate [flags] -- python train.py ...",
        formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__,
    )  # fmt: skip
    for row in (*rows(Sizes), *OTHERS):
        if row.flag and row.name not in ("ps", "workers", "evaluator"):
            row.add_flag(parser)
    parser.add_argument("--ps", "--workers", dest="counts", action=_Count, help=argparse.SUPPRESS)
    parser.add_argument("--history", metavar="FILE", help="finished jobs: a file, https://HOST:PORT, or off, as of run")
    parser.add_argument("--history-certs", type=Path, metavar="DIR", help="the certificates of that service")
    parser.add_argument(
        "--limit", default=LIMIT, metavar="DURATION", help=f"how long the script may take (default {LIMIT})"
    )
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument(
        "script", nargs=argparse.REMAINDER, metavar="-- python train.py ...", help="the command that trains"
    )


class _Count(argparse.Action):
    """A flag of `run` that is none here: `run` says why."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option_string: Any = None) -> None:
        namespace.counts = option_string


def run(arguments: argparse.Namespace) -> int:
    if flag := arguments.counts:
        role = flag.strip("-")
        raise UsageError(f"{flag}: how many there will be is estimated; --min-{role} and --max-{role} say between what")
    try:
        limit_seconds = parse_duration(arguments.limit)
    except ValueError as error:
        raise UsageError(f"--limit: {error}") from None
    plan = _plan(arguments)
    if not plan.limits.slots:
        raise UsageError(
            "estimate: a job without PS declares no model; what it would begin with, by jobs of its script, says "
            "deeprec-ext run --strategy allreduce --autoscale --dry-run"
        )
    try:
        declaration = asyncio.run(declared(plan, limit_seconds, tell_waiting))
    except KeyboardInterrupt:
        return run_command.INTERRUPTED
    found = estimated(plan, declaration)
    if arguments.json:
        print_json(as_values(found))
    else:
        print_estimate(found)
    return 0


def tell_waiting(seconds: float, line: str) -> None:
    """On stderr: what the script takes so long with may be its data."""
    said = f"; the last that it has printed: {line}" if line else ""
    print(
        f"deeprec-ext: waiting for the script to declare its model, {format_seconds(seconds)} so far{said}",
        file=sys.stderr,
    )


def _plan(arguments: argparse.Namespace) -> RunPlan:
    """As `run --autoscale` makes it of these flags. Raises UsageError."""
    words = ["--autoscale"]
    for name, value in vars(arguments).items():
        if name not in ("command", "run", "script", "limit", "json", "counts") and value is not None:
            words.append(f"--{name.replace('_', '-')}={value}")  # a value may begin with a dash
    return plan_of(words, arguments.script[1:] if arguments.script[:1] == ["--"] else arguments.script)


def plan_of(flags: Sequence[str], script: Sequence[str]) -> RunPlan:
    """As `run` makes it of these flags. Raises UsageError."""
    if not script:
        raise UsageError(
            "nothing to estimate; put the script behind two dashes: deeprec-ext estimate -- python train.py"
        )
    parser = argparse.ArgumentParser(prog="deeprec-ext estimate")
    run_command.add_arguments(parser)
    return run_command.make_plan(parser.parse_args([*flags, "--", *script]))


def estimated(plan: RunPlan, declaration: pb.Declaration, place: str | None = None) -> Estimate:
    """`place`: the kind of machine where the job will run, as in `Finished`, with cores that nobody knows; None: this one."""
    where, cores = (machine(), float(len(processors()))) if place is None else (place, 0.0)
    slots, backups = plan.limits.slots, plan.values.peer_backup != "off"
    model = declared_model(declaration, slots)
    jobs: Sequence[Finished]
    jobs, why_not = readable_jobs(plan.history, plan.script)
    layout, fingerprint = Layout.of(declaration.catalogue, slots), fingerprint_of(declaration.catalogue)
    checkpoints = not declaration.no_checkpoints

    def begin(jobs: Sequence[Finished], unread: str) -> Start:
        return first_size(
            model, bounds_of(plan.limits, plan.ceilings), jobs, script=plan.script, requests=size_of(plan.requests),
            backups=backups, checkpoints=checkpoints, layout=layout, fingerprint=fingerprint, machine=where, cores=cores,
            free_bytes=free_memory_bytes() if place is None else 0, unread=unread,
        )  # fmt: skip

    start, jobs = started(begin, jobs, why_not)
    estimates = estimate(
        model, start.size, jobs, layout=layout, fingerprint=fingerprint, backups=backups, checkpoints=checkpoints,
        machine=where, cores=cores, computes=declaration.computes,
    )  # fmt: skip
    return Estimate(model, declaration, start, estimates)


def as_values(found: Estimate) -> dict[str, Any]:
    """Figures in bytes, cores, examples per second, by name; `unknown`: those that nobody knows yet, and why. In `model` and
    `start`, null: not known."""
    figures: dict[str, list[dict[str, Any]]] = {name: [] for name in NAMES}
    for one in found.estimates.figures:
        figures[one.name].append(one.to_values())
    unknown = dict(word.split(": ", 1) for word in found.estimates.words)
    start, told = dataclasses.asdict(found.start), known(found.model)
    start["examples_per_second"] = found.start.examples_per_second or None
    model = {name: value if name in told else None for name, value in dataclasses.asdict(found.model).items()}
    return {**figures, "unknown": unknown, "start": start, "model": model}


def print_estimate(found: Estimate) -> None:
    from rich.text import Text

    from deeprec_ext.cli.console import Console

    console = Console(highlight=False, soft_wrap=True)
    for line in model_lines(found.declaration):
        console.print(line)
    console.print(Text(f"start with {describe(found.start.size)}", style="bold"))
    console.print(Text(found.start.reason))
    for line in lines(found.estimates):
        console.print(Text(line))


def model_lines(declaration: pb.Declaration) -> list[str]:
    """What the script has declared, for people."""
    variables, read = declaration.catalogue.variables, declaration.input
    tables = [variable for variable in variables if variable.update == pb.Variable.ROWS]
    whole, unknown = sum(variable.bytes for variable in variables), sum(not one.bytes for one in variables)
    lines = [
        f"variables: {counted(len(variables), 'variable')} of {format_bytes(whole)}, parts and optimizers' own included, "
        f"of which {len(tables)} ({format_bytes(sum(one.bytes for one in tables))}) are updated by rows"
        + (f"; the graph does not tell the size of {unknown}" if unknown else ""),
        f"graph: {declaration.operations:,} operations a step",
    ]
    told = [
        (declaration.batch_size, f"{declaration.batch_size:,} examples a step"),
        (declaration.lookups_per_example, f"{declaration.lookups_per_example:,.4g} rows looked up for an example"),
        (declaration.flops_per_example, f"{declaration.flops_per_example:,.4g} FLOP for an example"),
    ]
    lines.append("step: " + (", ".join(text for value, text in told if value) or "not known before it runs"))
    files = f", {counted(read.files, 'file')} of {format_bytes(read.bytes)}" if read.files else ""
    lines.append(f"input: {read.format or 'of a kind that is not known'}{files}, {counted(read.columns, 'column')}")
    return lines
