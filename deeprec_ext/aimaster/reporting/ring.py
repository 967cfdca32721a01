"""Of a job without PS: who sums with whom, what they wait for, who comes, leaves, or was lost."""

from __future__ import annotations

from collections.abc import Collection

from deeprec_ext.aimaster.core.records import AWAY, TRAINERS, Failure, RoleRecord, parse_name
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.membership.members import Member
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.units import format_seconds

SILENT_BEATS = 3.0
"""A member is waited for aloud when it has missed so many heartbeats."""

FIRST_STEP_SECONDS = 1.0
"""... and when the first step of a view takes longer than any usual one."""

OUT_SECONDS, OUT_STEPS = 60.0, 10.0
"""... and when it alone is in no sum, for so long, and so many of its usual steps."""

LOST_SHOWN, WHY_MAX = 3, 200


def ring(job: Job, drained: Collection[str]) -> pb.RingStatus:
    """As it is now. Args: drained: whom the scaling under way takes away."""
    there = set(job.ring_members)
    found = pb.RingStatus(members=job.ring_members, seconds=job.ring_seconds)
    records = [one for one in job.members.records.values() if one.role in TRAINERS and not one.ended]
    for record in sorted(records, key=lambda one: (one.role, one.index)):
        member = job.members.get(record.name)
        ended = member is not None and member.said_goodbye
        if ended or not record.wanted or record.state == "leaving" or record.name in drained:
            found.leaving.add(name=record.name, why=_leaves(record, member))
        elif record.name not in there:
            found.coming.add(name=record.name, why=_comes(record, member))
        elif why := _waited_for(job, member, found.seconds):
            found.waits.add(name=record.name, why=why)
    for failure in job.store.failures(LOST_SHOWN):
        if parse_name(failure.name)[0] in TRAINERS:
            known = job.members.records.get(failure.name)
            wanted = known is not None and known.wanted
            found.lost.add(name=failure.name, why=_lost(failure, job.clock.wall(), wanted)[:WHY_MAX])
    return found


def _leaves(record: RoleRecord, member: Member | None) -> str:
    if member is not None and member.said_goodbye:
        return "its script has ended"
    if member is None:
        return "it ends"
    return "it sums no more, and its script ends" if member.parted else "it ends its step first"


def _comes(record: RoleRecord, member: Member | None) -> str:
    if member is None:
        return "its pod is asked for" if record.state == "requested" else "it starts"
    if member.parted:
        return "it sums no more for now"
    return "it has its first step, and is let in" if member.ring else "it imports, builds and computes its first step"


def _waited_for(job: Job, member: Member | None, seconds: float) -> str:
    """Why all stand still for it; empty: they do not, as far as is known."""
    if member is None:
        return "it has died, and another view comes"
    silent = job.clock.monotonic() - member.seen
    if silent > SILENT_BEATS * job.settings.heartbeat_seconds:
        return f"silent for {format_seconds(silent)}"
    beat, epoch = member.heartbeat, job.cluster.epoch
    if beat.out_seconds > max(OUT_SECONDS, OUT_STEPS * beat.step_seconds) and _others_sum(job, member):
        return f"in no sum for {format_seconds(beat.out_seconds)}, in which all others wait for it"
    if seconds < FIRST_STEP_SECONDS or beat.step_epoch >= epoch:
        return ""
    return "it has not heard of this view yet" if beat.epoch < epoch else "the first step in this view"


def _others_sum(job: Job, member: Member) -> bool:
    others = [job.members.get(name) for name in job.ring_members if name != member.name]
    return bool(others) and all(
        one is not None and one.heartbeat.training and not one.heartbeat.out_seconds for one in others
    )


def _lost(failure: Failure, now: float, wanted: bool) -> str:
    back = failure.recovered_seconds
    came = "not back yet" if wanted else "not wanted any more"
    if back is not None:
        came = f"{AWAY if failure.recovered_by == AWAY else 'back'} after {format_seconds(back)}"
    return f"{failure.cause}, {format_seconds(max(0.0, now - failure.died))} ago; {came}"
