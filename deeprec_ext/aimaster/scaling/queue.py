"""The queue of scalings, one at a time, and the runner that takes each through its states."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Sequence

from deeprec_ext.aimaster.core.records import GIVEN_UP, Scaling
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.placement.planner import Plan
from deeprec_ext.aimaster.pods.pods import Pods
from deeprec_ext.aimaster.scaling import unheard
from deeprec_ext.aimaster.scaling.changes import PsChange
from deeprec_ext.aimaster.scaling.machine import (
    ENDED,
    RULES,
    STOPPED,
    Recovery,
    State,
    before_commit,
    check_edge,
    holder,
    tell_holds,
)
from deeprec_ext.aimaster.scaling.planning import wanted_map
from deeprec_ext.aimaster.scaling.requests import counts_of, parse_request, present, resolve
from deeprec_ext.aimaster.scaling.run import (
    CAUGHT,
    RefusedScalingError,
    ScalingRun,
    of_workers,
    pause_changes,
    tell_ended,
)
from deeprec_ext.aimaster.scaling.workers import WorkerChange
from deeprec_ext.aimaster.state.lock import Hold
from deeprec_ext.errors import UsageError
from deeprec_ext.proto import deeprec_ext_pb2 as pb

log = logging.getLogger(__name__)
QUEUED_MAX = 32

RECHECK_SECONDS = 1.0
"""What is queued is looked at so often beside every change of the job: patience may have ended."""

ENDED_KEPT = 20
"""The newest that have ended, of those that changed counts and of others: replacements of many crowd out no change of size."""


class QueueFullError(UsageError):
    """Too many scalings wait already."""


class ScalingQueue:
    """`recovering`: whether trainers are not through with the loss of a PS; no change begins then."""

    def __init__(self, job: Job, pods: Pods, recovering: Callable[[], bool]) -> None:
        self._job, self._pods, self._recovering = job, pods, recovering
        known = job.store.scalings()
        self.ended: list[Scaling] = newest_ended([s for s in known if s.outcome])
        self.queue: list[Scaling] = [s for s in known if not s.outcome and s.state == State.STEADY.value]
        self.interrupted: list[Scaling] = [s for s in known if not s.outcome and s.state != State.STEADY.value]
        self.running: ScalingRun | None = None
        for scaling in self.interrupted:
            tell_holds(job.lock, scaling, interrupted=True)
        if self.interrupted and unheard.may_be(self.interrupted[0]):
            job.lock.take(holder(self.interrupted[0]), Hold.UNHEARD)
        self._attempt: asyncio.Task[None] | None = None
        self._abort_reason = ""

    # ------------------------------------------------------------------------------------------------ requests

    async def request(
        self,
        request: pb.ScaleRequest,
        *,
        decision: int = -1,
        weights: tuple[float, ...] = (),
        leaving: tuple[str, ...] = (),
        requested_by: str = "",
    ) -> pb.ScaleReply:
        """Raises UsageError (nothing was done) or QueueFullError. What a user asks for beyond what the arbiter allows is
        remembered, and waits until it is allowed; a decision beyond it is refused.

        Args:
          decision: number of the decision it comes from; -1: somebody asked for it.
          weights: of a rebalance, the load of each slot that the map is to be balanced by; empty: bytes.
          requested_by: `records.ARBITER`; its reason stays the reason, whatever comes of it.
          leaving: names of workers that go before others, where there are to be fewer.
        """
        job = self._job
        if job.ending:
            raise UsageError(f"the job is {job.ending}; it is not scaled any more")
        waits = job.allowed.beyond(counts_of(request))
        scaling = parse_request(job, request, self.under_way())
        if waits and decision >= 0:
            raise UsageError(waits)
        if scaling is None:
            if not request.dry_run:
                self._remember(request, decision, requested_by, waits)
            return pb.ScaleReply(message=waits or "no-op: the job has that size already")
        if requested_by:
            scaling = dataclasses.replace(scaling, requested_by=requested_by, reason=request.reason)
        if weights and len(weights) != job.spec.slots:
            raise UsageError(f"{len(weights)} weights for {job.spec.slots} slots")
        scaling = dataclasses.replace(scaling, decision=decision, weights=weights, leaving=leaving)
        if request.dry_run:
            reply = await self._dry_run(scaling)
            reply.message += f"; {waits}" if waits else ""
            return reply
        if len(self.queue) >= QUEUED_MAX:
            raise QueueFullError(f"{QUEUED_MAX} scalings are queued already; wait for one to end")
        self._remember(request, decision, requested_by, waits)
        before = self.under_way()
        scaling = dataclasses.replace(scaling, id=job.store.next_scaling_id())
        job.store.save_scaling(scaling)
        self.queue.append(scaling)
        job.replicate_soon()
        job.event("scaling_queued", scaling=scaling.id, kind=scaling.kind, target=scaling.role,
                  from_count=scaling.from_count, to_count=scaling.to_count, replace=scaling.replace,
                  reason=scaling.asked_reason, **of_workers(scaling),
                  **({"requested_by": requested_by} if requested_by else {}))  # fmt: skip
        job.changed.notify()
        text = f"queued behind scaling {before[-1].id}" if before else "queued"
        return pb.ScaleReply(scaling_id=scaling.id, message=f"{text}; {waits}" if waits else text)

    def _remember(self, request: pb.ScaleRequest, decision: int, requested_by: str, waits: str) -> None:
        """What is wanted, of which the arbiter may allow less."""
        job, sizes = self._job, counts_of(request)
        if not sizes or requested_by:
            return
        if decision >= 0:
            job.allowed.decided(sizes)
            return
        job.allowed.remember(sizes)
        if waits:
            asked = ", ".join(f"{count} {'PS' if role == 'ps' else 'workers'}" for role, count in sizes.items())
            job.event("request_waits", asked=asked, reason=waits)

    async def _dry_run(self, scaling: Scaling) -> pb.ScaleReply:
        job = self._job
        scaling = resolve(job, scaling)
        names = f"new: {', '.join(scaling.added) or 'none'}; drained: {', '.join(scaling.drained) or 'none'}"
        if scaling.role != "ps":
            return pb.ScaleReply(message=f"{scaling.kind} of workers; {names}", plan_json=Plan((), (), 0).to_json())
        if not job.cluster.formed:
            raise UsageError("the job has no PS yet; ask again when it trains")
        plan = await wanted_map(job, scaling.added_ps, scaling.drained_ps, scaling.replace, scaling.weights)
        size = f"{len(plan.moves)} slots, {plan.bytes / 1e6:.1f} MB move"
        both = f", workers {scaling.workers_from} → {scaling.workers_to} with it" if scaling.both else ""
        return pb.ScaleReply(message=f"{scaling.kind} of PS{both}; {names}; {size}", plan_json=plan.to_json())

    def pause_reported(self, report: pb.PauseReport) -> None:
        """A worker tells how long it stood still; often after the scaling has ended."""
        if self.running is not None and self.running.scaling.id == report.scaling_id:
            self.running.add_pause(report)
            return
        for number, scaling in enumerate(self.ended):
            if scaling.id == report.scaling_id:
                self.ended[number] = dataclasses.replace(scaling, **pause_changes(scaling, report))
                self._job.store.save_scaling(self.ended[number])

    def under_way(self) -> list[Scaling]:
        """The one that runs (or that an AIMaster before has left half-done), then those that wait."""
        running = [self.running.scaling] if self.running is not None else self.interrupted
        return [*running, *self.queue]

    def records(self) -> list[Scaling]:
        """Those that have ended (the newest), then those under way."""
        return [*self.ended, *self.under_way()]

    # ------------------------------------------------------------------------------------------------ running

    def abort(self, reason: str) -> None:
        """Rolls back the scaling under way, unless it is decided already or ending anyway."""
        if self._attempt is not None and not self._attempt.done() and not self._abort_reason:
            self._abort_reason = reason
            self._attempt.cancel()

    def make_way(self, reason: str) -> dict[str, str]:
        """Replacements that have not got their pods are called off: who was to be replaced → why."""
        over = [one for one in self.queue if one.replace]
        for scaling in over:
            self.queue.remove(scaling)
            self._note(dataclasses.replace(scaling, detail="refused", outcome="refused", reason=reason))
        run = self.running
        if run is not None and run.scaling.replace and run.state is State.ACQUIRE:
            self.abort(reason)
            over.append(run.scaling)
        return {one.replace: one.asked_reason for one in over}

    def resized(self, role: str, decision: int, asked: str, began: float, outcome: str, reason: str = "") -> None:
        """Notes that the pods of a role were given another CPU or memory, or were refused it: it needs no states."""
        job = self._job
        count = len(present(job, pb.PS if role == "ps" else pb.WORKER))
        scaling = Scaling(
            job.store.next_scaling_id(), "resize", role, asked_reason=asked, from_count=count, to_count=count,
            detail=outcome, outcome=outcome, reason=reason, epoch=job.cluster.epoch, started=began,
            seconds=max(0.0, job.clock.wall() - began), decision=decision,
        )  # fmt: skip
        self._note(scaling)

    def _note(self, ended: Scaling) -> None:
        """Of what took no states."""
        self._job.store.save_scaling(ended)
        self.ended = newest_ended([*self.ended, ended])
        tell_ended(self._job, ended)
        self._job.changed.notify()

    def given_up(self, why: str) -> None:
        """Notes that the job goes on with a worker less than it had: its size is another one, by nobody's decision."""
        job = self._job
        count = len(present(job, pb.WORKER))
        scaling = Scaling(
            job.store.next_scaling_id(), GIVEN_UP, "worker", from_count=count + 1, to_count=count, detail="committed",
            outcome="committed", reason=why, epoch=job.cluster.epoch, started=job.clock.wall(),
        )  # fmt: skip
        if job.allowed.back("worker") is not None:
            job.allowed.remember({"worker": count})  # nor is it brought back when more is allowed
        self._note(scaling)

    def bring_back(self, name: str) -> None:
        """A PS that was lost and whose slots others took over is there again: it gets slots."""
        job, why = self._job, f"{name} is back after it was lost"
        number = job.store.next_scaling_id()
        scaling = Scaling(number, "replace", "ps", added=(name,), asked_reason=why, reason=why)
        job.store.save_scaling(scaling)
        self.queue.append(scaling)
        job.event("scaling_queued", scaling=scaling.id, kind=scaling.kind, target=scaling.role, returning=name,
                  reason=scaling.asked_reason)  # fmt: skip
        job.changed.notify()

    def coming_back(self, name: str) -> bool:
        """Whether that is queued or under way already."""
        return any(scaling.returning and name in scaling.added for scaling in self.records() if not scaling.outcome)

    def _ready(self) -> bool:
        job = self._job
        if job.lock.held(Hold.MARKS) or (job.peer_backups.marks_wanted and job.cluster.live and not job.marks_on):
            return bool(self.queue) and bool(job.ending)  # its dirty rows have to be marked first
        known = bool(job.catalogue.variables or job.catalogue.fingerprint or job.spec.sums)
        live = job.cluster.live and not job.cluster.lost and known
        return bool(self.queue) and (bool(job.ending) or (live and not self._recovering()))

    async def take_back_unheard(self, seconds: float) -> None:
        """A decision that the AIMaster before has persisted and told nobody; waits for those who would know. Before `run`."""
        job = self._job
        if not job.lock.held(Hold.UNHEARD):
            return
        scaling = self.interrupted[0]
        known = [r.name for r in job.members.records.values() if r.takes_part and r.incarnation]

        def here() -> bool:
            return all(job.members.get(name) is not None or self._pods.exited(name) for name in known)

        await job.changed.until(here, seconds)
        if unheard.by_all(scaling, job.members):
            detail = check_edge(State.COMMIT, State.FINAL_COPY)
            self.interrupted[0] = dataclasses.replace(scaling, state=State.FINAL_COPY.value, detail=detail)
            with job.store.transaction(durable=True):
                job.set_cluster(unheard.old_view(job.cluster, scaling))
                job.store.save_scaling(self.interrupted[0])
            job.event("scaling_state", scaling=scaling.id, state=State.FINAL_COPY.value, detail=detail)
        job.lock.give_back(holder(scaling), Hold.UNHEARD)
        job.changed.notify()

    async def run(self) -> None:
        """Runs for ever. What an earlier AIMaster left half-done comes first."""
        while self.interrupted:
            scaling = self.interrupted[0]
            self.running = ScalingRun(self._job, self._pods, scaling)
            self.interrupted = self.interrupted[1:]
            await self._drive(self.running, recovering=True)
        while True:
            if not await self._job.changed.until(self._ready, RECHECK_SECONDS):
                continue
            self.running = run = ScalingRun(self._job, self._pods, self.queue.pop(0))
            if self._job.ending:
                self._end(run, "refused", f"the job is {self._job.ending}")
                continue
            try:
                run.scaling = resolve(self._job, run.scaling)
            except UsageError as error:
                self._end(run, "refused", str(error))
                continue
            nothing = run.scaling.kind != "rebalance" and not run.scaling.added and not run.scaling.drained
            if nothing:
                self._end(run, "committed", "already that size")
                continue
            run.enter(State.ACQUIRE, started=self._job.clock.wall())
            await self._drive(run, recovering=False)

    def _end(self, run: ScalingRun, outcome: str, reason: str) -> None:
        run.finish(outcome, reason)
        self._retire(run)

    def _retire(self, run: ScalingRun) -> None:
        self.ended = newest_ended([*self.ended, run.scaling])
        self.running = None
        self._job.lock.give_all_back(holder(run.scaling))
        self._job.changed.notify()

    async def _drive(self, run: ScalingRun, *, recovering: bool) -> None:
        change = PsChange(run) if run.scaling.role == "ps" else WorkerChange(run)
        try:
            recovery = RULES[run.state].recovery if recovering else Recovery.RESUME
            if recovering and recovery is Recovery.RESUME and (not self._job.cluster.live or self._job.cluster.gone):
                # The run was stopped and is resumed: the chief restores no model while a change goes on, which waits for one.
                await change.roll_back(f"the job was stopped in {run.state.value}")
            elif recovery is Recovery.ROLL_BACK:
                await change.roll_back(f"the AIMaster was restarted in {run.state.value}")
            elif recovery is Recovery.FORWARD or await self._attempted(change, run):
                await change.go_forward()
        except Exception:
            log.exception(
                "scaling %d ended in an error of the AIMaster itself; held: %s", run.scaling.id, self._job.lock
            )
            await self._give_up(change, run)
        self._retire(run)

    async def _attempted(self, change: PsChange | WorkerChange, run: ScalingRun) -> bool:
        """Whether it was decided; else it has been rolled back or refused."""
        self._abort_reason = ""
        self._attempt = asyncio.get_running_loop().create_task(change.until_decided())
        try:
            await self._attempt
            return not run.scaling.outcome
        except asyncio.CancelledError:
            if not self._abort_reason:
                self._attempt.cancel()
                raise  # the AIMaster is being stopped
            await change.roll_back(self._because(self._abort_reason))
        except RefusedScalingError as error:
            run.finish("refused", str(error))
        except CAUGHT as error:
            await change.roll_back(self._because(str(error)))
        finally:
            self._attempt = None
        return False

    def _because(self, reason: str) -> str:
        """Why a scaling is rolled back: where the job is over, that is why, and who died of it is not to blame."""
        if self._job.ending:
            return ENDED
        return STOPPED if self._job.lock.held(Hold.STOPPING) else reason

    async def _give_up(self, change: PsChange | WorkerChange, run: ScalingRun) -> None:
        """A bug in the driver: undo what can be undone, so that training goes on and the next scaling can be tried."""
        try:
            if before_commit(run.state):
                await change.roll_back("internal error of the AIMaster; see its log")
            elif run.state is not State.STEADY:
                if run.state is State.COMMIT:
                    run.enter(State.RELEASE)
                run.finish("committed", "internal error of the AIMaster after the decision; see its log")
        except Exception:
            log.exception("scaling %d could not be undone either", run.scaling.id)
        run.give_back(Hold.GATE, Hold.VIEWS)
        ended = pb.ScalingNotice.COMMITTED if run.scaling.outcome == "committed" else pb.ScalingNotice.ROLLED_BACK
        self._job.notice(run.scaling.id, ended)  # else trainers would take it that it goes on


def newest_ended(ended: Sequence[Scaling]) -> list[Scaling]:
    """Those that are kept, in their order."""
    kept = {
        one.id for of_size in (True, False)
        for one in [one for one in ended if (one.from_count != one.to_count or one.both) == of_size][-ENDED_KEPT:]
    }  # fmt: skip
    return [one for one in ended if one.id in kept]
