"""What was under way when the store was lost, as scalings that the AIMaster resumes, rolls back or takes forward. Pure.

The history that PS keep says which scalings there were, but it may be a moment old. What counts is what agents saw: trainers
that a scaling has begun and not ended, target PS what they were to copy, and whether it was decided: it was if a view with the
slots in their new place is known to anybody, or if an owner was told to destroy what moves. Then the state is COMMIT, and
everything is said again to everybody; else it is PAUSE, from which everything is taken back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from deeprec_ext.aimaster.core.records import PsInfo, Scaling, parse_name
from deeprec_ext.aimaster.membership.view import AgreedCluster
from deeprec_ext.aimaster.rebuilding.claims import Claim
from deeprec_ext.aimaster.scaling.machine import State
from deeprec_ext.proto import deeprec_ext_pb2 as pb

LOST = "the AIMaster's store was lost meanwhile"


@dataclass(frozen=True)
class Unfinished:
    cluster: AgreedCluster  # further on than the newest view, if a change was decided and not told yet
    scalings: tuple[Scaling, ...]  # all: ended, under way, queued
    moved: Mapping[int, pb.Catalogue] = field(default_factory=dict)


@dataclass(frozen=True)
class _Change:
    """A change of PS as its targets know it."""

    targets: Mapping[int, int]  # slot → task that was to get it
    sources: Mapping[int, int]  # slot → task that had it
    names: tuple[str, ...]  # of the targets
    variables: tuple[pb.Variable, ...]


def unfinished(
    claims: Sequence[Claim],
    cluster: AgreedCluster,
    kept: Sequence[Scaling],
    catalogue: pb.Catalogue,
    last_id: int,
    wall: float,
    running: Collection[str] = (),
) -> Unfinished:
    """Args:
    cluster: of the newest view.
    kept: all scalings in the history, which may be a moment old.
    last_id: the highest id that was ever given.
    wall: Unix seconds.
    running: names of all pods that run; not all of them may have registered.
    """
    begun = max((claim.known.scaling for claim in claims if claim.is_trainer), default=0)
    scalings = {scaling.id: scaling for scaling in kept}
    change = _change(claims, begun) if begun not in scalings or not scalings[begun].outcome else None
    moved: dict[int, pb.Catalogue] = {}
    for scaling in kept:
        if not scaling.outcome and scaling.state != State.STEADY.value and not (change and scaling.id == begun):
            scalings[scaling.id] = _without_targets(scaling, begun, cluster)
    if change is not None:
        base = scalings.get(begun, Scaling(begun, "rebalance", "ps", started=wall))
        workers = _workers_of(base, claims, running)
        cluster, scaling = _with_targets(base, change, claims, cluster, workers)
        scalings[begun] = scaling
        moved[begun] = _moved(scaling, change, catalogue)
    under_way = [scaling for scaling in scalings.values() if not scaling.outcome]
    released = {name for scaling in under_way for name in scaling.drained}
    for role, leaving in _drained(claims, cluster).items():
        rest = tuple(name for name in leaving if name not in released)
        if rest:
            last_id += 1
            scalings[last_id] = Scaling(
                last_id, "scale-down", role, asked_reason=LOST, reason=LOST, state=State.RELEASE.value,
                detail=f"{', '.join(rest)} had left the view", drained=rest, epoch=cluster.epoch, started=wall,
            )  # fmt: skip
    return Unfinished(cluster, tuple(scalings[number] for number in sorted(scalings)), moved)


def _change(claims: Sequence[Claim], begun: int) -> _Change | None:
    armed = [claim for claim in claims if claim.is_ps and begun and claim.known.scaling == begun and claim.known.moves]
    if not armed:
        return None
    targets, sources, variables = {}, {}, []
    for claim in armed:
        for move in claim.known.moves:
            targets[move.variable.slot] = claim.request.known_task
            sources[move.variable.slot] = move.source_task
            variables.append(move.variable)
    return _Change(targets, sources, tuple(sorted(claim.name for claim in armed)), tuple(variables))


def _with_targets(
    scaling: Scaling, change: _Change, claims: Sequence[Claim], newest: AgreedCluster,
    workers: tuple[Sequence[str], Sequence[str]],
) -> tuple[AgreedCluster, Scaling]:  # fmt: skip
    """The cluster that counts, and the scaling in the state that it has to be taken on from.

    workers: that come and that go.
    """
    there = all(newest.slot_map[slot] == task for slot, task in change.targets.items())
    if there:
        old = tuple(change.sources.get(slot, task) for slot, task in enumerate(newest.slot_map))
        decided, new = newest, newest.slot_map
    elif any(claim.destroyed & change.sources.keys() for claim in claims if claim.is_ps):
        decided = _decided(change, claims, newest)
        old, new = newest.slot_map, decided.slot_map
    else:
        new_map = tuple(change.targets.get(slot, task) for slot, task in enumerate(newest.slot_map))
        present = {ps.name for ps in newest.ps}
        newcomers = scaling.added or (*change.names, *workers[0])
        return newest, dataclasses.replace(
            scaling, state=State.PAUSE.value, detail=LOST, armed=True, marked=not newest.marked, old_map=newest.slot_map,
            new_map=new_map, targets=newest.ps, added=tuple(name for name in newcomers if name not in present),
            epoch=0,
        )  # fmt: skip
    gone = (*_drained(claims, decided).get("ps", ()), *workers[1])
    return decided, dataclasses.replace(
        scaling, state=State.COMMIT.value, detail=LOST, armed=True, old_map=old, new_map=new, targets=decided.ps,
        drained=scaling.drained or gone, epoch=decided.epoch, slots_moved=sum(a != b for a, b in zip(old, new)),
    )  # fmt: skip


def _workers_of(scaling: Scaling, claims: Sequence[Claim], running: Collection[str]) -> tuple[list[str], list[str]]:
    """Those that come and those that go by a change of both, where the history is from before their names were chosen
    (`requests.resolve`): who comes has not taken part yet, and those with the highest numbers go."""
    there = {*running, *(claim.name for claim in claims)} if scaling.both else set()
    workers = sorted((name for name in there if parse_name(name)[0] == pb.WORKER), key=parse_name)
    if scaling.workers_to < scaling.workers_from:
        return [], workers[scaling.workers_to :]
    known = {claim.name for claim in claims if claim.took_part}
    return [name for name in workers if name not in known][scaling.workers_from - scaling.workers_to :], []


def _decided(change: _Change, claims: Sequence[Claim], newest: AgreedCluster) -> AgreedCluster:
    """The view that was decided: trainers have prepared for it; without one of them, what the targets know makes it."""
    prepared = [claim.known.prepared for claim in claims if claim.known.prepared.epoch > newest.epoch]
    if prepared:
        view = max(prepared, key=lambda view: view.epoch)
        ps = tuple(PsInfo(one.task, one.name, one.address, one.incarnation) for one in view.ps)
        further = max(newest.next_epoch, view.epoch + 1)
        return dataclasses.replace(newest, epoch=view.epoch, next_epoch=further, ps=ps, slot_map=tuple(view.slot_map))
    present = {ps.task for ps in newest.ps}
    added = [
        PsInfo(claim.request.known_task, claim.name, claim.request.address, claim.incarnation)
        for claim in claims
        if claim.name in change.names and claim.request.known_task not in present
    ]
    return dataclasses.replace(
        newest, epoch=newest.next_epoch, next_epoch=newest.next_epoch + 1, ps=(*newest.ps, *added),
        slot_map=tuple(change.targets.get(slot, task) for slot, task in enumerate(newest.slot_map)),
    )  # fmt: skip


def _moved(scaling: Scaling, change: _Change, catalogue: pb.Catalogue) -> pb.Catalogue:
    """The variables of all slots that move; if nobody told the catalogue, those that the targets know."""
    slots = {slot for slot, (old, new) in enumerate(zip(scaling.old_map, scaling.new_map)) if old != new}
    variables = [variable for variable in catalogue.variables if variable.slot in slots]
    return pb.Catalogue(variables=variables or change.variables, fingerprint=catalogue.fingerprint)


def _without_targets(scaling: Scaling, begun: int, cluster: AgreedCluster) -> Scaling:
    """It was under way when the history was told, and no PS is armed for it."""
    state = State(scaling.state)
    forward = state in (State.COMMIT, State.RELEASE)
    if scaling.role != "ps":
        if forward or scaling.id == begun:
            return scaling
        return dataclasses.replace(scaling, state=State.STEADY.value, outcome="rolled_back", reason=LOST)
    present = {ps.name for ps in cluster.ps}
    added_ps, drained_ps = {*scaling.added_ps}, {*scaling.drained_ps}
    members = bool(added_ps or drained_ps) and present >= added_ps and not present & drained_ps
    if members or (scaling.epoch and scaling.new_map == cluster.slot_map):  # everybody is where it wanted them
        return dataclasses.replace(scaling, state=State.RELEASE.value, epoch=scaling.epoch or cluster.epoch)
    if state is State.ACQUIRE and scaling.id == begun:
        return scaling
    added = tuple(name for name in scaling.added if name not in present)
    return dataclasses.replace(
        scaling, state=State.PAUSE.value, detail=LOST, armed=True, added=added, targets=cluster.ps
    )


def drained(claim: Claim, cluster: AgreedCluster) -> bool:
    """A PS that was in a view and is not in the newest; a worker that was told to leave. (A chief is never scaled away: its
    script is ending.)

    That a worker is in no view says nothing: it may not have registered with the AIMaster that published it.
    """
    if claim.request.role == pb.WORKER:
        return claim.known.leaving
    return claim.is_ps and claim.known.served and claim.name not in [ps.name for ps in cluster.ps]


def _drained(claims: Sequence[Claim], cluster: AgreedCluster) -> dict[str, list[str]]:
    """The names, of `ps` and of `worker`."""
    found: dict[str, list[str]] = {}
    for claim in sorted(claims, key=lambda claim: claim.name):
        if drained(claim, cluster):
            found.setdefault("ps" if claim.is_ps else "worker", []).append(claim.name)
    return found
