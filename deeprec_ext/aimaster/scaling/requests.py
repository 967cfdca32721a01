"""From a ScaleRequest to a Scaling, or to one clear line why not. Pure, except for reading the job's state."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from deeprec_ext.aimaster.core.records import Scaling, parse_name
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.errors import UsageError
from deeprec_ext.proto import deeprec_ext_pb2 as pb


def present(job: Job, role: pb.Role) -> list[str]:
    """Names of the role that are wanted and have not ended by themselves."""
    return [name for name in job.members.wanted(role) if not job.members.records[name].ended]


def leaving(job: Job, role: str) -> list[str]:
    """Who goes because the arbiter allows fewer of this role than there are."""
    there = present(job, pb.PS if role == "ps" else pb.WORKER)
    return [] if job.allowed.allowance is None else _going(job, there, job.allowed.most(role))


def losing_their_host(job: Job) -> set[str]:
    """Who was told so (`job.reclaimed`) and has not begun anew since."""
    there = {member.name: member.incarnation for member in job.members}
    return {name for name, incarnation in job.reclaimed.items() if there.get(name, "") == incarnation}


def expected_count(job: Job, role: str, waiting: Sequence[Scaling]) -> int:
    """How many there will be when everything queued has been done."""
    count = len(present(job, pb.PS if role == "ps" else pb.WORKER))
    for scaling in waiting:
        if scaling.role == role and scaling.want >= 0:
            count = scaling.want
        elif role == "worker" and scaling.both:
            count = scaling.workers_to
    return count


def counts_of(request: pb.ScaleRequest) -> dict[str, int]:
    """By role, of those that it names."""
    sizes = {"ps": request.ps} if request.HasField("ps") else {}
    return sizes | ({"worker": request.workers} if request.HasField("workers") else {})


def parse_request(job: Job, request: pb.ScaleRequest, waiting: Sequence[Scaling]) -> Scaling | None:
    """The scaling that is asked for, as far as the arbiter allows it, without an id; None when there is nothing to do. Raises
    UsageError."""
    sizes = counts_of(request)
    if sum([bool(sizes), request.rebalance, bool(request.replace)]) != 1:
        raise UsageError("give exactly one of ps and workers (or both), rebalance, replace")
    if job.spec.sums and ("ps" in sizes or request.rebalance):
        raise UsageError("this job has no PS (--strategy allreduce): ask for workers")
    if request.replace:
        return _replacement(job, request)
    if request.rebalance:
        return Scaling(0, "rebalance", "ps", asked_reason=request.reason)
    for role, count in sizes.items():
        _check_limits(job, role, count)
    sizes = {role: min(count, job.allowed.most(role)) for role, count in sizes.items()}
    before = {role: expected_count(job, role, waiting) for role in sizes}
    if before == sizes:
        return None
    return _sized(Scaling(0, "", "", asked_reason=request.reason), before, sizes)


def _sized(scaling: Scaling, before: Mapping[str, int], sizes: Mapping[str, int]) -> Scaling:
    """With the counts that change; of PS and workers it is a change of PS, in which the workers change as well. Where nothing
    changes it is one of the first role.

    Args: before, sizes: role → count.
    """
    changing = {role: count for role, count in sizes.items() if count != before[role]} or dict(list(sizes.items())[:1])
    (role, want), *others = changing.items()
    workers = (before["worker"], changing["worker"]) if others else (0, 0)
    return dataclasses.replace(
        scaling, kind="scale-up" if want > before[role] else "scale-down", role=role, want=want, from_count=before[role],
        to_count=want, workers_from=workers[0], workers_to=workers[1],
    )  # fmt: skip


def _check_limits(job: Job, role: str, count: int) -> None:
    spec = job.spec
    if role == "ps":
        if count < 1:
            raise UsageError(f"{count} PS: a job needs at least one")
        low, high = spec.min_ps, spec.ps_limit
        if count > high == spec.slots:
            raise UsageError(f"{count} PS are more than the {spec.slots} slots of the job; start it with more --slots")
    else:
        if count < 0:
            raise UsageError(f"{count} workers: give 0 or more (they are counted beside the chief)")
        low, high = spec.min_workers, spec.max_workers
    if not low <= count <= high:
        what = "PS" if role == "ps" else "workers"
        raise UsageError(f"{count} {what} are outside of this job's limits, {low} to {high}")


def _replacement(job: Job, request: pb.ScaleRequest) -> Scaling:
    role, _ = parse_name(request.replace)
    if not job.spec.own_pods:
        raise UsageError(
            f"{request.replace} cannot be replaced beside Kubeflow, where no other name can take its place: delete its pod, "
            "and it comes back elsewhere"
        )
    if role not in (pb.PS, pb.WORKER):
        raise UsageError(f"{request.replace} cannot be replaced: only PS and workers can")
    names = present(job, role)
    if request.replace not in names:
        raise UsageError(f"{request.replace} is not there; there are {', '.join(names) or 'none'}")
    kind = "ps" if role == pb.PS else "worker"
    return Scaling(0, "replace", kind, replace=request.replace, asked_reason=request.reason)


def _free_names(job: Job, prefix: str, count: int) -> tuple[str, ...]:
    """The lowest names that nobody has; a name whose pod has ended may come back."""
    taken = {record.name for record in job.members.records.values() if record.wanted}
    taken |= {member.name for member in job.members}
    names: list[str] = []
    index = 0
    while len(names) < count:
        if (name := f"{prefix}-{index}") not in taken:
            names.append(name)
        index += 1
    return tuple(names)


def _going(job: Job, there: Sequence[str], want: int, named: Collection[str] = ()) -> list[str]:
    """Who is beyond `want`: those that are named, then those that lose their hosts or have no process, then the highest."""
    hosts = losing_their_host(job)

    def last(pair: tuple[int, str]) -> tuple[bool, bool, int]:
        at, name = pair
        return name in named, name in hosts or job.members.get(name) is None, at

    return [name for _, name in sorted(enumerate(there), key=last)][want:]


def resolve(job: Job, scaling: Scaling) -> Scaling:
    """The same scaling with names, decided when its turn comes. Raises UsageError when it has become impossible."""
    names = present(job, pb.PS if scaling.role == "ps" else pb.WORKER)
    before = len(names)
    if scaling.kind == "rebalance":
        return dataclasses.replace(scaling, from_count=before, to_count=before)
    if scaling.returning:
        if not all(name in names for name in scaling.added):
            raise UsageError(f"{', '.join(scaling.added)} is not there any more")
        return dataclasses.replace(scaling, from_count=before - len(scaling.added), to_count=before)
    if scaling.kind == "replace":
        if scaling.replace not in names:
            raise UsageError(f"{scaling.replace} is not there any more")
        return dataclasses.replace(
            scaling, from_count=before, to_count=before, added=_free_names(job, scaling.role, 1),
            drained=(scaling.replace,),
        )  # fmt: skip
    sizes = {scaling.role: scaling.want, **({"worker": scaling.workers_to} if scaling.both else {})}
    there = {role: names if role == scaling.role else present(job, pb.WORKER) for role in sizes}
    more = {role: want for role, want in sizes.items() if want > len(there[role])}
    if beyond := job.allowed.beyond(more):  # it has changed since this was queued
        raise UsageError(beyond)
    added = [name for role, want in sizes.items() for name in _free_names(job, role, want - len(there[role]))]
    drained = [name for role, want in sizes.items() for name in _going(job, there[role], want, scaling.leaving)]
    scaling = _sized(scaling, {role: len(names) for role, names in there.items()}, sizes)
    return dataclasses.replace(scaling, added=tuple(added), drained=tuple(drained))
