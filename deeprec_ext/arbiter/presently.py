"""Why each job has at this moment what it has, for people who look: from what is there and what is allowed, nothing else.

The reason that stands in an allowance is that of its last change, and stays as long as the size does, so that a job is not
written to at each change of another. Who looks at a job an hour later wants to know what keeps it there now.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deeprec_ext.arbiter import saying
from deeprec_ext.arbiter.curve import Curve, Size, believed, clipped, size_of
from deeprec_ext.arbiter.observed import Allowance, Cluster, Count, Decision, Job, Resources
from deeprec_ext.arbiter.room import finite
from deeprec_ext.units import counted, format_memory, sized

TINY = 1e-9


@dataclass(frozen=True)
class _Room:
    whole: Resources
    free: Resources
    held: Mapping[int, float]  # cores by priority
    seen: bool  # nodes were looked at


def reasons(cluster: Cluster, decision: Decision) -> list[str]:
    """One sentence for each job, in the order of the observation. What is free is only said where nodes were looked at."""
    pairs = list(zip(cluster.jobs, decision.allowances))
    held: defaultdict[int, float] = defaultdict(float)
    for job, told in pairs:
        held[job.priority] += _needs(job, told).cpu
    room = _Room(_sum(cluster), _free(cluster, pairs), held, bool(cluster.nodes))
    return [_reason(job, told, room) for job, told in pairs]


def wanted_size(job: Job) -> Size:
    """Within its bounds; without a bid what was written."""
    wanted = job.bid.wanted if job.bid is not None else job.written
    return clipped(size_of(wanted), size_of(job.least), size_of(job.most))


def _reason(job: Job, told: Allowance, room: _Room) -> str:
    if not told.runs:
        return saying.need(told.why)
    has, may, wants = placed(job), (told.ps, told.workers), wanted_size(job)
    starts = not any(pod.role == saying.CHIEF for pod in job.placed)
    if starts or told.why.startswith((saying.GOES_ON, saying.NOT_YET)):
        return told.why
    less, more = _parts(has, may), _parts(may, has)
    if less:
        return f"gives back {' and '.join(less)}: {_last(told.why)}"
    if more:
        return f"may have {' and '.join(more)} more, and takes them"
    if may[0] >= wants[0] and may[1] >= wants[1]:
        return "has all that it wants" if may == wants else f"has more than it wants, {sized(*wants)}"
    least = ", its least," if may == size_of(job.least) else ""
    text = f"has {sized(*may)}{least} of the {sized(*wants)} that it wants"
    return f"{text}: {_limit(job, told, wants, room) or _last(told.why)}"


def placed(job: Job) -> Size:
    roles = [pod.role for pod in job.placed]
    return roles.count("ps"), roles.count("worker")


def _parts(size: Size, other: Size) -> list[str]:
    """Of what the first has more."""
    names = ("PS", "worker")
    return [counted(one - two, name) for one, two, name in zip(size, other, names) if one > two]


def _last(why: str) -> str:
    """Of `went from 4 workers to 2: gave way to …` the cause, without what it was before."""
    head, _, cause = why.partition(": ")
    return cause if cause and head.startswith(("went ", "grew ")) else why


def _limit(job: Job, told: Allowance, wants: Size, room: _Room) -> str:
    """What keeps it from more; empty: that cannot be seen from here."""
    if not room.seen:
        return ""
    may, free, whole = (told.ps, told.workers), room.free, room.whole
    one, pod = ("PS", job.pods.ps) if may[1] >= wants[1] else ("worker", job.pods.worker)
    if pod.cpu > free.cpu + TINY:
        others = _held(job, _needs(job, told).cpu, room.held)
        return (
            f"a {one} more needs {_cores(pod.cpu)}, and {max(0.0, free.cpu):g} of {_cores(whole.cpu)} are free{others}"
        )
    if pod.memory_bytes > free.memory_bytes:
        have = f"{format_memory(max(0, free.memory_bytes))} of {format_memory(whole.memory_bytes)}"
        return f"a {one} more needs {format_memory(pod.memory_bytes)}, and {have} are free"
    known = believed(job.bid)
    if known:
        curve = Curve(known, size_of(job.least), wants, (1.0, 1.0))
        now, then = curve.speed(may), curve.speed((may[0] + (one == "PS"), may[1] + (one == "worker")))
        if now > 0 and then / now < 1.02:
            return f"a {one} more brings {100 * (then / now - 1):+.1f} % by its model, though there is room"
    return f"there is room for a {one} more, which it gets a moment after the last change"


def _held(job: Job, own: float, held: Mapping[int, float]) -> str:
    """`; 4 with higher priorities, 2 with lower ones`: cores of others."""
    sums = (
        ("with higher priorities", sum(cores for priority, cores in held.items() if priority > job.priority)),
        ("with others of its priority", held[job.priority] - own),
        ("with lower ones", sum(cores for priority, cores in held.items() if priority < job.priority)),
    )
    parts = [f"{round(cores, 3):g} {text}" for text, cores in sums if cores > TINY]
    return f"; {', '.join(parts)}" if parts else ""


def _needs(job: Job, told: Allowance) -> Resources:
    """What is there of it, or was allowed: the larger of each."""
    has = placed(job)
    there = {role: sum(pod.role == role for pod in job.placed) for role in ("chief", "other")}
    ps, workers = (max(one, two if told.runs else 0) for one, two in zip(has, (told.ps, told.workers)))
    chief = max(there["chief"], int(told.runs))
    parts = ((job.pods.chief, chief), (job.pods.other, there["other"]), (job.pods.ps, ps), (job.pods.worker, workers))
    return Resources(sum(pod.cpu * n for pod, n in parts), sum(pod.memory_bytes * n for pod, n in parts))


def _sum(cluster: Cluster) -> Resources:
    cores = sum(finite(node.free.cpu, most=1e9) for node in cluster.nodes)
    return Resources(cores, int(sum(finite(node.free.memory_bytes, most=1e18) for node in cluster.nodes)))


def _free(cluster: Cluster, pairs: Sequence[tuple[Job, Allowance]]) -> Resources:
    whole, taken = _sum(cluster), [_needs(job, told) for job, told in pairs]
    return Resources(
        round(whole.cpu - sum(one.cpu for one in taken), 6), whole.memory_bytes - sum(one.memory_bytes for one in taken)
    )


def free_cores(cluster: Cluster, decision: Decision) -> float:
    return max(0.0, _free(cluster, list(zip(cluster.jobs, decision.allowances))).cpu)


def least_of(job: Job) -> float:
    """Cores that it needs to start."""
    return _cores_of(job, job.least)


def asked_of(job: Job) -> float:
    """Cores that it would have if nobody else were there."""
    return _cores_of(job, Count(*wanted_size(job)))


def _cores_of(job: Job, size: Count) -> float:
    pods = job.pods
    return pods.chief.cpu + pods.other.cpu + pods.ps.cpu * size.ps + pods.worker.cpu * size.workers


def _cores(count: float) -> str:
    return counted(f"{count:g}", "core") if count != 1 else "1 core"
