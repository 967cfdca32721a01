"""`deeprec-ext queue`: the jobs that share a cluster or a machine: what each has, what the arbiter allows it, and why.

deeprec-ext queue                       the pools of this machine (`run --pool`); where there are none, the kubeconfig's cluster
deeprec-ext queue --pool NAME           one of them
deeprec-ext queue --pool NAME --set JOB priority=500       from now on
deeprec-ext queue -n NAMESPACE          the cluster's TFJobs (`kubectl deeprec queue`)
deeprec-ext queue --replay FILE         an arbiter's record (a pool's, or `operator --arbiter-record`), decided again
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib
import json
import os
import shutil
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deeprec_ext.arbiter.observed import Allowance, Cluster, Decision, Job
from deeprec_ext.cli.cluster.target import Target, add_options, cluster_of
from deeprec_ext.errors import UsageError
from deeprec_ext.launch.pool import changing
from deeprec_ext.launch.pool.entry import PoolSize
from deeprec_ext.launch.pool.places import PoolDirectory, pools_directory
from deeprec_ext.launch.pool.seen import Seen, look, observed, standing, stands
from deeprec_ext.printable import printable_lines
from deeprec_ext.units import counted, parse_cores
from deeprec_ext.wholefiles import write

if TYPE_CHECKING:
    from deeprec_ext.arbiter.record import Replayed

WATCH_SECONDS = 1.0
REPLAYED_SHOWN = 20
WIDTH_LEAST = 60
"""Columns: a narrower terminal wraps lines itself."""


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "queue", help="the jobs that share a cluster, or this machine: what each has and may have, and why",
        formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__,
    )  # fmt: skip
    parser.add_argument("--pool", metavar="NAME", help="of this machine: this pool alone")
    add_options(parser, "TFJobs of this one only")
    parser.add_argument(
        "--set", nargs="+", metavar=("JOB", "KEY=VALUE"),
        help="of a pool: from now on the job has this priority, this weight, or both, until it ends; a TFJob has its "
        "PriorityClass and annotation for that",
    )  # fmt: skip
    parser.add_argument("--pool-cores", metavar="CORES", help="from now on the pool has so many")
    parser.add_argument("--dry-run", action="store_true", help="of --set and --pool-cores: say what would be changed")
    parser.add_argument("--watch", action="store_true", help="again each second, until Ctrl-C")
    parser.add_argument("--json", action="store_true", help="as JSON; with --watch one line each second")
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="of a pool: write a page of what its jobs have had, from its record"
    )
    parser.add_argument(
        "--replay", type=Path, metavar="FILE",
        help="make all decisions of this record again, and show which come out differently with this release; exit code 1 "
        "if one does",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    target = cluster_of(arguments)
    changes = arguments.set is not None or arguments.pool_cores is not None
    if arguments.replay is not None:
        others = (changes, arguments.dry_run, arguments.watch, arguments.html, arguments.pool, target)
        if any(one not in (None, False) for one in others):
            raise UsageError("queue: --replay reads a record and no more; leave out all but --json")
        return replayed(arguments.replay, arguments.json)
    if arguments.dry_run and not changes:
        raise UsageError("queue: --dry-run is about what --set and --pool-cores would change; leave it out")
    if changes and target is not None:
        raise UsageError(_OF_A_CLUSTER)
    if changes and arguments.pool is None:
        raise UsageError("queue: --set and --pool-cores change a pool of this machine; name it with --pool")
    if arguments.pool is not None:
        if target is not None:
            raise UsageError("queue: --pool is of this machine; leave it out for a cluster")
        return change(arguments) if changes else _of_pools(arguments)
    if target is None and not pools() and _has_kubeconfig():
        target = Target()
    if target is None:
        return _of_pools(arguments)
    if arguments.html is not None:
        raise UsageError("queue: --html is of a pool of this machine; name it with --pool")
    module = importlib.import_module("deeprec_ext.cli.cluster.queue")
    return target.run(functools.partial(module.run, arguments))


_OF_A_CLUSTER = (
    "queue: --set and --pool-cores change a pool of this machine. A TFJob's weight is an annotation, obeyed while it runs "
    "(kubectl annotate --overwrite tfjob JOB aimaster.deeprec.io/weight=2); its priority is its pods' PriorityClass"
)


def _has_kubeconfig() -> bool:
    return bool(os.environ.get("KUBECONFIG")) or (Path.home() / ".kube" / "config").exists()


def pools() -> list[PoolDirectory]:
    """Those of this user on this machine that have jobs."""
    try:
        names = sorted(one.name for one in pools_directory().iterdir())
    except OSError:
        return []
    found = [PoolDirectory(pools_directory() / name) for name in names]
    return [one for one in found if look(one, time.time()).entries]


@dataclass(frozen=True)
class View:
    """Of a pool at one moment."""

    pool: PoolDirectory
    seen: Seen
    cluster: Cluster
    decision: Decision

    @property
    def size(self) -> PoolSize:
        return self.seen.size or PoolSize(0.0, 0)

    @staticmethod
    def cores_of(job: Job) -> float:
        """That its processes count for."""
        return sum(float(getattr(job.pods, pod.role).cpu) for pod in job.placed)


def view(pool: PoolDirectory, now: float) -> View:
    """With what each may have at this moment. Where nobody has decided yet nothing is allowed."""
    seen = look(pool, now)
    cluster = observed(seen, now)
    told = [seen.given.get(job.name) or _undecided(job) for job in cluster.jobs]
    decided = seen.decision
    time_, share = (decided.time, decided.used_share) if decided is not None else (now, 0.0)
    return View(pool, seen, cluster, Decision(time_, tuple(told), (), share))


def _undecided(job: Job) -> Allowance:
    return Allowance(job.name, False, 0, 0, job.arrived, "nothing is decided yet")


def _of_pools(arguments: argparse.Namespace) -> int:
    chosen = [_pool(arguments.pool)] if arguments.pool is not None else pools()
    if arguments.html is not None:
        if arguments.json or arguments.watch:
            raise UsageError(
                f"queue: --html writes a page and no more; leave out {'--json' if arguments.json else '--watch'}"
            )
        return _write_page(chosen, arguments.html)
    if not arguments.watch:
        _show(chosen, arguments.json)
        return 0
    while True:
        if not arguments.json and sys.stdout.isatty():
            print("\033[H\033[2J", end="")
        _show(chosen if arguments.pool is not None else pools(), arguments.json, one_line=True)
        time.sleep(WATCH_SECONDS)


def _pool(name: str) -> PoolDirectory:
    """Raises UsageError: there is none, or none that is to be read."""
    pool = PoolDirectory.of(name)
    pool.check()
    if not pool.path.is_dir():
        raise UsageError(f"queue: no job of yours has named the pool {name}; there are {_named(pools_directory())}")
    return pool


def change(arguments: argparse.Namespace) -> int:
    """What `--set` and `--pool-cores` say; both are checked before one is done."""
    if arguments.watch or arguments.html is not None:
        raise UsageError(f"queue: {'--watch' if arguments.watch else '--html'} shows a pool; change it without")
    pool, now = _pool(arguments.pool), time.time()
    seen, told = look(pool, now), list[str]()
    values: dict[str, Any] = {"pool": pool.name, "dry_run": arguments.dry_run}
    entry = changes = size = None
    if arguments.set is not None:
        changes, entry = changing.changes_of(arguments.set[1:]), changing.find(pool, seen, arguments.set[0])
        after = changes.of(entry)
        told.append(f"{entry.job}: priority {_both(entry.priority, after.priority)}, "
                    f"weight {_both(entry.weight, after.weight)}")  # fmt: skip
        values |= {"job": entry.job, "priority": after.priority, "weight": after.weight}
    if arguments.pool_cores is not None:
        try:
            cores = parse_cores(arguments.pool_cores)
        except ValueError as error:
            raise UsageError(f"--pool-cores {error}") from None
        size = changing.resized(pool, seen, cores)
        told.append(f"pool {pool.name}: {_both(seen.size.cores if seen.size else 0.0, size.cores)} cores")
        told += changing.consequences(seen, size)
        values |= {"cores": size.cores}
    if not arguments.dry_run:
        if entry is not None and changes is not None:
            changing.change_job(pool, entry, changes)
        if size is not None:
            changing.change_size(pool, size)
    if arguments.json:
        print(json.dumps({**values, "told": told}, indent=2))
    else:
        print(printable_lines("\n".join([*told, *(["nothing was changed (--dry-run)"] if arguments.dry_run else [])])))
    return 0


def _both(before: float, after: float) -> str:
    first, second = (str(one) if isinstance(one, int) else f"{one:g}" for one in (before, after))
    return first if before == after else f"{first} → {second}"


def _named(directory: Path) -> str:
    try:
        names = sorted(one.name for one in directory.iterdir())
    except OSError:
        names = []
    return ", ".join(names[:20]) or "none"


def _show(chosen: Sequence[PoolDirectory], as_json: bool, one_line: bool = False) -> None:
    views = [view(pool, time.time()) for pool in chosen]
    if as_json:
        values = {"pools": [as_values(one) for one in views]}
        print(json.dumps(values, indent=None if one_line else 2), flush=True)
        return
    if not views:
        print("no job runs in a pool of this machine: `deeprec-ext run --pool NAME …` starts one")
    for one in map(shortly, views):
        print("\n".join(wrapped([headline(one)])))
        if one.cluster.jobs:
            print(printable_lines("\n".join(fitted(one.cluster, one.decision))), flush=True)
        if (still := standing(one.seen, time.time())) is not None:
            still = dataclasses.replace(still, job=Path(still.job).name)
            print(printable_lines("\n".join(wrapped([stands(still, time.time())]))), flush=True)


def width() -> int:
    """Of the terminal; where there is none, of one as they were."""
    return max(WIDTH_LEAST, shutil.get_terminal_size().columns)


def wrapped(lines: Sequence[str]) -> list[str]:
    """To the terminal: what goes on is indented."""
    return [
        part for line in lines for part in textwrap.wrap(line, width(), subsequent_indent="  ", break_on_hyphens=False)
    ]


def fitted(cluster: Cluster, decision: Decision) -> list[str]:
    """The table, as wide as the terminal, without the lines on nodes."""
    from deeprec_ext.arbiter.telling import summary, table

    return table(cluster, decision, width=width()).splitlines()[len(summary(cluster, decision)) :]


def shortly(one: View) -> View:
    """With the last part of the run directories in place of their paths, where that tells them apart."""
    ends = Counter(Path(job.name).name for job in one.cluster.jobs)
    short = {job.name: Path(job.name).name for job in one.cluster.jobs if ends[Path(job.name).name] == 1}

    def said(text: str) -> str:
        for name in sorted(short, key=len, reverse=True):
            text = text.replace(name, short[name])
        return text

    jobs = tuple(dataclasses.replace(job, name=said(job.name)) for job in one.cluster.jobs)
    told = tuple(dataclasses.replace(it, job=said(it.job), why=said(it.why)) for it in one.decision.allowances)
    return dataclasses.replace(
        one,
        cluster=dataclasses.replace(one.cluster, jobs=jobs),
        decision=dataclasses.replace(one.decision, allowances=told),
    )


def as_values(one: View) -> dict[str, Any]:
    from deeprec_ext.arbiter.telling import rows

    return {
        "pool": one.pool.name, "directory": str(one.pool.path), "cores": one.size.cores, "memory_bytes": one.size.memory_bytes,
        "used_cores": used(one), "jobs": rows(one.cluster, one.decision),
    }  # fmt: skip


def headline(one: View) -> str:
    """`pool ads: 3 of 4 cores in use, 2 jobs`."""
    return f"pool {one.pool.name}: {used(one):g} of {one.size.cores:g} cores in use, {counted(len(one.cluster.jobs), 'job')}"


def used(one: View) -> float:
    """Cores that its processes count for."""
    return sum(one.cores_of(job) for job in one.cluster.jobs)


def _write_page(chosen: Sequence[PoolDirectory], path: Path) -> int:
    if len(chosen) != 1:
        raise UsageError("queue: a page is of one pool; name it with --pool")
    from deeprec_ext.arbiter.page import page
    from deeprec_ext.arbiter.record import recorded

    if path.is_dir() or not path.parent.is_dir():
        what = "is a directory" if path.is_dir() else f"there is no directory {path.parent}"
        raise UsageError(f"--html {path}: {what}; name a file to be written")
    pool, now = chosen[0], time.time()
    lasts = bool(look(pool, now).entries)  # what was decided last holds while there is somebody
    told = [(cluster, decision) for cluster, _, decision in recorded(pool.record)]
    text = page(f"pool {pool.name}", told, now if lasts else 0.0)
    try:
        write(path, text)
    except OSError as error:
        raise UsageError(f"--html {path}: cannot be written ({error.strerror or error}); choose another") from None
    print(f"written: {path}")
    return 0


def replayed(path: Path, as_json: bool) -> int:
    """1: a decision comes out differently, by the rules it was made with."""
    from deeprec_ext.arbiter.record import replay

    count, other = 0, list[dict[str, Any]]()
    for count, one in enumerate(replay(path), 1):
        if not one.same:
            other.append(_difference(count, one))
    if as_json:
        print(json.dumps({"decisions": count, "different": len(other), "differences": other}, indent=2))
        return 1 if other else 0
    lines = []
    for each in other[:REPLAYED_SHOWN]:
        lines.append(
            f"decision {each['number']} at {each['time']:.1f}:" + ("" if each["jobs"] else " its use of cores")
        )
        for job in each["jobs"]:
            lines += [
                f"  {job['job']}",
                *(f"    {when:8}  {_size(job[when])}: {job[when]['why']}" for when in ("recorded", "now")),
            ]
    more = len(other) - REPLAYED_SHOWN
    lines += [f"and {more} more; --json has them all"] if more > 0 else []
    print(printable_lines("\n".join([*lines, f"{count - len(other)} of {count} decisions come out the same"])))
    return 1 if other else 0


def _difference(number: int, one: Replayed) -> dict[str, Any]:
    jobs = [{"job": job, "recorded": vars(old), "now": vars(new)} for job, (old, new) in one.differences.items()]
    return {"number": number, "time": one.recorded.time, "jobs": jobs}


def _size(allowance: dict[str, Any]) -> str:
    return f"{allowance['ps']} PS, {counted(allowance['workers'], 'worker')}" if allowance["runs"] else "waits"
