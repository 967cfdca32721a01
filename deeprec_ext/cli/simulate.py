"""`deeprec-ext simulate TRACE`: the autoscaler's policy on a simulated cluster, against static sizes on the same trace."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deeprec_ext.bounds import whole
from deeprec_ext.cli.job import print_json
from deeprec_ext.errors import UsageError
from deeprec_ext.units import format_seconds

if TYPE_CHECKING:
    from deeprec_ext.cli.console import Console
    from deeprec_ext.simulator.results import Comparison, Figures
    from deeprec_ext.simulator.simulation import Ended

_TOLD_SECONDS = 2.0
"""Between two lines of progress."""
_WIDTH = 200
"""Columns where there is no terminal."""


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "simulate", help="try the autoscaler's policy on a simulated cluster", description=__doc__,
        epilog="Shipped traces: steady, spot. `--fit DIR` needs no trace: it fits the job model to recorded runs and prints "
        "its error against them.",
    )  # fmt: skip
    parser.add_argument("trace", nargs="?", metavar="TRACE", help="a YAML file, or the name of a shipped trace")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", dest="changes", help="a setting of the policy"
    )
    parser.add_argument(
        "--seed", type=whole("seed"), default=0, metavar="N", help="of noise, hosts and mishaps (default 0)"
    )
    parser.add_argument(
        "--fit", action="append", default=[], type=Path, metavar="DIR",
        help="run directory with recorded decisions: fit the job model to its windows; with a TRACE, all its jobs get it",
    )  # fmt: skip
    parser.add_argument("--jobs", action="store_true", help="also one line per job")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")


def run(arguments: argparse.Namespace) -> int:
    from deeprec_ext.aimaster.core.extras import require
    from deeprec_ext.autoscaler.policy.thresholds import parse

    require("autoscale", "simulate")
    policy = parse(arguments.changes)
    if not arguments.trace and not arguments.fit:
        raise UsageError("simulate: give a trace, or --fit DIR")
    trace = _load(arguments.trace) if arguments.trace else None
    fitted = _fit(arguments.fit) if arguments.fit else None
    values: dict[str, Any] = {}
    if fitted is not None:
        values["fit"] = fitted.to_values()
        if not arguments.json:
            print(fitted.describe())
    if trace is not None:
        from deeprec_ext.simulator.results import compare

        if fitted is not None:
            trace = fitted.in_place_of_models(trace)
        started = time.monotonic()
        comparison, ended = compare(trace, policy, arguments.seed, None if arguments.quiet else _progress())
        values.update(comparison.to_values(), trace=trace.name, seed=arguments.seed)
        if not arguments.json:
            show(comparison, trace.name, time.monotonic() - started)
            if arguments.jobs:
                show_jobs(ended)
    if arguments.json:
        print_json(values)
    return 0


def _load(name: str) -> Any:
    from deeprec_ext.simulator import trace
    from deeprec_ext.simulator.traces import shipped

    return trace.load(shipped(name) if not Path(name).exists() and shipped(name).exists() else Path(name))


def _fit(paths: list[Path]) -> Any:
    from deeprec_ext.simulator.calibration import fit_runs

    return fit_runs(paths)


def _progress() -> Callable[[str, int, int, float], None]:
    told = [time.monotonic()]

    def tell(what: str, done: int, jobs: int, virtual: float) -> None:
        if time.monotonic() - told[0] >= _TOLD_SECONDS:
            told[0] = time.monotonic()
            simulated = f", {format_seconds(virtual)} simulated" if virtual else ""
            print(f"{what}: {done} of {jobs} jobs{simulated}", file=sys.stderr, flush=True)

    return tell


def _console(**options: Any) -> Console:
    from deeprec_ext.cli.console import Console

    return Console(wide=_WIDTH, highlight=False, **options)


def show(comparison: Comparison, name: str, seconds: float) -> None:
    from rich.table import Table

    table = Table(box=None, header_style="dim")
    table.add_column(f"{name}: {comparison.policy.jobs} jobs")
    for title in ("policy", "twice the best static size", "best static size"):
        table.add_column(title, justify="right")
    for title, text in _LINES:
        table.add_row(title, *(text(one) for one in (comparison.policy, comparison.twice, comparison.best)))
    console = _console(soft_wrap=True)
    console.print(table)
    calm = comparison.calm
    console.print(
        f"waste against twice the best size: CPU {comparison.cpu_waste_change:+.0%}, memory "
        f"{comparison.memory_waste_change:+.0%}"
    )
    console.print(
        f"run time of a job ÷ with its best static size: median {comparison.time_ratio:.2f}, "
        f"p90 {comparison.time_ratio_p90:.2f}; ÷ with the fastest static size, at any cost: median "
        f"{comparison.fastest_ratio:.2f}"
    )
    console.print(
        f"{comparison.decisions} decisions; {calm.converged} of {comparison.policy.jobs} jobs converged, median after "
        f"{format_seconds(calm.to_converge)}; then {calm.per_hour:.2f} decisions an hour for throughput or cost, and "
        f"{calm.urgent} in {calm.hours:.0f} hours for mishaps and memory"
    )
    console.print(f"simulated in {format_seconds(seconds)}")


_LINES: tuple[tuple[str, Callable[[Figures], str]], ...] = (
    ("completion (arrival to end), median", lambda one: format_seconds(one.completion_p50)),
    ("completion, p90", lambda one: format_seconds(one.completion_p90)),
    ("run time, mean", lambda one: format_seconds(one.run_seconds)),
    ("end of the last job", lambda one: format_seconds(one.makespan)),
    ("core hours requested", lambda one: f"{one.core_hours:,.0f}"),
    ("core hours wasted", lambda one: f"{one.core_hours_wasted:,.0f}"),
    ("GB hours requested", lambda one: f"{one.memory_gb_hours:,.0f}"),
    ("GB hours wasted", lambda one: f"{one.memory_gb_hours_wasted:,.0f}"),
    ("use of CPU, of memory", lambda one: f"{one.cpu_use:.0%}, {one.memory_use:.0%}"),
    ("deadlines missed, jobs failed", lambda one: f"{one.deadlines_missed}, {one.failed}"),
)


def show_jobs(ended: list[Ended]) -> None:
    from rich.table import Table

    from deeprec_ext.autoscaler.policy.limits import describe

    table = Table(box=None, header_style="dim")
    for title in ("job", "objective", "took", "decisions", "losses", "started with", "ended with"):
        table.add_column(title, justify="right" if title in ("took", "decisions", "losses") else "left")
    for one in ended:
        table.add_row(
            one.work.name, one.work.objective, format_seconds(one.seconds), str(max(0, len(one.decisions) - 1)),
            str(len(one.losses)), describe(one.work.start), describe(one.last),
        )  # fmt: skip
    _console().print(table)
