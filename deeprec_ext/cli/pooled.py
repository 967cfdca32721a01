"""`run --pool`: a job that shares this machine with others of its user, from its flags until it starts."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import sys
import time
from collections.abc import Iterator

from deeprec_ext.arbiter.observed import Count
from deeprec_ext.bounds import real, whole
from deeprec_ext.cli.display import Plain
from deeprec_ext.errors import UsageError
from deeprec_ext.launch.interrupts import Interrupts, leave_gone_terminal
from deeprec_ext.launch.plan import RunPlan
from deeprec_ext.launch.pool.entry import Asked, Entry, entry_of, needed
from deeprec_ext.launch.pool.membership import Membership, room, share
from deeprec_ext.launch.pool.places import PoolDirectory, check_name
from deeprec_ext.launch.pool.seen import look
from deeprec_ext.launch.roles.registry import LOCAL
from deeprec_ext.units import counted, parse_cores, parse_duration, sized


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pool", metavar="NAME",
        help="jobs of one user that name the same pool share this machine's cores: each has what the arbiter allows it, and "
        "waits until it may start; `deeprec-ext queue` shows them",
    )  # fmt: skip
    parser.add_argument(
        "--priority", type=whole("number"), metavar="N",
        help="in the pool: who is higher starts first, and has first what is beyond everybody's least (--min-workers, "
        "--min-ps); nobody has more before all have that (default 0)",
    )  # fmt: skip
    parser.add_argument(
        "--weight", type=real("number"), metavar="X", help="its share among jobs of one priority (default 1)"
    )
    parser.add_argument(
        "--pool-cores",
        metavar="CORES",
        help="what the pool has, said by its first job (default: what this process may use)",
    )
    parser.add_argument(
        "--max-wait", metavar="DURATION", help="give up where the pool has no room within 90s, 10m, 2h (default: never)"
    )


def asked(arguments: argparse.Namespace) -> Asked | None:
    """Raises UsageError."""
    given = ("priority", "weight", "pool_cores", "max_wait")
    if arguments.pool is None:
        said = [f"--{name.replace('_', '-')}" for name in given if getattr(arguments, name) is not None]
        if said:
            raise UsageError(f"{said[0]} is about jobs that share this machine: name their --pool too")
        return None
    check_name(arguments.pool)
    if arguments.backend != LOCAL:
        raise UsageError(
            f"--pool shares the cores of this machine; --backend {arguments.backend} has a queue of its own"
        )
    if arguments.weight is not None and not arguments.weight > 0:
        raise UsageError(f"--weight {arguments.weight:g}: must be more than 0")
    try:
        cores = parse_cores(arguments.pool_cores) if arguments.pool_cores is not None else 0.0
    except ValueError as error:
        raise UsageError(f"--pool-cores {error}") from None
    if arguments.pool_cores is not None and not cores:
        raise UsageError(
            "--pool-cores 0: no job would ever have room; leave it out, and it is what this process may use"
        )
    try:
        wait = parse_duration(arguments.max_wait) if arguments.max_wait is not None else 0.0
    except ValueError as error:
        raise UsageError(f"--max-wait: {error}") from None
    weight = 1.0 if arguments.weight is None else arguments.weight
    return Asked(arguments.pool, cores, arguments.priority or 0, weight, wait)


@contextlib.contextmanager
def membership(plan: RunPlan) -> Iterator[Membership | None]:
    """In the plan's pool, until the job has ended. Raises UsageError."""
    if plan.pool is None:
        yield None
        return
    with contextlib.closing(Membership(PoolDirectory.of(plan.pool.name), _entry(plan, plan.pool))) as member:
        member.join(plan.pool.cores)
        member.begin()
        yield member


def _entry(plan: RunPlan, pool: Asked) -> Entry:
    return entry_of(
        str(plan.directory.path),
        plan.limits,
        plan.requests,
        priority=pool.priority,
        weight=pool.weight,
        now=time.time(),
        autoscaled=plan.values.autoscale,
        deadline_seconds=plan.values.deadline_seconds,
    )


def described(plan: RunPlan, pool: Asked) -> str:
    """For a dry run: who is in the pool, and what they share. Nothing is written. Raises UsageError where the job could never
    be one of them."""
    directory, entry = PoolDirectory.of(pool.name), _entry(plan, pool)
    directory.check()
    seen = look(directory, time.time())
    cores = share(directory, entry, seen, pool.cores).cores
    most, least = needed(entry, entry.written).cpu, needed(entry, entry.least).cpu
    others = counted(len(seen.entries), "other job")
    return f"pool {pool.name}: {cores:g} cores, {others}; this one asks for {most:g}, and needs {least:g} to start"


def with_room(
    plan: RunPlan, member: Membership | None, arguments: argparse.Namespace, interrupts: Interrupts
) -> RunPlan | None:
    """The plan, with the size that its pool allows. None: it was interrupted before. Raises NoRoomError."""
    if member is None or plan.pool is None:
        return plan
    stream = sys.stderr if arguments.json else sys.stdout
    say = (lambda line: None) if arguments.quiet else Plain(stream).say
    allowance = room(member, plan.pool, interrupts=interrupts.names, say=say)
    if allowance is None:
        leave_gone_terminal()
        line = f"stopped while it waited for room in the pool {plan.pool.name}; nothing was started"
        print(f"deeprec-ext: {line}", file=sys.stderr)
        if arguments.json:
            print(json.dumps({"error": line}))
        return None
    member.start(allowance)
    started = dataclasses.replace(plan, allowed=Count(allowance.ps, allowance.workers))
    limits, first = plan.limits, started.first
    if first != Count(limits.ps, limits.workers):
        what, whole = sized(first.ps, first.workers), sized(limits.ps, limits.workers)
        say(f"starts with {what} instead of {whole}, for want of room in the pool {plan.pool.name}: {allowance.why}")
    return started
