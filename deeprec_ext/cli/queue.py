"""`deeprec-ext queue`: the jobs that share a cluster or a machine: what each has, what the arbiter allows it, and why.

deeprec-ext queue                       the pools of this machine (`run --pool`); where there are none, the kubeconfig's cluster
deeprec-ext queue --pool NAME           one of them
deeprec-ext queue -n NAMESPACE          the cluster's TFJobs (`kubectl deeprec queue`)
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deeprec_ext.arbiter.observed import Allowance, Cluster, Decision, Job
from deeprec_ext.cli.cluster.target import Target, add_options, cluster_of
from deeprec_ext.errors import UsageError
from deeprec_ext.launch.pool.entry import PoolSize
from deeprec_ext.launch.pool.places import PoolDirectory, pools_directory
from deeprec_ext.launch.pool.seen import Seen, look, observed
from deeprec_ext.printable import printable_lines
from deeprec_ext.units import counted
from deeprec_ext.wholefiles import write

WATCH_SECONDS = 1.0


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "queue", help="the jobs that share a cluster, or this machine: what each has and may have, and why",
        formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__,
    )  # fmt: skip
    parser.add_argument("--pool", metavar="NAME", help="of this machine: this pool alone")
    add_options(parser, "TFJobs of this one only")
    parser.add_argument("--watch", action="store_true", help="again each second, until Ctrl-C")
    parser.add_argument("--json", action="store_true", help="as JSON; with --watch one line each second")
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="of a pool: write a page of what its jobs have had, from its record"
    )


def run(arguments: argparse.Namespace) -> int:
    target = cluster_of(arguments)
    if arguments.pool is not None:
        if target is not None:
            raise UsageError("queue: --pool is of this machine; leave it out for a cluster")
        return _of_pools(arguments)
    if target is None and not pools() and _has_kubeconfig():
        target = Target()
    if target is None:
        return _of_pools(arguments)
    if arguments.html is not None:
        raise UsageError("queue: --html is of a pool of this machine; name it with --pool")
    module = importlib.import_module("deeprec_ext.cli.cluster.queue")
    return target.run(functools.partial(module.run, arguments))


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
    chosen = [PoolDirectory.of(arguments.pool)] if arguments.pool is not None else pools()
    if arguments.pool is not None and not chosen[0].path.is_dir():
        raise UsageError(
            f"queue: no job of yours has named the pool {arguments.pool}; there are {_named(pools_directory())}"
        )
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
    from deeprec_ext.arbiter.telling import summary, table

    if not views:
        print("no job runs in a pool of this machine: `deeprec-ext run --pool NAME …` starts one")
    for one in map(shortly, views):
        print(headline(one))
        if one.cluster.jobs:
            lines = table(one.cluster, one.decision).splitlines()[len(summary(one.cluster, one.decision)) :]
            print(printable_lines("\n".join(lines)), flush=True)


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
    return sum(float(getattr(job.pods, pod.role).cpu) for job in one.cluster.jobs for pod in job.placed)


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
