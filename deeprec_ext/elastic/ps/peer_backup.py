"""Peer backups: what this PS keeps of other PS's slots, and how it becomes the owner when such a PS dies.

A backup of variable `v` is the variable `v@backup` on this PS. It is made by a `Mover`, like a migration: bitmaps, a first copy
in chunks, then every few seconds the rows that were marked meanwhile, pulled from the owner by this PS. No training step
waits for it, and workers know nothing of it but the marks.

Promotion turns `v@backup` into `v`; when a slot moves away, its old owner turns `v` into `v@backup` (`keep`), and is its guard
until another one has a copy (`copies`: neither copies anything). The ops for a promotion are compiled when the backup is made.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from deeprec_ext.elastic.ps.collector import make_bitmaps
from deeprec_ext.elastic.ps.copies import Parting, become_backups
from deeprec_ext.elastic.ps.held_slots import Assignment, HeldSlot, HeldSlots
from deeprec_ext.elastic.ps.refreshing import Refresher
from deeprec_ext.errors import DeepRecError
from deeprec_ext.proto import deeprec_ext_pb2 as pb

log = logging.getLogger("deeprec_ext")


class PeerBackup(HeldSlots):
    """All peer backups on this PS. `guard`, `refresh` and `promote` are called by the PS's command thread."""

    _refresher: Refresher | None = None

    def guard(self, command: pb.Guard) -> None:
        """Another assignment; what stays as it is goes on by dirty rows."""
        wanted = self._slots_of(command)
        with self.lock:
            if command.id < self._now.guard:
                return
            old, slots = self._now.slots, {}
            for slot, fresh in wanted.items():
                known = old.get(slot)
                if known is not None and known.key == fresh.key:
                    fresh = known
                elif known is not None and known.generation == fresh.generation:
                    fresh.began, fresh.full_bytes = known.began, known.full_bytes
                    fresh.promote, fresh.program = known.promote, known.program
                    copied = {variable.name for variable in known.copied}
                    fresh.left_out = frozenset(v.name for v in fresh.variables if v.name not in copied)
                slots[slot] = fresh
            self._now = Assignment(command.id, slots, command.seconds, frozenset(command.owned))
            self._promoted.clear()
            self.frozen = False
            now, gone = self._now, [one for slot, one in old.items() if slots.get(slot) is not one]
        self._hand_over(now, gone)

    def keep(self, command: pb.Guard, parting: Parting | None = None) -> tuple[frozenset[int], bool]:
        """Variables of this PS that have moved away become backups of what they are now on their new owners, in addition to
        what is guarded here. Idempotent. A slot of which nothing is here is not kept, and not reported.

        Carried out late, after the assignment that followed it, it makes no backups: what is to be kept is being copied from
        the new owner, which has been trained on since.

        `parting`: what was compiled for it. Returns the slots that are owned here again by then, and whether what was compiled
        has been run: then the bitmaps are gone as well, and nothing is left to be destroyed.
        """
        wanted, moment = self._slots_of(command), time.monotonic()
        with self.copying:
            with self.lock:
                late = command.id < self._now.guard
                same = {slot for slot, one in wanted.items() if slot in self._now.slots
                        and self._now.slots[slot].key == one.key}  # fmt: skip
                again = frozenset(wanted) & (self._promoted | self._now.owned) if late else frozenset()
            due = () if late else wanted.keys() - same
            variables = [variable for slot in due for variable in wanted[slot].variables]
            missing = parting.keep(variables) if parting is not None else None
            parted = missing is not None
            if missing is None:
                missing = become_backups(self._target, self._own_task(), variables)
            for slot in due:
                wanted[slot].left_out = missing & {variable.name for variable in wanted[slot].variables}
            bare = [slot for slot in due if not wanted[slot].copied]
            with self.lock:
                if late or command.id < self._now.guard:
                    return again, parted
                slots, kept, gone = dict(self._now.slots), [self._now.slots[slot] for slot in same], []
                for slot in [slot for slot in due if slot not in bare]:
                    if slot in slots:
                        gone.append(slots[slot])
                    fresh = wanted[slot]
                    fresh.began, fresh.exact = moment, True
                    slots[slot] = fresh
                    kept.append(fresh)
                guard, owned = max(command.id, self._now.guard), self._now.owned - wanted.keys()
                self._now = now = Assignment(guard, slots, command.seconds, owned)
                self._promoted -= wanted.keys()
        self._hand_over(now, gone)
        for one in kept:
            if one.began is not None:
                self.report_copies([one], guard=command.id, age_seconds=time.monotonic() - one.began)
        if bare:
            log.warning("no variable of the slots %s was here to be kept", sorted(bare))
        return again, parted

    def _slots_of(self, command: pb.Guard) -> dict[int, HeldSlot]:
        ps = {member.task: member.address for member in command.ps}
        moves: dict[int, list[pb.Move]] = {}
        for move in command.moves:
            moves.setdefault(move.variable.slot, []).append(move)
        return {
            slot: HeldSlot(
                slot, some[0].source_task, ps[some[0].source_task], tuple(move.variable for move in some),
                "next" if slot in command.next_slots else self._reader, command.generation, command.global_step,
            )
            for slot, some in moves.items()
        }  # fmt: skip

    def _hand_over(self, now: Assignment, gone: list[HeldSlot]) -> None:
        if self._refresher is None or not self._refresher.take(now, gone):
            if self._refresher is not None:
                self.collecting.forget(self._refresher)
            self._refresher = Refresher(self)
            self._refresher.take(now, gone)

    def refresh(self) -> None:
        if self._refresher is not None:
            self._refresher.wake("refresh")

    def freeze(self) -> None:
        """The copies stay as they are until the next assignment, whatever PS is at the old one's address meanwhile."""
        self.frozen = True

    def close(self) -> None:
        """Ends all backups, for a PS that leaves: a session that nobody closes stays on the PS it reads for good."""
        refresher, self._refresher = self._refresher, None
        if refresher is not None:
            refresher.stop()
        for one in self._now.slots.values():
            if one.mover is not None:
                one.mover.close()

    def report_again(self) -> None:
        """To an AIMaster that may be new: what is kept here, and how old it is."""
        with self.lock:
            slots, promoted, guard = list(self._now.slots.values()), sorted(self._promoted), self._now.guard
        for one in slots:
            if one.began is not None and one.slot not in promoted:
                self.report_copies([one], guard=guard, age_seconds=time.monotonic() - one.began)
        if promoted:  # kept so well that they are variables already
            self.report(pb.BackupReport(guard=guard, slots=promoted))

    def promote(self, slots: Sequence[int], step: int) -> None:
        """The backups of these slots become the variables. Again: nothing. Raises DeepRecError when one is missing."""
        started = time.monotonic()
        with self.lock:
            kept = [self._now.slots[slot] for slot in slots if slot in self._now.slots]
        for one in kept:  # what this PS owned itself until just now: nothing is compiled for it yet
            if one.promote is None and one.began is not None:
                self.compile_promotion(one)
        with self.lock:
            due = [slot for slot in slots if slot not in self._promoted]
            missing = [slot for slot in due if slot not in self._now.slots or self._now.slots[slot].promote is None]
            if missing:
                raise DeepRecError(f"there is no complete backup of the slots {missing} here")
            ready = [(slot, promote) for slot in due if (promote := self._now.slots[slot].promote) is not None]
            variables = [variable for slot in due for variable in self._now.slots[slot].variables]
            self._promoting = True
        try:
            make_bitmaps(self._target, self._own_task(), variables)
            for slot, promote in ready:
                promote(step)
                with self.lock:
                    self._promoted.add(slot)
        finally:
            self._promoting = False
        log.info("promoted the backups of slots %s in %.3f s", list(slots), time.monotonic() - started)
