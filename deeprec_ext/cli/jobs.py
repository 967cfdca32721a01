"""`deeprec-ext jobs`: several jobs that have ended: what ran, what it wasted, what its decisions brought.

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
from deeprec_ext.cli.cluster.target import Target, add_options, cluster_of
from deeprec_ext.cli.job import print_json
from deeprec_ext.errors import UsageError
from deeprec_ext.gazer.report.words import moment, number
from deeprec_ext.history import words
from deeprec_ext.history.client import SCHEME, service_at
from deeprec_ext.history.record import Kept
from deeprec_ext.units import format_seconds

LIMIT, LIMIT_MAX = 20, 100
INSTALLED_IN = "deeprec-ext"
"""As the manifests have it."""


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "jobs", help="several jobs: what ran, what it wasted, what its decisions brought",
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
        "--installed-in", metavar="NAMESPACE", default=INSTALLED_IN, help=f"where that runs (default {INSTALLED_IN})"
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
    where, namespace, script = arguments.history, arguments.namespace, arguments.script
    if where is not None and where.startswith(SCHEME):
        service = service_at(where, arguments.history_certs)
        return service.jobs(script=script, namespace=namespace, before=arguments.before, limit=arguments.limit)
    if where is not None and "://" in where:
        return _of_database(arguments)
    if namespace is not None:
        raise UsageError("jobs: the file of one user knows no namespaces; name a service or a database with --history")
    return _of_file(default_path() if where is None else Path(where).expanduser(), arguments)


def _of_database(arguments: argparse.Namespace) -> tuple[list[Kept], str]:
    from deeprec_ext.aimaster.core.extras import require

    require("history", f"--history {arguments.history.partition(':')[0]}:")
    from deeprec_ext.history.database import Database

    with contextlib.closing(Database(arguments.history, read_only=True)) as database:
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

    console = Console(wide=220, highlight=False)
    if found:
        _show_table(console, found)
    else:
        console.print("no job has ended yet" if not following else "none of these can be read")
    if following:
        console.print(Text(f"older ones: --before {following}", style="dim"))


def _show_table(console: Any, found: list[Kept]) -> None:
    from rich.table import Table
    from rich.text import Text

    namespaces = any(one.namespace for one in found)
    table = Table(box=None, header_style="dim")
    titles = [
        "job", *(["namespace"] if namespaces else []), "script", "ended", "state", "took", "examples/s", "sizes", "idle CPU",
        "idle memory", "what its decisions brought",
    ]  # fmt: skip
    for title in titles:
        right = title in ("took", "examples/s", "idle CPU", "idle memory")
        table.add_column(title, justify="right" if right else "left", overflow="fold")
    for one in found:
        job, use = one.job, one.job.use
        cpu = words.idle_share(use.cpu_idle_core_seconds, use.cpu_held_core_seconds)
        memory = words.idle_share(use.memory_idle_byte_seconds, use.memory_held_byte_seconds)
        rate = job.brought.examples_per_second
        cells = [
            job.name or f"job {one.number}", *([one.namespace] if namespaces else []), job.script,
            moment(job.finished).removesuffix(" UTC")[:16], job.status, format_seconds(job.seconds),
            number(rate) if rate else words.NOT_KNOWN, words.sizes(job), words.percent(cpu), words.percent(memory),
            words.brought(job),
        ]  # fmt: skip
        table.add_row(*map(Text, cells))
    console.print(table)
    console.print(Text(_last_line(found), style="dim"))


def _last_line(found: list[Kept]) -> str:
    sums = words.totals([one.job for one in found])
    idle = f", {words.percent(sums.cpu_idle)} of the requested CPU idle" if sums.cpu_idle is not None else ""
    saved = f"; changes of size saved {words.saved(sums.saved_seconds)}" if sums.changes else ""
    return f"{sums.jobs} jobs, {words.core_hours(sums.cpu_core_seconds)} used{idle}{saved}"
