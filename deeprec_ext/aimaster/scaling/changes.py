"""A change of PS, state by state: the table of docs/mechanisms.md as code.

The workers may change with it. New ones start with the new PS, and wait with their registration for the new view: a session
for the old one would be made for a moment. Those that leave train to the commit, and are in the new view no more.

Trainers that die meanwhile drop out of what is waited for; a target or source that dies rolls the scaling back. The
decision (`_decide`) has no await between the look at the lease and the commit of the transaction.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any

from deeprec_ext.aimaster.core.records import PsInfo
from deeprec_ext.aimaster.membership import commands
from deeprec_ext.aimaster.membership.members import Member
from deeprec_ext.aimaster.membership.plausible import no_copy
from deeprec_ext.aimaster.membership.view import AgreedCluster, take_epoch
from deeprec_ext.aimaster.placement.planner import Plan
from deeprec_ext.aimaster.placement.slots import moves_of, tracked
from deeprec_ext.aimaster.scaling.machine import State, limit_seconds
from deeprec_ext.aimaster.scaling.planning import wanted_map
from deeprec_ext.aimaster.scaling.run import RefusedScalingError, ScalingRun, StepError
from deeprec_ext.aimaster.state.lock import Hold
from deeprec_ext.proto import deeprec_ext_pb2 as pb

DESTROY_SECONDS = 5.0
"""Sources are told to destroy what moved; one that does not answer is dead or hung, and is dealt with as such."""

COMPILE_SECONDS = 10.0
"""How long sources may take, once all else is ready, to compile what destroying will run: without it training stands still for
longer."""

HOLD_SECONDS = 6.0
"""How long backups may take to end their present collection of dirty marks before the final copy."""

SHRINKING = 0.8
"""A round of pre-copy that leaves more than this share of the last remainder does not pay."""

CHANGED = "the variables of the model changed while they were being moved; ask again"


class PsChange:
    def __init__(self, run: ScalingRun) -> None:
        self._run, self._job = run, run.job
        self._moved = pb.Catalogue.FromString(run.job.store.moved(run.scaling.id))
        self._prepare_end = 0.0
        self._lease_end = 0.0
        self._tracked = False  # tables were marked for backups when the targets made their variables

    # ------------------------------------------------------------------------------------------------ members

    def _members_by_task(self, tasks: Sequence[int]) -> dict[str, Member]:
        """Raises StepError when one is gone."""
        there = self._job.members.ps()
        if gone := [task for task in tasks if task not in there]:
            raise StepError(f"the PS with task {gone[0]} is gone")
        return {there[task].name: there[task] for task in tasks}

    def _moves(self) -> dict[int, list[pb.Move]]:
        """By target task."""
        return moves_of(self._moved.variables, self._run.scaling.old_map, self._run.scaling.new_map)

    def _targets(self) -> dict[str, Member]:
        return self._members_by_task(sorted(self._moves()))

    def _moved_slots(self) -> list[int]:
        s = self._run.scaling
        return [slot for slot in range(len(s.new_map)) if s.old_map[slot] != s.new_map[slot]]

    def _new_view(self) -> pb.View:
        s, job = self._run.scaling, self._job
        new = dataclasses.replace(
            job.cluster, epoch=s.epoch, ps=s.targets, slot_map=s.new_map, marked=self._marked_after()
        )
        return new.to_proto(job.workers())

    def _marked_after(self) -> tuple[int, ...]:
        """Backups need the marks all the time; a migration alone only until it ends."""
        return self._job.cluster.marked if self._job.marks_on else ()

    def _all_ps(self) -> dict[str, Member]:
        return {member.name: member for member in self._job.members.ps().values()}

    # ------------------------------------------------------------------------------------------------ before COMMIT

    async def until_decided(self) -> None:
        """ACQUIRE to the decision. Raises one of CAUGHT: roll back; RefusedScalingError: nothing was begun."""
        await self._acquire()
        if self._run.scaling.outcome:
            return
        await self._prepare()
        await self._pause()
        await self._final_copy()
        before = self._job.cluster
        self._decide()
        await self._is_stored(before)

    async def _acquire(self) -> None:
        run, job, s = self._run, self._job, self._run.scaling
        planned = await self._planned()
        available, needed = run.pods.backend.available_memory(), planned.bytes + job.settings.copy_chunk_bytes
        alone = len(job.cluster.ps) + len(s.added_ps) - len(s.drained_ps) == 1
        if alone and job.trainer_backups.allowed and not job.trainer_backups.complete():
            needed += job.trainer_backups.needed_bytes  # a trainer makes copies of everything
        if available is not None and planned.bytes and needed > available:
            raise RefusedScalingError(
                f"the targets need {needed / 1e6:.0f} MB for the copies and {available / 1e6:.0f} MB are available: "
                "free memory, or move less at a time"
            )
        job.notice(s.id, pb.ScalingNotice.BEGUN)
        await run.acquire(limit_seconds(State.ACQUIRE, job.settings) or 0.0)
        count = len([ps for ps in job.cluster.ps if ps.name not in s.drained]) + len(s.added_ps)
        await job.trainer_backups.ready_for(count, job.settings.acquire_limit_seconds)
        run.take(Hold.VIEWS)  # a view that came between this one and its commit would be the newer one
        planned = await self._planned()  # now with the real task numbers
        if not planned.moves and not s.added and not s.drained:
            run.give_back(Hold.VIEWS)
            job.publish_soon()
            job.notice(s.id, pb.ScalingNotice.ROLLED_BACK)
            run.finish("committed", "already balanced: nothing to move")
            return
        staying = [ps for ps in job.cluster.ps if ps.name not in s.drained]
        new = [m for name in s.added_ps if (m := job.members.get(name)) is not None]
        infos = [PsInfo(m.task, m.name, m.address, m.incarnation) for m in new]
        slots = {move.slot for move in planned.moves}
        self._moved = pb.Catalogue(
            variables=[v for v in job.catalogue.variables if v.slot in slots], fingerprint=job.catalogue.fingerprint
        )
        cluster, epoch = take_epoch(job.cluster)
        with job.store.transaction():
            job.set_cluster(cluster)
            run.update(
                old_map=job.cluster.slot_map, new_map=planned.slot_map, targets=(*staying, *infos), epoch=epoch,
                slots_moved=len(planned.moves), old_ps=job.cluster.ps, moved=self._moved.SerializeToString(),
            )  # fmt: skip

    async def _planned(self) -> Plan:
        s = self._run.scaling
        return await wanted_map(self._job, s.added_ps, s.drained_ps, s.replace, s.weights)

    async def _prepare(self) -> None:
        run, job = self._run, self._job
        limit = limit_seconds(State.PREPARE, job.settings) or 0.0
        self._prepare_end = run.now() + limit
        run.enter(State.PREPARE, "targets make their variables", armed=True)
        ps = {member.task: member for member in (*job.cluster.ps, *run.scaling.targets)}
        moves = self._moves()
        self._tracked = job.marks_on
        rows = any(variable.update == pb.Variable.ROWS for variable in self._moved.variables)
        # Trainers mark first then: with what targets make, and before anything is copied.
        marking = rows and not job.marks_on
        arm: dict[str, asyncio.Future[pb.Ack]] = {}
        for name, member in self._targets().items():
            arm |= job.send(
                {name: member},
                copy=pb.Copy(phase=pb.Copy.ARM, scaling_id=run.scaling.id, moves=moves[member.task],
                             ps=[info.to_proto() for info in ps.values()], tracked=job.marks_on,
                             guarded=job.peer_backups.kept_in_changes),
            )  # fmt: skip
        compiling = self._compiling(keep=job.peer_backups.kept_in_changes)
        prepared: asyncio.Future[Any] | None = None
        try:
            prepared = None if marking else self._sessions()
            await commands.gather(arm, self._left(), "Copy(ARM)")
            if prepared is None:
                await self._mark(self._moved_slots())
                prepared = self._sessions()
            run.update(detail="first copy")
            acks = await self._copy(pb.Copy.FIRST, self._left())
            run.update(bytes_moved=run.scaling.bytes_moved + sum(ack.copy.bytes for ack in acks))
            if rows and self._moves():
                await self._dirty_rounds()
            late = not prepared.done()
            run.update(detail="sessions are being prepared")
            await prepared
            if compiling:  # whoever has not compiled does it when it is told to destroy
                await asyncio.wait(compiling, timeout=min(COMPILE_SECONDS, self._left()))
            if late and rows:
                await self._dirty_round("last round")
        finally:
            for one in compiling:
                one.cancel()
            if prepared is not None and not prepared.cancel() and not prepared.cancelled():
                prepared.exception()  # retrieved: another error came first

    def _leaving(self) -> dict[int, list[pb.Variable]]:
        """The variables that move, by the task that has them."""
        sources: dict[int, list[pb.Variable]] = {}
        for variable in self._moved.variables:
            sources.setdefault(self._run.scaling.old_map[variable.slot], []).append(variable)
        return sources

    def _compiling(self, keep: bool) -> list[asyncio.Future[pb.Ack]]:
        """Done when the sources have compiled what `Destroy` will run."""
        found: list[asyncio.Future[pb.Ack]] = []
        for task, variables in self._leaving().items():
            if (source := self._job.members.ps().get(task)) is not None:
                compiled = pb.Compile(variables=variables, keep=keep)
                found += self._job.send({source.name: source}, compile=compiled).values()
        return found

    def _sessions(self) -> asyncio.Future[Any]:
        """Done when every trainer has prepared its session for the new view."""
        prepare = pb.Prepare(view=self._new_view(), keep_marks=self._job.marks_on)
        asked = self._run.ask(self._job.members.trainers(), self._left(), "Prepare", may_die=True, prepare=prepare)
        return asyncio.ensure_future(asked)

    def _left(self) -> float:
        return max(0.0, self._prepare_end - self._run.now())

    async def _mark(self, slots: list[int]) -> None:
        run, job = self._run, self._job
        run.update(marked=True, detail="dirty rows are marked")
        job.set_cluster(dataclasses.replace(job.cluster, marked=tuple(slots)))
        mark = pb.Mark(slots=slots, tracked=tracked(self._moved.variables, slots))
        await run.ask(job.members.trainers(), self._left(), "Mark", may_die=True, mark=mark)

    async def _copy(self, phase: pb.Copy.Phase, timeout_seconds: float) -> list[pb.Ack]:
        run = self._run
        command = pb.Copy(phase=phase, scaling_id=run.scaling.id)
        what = f"Copy({pb.Copy.Phase.Name(phase)})"
        acks = await run.ask(self._targets(), timeout_seconds, what, may_die=False, copy=command)
        for name, ack in acks.items():
            self._sane(name, ack.copy)
        return list(acks.values())

    def _sane(self, name: str, copy: pb.CopyResult) -> None:
        """What it has sent is a figure of the scaling: one that cannot be counts as nothing, and its PS is suspect."""
        model = sum(variable.bytes for variable in self._moved.variables)
        if doubt := no_copy(max(copy.bytes, copy.remaining_bytes), model):
            copy.bytes = copy.remaining_bytes = 0
            if (member := self._job.members.get(name)) is not None:
                self._job.suspects.note(member, f"ack.copy has {doubt}")

    async def _dirty_round(self, detail: str) -> int:
        acks = await self._copy(pb.Copy.DIRTY, self._left())
        remaining = sum(ack.copy.remaining_bytes for ack in acks)
        resent = self._run.scaling.bytes_resent + sum(ack.copy.bytes for ack in acks)
        self._run.update(bytes_resent=resent, detail=f"{detail}: {remaining / 1e6:.1f} MB dirty")
        return remaining

    async def _dirty_rounds(self) -> None:
        settings = self._job.settings
        before: int | None = None
        for number in range(settings.dirty_rounds_max):
            remaining = await self._dirty_round(f"round {number + 1} of pre-copy")
            if remaining <= settings.dirty_small_bytes:
                return
            if before is not None and remaining > SHRINKING * before:
                return
            before = remaining

    async def _pause(self) -> None:
        run, job = self._run, self._job
        settings = job.settings
        if waited := await run.stored():  # else trainers would stand still for a decision that cannot be written down
            self._prepare_end += waited
            if any(variable.update == pb.Variable.ROWS for variable in self._moved.variables) and self._moves():
                await self._dirty_round("after the wait for the disk")
        if job.marks_on != self._tracked:
            raise StepError(CHANGED)
        if job.marks_on:  # the final copy must be the only reader that collects dirty marks
            hold = pb.Hold(lease_seconds=settings.lease_seconds + HOLD_SECONDS)
            holders = job.trainer_backups.members()
            held = job.send({**self._all_ps(), **holders}, hold=hold)
            await commands.gather(held, HOLD_SECONDS, "Hold", may_die=holders)
        run.enter(State.PAUSE)
        run.take(Hold.GATE)
        self._lease_end = run.now() + settings.lease_seconds  # before the first trainer can have got it
        limit = min(settings.pause_limit_seconds, settings.lease_seconds)
        pause = pb.Pause(lease_seconds=settings.lease_seconds)
        await run.ask(job.members.trainers(), limit, "Pause", may_die=True, pause=pause)

    async def _final_copy(self) -> None:
        run = self._run
        run.enter(State.FINAL_COPY)
        left = self._lease_end - self._job.settings.commit_margin_seconds - run.now()
        acks = await self._copy(pb.Copy.FINAL, max(0.0, left))
        run.scaling = dataclasses.replace(
            run.scaling,
            bytes_moved=run.scaling.bytes_moved + sum(ack.copy.bytes for ack in acks),
            bytes_resent=run.scaling.bytes_resent + sum(ack.copy.remaining_bytes for ack in acks),
        )  # persisted with the decision

    def _decide(self) -> None:
        """The point of no return: state and view in one transaction that also waits for the disk."""
        run, job, s = self._run, self._job, self._run.scaling
        moved = {v.name: v for v in self._moved.variables}
        slots = set(self._moved_slots())
        now = {v.name: v for v in job.catalogue.variables if v.slot in slots}
        by_rows = [v for v in moved.values() if v.update == pb.Variable.ROWS]
        if now.keys() != moved.keys() or any(now[v.name].bitmap != v.bitmap for v in by_rows):
            raise StepError(CHANGED)
        if job.marks_on != self._tracked:  # backups may have collected marks since
            raise StepError(CHANGED)
        if job.cluster.lost or not job.cluster.live:
            raise StepError("the model is not live any more")
        if any(ps.task not in job.members.ps() for ps in s.targets):
            raise StepError("a PS of the new view is gone")
        if ended := [name for name in s.joining if run.pods.exited(name)]:
            raise StepError(f"{', '.join(ended)} ended before it took part; see its log")
        if s.epoch <= job.cluster.epoch:  # nobody would follow an older view
            raise StepError(f"view {job.cluster.epoch} was published while view {s.epoch} was being prepared")
        if self._lease_end - run.now() < job.settings.commit_margin_seconds:
            raise StepError(f"less than {job.settings.commit_margin_seconds:g} s of the pause's lease were left")
        decided = dataclasses.replace(
            job.cluster, epoch=s.epoch, ps=s.targets, slot_map=s.new_map, marked=self._marked_after(),
            next_epoch=max(job.cluster.next_epoch, s.epoch + 1),
        )  # fmt: skip
        with job.store.transaction(durable=True):
            run.enter(State.COMMIT)
            job.set_cluster(decided)

    async def _is_stored(self, before: AgreedCluster) -> None:
        """Nobody hears of a decision that is not written down. Where that takes longer than the lease allows, trainers go on
        with the old view, and so does everybody."""
        run, job = self._run, self._job
        if await job.stored(job.settings.commit_margin_seconds / 2):
            return
        with job.store.transaction(durable=True):
            run.enter(State.FINAL_COPY)
            job.set_cluster(dataclasses.replace(before, next_epoch=job.cluster.next_epoch))
        raise StepError(f"the decision could not be written down ({job.store.behind}); ask again")

    # ------------------------------------------------------------------------------------------------ back

    async def roll_back(self, reason: str) -> None:
        """To the old view. Every part is idempotent: a new AIMaster does all of it again."""
        run, job = self._run, self._job
        if run.scaling.returning and run.scaling.asked_reason not in reason:
            reason = f"{run.scaling.asked_reason}, but: {reason}"
        limit = job.settings.release_limit_seconds
        run.update(detail=f"rolling back: {reason}", reason=reason)
        trainers = job.members.trainers()
        if run.scaling.armed:
            job.send(trainers, resume=pb.Resume())
        run.give_back(Hold.GATE)
        job.changed.notify()
        if run.scaling.marked:  # before the bitmaps go: a run that marks would fail without them
            job.set_cluster(dataclasses.replace(job.cluster, marked=()))
            await run.insist(job.send(job.members.trainers(), mark=pb.Mark()), limit, "Mark([])")
        if run.scaling.armed:
            moves = self._moves()
            futures: dict[str, asyncio.Future[pb.Ack]] = {}
            for task in moves:
                member = job.members.ps().get(task)
                if member is not None:
                    abort = pb.Copy(phase=pb.Copy.ABORT, scaling_id=run.scaling.id, moves=moves[task])
                    futures |= job.send({member.name: member}, copy=abort)
            await run.insist(futures, limit, "Copy(ABORT)")
            sources = {m.name: m for task in self._leaving() if (m := job.members.ps().get(task)) is not None}
            job.send(sources, compile=pb.Compile())  # what was compiled is of no use any more
        self._hold_no_more()
        await run.delete_added()
        for name in run.scaling.added if not run.scaling.returning else ():
            job.members.drop(name, "the scaling was rolled back")
        run.give_back(Hold.VIEWS)
        job.notice(run.scaling.id, pb.ScalingNotice.ROLLED_BACK)
        run.finish("rolled_back", reason)
        job.publish_soon()

    # ------------------------------------------------------------------------------------------------ forward

    def _hold_no_more(self) -> None:
        if self._job.marks_on:
            self._job.send({**self._all_ps(), **self._job.trainer_backups.members()}, hold=pb.Hold())

    async def go_forward(self) -> None:
        """From COMMIT or RELEASE to the end, whatever happens."""
        run, job = self._run, self._job
        if run.state is State.COMMIT:
            run.take(Hold.GATE, Hold.VIEWS)
            try:
                # The decision itself is written (`_is_stored`, or it was read). What has come since and cannot be written is
                # not waited for: that may last longer than the lease, and trainers would go on with the old view.
                await job.keep_elsewhere()  # takes less than the margin that the decision has left of the lease
                await self._commit()
            finally:
                run.give_back(Hold.GATE, Hold.VIEWS)
                job.changed.notify()
            run.enter(State.RELEASE)
        job.notice(run.scaling.id, pb.ScalingNotice.COMMITTED)
        job.publish_soon()
        await run.release(limit_seconds(State.RELEASE, job.settings) or 0.0)
        run.finish("committed")

    async def _commit(self) -> None:
        run, job, s = self._run, self._job, self._run.scaling
        futures: dict[str, asyncio.Future[pb.Ack]] = {}
        kept = job.peer_backups.hand_over(s.old_map)
        for task, variables in self._leaving().items():
            member = job.members.ps().get(task)
            if member is not None:
                destroy = pb.Destroy(variables=variables, keep=kept.get(task))
                futures |= job.send({member.name: member}, destroy=destroy)
        await run.insist(futures, DESTROY_SECONDS, "Destroy")
        for name in s.leaving_workers:  # they are in the new view no more
            if name in job.members.records:
                job.members.update(name, wanted=False)
        trainers = job.members.trainers()
        whole = (
            job.cluster.live and not job.cluster.lost
        )  # else the copies are what the loss is going to be healed with
        if whole:
            job.peer_backups.plan()
        job.backup_map = job.peer_backups.backup_map() if whole else ()
        keep = bool(
            job.cluster.marked
        )  # not `marks_on`: after the loss of the store one may not be sure of all, and keep them
        commits = job.send(trainers, commit=pb.Commit(view=job.view(), keep_marks=keep))
        job.publish(without=frozenset(trainers))
        if whole:
            job.peer_backups.tell()
        self._hold_no_more()
        told = asyncio.ensure_future(run.insist(commits, job.settings.lease_seconds, "Commit"))
        told.add_done_callback(lambda _: job.changed.notify())
        try:  # a PS that is lost now has to be taken over: who has not answered gets both
            await job.changed.until(lambda: told.done() or bool(job.cluster.lost), None)
        finally:
            if not told.cancel() and not told.cancelled():
                told.result()
