"""Decisions carried out on a simulated job: pods need room and time to start, slots time to move, PS changes pause."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from deeprec_ext.aimaster.placement import planner
from deeprec_ext.autoscaler.observe import observed
from deeprec_ext.autoscaler.observe.observed import Size
from deeprec_ext.autoscaler.policy.decision import COUNTED, Decision
from deeprec_ext.simulator.pool import Pool
from deeprec_ext.simulator.simulated_job import Pod, SimulatedJob, even_map

DISTURBED = 0.9
"""Throughput while slots are copied beside training."""
RESIZE_SECONDS = 1.0
"""Requests are changed in place."""


@dataclass(frozen=True)
class Change:
    """A decision under way."""

    decision: Decision
    began: float
    fits: bool  # its pods have found room
    added: tuple[Pod, ...] = ()
    bytes: float = 0.0
    moves: dict[int, int] | None = None  # slot → index of its new PS


def begin(job: SimulatedJob, decision: Decision, pool: Pool, now: float) -> tuple[Change, float]:
    """(the change, seconds until it is over). Without room for its pods it fails, when that has been waited for."""
    size, cluster, requested = decision.size, pool.cluster, _room(job, decision)
    if not pool.fits(requested[0] - job.allocated[0], requested[1] - job.allocated[1]):
        return Change(decision, now, fits=False), cluster.acquire_limit_seconds
    added: list[Pod] = []
    if decision.action in COUNTED:
        added += _new(job, "ps", size.ps - job.size.ps) + _new(job, "worker", size.workers - job.size.workers)
    elif decision.action == "replace":
        added += _new(job, decision.replace.rsplit("-", 1)[0], 1)
    moves = _moves(job, decision) if decision.action == "rebalance" else None
    moved = _bytes_moved(job, decision, moves)
    _allocate(job, pool, requested, now)
    seconds = job.luck.start_seconds(len(added)) + moved / cluster.bytes_per_second
    if moved:
        job.disturbed = DISTURBED
    return Change(decision, now, True, tuple(added), moved, moves), max(seconds, RESIZE_SECONDS)


def end(job: SimulatedJob, change: Change, pool: Pool, now: float) -> float:
    """Seconds of pause that it takes."""
    job.advance(now)
    job.disturbed = 1.0
    old, pause = job.size, pool.cluster.pause_seconds if change.bytes else 0.0
    if change.fits:
        for pod in change.added:
            pod.ready = now
        _apply(job, change)
        _allocate(job, pool, (job.size.cpu, float(job.size.memory_bytes)), now)
    job.changes += _recorded(job, change, old, now - job.started, pause)
    return pause


# ------------------------------------------------------------------------------------------------------- internals


def _new(job: SimulatedJob, role: str, count: int) -> list[Pod]:
    return [job.new_pod(name, float("inf")) for name in job.free_names(role, count)] if count > 0 else []


def _room(job: SimulatedJob, decision: Decision) -> tuple[float, float]:
    """(cores, bytes) while the change is under way: old and new pods side by side."""
    size, old = decision.size, job.size
    most = Size(*map(max, dataclasses.astuple(old), dataclasses.astuple(size)))
    if decision.action == "replace":
        ps = decision.replace.startswith("ps-")
        most = dataclasses.replace(most, ps=most.ps + ps, workers=most.workers + (not ps))
    return most.cpu, float(most.memory_bytes)


def _allocate(job: SimulatedJob, pool: Pool, wanted: tuple[float, float], now: float) -> None:
    job.advance(now)
    pool.take(wanted[0] - job.allocated[0], wanted[1] - job.allocated[1])
    job.allocated = wanted


def _bytes_moved(job: SimulatedJob, decision: Decision, moves: dict[int, int] | None) -> float:
    """The fewest for the new count; a replaced PS's whole."""
    whole = (job.model.variable_bytes + job.model.variable_growth * job.done) if job.ps else 0.0
    if moves is not None:
        return whole * len(moves) / job.slots
    if decision.action == "replace" and decision.replace.startswith("ps-"):
        return whole / job.size.ps
    if decision.action in COUNTED and decision.size.ps != job.size.ps:
        return whole * abs(decision.size.ps - job.size.ps) / max(decision.size.ps, job.size.ps)
    return 0.0


def _moves(job: SimulatedJob, decision: Decision) -> dict[int, int]:
    weights = list(decision.slot_weights) + [0.0] * (job.slots - len(decision.slot_weights))
    plan = planner.plan(planner.whole_weights(weights), job.map, list(range(len(job.ps))))
    return {move.slot: move.target for move in plan.moves}


def _apply(job: SimulatedJob, change: Change) -> None:
    decision = change.decision
    if decision.action == "replace":
        for pods in (job.ps, job.trainers):
            for index, pod in enumerate(pods):
                if pod.name == decision.replace:
                    pods[index] = change.added[0]
        job.reclaimed.pop(decision.replace, None)
    if change.moves is not None:
        job.map = [change.moves.get(slot, owner) for slot, owner in enumerate(job.map)]
    if decision.size.ps != job.size.ps:
        job.ps = ([*job.ps, *(pod for pod in change.added if pod.name.startswith("ps-"))])[: decision.size.ps]
        job.map = even_map(job.slots, decision.size.ps)
    workers = [
        *job.trainers,
        *(pod for pod in change.added if pod.name.startswith("worker-") and decision.action in COUNTED),
    ]
    job.trainers = workers[: decision.size.trainers]
    left = {pod.name for pod in (*job.ps, *job.trainers)}
    job.reclaimed = {name: due for name, due in job.reclaimed.items() if name in left}
    job.size = decision.size


def _recorded(job: SimulatedJob, change: Change, old: Size, time: float, pause: float) -> list[observed.Change]:
    """One record per role that was to change, as the AIMaster's scalings have it."""
    decision, size = change.decision, change.decision.size
    outcome, seconds = "committed" if change.fits else "rolled_back", time - (change.began - job.started)

    def record(kind: str, role: str, before: int, after: int) -> observed.Change:
        moved, paused = (int(change.bytes), pause) if role == "ps" and change.fits else (0, 0.0)
        return observed.Change(
            round(time, 3), kind, role, before, after, outcome, round(seconds, 3), paused, moved, manual=False, arbiter=False,
            decision=decision.number, foretold=decision.prediction.examples_per_second,
        )  # fmt: skip

    if decision.action == "replace":
        role = "ps" if decision.replace.startswith("ps-") else "worker"
        count = old.ps if role == "ps" else old.workers
        return [record("replace", role, count, count)]
    if decision.action == "rebalance":
        return [record("rebalance", "ps", old.ps, old.ps)]
    found = []
    for role, before, after in (("ps", old.ps, size.ps), ("worker", old.workers, size.workers)):
        if before != after:
            found.append(record("scale-up" if after > before else "scale-down", role, before, after))
    if decision.action == "resize":
        found += [record("resize", role, count, count) for role, count in (("ps", old.ps), ("worker", old.workers))
                  if _requests(old, role) != _requests(size, role)]  # fmt: skip
    return found


def _requests(size: Size, role: str) -> tuple[float, float]:
    return (size.ps_cpu, size.ps_memory_bytes) if role == "ps" else (size.worker_cpu, size.worker_memory_bytes)
