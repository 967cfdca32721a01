"""What there is of a pool, and the same as the arbiter sees it: one node, and the jobs on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from deeprec_ext.arbiter.observed import Allowance, Bid, Cluster, Decision, Job, Node, Placed, Worth
from deeprec_ext.bounds import MOST
from deeprec_ext.decoding import built
from deeprec_ext.launch.pool.entry import FRESH_SECONDS, Changes, Entry, PoolSize, alive, this_machine
from deeprec_ext.launch.pool.places import PoolDirectory, trusted
from deeprec_ext.units import format_seconds

NODE = "machine"

URGE = 1.03
"""Times the throughput, of one process more; above `Rules.gain_least`."""

T = TypeVar("T")


@dataclass(frozen=True)
class Seen:
    """Of one moment. Bids and what was given by the names of the jobs."""

    size: PoolSize | None  # None: nobody has said it yet
    entries: tuple[Entry, ...] = ()  # of launchers that live, in the order in which they came
    dead: tuple[Entry, ...] = ()
    bids: Mapping[str, Bid] = field(default_factory=dict)
    given: Mapping[str, Allowance] = field(default_factory=dict)
    terms: Mapping[str, int] = field(default_factory=dict)  # in which leaders gave it
    decision: Decision | None = None  # the last one


def read(kind: type[T], path: Path) -> T | None:
    """None: there is none, or none that can be read."""
    try:
        return built(kind, trusted(path), newer=True)
    except (TypeError, ValueError):
        return None


def look(directory: PoolDirectory, now: float, living: Callable[[Entry, float], bool] = alive) -> Seen:
    """Never raises. A file that says it is another job's is not believed."""
    live: list[Entry] = []
    dead: list[Entry] = []
    for name in directory.jobs():
        entry = read(Entry, directory.path / "jobs" / name)
        if entry is not None and directory.job(entry.job).name == name and _sane(entry):
            changed = (read(Changes, directory.changes(entry.job)) or Changes()).of(entry)
            entry = changed if _sane(changed) else entry
            (live if living(entry, now) else dead).append(entry)
    bids = {one.job: read(Bid, directory.bid(one.job)) for one in live}
    given = {one.job: told(directory, one.job) for one in live}
    return Seen(
        size=read(PoolSize, directory.size),
        entries=tuple(sorted(live, key=lambda one: (one.arrived, one.job))),
        dead=tuple(dead),
        bids={name: one for name, one in bids.items() if one is not None},
        given={name: one for name, (one, _) in given.items() if one is not None},
        terms={name: term for name, (_, term) in given.items()},
        decision=read(Decision, directory.decision),
    )


def told(directory: PoolDirectory, job: str) -> tuple[Allowance | None, int]:
    """What a leader has given it, and in which term. None: nothing that could be read."""
    values = trusted(directory.allowance(job))
    try:
        found = built(Allowance, values, newer=True)
    except (TypeError, ValueError):
        return None, 0
    term = values.get("term")
    return found if found.job == job else None, term if isinstance(term, int) else 0


def standing(seen: Seen, now: float) -> Entry | None:
    """Whose launcher has stood still for longest, on this machine; None: all are well."""
    late = [one for one in seen.entries if one.machine == this_machine() and now - one.time > FRESH_SECONDS]
    return min(late, key=lambda one: (one.time, one.job), default=None)


def stands(entry: Entry, now: float) -> str:
    """Of such a one, for people."""
    return (
        f"the launcher of {entry.job} (pid {entry.pid}) has stood still for {format_seconds(now - entry.time)}, and nothing of "
        f"its job begins or gives back; let it go on (kill -CONT {entry.pid}) or end it"
    )


def _sane(entry: Entry) -> bool:
    counts = (entry.chief, entry.ps, entry.workers, entry.other)
    sizes = (one for size in (entry.least, entry.most, entry.written) for one in (size.ps, size.workers))
    return 0 < entry.weight < math.inf and all(0 <= one <= MOST["workers"] for one in (*counts, *sizes))


def observed(seen: Seen, now: float) -> Cluster:
    """As the arbiter sees it. A job that was told that it may start has started, whether it has heard of it or not."""
    before = {one.job: one for one in seen.decision.allowances} if seen.decision is not None else {}
    jobs = []
    for entry in (admitted(one, seen.given.get(one.job)) for one in seen.entries):
        jobs.append(
            Job(
                name=entry.job, priority=entry.priority, weight=entry.weight, least=entry.least, most=entry.most,
                pods=entry.pods, placed=placed(entry), queue="", arrived=entry.arrived, started=entry.running, strict=False,
                written=entry.written, allowance=before.get(entry.job), bid=urged(entry, seen.bids.get(entry.job)),
                silent_seconds=max(0.0, now - entry.heard) if entry.heard else 0.0, deadline=entry.deadline,
            )
        )  # fmt: skip
    size = seen.size or PoolSize(0.0, 0)
    return Cluster(now, (Node(NODE, size.resources()),), (), (), tuple(jobs))


def urged(entry: Entry, bid: Bid | None) -> Bid | None:
    """Without an autoscaler a job wants what its user asked for, whatever a model sees in it: up to that, each process more is
    worth at least a little more. Cores that nobody else gains by are given back to it so."""
    if bid is None or entry.autoscaled:
        return bid
    known = {(one.ps, one.workers): one.examples_per_second for one in bid.worth}
    for ps, workers in sorted(known):
        least = known[ps, workers]
        for (fewer, less), rate in known.items():
            if fewer <= ps <= bid.wanted.ps and less <= workers <= bid.wanted.workers:
                least = max(least, rate * URGE ** (ps - fewer + workers - less))
        known[ps, workers] = least
    return replace(bid, worth=tuple(Worth(*size, rate) for size, rate in known.items()))


def admitted(entry: Entry, given: Allowance | None) -> Entry:
    """What a job that was told to start will have in a moment."""
    if entry.running or given is None or not given.runs:
        return entry
    other = 1 if entry.pods.other.cpu or entry.pods.other.memory_bytes else 0
    return replace(entry, running=True, chief=1, ps=given.ps, workers=given.workers, other=other)


def placed(entry: Entry) -> tuple[Placed, ...]:
    counts = (("chief", entry.chief), ("ps", entry.ps), ("worker", entry.workers), ("other", entry.other))
    return tuple(Placed(role, NODE) for role, count in counts for _ in range(count))
