"""Replacing what died or hung.

A PS takes the variables of its slots with it. The view is marked (`lost`) and a scaling before COMMIT is rolled back. Then

- the survivors take the slots over from their peer backups (`promotion`), and when the PS is there again it gets slots by an
  ordinary scaling; or, where no PS has a backup,
- trainers stand still until new incarnations of all lost PS have registered, and those pull the copies that a trainer holds
  (`fetching`), in the same generation; or, where that has none either,
- trainers stand still until new incarnations of all lost PS have registered, and a view of the next generation is published:
  sessions are made anew, and the model comes from the disk backup or, by the chief, from the last checkpoint.

Something that hangs is killed first, so that it cannot write any more.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Iterable, Sequence

from deeprec_ext.aimaster.core.records import PsInfo
from deeprec_ext.aimaster.failover import fetching, promotion
from deeprec_ext.aimaster.failover.causes import HUNG
from deeprec_ext.aimaster.failover.failures import Failures
from deeprec_ext.aimaster.failover.silence import Silence
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.membership.commands import CommandError
from deeprec_ext.aimaster.membership.members import Member
from deeprec_ext.aimaster.membership.view import lose, replace_lost
from deeprec_ext.aimaster.state.lock import Hold
from deeprec_ext.aimaster.store import resuming
from deeprec_ext.proto import deeprec_ext_pb2 as pb

log = logging.getLogger(__name__)
FLUSH_SECONDS = 1.0
LATE_SECONDS, STALL_SECONDS = 0.05, 1.0
"""What the AIMaster wakes up late by: from the first on messages may wait for it, the second is worth a line in the log."""

REPORTS_SECONDS = 5.0
"""After a restart of the AIMaster, how long it waits for the PS to tell which backups they hold."""

SETTLED_SECONDS = 120.0
"""... and for the trainer that holds those of a single PS to be back or given up, which has a limit of its own."""

TRAINERS_SECONDS = 2.0
"""... and for trainers to register: they try every second or so, and nobody trains without the lost PS meanwhile."""

FETCHES_MAX = 3
"""How often one loss' copies are fetched, by PS that die or fail meanwhile, before something older is restored."""

NAMED = 3
"""Variables that a failure names."""

BRING_BACK_SECONDS = 10.0
"""How long after a returned PS's scaling was rolled back it is tried again."""


class Failover:
    """`restart` kills and starts a pod, `abort` rolls back the scaling under way."""

    def __init__(self, job: Job, failures: Failures) -> None:
        self._job, self._failures = job, failures
        self.silence = Silence(job, failures)
        self.restart: Callable[[str], None] = lambda name: None
        self.abort: Callable[[str], None] = lambda reason: None
        self.bring_back: Callable[[str], None] = lambda name: None
        self.coming_back: Callable[[str], bool] = lambda name: True
        self.remove: Callable[[str], None] = lambda name: None
        self.end: Callable[[Member], None] = lambda member: None
        self._began = job.clock.monotonic()
        self._failed_fetches = 0  # of the loss there is now
        self._missing: tuple[pb.Variable, ...] = ()  # variables that are on no PS any more, though all PS live
        self._restored_without: frozenset[str] = frozenset()  # such ones, since which the disk backup was restored
        job.ledger.forgotten_late = failures.forgotten_late

    def died(self, name: str, cause: str, *, count: bool = True) -> None:
        """A registered incarnation is over and nobody asked it to. `count`: it is a failure, not an end."""
        job = self._job
        ps = job.cluster.by_name(name)
        member = job.members.drop(name, cause)
        record = job.members.record(name)
        job.ledger.release(member.incarnation if member else record.incarnation if record else "", f"{name} {cause}")
        if record is not None and member is None and record.incarnation:
            job.store.fence(record.incarnation, name)
        if record is not None and record.takes_part:
            job.members.update(name, state="starting", task=-1)
        if count:
            self._failures.add(name, cause, member, ps.task if ps else -1)
        if ps is not None and name not in job.cluster.lost:
            job.set_cluster(lose(job.cluster, name))
            self.abort(f"{name} {cause}")
        elif member is not None and member.is_trainer:
            job.publish_soon()
        job.changed.notify()

    def hung(self, name: str, seconds: float) -> None:
        """No sign of life for so long: kill it (fencing), then it is like any other death."""
        record = self._job.members.record(name)
        wanted = record is not None and record.wanted
        member = self._job.members.get(name)
        self._job.event("silent", name, seconds=round(seconds, 2))
        self.died(name, HUNG if member is None else self.silence.cause(member), count=wanted)
        self.restart(name)

    def learned(self, name: str, cause: str) -> None:
        """How a process has ended that is not here any more."""
        self._failures.learned(name, cause)

    def begin_anew(self, missing: Sequence[pb.Variable]) -> None:
        """The model has lost these variables, and no PS: it is restored, in another generation, and that is told."""
        self._missing = tuple(missing)
        self._job.changed.notify()

    async def replace(self) -> None:
        """Runs for ever: heals the cluster whenever PS are lost, and the model when it is broken."""
        job = self._job

        def ill() -> bool:
            return bool(job.cluster.lost or self._missing) and not job.lock.held(Hold.DECISION, Hold.STOPPING)

        while True:
            await job.changed.until(ill, None)
            if not job.cluster.lost:
                await self._begin_anew()
                continue
            self._missing = ()  # whoever misses them then will say so again
            if self._is_new() and not resuming.nothing_restored(
                job.store
            ):  # else agents are new, too, and know nothing
                await self._wait_for_what_agents_know()
                if job.lock.held(Hold.DECISION, Hold.STOPPING):  # since
                    continue
            lost = job.cluster.lost
            planned = promotion.plan_promotion(job)
            copies_left = True
            if planned is not None:
                done, copies_left = await self._promote(planned)
                if done:
                    continue
            if not copies_left or not await self._fetch(lost):
                await self._restore(lost, hopeful=copies_left)

    def _is_new(self) -> bool:
        """This AIMaster went on with a job whose agents have not told it everything yet."""
        young = self._job.clock.monotonic() - self._began < REPORTS_SECONDS
        return self._job.resumed and (young or not self._job.settled)

    async def _wait_for_what_agents_know(self) -> None:
        """Which backups the PS hold, and the steps that trainers have seen: bounded, for one may have died or hang."""
        job = self._job
        survivors = [ps for ps in job.cluster.ps if ps.name not in job.cluster.lost]
        if survivors and job.cluster.live and job.peer_backups.wanted:
            await job.changed.until(lambda: promotion.plan_promotion(job) is not None, REPORTS_SECONDS)
        elif job.cluster.live and job.trainer_backups.alone:
            await job.changed.until(lambda: fetching.plan_fetch(job) is not None or job.settled, SETTLED_SECONDS)
            await job.changed.until(lambda: fetching.plan_fetch(job) is not None, REPORTS_SECONDS)
        await job.changed.until(lambda: not job.members.missing_trainers(), TRAINERS_SECONDS)

    async def _promote(self, planned: promotion.Promotion) -> tuple[bool, bool]:
        """(whether training goes on, whether there are copies left: backups half promoted are none any more)."""
        job, began = self._job, self._job.clock.monotonic()
        try:
            await promotion.carry_out(job, planned)
        except CommandError as error:
            job.event("warning", text=f"the backups could not be promoted: {error}")
            return False, isinstance(error, promotion.NothingDoneError)
        self._went_on("promotion", planned, began, "promoted", slots=len(planned.slots), fetched=len(planned.fetched))
        if not job.settings.replace_lost_ps:
            for name in planned.lost:
                self.remove(name)
        return True, False

    def _went_on(
        self, how: str, planned: promotion.Promotion | fetching.Fetching, began: float, event: str, **fields: object
    ) -> None:
        """Training goes on from copies, in the same generation."""
        job = self._job
        age = job.clock.monotonic() - planned.since
        stale = job.ledger.forgotten(age)
        age = max(0.0, age - self._failures.seconds_since_death())
        missing = job.members.progress.since(planned.since, job.members.step)
        self._failures.replaced(job.cluster.epoch)
        self._failures.recovered_by(how, round(age, 3), stale, missing)
        job.event(
            event, ",".join(planned.lost), **fields, stale_records=stale, backup_age_seconds=round(age, 3),
            steps_missing=missing, seconds=round(job.clock.monotonic() - began, 4),
        )  # fmt: skip

    async def _fetch(self, lost: tuple[str, ...]) -> bool:
        """Training stands still until all lost PS are replaced, by PS that pull the copies of what was on them. False: there
        are no copies (any more), and something older is to be restored. True also when all is to be looked at again, as when
        the replacement has died while it fetched."""
        job, began = self._job, self._job.clock.monotonic()
        tasks = [ps.task for ps in job.cluster.ps if ps.name in lost]

        def over() -> bool:
            return job.cluster.lost != lost or fetching.plan_fetch(job) is None

        while not over() and self._replacements() is None:
            await promotion.stop_trainers(job, tasks, job.settings.lease_seconds)
            await job.changed.until(lambda: over() or self._replacements() is not None, job.settings.lease_seconds / 2)
        planned, found = fetching.plan_fetch(job), self._replacements()
        if job.cluster.lost != lost:
            return True
        if planned is None or found is None:
            return False
        step = await promotion.stop_trainers(job, tasks, job.settings.prepare_limit_seconds)

        def decided() -> None:
            self._went_on(
                "holder", planned, began, "fetched", slots=len(planned.sources),
                copies=fetching.told_of(planned.sources), generation=job.cluster.generation,
            )  # fmt: skip

        try:
            await fetching.carry_out(job, planned, found, step, decided)
        except CommandError as error:
            job.event("warning", text=f"the copies of {', '.join(lost)} could not be fetched: {error}")
            self._failed_fetches += 1
            await self._call_off(found)
            return job.cluster.lost != lost or self._failed_fetches < FETCHES_MAX
        self._failed_fetches = 0
        return True

    async def _call_off(self, names: Iterable[str]) -> bool:
        """Before anything else is written on these PS: what they were told to pull or to restore has ended. False: some
        did not say so and have been killed."""
        late = await fetching.call_off(self._job, names)
        for name in late:
            self._job.event("warning", name, text="it was told to write no more and did not say that it has stopped")
            self.died(name, "did not stop writing")
            self.restart(name)
        return not late

    async def _begin_anew(self) -> None:
        job, missing = self._job, self._missing
        self._missing = ()
        if not job.cluster.live or any(one.generation != job.cluster.generation for one in missing):
            return
        task, names = job.cluster.slot_map[missing[0].slot], sorted(one.name for one in missing)
        owner = next(ps.name for ps in job.cluster.ps if ps.task == task)
        cause = f"lost {', '.join(names[:NAMED])}" + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
        job.event("model_broken", owner, variables=names[:100])
        # What they have trained is going to be forgotten: they make no more of it, and say how far they are.
        await promotion.stop_trainers(job, (), job.settings.lease_seconds)
        if job.cluster.lost:
            return
        self._failures.add(owner, cause, None)
        use_disk = not self._restored_without & set(names)  # else the cut has not got them either
        self._restored_without = self._restored_without | set(names) if use_disk else frozenset()
        await self._restore((), False, use_disk)

    async def _restore(self, lost: tuple[str, ...], hopeful: bool, use_disk: bool = True) -> None:
        """Training stands still until all lost PS are replaced; then the next generation begins. Returns early when more
        is lost meanwhile, or, if `hopeful`, somebody tells of copies after all: then everything is looked at again."""
        job, lease = self._job, self._job.settings.lease_seconds
        tasks = [ps.task for ps in job.cluster.ps if ps.name in lost]
        while (
            (found := self._replacements()) is None
            or not await self._call_off(found)
            or found != self._replacements()  # since
        ):
            copies_came = self._failed_fetches < FETCHES_MAX and fetching.plan_fetch(job) is not None
            if job.cluster.lost != lost or (copies_came and hopeful):
                return
            if job.cluster.live:
                await promotion.stop_trainers(job, tasks, lease)
            await job.changed.until(lambda: self._replacements() is not None or job.cluster.lost != lost, lease / 2)
        self._failed_fetches, restored = 0, None
        if job.cluster.live and job.choices.disk_path and use_disk:
            await promotion.stop_trainers(job, tasks, job.settings.disk_backup_limit_seconds)
            try:
                restored = await job.disk.restore(replace_lost(job.cluster, found))
            except CommandError as error:
                job.event("warning", text=f"the disk backup could not be restored: {error}")
            if restored is None and not await self._call_off(ps.name for ps in job.cluster.ps):
                return
            if job.cluster.lost != lost:
                return
        job.backup_map = ()
        job.marks_are_off()
        job.set_cluster(dataclasses.replace(replace_lost(job.cluster, found), live=restored is not None))
        if found:
            job.event("ps_replaced", ",".join(sorted(found)), generation=job.cluster.generation)
        self._failures.replaced(job.cluster.epoch)
        self._failures.recovered_by("disk backup" if restored is not None else "checkpoint")
        if restored is not None:  # the chief attaches, and says nothing about the step
            self._failures.restored(restored.step, "disk backup")
        job.publish()

    async def bring_lost_back(self) -> None:
        """Runs for ever: a PS whose slots others took over gets slots again when it has registered anew."""
        job = self._job

        def spare() -> list[str]:
            if not job.quiet(Hold.DECISION):
                return []
            return [
                name for name in job.members.wanted(pb.PS)
                if (member := job.members.get(name)) is not None and member.admitted
                and job.cluster.by_name(name) is None and not self.coming_back(name)
                and name not in job.lock.names(Hold.NEW_PODS)
            ]  # fmt: skip

        while True:
            await job.changed.until(lambda: bool(spare()), None)
            for name in spare():
                self.bring_back(name)
            await asyncio.sleep(BRING_BACK_SECONDS)

    def _replacements(self) -> dict[str, PsInfo] | None:
        """New incarnations of all lost PS; None while one is missing or a scaling must end first."""
        job = self._job
        if job.lock.held(Hold.DECISION):
            return None
        found = {}
        for name in job.cluster.lost:
            member, old = job.members.get(name), job.cluster.by_name(name)
            if member is None or not member.admitted or (old and member.incarnation == old.incarnation):
                return None
            found[name] = PsInfo(member.task, name, member.address, member.incarnation)
        return found

    async def watch_heartbeats(self) -> None:
        """Runs for ever. What this very process was late by is nobody's silence."""
        job = self._job
        limits = (job.settings.ps_heartbeat_limit_seconds, job.settings.worker_heartbeat_limit_seconds)
        tick = max(0.02, min(min(limits) / 30, 0.1))  # a hung PS stops everybody until it is noticed
        before = flushed = job.clock.monotonic()
        while True:
            await asyncio.sleep(tick)
            now = job.clock.monotonic()
            if (late := now - before - tick) > LATE_SECONDS:
                job.members.forgive(late)
            if late > STALL_SECONDS:
                log.warning("the AIMaster stood still for %.1f s", late)
            before = now
            for member, seconds in self.silence.given_up():
                self.hung(member.name, seconds)
            for member in job.members.outstaying():
                self.end(member)
            if now - flushed >= FLUSH_SECONDS:
                job.members.flush()
                job.ledger.look()
                flushed = now
