"""From what the agents say to what the store must have held. Pure.

The newest view that anybody knows is the cluster. Who is in it takes part, with the incarnation that is in it: whoever comes
back as another one has died meanwhile, and whoever does not come back is dealt with as after any restart. A PS that was in a
view with this incarnation and is not in the newest was drained, and so was a worker that was told to leave. Others who are
there are wanted: a new PS that holds no slot yet gets some by a scaling of its own.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from deeprec_ext.aimaster.core.records import PsInfo, RoleRecord, Scaling, role_name
from deeprec_ext.aimaster.job import replicated
from deeprec_ext.aimaster.job.replicated import Kept
from deeprec_ext.aimaster.ledger.rebuild import DatasetSources
from deeprec_ext.aimaster.ledger.replica import dataset_sources
from deeprec_ext.aimaster.membership.view import AgreedCluster
from deeprec_ext.aimaster.pods.backend import PodState
from deeprec_ext.aimaster.rebuilding.claims import Claim, members, newest_view, still_missing
from deeprec_ext.aimaster.rebuilding.unfinished import drained, unfinished
from deeprec_ext.aimaster.scaling.machine import State
from deeprec_ext.aimaster.state.catalogues import merged
from deeprec_ext.errors import RefusedError
from deeprec_ext.proto import deeprec_ext_pb2 as pb

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RebuiltState:
    """The store to be."""

    aimaster: int  # the highest incarnation that anybody has seen
    cluster: AgreedCluster
    workers: tuple[pb.WorkerMember, ...]
    roles: tuple[RoleRecord, ...]
    fenced: Mapping[str, str]  # incarnation → name
    catalogue: pb.Catalogue
    step: int
    marks: str  # fingerprint of the catalogue whose tables everybody marks; empty: not sure
    scalings: tuple[Scaling, ...]
    moved: Mapping[int, pb.Catalogue]  # of scalings under way
    kept: Kept
    datasets: Mapping[str, DatasetSources]
    unused_positions: bytes
    last_lease: int
    told: tuple[str, ...]
    missing: tuple[str, ...]  # of the view; they did not come in time, or are PS that have not what they own


@dataclass(frozen=True)
class Stored:
    """What of the store was kept elsewhere; some seconds old, except for what was decided."""

    aimaster: int = 0  # the incarnation that kept it
    cluster: AgreedCluster = field(default_factory=AgreedCluster)
    view: pb.View = field(default_factory=pb.View)  # of that cluster
    remembered: tuple[pb.Remember, ...] = ()


def rebuilt_state(
    claims: Sequence[Claim], pods: Mapping[str, PodState], *, evaluator: bool = False, wall: float = 0.0,
    stored: Stored | None = None,
) -> RebuiltState | None:  # fmt: skip
    """None: nobody has ever taken part, so the job is new.

    Args:
        claims: one per incarnation.
        pods: what the backend says, by name.
        evaluator: whether the job has one.
        wall: Unix seconds, for what has no time of its own.
        stored: a view in it that nobody knows was decided, and not told yet: it counts.
    """
    stored = stored or Stored()
    view = newest_view(claims)
    if view is None:
        return None
    if stored.view.epoch > view.epoch:
        view = stored.view
    remembered = replicated.newest([*stored.remembered, *(one for claim in claims for one in claim.known.remembered)])
    kept = replicated.unpack(remembered.get(replicated.JOB, b""))
    catalogue = _catalogue(claims, remembered.get(replicated.CATALOGUE, b""), view.generation, len(view.slot_map))
    cluster = _cluster(view, claims)
    cluster = dataclasses.replace(
        cluster, next_epoch=max(cluster.next_epoch, stored.cluster.next_epoch, view.epoch + 1),
        next_task=max(cluster.next_task, stored.cluster.next_task),
    )  # fmt: skip
    running = [pod.name for pod in pods.values() if pod.state == "running"]
    found = unfinished(claims, cluster, kept.scalings, catalogue, _last_scaling(claims, kept), wall, running)
    cluster = found.cluster
    leaving = {
        name for one in found.scalings if not one.outcome and one.state == State.RELEASE.value for name in one.drained
    }
    records = _roles(cluster, view, claims, pods, leaving, evaluator)
    fenced = _fenced(view, claims)
    told = {one.incarnation: one.known.data for one in claims if one.took_part and one.incarnation not in fenced}
    datasets, unused, last_lease = dataset_sources(remembered, told)
    sure = bool(cluster.marked) and all(_marks_all(claim, cluster) for claim in _trainers(claims))
    return RebuiltState(
        aimaster=max([stored.aimaster, *(claim.request.known_aimaster for claim in claims)]),
        cluster=cluster,
        workers=tuple(view.workers),
        roles=tuple(records),
        fenced=fenced,
        catalogue=catalogue,
        step=max([int(kept.meta.get("step", 0)), *(claim.known.step for claim in claims)]),
        marks=str(kept.meta.get("marks", "")) if sure else "",
        scalings=found.scalings,
        moved=found.moved,
        kept=kept,
        datasets=datasets,
        unused_positions=unused,
        last_lease=last_lease,
        told=tuple(sorted(claim.name for claim in claims if claim.took_part)),
        missing=(*still_missing(claims, pods), *_hollow(claims, cluster)),
    )


def _trainers(claims: Sequence[Claim]) -> list[Claim]:
    return [claim for claim in claims if claim.is_trainer and claim.took_part]


def _cluster(view: pb.View, claims: Sequence[Claim]) -> AgreedCluster:
    known = [claim.known for claim in claims]
    tasks = [*(one.highest_task for one in known if one.view.epoch), *(claim.request.known_task for claim in claims)]
    live = view.live or any(claim.known.live_generation == view.generation for claim in _trainers(claims))
    cluster = AgreedCluster(
        epoch=view.epoch, generation=view.generation, live=live,
        ps=tuple(PsInfo(ps.task, ps.name, ps.address, ps.incarnation) for ps in view.ps), slot_map=tuple(view.slot_map),
        cut=tuple(view.cut),
        next_epoch=1 + max(one.highest_epoch for one in known),
        next_task=1 + max([*tasks, *(ps.task for ps in view.ps)]),
    )  # fmt: skip
    everywhere = bool(_trainers(claims)) and all(_marks_all(claim, cluster) for claim in _trainers(claims))
    slots = tuple(range(len(cluster.slot_map)))
    return dataclasses.replace(cluster, marked=slots if everywhere or set(view.marked_slots) >= set(slots) else ())


def _marks_all(claim: Claim, cluster: AgreedCluster) -> bool:
    return set(claim.known.marked_slots) >= set(range(len(cluster.slot_map)))


def _catalogue(claims: Sequence[Claim], kept: bytes, generation: int, slots: int) -> pb.Catalogue:
    """What PS have kept, and what trainers tell beside, the chief first. Empty: nobody who would know it is there."""
    try:
        found = pb.Catalogue.FromString(kept)
    except DecodeError:
        found = pb.Catalogue()
    told = [claim for claim in claims if claim.known.catalogue.fingerprint]
    for claim in sorted(told, key=lambda claim: (claim.request.role != pb.CHIEF, claim.name)):
        try:
            found = merged(found, claim.known.catalogue, claim.name, generation, slots)
        except RefusedError as error:
            log.warning("what %s tells of its variables is not taken: %s", claim.name, error)
    return found


def _last_scaling(claims: Sequence[Claim], kept: Kept) -> int:
    ids = [scaling.id for scaling in kept.scalings] + [claim.known.scaling for claim in claims]
    return max([int(kept.meta.get("scalings", 0)), *ids])


def _fenced(view: pb.View, claims: Sequence[Claim]) -> dict[str, str]:
    """Who served under a name that another one has in the newest view, and that one is there: it was replaced."""
    present, names = {claim.incarnation for claim in claims}, members(view)
    return {
        claim.incarnation: claim.name
        for claim in claims
        if claim.known.served and names.get(claim.name, claim.incarnation) != claim.incarnation
        and names[claim.name] in present
    }  # fmt: skip


def _hollow(claims: Sequence[Claim], cluster: AgreedCluster) -> list[str]:
    """PS that own slots and were told to destroy them, for a scaling whose targets are gone: as good as lost."""
    owners = {ps.incarnation: ps.task for ps in cluster.ps}
    return [
        claim.name
        for claim in claims
        if claim.is_ps and any(cluster.slot_map[slot] == owners.get(claim.incarnation) for slot in claim.destroyed)
    ]


def _roles(
    cluster: AgreedCluster,
    view: pb.View,
    claims: Sequence[Claim],
    pods: Mapping[str, PodState],
    leaving: Collection[str],
    evaluator: bool,
) -> list[RoleRecord]:
    by_incarnation = {claim.incarnation: claim.request for claim in claims}
    records = {ps.name: RoleRecord(ps.name, "running", ps.incarnation, ps.task, ps.address) for ps in cluster.ps}
    for worker in view.workers:
        records[worker.name] = RoleRecord(worker.name, "running", worker.incarnation)
    for claim in claims:
        if claim.name in leaving or drained(claim, cluster):
            task = claim.request.known_task
            records[claim.name] = RoleRecord(claim.name, "leaving", claim.incarnation, task, wanted=False)
        else:
            records.setdefault(claim.name, RoleRecord(claim.name, "starting"))
    for pod in pods.values():
        if pod.state == "running" or pod.restarting:
            records.setdefault(pod.name, RoleRecord(pod.name, "starting"))
    for name in [role_name(pb.CHIEF, 0), *([role_name(pb.EVALUATOR, 0)] if evaluator else [])]:
        records.setdefault(name, RoleRecord(name))
    return [_with_processes(record, by_incarnation, pods.get(record.name)) for record in records.values()]


def _with_processes(
    record: RoleRecord, by_incarnation: Mapping[str, pb.RegisterRequest], pod: PodState | None
) -> RoleRecord:
    """`pod_pid` 0 when the pod is not known to be of this incarnation: the backend tells of it again."""
    request = by_incarnation.get(record.incarnation)
    record = dataclasses.replace(
        record, pid=request.pid if request else 0, address=record.address or (request.address if request else "")
    )
    if pod is None:
        return record
    running = pod.state == "running" and request is not None
    return dataclasses.replace(record, pod_pid=pod.pid if running else 0, restarts=pod.restarts)
