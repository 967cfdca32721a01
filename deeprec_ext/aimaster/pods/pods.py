"""Pods as the job wants them, and what the backend says about them."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable

from deeprec_ext.aimaster.core.records import TRAINERS, RoleRecord, parse_name
from deeprec_ext.aimaster.failover.causes import KILLED_CODE, NOT_WANTED, STOPPED_CODES, WITH_THE_JOB, cause_of_exit
from deeprec_ext.aimaster.failover.failover import Failover
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.membership.members import Member
from deeprec_ext.aimaster.pods.backend import PodBackend, PodState
from deeprec_ext.aimaster.state.lock import Hold
from deeprec_ext.errors import UnreachableError
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.retries import pauses

log = logging.getLogger(__name__)
KILL_SECONDS = 10.0
AGAIN_SECONDS, AGAIN_MAX_SECONDS = 1.0, 30.0
"""After how long a restart that failed is tried again; each time twice as long."""

SIGNALS_FROM = 128

UNKNOWN_EXIT_CODE = 1
"""Of a process that had to be killed after its script had ended nobody knows how: not a success."""


SPARED = (pb.WORKER, pb.EVALUATOR)
"""Roles without which a job that trains goes on."""

NOTHING_TRAINED = pb.Notice(
    code="nothing-trained", text="the script has ended well, and no process of it has trained on the parameter servers",
    remedy="look at the command, and at the chief's log, whether it is the training script that was run",
)  # fmt: skip


NOBODY_SUMS = (
    "the script ended without having summed anything: was it the training script that was run? With --strategy allreduce a "
    "loop of its own calls deeprec_ext.allreduce.join(state), and in each step sum(gradients); else every worker trains a "
    "model of its own. Where it calls fit, `deeprec-ext doctor` says what keeps DeepRec Extension out of it"
)


class Pods:
    def __init__(self, job: Job, backend: PodBackend, failover: Failover) -> None:
        self._job, self.backend, self._failover = job, backend, failover
        self.seen: dict[str, PodState] = {}
        self._over: dict[str, PodState] = {}  # the end of the pod that had the name before, until the new one runs
        self._restarting: dict[str, asyncio.Task[None]] = {}
        self._ends: set[asyncio.Task[None]] = set()
        self._heard: set[str] = set()  # pods of which this AIMaster has had a report
        self.failed: Callable[[str], None] = lambda name: None  # a process has ended with an error, by itself
        self.without: Callable[[str], None] = lambda why: None  # the job goes on without a worker, for good
        failover.restart, failover.end = self.restart, self.end

    # ------------------------------------------------------------------------------------------------ acting

    async def create(self, name: str) -> None:
        """Raises UnreachableError."""
        record = self._job.members.record(name)
        if record is not None and not record.wanted:  # its end, told late, would be taken for that of the new one
            await self._job.changed.until(lambda: not self.runs(name), KILL_SECONDS)
        if (over := self.seen.pop(name, None)) is not None:
            self._over[name] = over
        self._job.members.request(name)
        self._job.event("pod_requested", name)
        await self.backend.create(name)

    async def remove(self, name: str, grace_seconds: float) -> None:
        """The pod is not wanted any more; idempotent."""
        record = self._job.members.record(name)
        if record is not None and record.wanted:
            self._job.members.update(name, wanted=False, state=record.state if record.ended else "leaving")
        await self.backend.delete(name, grace_seconds)

    def restart(self, name: str) -> None:
        """Kills the pod and, if it is still wanted, starts it again; in the background."""
        if name not in self._restarting:
            task = asyncio.get_running_loop().create_task(self._restart(name))
            self._restarting[name] = task
            task.add_done_callback(lambda _: self._restarting.pop(name, None))

    async def _restart(self, name: str) -> None:
        """Until it is done: nobody would ask a second time for what hangs, or for a PS that is waited for."""
        for pause in pauses(AGAIN_SECONDS, AGAIN_MAX_SECONDS):
            try:
                await self._restart_once(name)
                return
            except UnreachableError as error:
                why = str(error)
            except Exception as error:
                log.exception("%s could not be started again", name)
                self._job.handler_failed(f"the restart of {name}", error, name)
                why = f"{type(error).__name__}: {error}"
            log.error("%s could not be started again: %s; in %.0f s it is tried again", name, why, pause)
            if pause == AGAIN_SECONDS:
                text = f"{name} could not be started again: {why}; it is tried again"
                self._job.event("warning", name, text=text)
            await asyncio.sleep(pause)

    async def _restart_once(self, name: str) -> None:
        """Raises UnreachableError."""
        await self.backend.delete(name, 0.0)
        await self._job.changed.until(lambda: self.exited(name), KILL_SECONDS)
        record = self._job.members.record(name)
        if record is not None and record.wanted and not self._job.ending:
            old = self.seen.pop(name, None)
            try:
                await self.backend.create(name)
            except BaseException:
                if old is not None:  # the next try need not wait for an end that was seen
                    self.seen.setdefault(name, old)
                raise

    def end(self, member: Member) -> None:
        """Its script has ended, its pod has not. A process that is the pod's own is killed, in the background, with the exit
        code that was told. One that the pod's command has started has ended by its own timer, or is killed where it can be; the
        command is the user's own and goes on."""
        record = self._job.members.records[member.name]
        code = UNKNOWN_EXIT_CODE if member.exit_code is None else member.exit_code
        goes_on = record.pid not in (1, record.pod_pid)
        self._job.event("outstayed", member.name, exit_code=code, goes_on=goes_on)
        if goes_on:
            more = "its pod goes on with what else its command does, and is waited for"
            self._job.event("warning", member.name, text=f"its script has ended with exit code {code}; {more}")
        task = asyncio.get_running_loop().create_task(self._end(member.name, record.pid, code))
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    async def _end(self, name: str, pid: int, code: int) -> None:
        try:
            await self.backend.end(name, pid, code)
        except UnreachableError as error:
            log.error("%s could not be ended: %s", name, error)

    def give_up(self, name: str) -> None:
        """The pod is not wanted any more, and nobody waits for its end."""
        record = self._job.members.record(name)
        if record is not None and record.wanted:
            self._job.members.update(name, wanted=False, state=record.state if record.ended else "leaving")
        self.restart(name)  # killed; not started again, because it is not wanted

    def runs(self, name: str) -> bool:
        state = self.seen.get(name)
        return state is not None and state.state == "running"

    def exited(self, name: str) -> bool:
        state = self.seen.get(name)
        return state is not None and state.state == "exited" and not state.restarting

    async def wait_exit(self, names: tuple[str, ...], timeout_seconds: float) -> list[str]:
        """Waits for the pods to exit; returns those that did not."""
        await self._job.changed.until(lambda: all(self.exited(name) for name in names), timeout_seconds)
        return [name for name in names if not self.exited(name)]

    def close(self) -> None:
        for task in [*self._restarting.values(), *self._ends]:
            task.cancel()

    # ------------------------------------------------------------------------------------------------ listening

    async def watch(self) -> None:
        """Runs for ever."""
        async for state in self.backend.watch():
            try:
                self.apply(state)
            except Exception:
                log.exception("the change of pod %s could not be handled", state.name)

    def apply(self, state: PodState) -> None:
        """One report of the backend; the same report twice does nothing."""
        record = self._job.members.record(state.name)
        if record is None or self.seen.get(state.name) == state:
            return
        if state.state == "running":
            self._over.pop(state.name, None)
        elif (over := self._over.get(state.name)) and dataclasses.replace(over, deleted=state.deleted) == state:
            return  # the pod before it is now deleted, too
        before = self.seen.get(state.name)
        told = before is not None and dataclasses.replace(before, deleted=state.deleted) == state
        self.seen[state.name] = state
        if state.state == "running":
            self._running(record, state)
        else:
            half = self._job.resumed and state.name not in self._heard and state.deleted and record.wanted
            if half and not self._job.ending:  # the last AIMaster died between deleting the pod and creating it again
                self.restart(state.name)
            self._exited(record, state, told)
        self._heard.add(state.name)
        self._job.changed.notify()

    def _running(self, record: RoleRecord, state: PodState) -> None:
        members = self._job.members
        member = members.get(record.name)
        another = record.pod_pid not in (0, state.pid) and record.state == "running"
        if another and (member is None or member.pod_pid == record.pod_pid):
            self._failover.died(record.name, "exited unseen")  # between two watches
            record = members.records[record.name]
        fresh = record.ended or record.state == "requested"
        members.update(
            record.name, pod_pid=state.pid, restarts=state.restarts, state="starting" if fresh else record.state
        )
        if member is not None and member.pod_pid == 0:
            member.pod_pid = state.pid

    def _exited(self, record: RoleRecord, state: PodState, told: bool) -> None:
        """told: the same end has been reported before, and only the pod is now deleted, too."""
        job, name = self._job, record.name
        cause = cause_of_exit(state.exit_code, state.cause)
        member = job.members.get(name)
        registered = member is not None or record.state == "running"
        ends_well = state.exit_code == 0 and record.role != pb.PS and not state.restarting
        expected = not record.wanted or state.deleted or ends_well or bool(job.ending)
        if state.deleted and record.wanted and name not in self._restarting:
            job.lock.take("the backend", Hold.STOPPING)  # not at our word: the backend takes everything down
        error = (member.error if member is not None and state.exit_code else "") or state.last_line
        over = bool(job.ending) or job.lock.held(Hold.STOPPING)
        stopped = state.deleted and not state.cause and state.exit_code in STOPPED_CODES  # the signal is our own doing
        if not told:
            shown = WITH_THE_JOB if stopped and over else cause
            if stopped and not over and not record.wanted and state.exit_code:
                shown = NOT_WANTED
            job.event("exited", name, cause=shown, restarting=state.restarting, last_line=error)
        if 0 < state.exit_code < SIGNALS_FROM and not state.deleted:
            self.failed(name)
        if registered:
            self._failover.died(name, cause, count=not expected)
        elif state.cause or state.exit_code != KILLED_CODE:  # which may be our own doing
            self._failover.learned(name, cause)
        final = "starting" if state.restarting else "exited" if expected else "failed"
        job.members.update(name, state=final, restarts=state.restarts, pod_pid=0)
        if record.role in TRAINERS:
            job.publish_soon()
        if state.restarting and not record.wanted:
            self.restart(name)  # it crashed on its way out: the backend is told not to start it again
        if record.role == pb.CHIEF and ends_well:
            self._finish()
        elif not expected and not state.restarting and name not in job.lock.names(Hold.NEW_PODS):
            line = f": {error}" if error else ""
            if self._does_without(name):
                self._give_up(name, f"{cause}{line}")
            else:
                job.end("failed", f"{name} {cause} and is not started again{line}")

    def _does_without(self, name: str) -> bool:
        """Whether the job goes on where this pod has ended for good: it has trained, and others go on training."""
        members = self._job.members
        others = [one for one in members.records.values() if one.role in TRAINERS and one.wanted and one.name != name]
        return members.records[name].role in SPARED and members.has_trained and any(not one.ended for one in others)

    def _give_up(self, name: str, why: str) -> None:
        """Its restarts are used up. The name is free again: a scaling to more workers may take it."""
        job = self._job
        job.members.update(name, wanted=False)
        text = f"{name} {why}; it has used up its restarts and is given up, the job goes on without it"
        worker = parse_name(name)[0] == pb.WORKER
        remedy = "its log says why" + ("; `deeprec-ext scale --workers` starts another one" if worker else "")
        job.notices.add(name, pb.Notice(code="given-up", text=text, remedy=remedy, mended=True))
        if worker:
            self.without(f"{name} {why}; it has used up its restarts")

    def _finish(self) -> None:
        """The chief has ended: the job is done, the workers may go."""
        job = self._job
        nothing = not job.cluster.live and not job.members.step and not job.notices.all
        if not job.ending and nothing and not job.spec.sums:  # of sums it is said below
            job.notices.add("chief-0", NOTHING_TRAINED)
        if job.ending:
            return
        if job.spec.sums and not job.cluster.live:
            job.end("failed", NOBODY_SUMS)
            return
        job.end("finishing")
        self._failover.abort("the job has ended")
        for member in job.members.trainers().values():
            if member.role == pb.WORKER:
                job.commander.send(member.outbox, leave=pb.Leave(reason="the chief has finished"))
