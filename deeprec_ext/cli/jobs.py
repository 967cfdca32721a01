"""`deeprec-ext jobs`: several jobs that have ended: what ran, what it wasted, what changes of its size brought.

deeprec-ext jobs                                          of this machine's own history
deeprec-ext jobs --history FILE | sqlite:///… | postgresql://…   of another one
deeprec-ext jobs --history https://HOST:PORT --history-certs DIR   of the service of a cluster
deeprec-ext jobs -n NAMESPACE | -A                        the same, asked in the service's pod (`kubectl deeprec jobs`)
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
from pathlib import Path
from typing import Any

from deeprec_ext.autoscaler.history.history import History, HistoryError, default_path
from deeprec_ext.bounds import whole
from deeprec_ext.cli.cluster.target import INSTALLED_IN, Target, add_options, cluster_of
from deeprec_ext.cli.fitting import Column, Fitted
from deeprec_ext.cli.job import print_json
from deeprec_ext.errors import UsageError
from deeprec_ext.gazer.report.words import moment, number
from deeprec_ext.history import words
from deeprec_ext.history.client import Service
from deeprec_ext.history.places import OFF, DatabaseUrl, named
from deeprec_ext.history.record import Kept
from deeprec_ext.printable import printable
from deeprec_ext.units import counted, format_seconds

LIMIT, LIMIT_MAX = 20, 100
WIDTH = 1000
"""Where it is no terminal: of a file or a pipe nothing is left out."""

COLUMNS = (
    Column("job", right=False),
    Column("namespace", rank=5, right=False),
    Column("script", rank=3, right=False),
    Column("ended", rank=4, right=False),
    Column("state", right=False),
    Column("took", rank=1),
    Column(words.MEAN_RATE, rank=2),
    Column("sizes", rank=6, right=False),
    Column("idle CPU", rank=7),
    Column("idle memory", rank=8),
    Column("what changes of its size brought", rank=9, right=False),
)
"""The least important go where a terminal is narrow; words are not broken."""


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "jobs", help="several jobs: what ran, what it wasted, what changes of its size brought",
        formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__,
    )  # fmt: skip
    parser.add_argument(
        "--history", metavar="WHERE", help="a file, a database's URL, or https://HOST:PORT (default: the user's file)"
    )
    parser.add_argument(
        "--history-certs", type=Path, metavar="DIR", help="the certificates with which a service is asked"
    )
    add_options(parser, "jobs of this one only; without --history: of the history of the cluster")
    parser.add_argument(
        "-A", "--all-namespaces", action="store_true", help="jobs of all, of the history of the cluster"
    )
    parser.add_argument(
        "--installed-in",
        metavar="NAMESPACE",
        help=f"where that runs (default: the jobs' namespace, else {INSTALLED_IN})",
    )
    parser.add_argument("--script", help="jobs of this script only, as the list names it")
    parser.add_argument(
        "--limit",
        type=whole("rows"),
        default=LIMIT,
        metavar="N",
        help=f"so many, at most {LIMIT_MAX} (default {LIMIT})",
    )
    parser.add_argument("--before", default="", metavar="PLACE", help="the next page: what the one before has named")
    parser.add_argument("--json", action="store_true", help="as JSON, with everything that is known of each")


def run(arguments: argparse.Namespace) -> int:
    if not 1 <= arguments.limit <= LIMIT_MAX:
        raise UsageError(f"jobs: --limit must lie between 1 and {LIMIT_MAX}")
    if arguments.history is None and (target := _cluster_of(arguments)) is not None:
        from deeprec_ext.cli.cluster import jobs

        return target.run(functools.partial(jobs.run, show, arguments))
    found, following = jobs_of(arguments)
    if arguments.json:
        print_json({
            "jobs": [{"number": one.number, "namespace": one.namespace, **dataclasses.asdict(one.job)} for one in found],
            "totals": dataclasses.asdict(words.totals([one.job for one in found])), "next": following,
        })  # fmt: skip
    else:
        show(found, following)
    return 0


def _cluster_of(arguments: argparse.Namespace) -> Target | None:
    """None: no cluster was named. Raises UsageError."""
    if arguments.all_namespaces and arguments.namespace is not None:
        raise UsageError("jobs: --namespace and --all-namespaces exclude each other")
    found = cluster_of(arguments)
    return Target() if found is None and arguments.all_namespaces else found


def jobs_of(arguments: argparse.Namespace) -> tuple[list[Kept], str]:
    """The newest first, and where the next page begins. Raises HistoryError, UsageError."""
    namespace, script = arguments.namespace, arguments.script
    if arguments.history == OFF:
        raise UsageError(f"jobs: with --history {OFF} no job is kept; leave it out, or name where they are")
    if arguments.history is None and arguments.history_certs is None:
        place: Path | Service | DatabaseUrl = default_path()
    else:
        place = named(arguments.history or "", arguments.history_certs)
    if isinstance(place, Service):
        return place.jobs(script=script, namespace=namespace, before=arguments.before, limit=arguments.limit)
    if isinstance(place, DatabaseUrl):
        return _of_database(place, arguments)
    if namespace is not None:
        raise UsageError("jobs: the file of one user knows no namespaces; name a service or a database with --history")
    return _of_file(place, arguments)


def _of_database(url: DatabaseUrl, arguments: argparse.Namespace) -> tuple[list[Kept], str]:
    from deeprec_ext.aimaster.core.extras import require

    require("history", f"--history {url.text.partition(':')[0]}:")
    from deeprec_ext.history.database import Database

    with contextlib.closing(Database(url.text, read_only=True)) as database:
        return database.jobs(
            namespace=arguments.namespace, script=arguments.script, before=arguments.before, limit=arguments.limit
        )


def _of_file(path: Path, arguments: argparse.Namespace) -> tuple[list[Kept], str]:
    """Numbers are places in the list: a file has no others that stay."""
    if arguments.history is not None and not path.exists():
        raise HistoryError(f"{path}: no such history; give the file that `run --history` was given")
    with contextlib.closing(History(path, read_only=True)) as history:
        every = [one for one in history.jobs() if arguments.script in (None, one.script)]
    if arguments.before and not (arguments.before.isascii() and arguments.before.isdigit()):
        raise UsageError("jobs: --before is what the page before has named")
    begin = int(arguments.before[:9] or 0)
    end = begin + arguments.limit
    found = [Kept(place, "", job) for place, job in enumerate(every[begin:end], begin)]
    return found, str(end) if end < len(every) else ""


def show(found: list[Kept], following: str) -> None:
    from rich.text import Text

    from deeprec_ext.cli.console import Console

    console = Console(wide=WIDTH, highlight=False)
    if found:
        _show_table(console, found)
    else:
        console.print("no job has ended yet" if not following else "none of these can be read")
    if following:
        console.print(Text(f"older ones: --before {following}", style="dim"))


def _show_table(console: Any, found: list[Kept]) -> None:
    from rich.text import Text

    places = [
        place for place, one in enumerate(COLUMNS) if one.title != "namespace" or any(kept.namespace for kept in found)
    ]
    rows = [_row(one) for one in found]
    shown = [[row[place] for place in places] for row in rows]
    console.print(Fitted([COLUMNS[place] for place in places], shown, told=True))
    console.print(Text(_last_line(found), style="dim"))


def _row(one: Kept) -> list[str]:
    job, use = one.job, one.job.use
    cpu = words.idle_share(use.cpu_idle_core_seconds, use.cpu_held_core_seconds)
    memory = words.idle_share(use.memory_idle_byte_seconds, use.memory_held_byte_seconds)
    rate = job.brought.examples_per_second
    return [
        printable(text) for text in (
            job.name or f"job {one.number}", one.namespace, job.script, moment(job.finished).removesuffix(" UTC")[:16],
            job.status, format_seconds(job.seconds), number(rate) if rate else words.NOT_KNOWN, words.sizes(job),
            words.percent(cpu), words.percent(memory), words.brought(job),
        )
    ]  # fmt: skip


def _last_line(found: list[Kept]) -> str:
    sums = words.totals([one.job for one in found])
    idle = f", {words.percent(sums.cpu_idle)} of the requested CPU idle" if sums.cpu_idle is not None else ""
    saved = f"; changes of size saved {words.saved(sums.saved_seconds)}" if sums.changes else ""
    return f"{counted(sums.jobs, 'job')}, {words.core_hours(sums.cpu_core_seconds)} used{idle}{saved}"
