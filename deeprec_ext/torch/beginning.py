"""What a script calls before its first step: those that begin together call it together, who comes later has what they came to.

At a job's beginning `init_process_group` waits for all processes that it begins with, as PyTorch's does; so their first step,
too, is made together, and what rank 0 prepares is there for all until then.

What rank 0 broadcasts there, a seed or how records are split, has to be the same in a process that begins an hour later. So
the results of these calls, in order, are part of what a newcomer is given, and it takes the first, the second, the third as it
comes through the same calls. A chief that begins again does the same: it is rank 0, and its own seed would be another one.
"""

from __future__ import annotations

import logging
import time
from typing import Protocol

import numpy as np

from deeprec_ext.allreduce.ring import Array
from deeprec_ext.allreduce.summing import OtherError, Summed
from deeprec_ext.elastic.member.member import Member
from deeprec_ext.torch.snapshot import Snapshot

log = logging.getLogger("deeprec_ext")

BEGIN_SECONDS = 120.0
"""How long `init_process_group` waits for the processes that begin together."""

LOOK_SECONDS = 0.02
AGAIN_SECONDS = 0.2

BEGUN_BYTES = 16 << 20
"""Of all results together; a larger one is not handed on."""

BARRIER, ALL_REDUCE, BROADCAST = 1, 2, 3
"""Kinds of calls."""


class Process(Protocol):
    """Whose calls these are: `replica.Replica`."""

    snapshot: Snapshot
    chief: bool

    @property
    def here(self) -> Member: ...

    def heard(self, summed: Summed) -> None: ...


class Beginning:
    """Of one process.

    Args:
      begins_with: processes that begin together; None: what the AIMaster says.

    Attributes:
      open: the script has made no step yet, nor begun to read records.
    """

    def __init__(self, replica: Process, begins_with: int | None = None) -> None:
        self._replica, self._begins_with = replica, begins_with
        self.open = replica.snapshot.is_beginning = True
        self._calls = 0
        self._has_looked = False

    def wait(self) -> None:
        """For all that begin together; from now on they wait for this process, too. Raises LeaveError."""
        member, count = self._replica.here, self._begins
        if count <= 1:
            return
        member.take_part()
        end = time.monotonic() + BEGIN_SECONDS
        while len(member.view.workers) < count:
            if member.leaving.wait(LOOK_SECONDS):
                member.leave()
            if time.monotonic() > end:
                log.warning(
                    "%d of %d processes are here: beginning without the others", len(member.view.workers), count
                )
                return

    def call(self, array: Array, weight: float, kind: int) -> Summed | None:
        """The next one. None: this process keeps what it has.

        Args:
          array: [n]; weight, kind: see `Replica.collective`.

        Raises LeaveError.
        """
        snapshot, member = self._replica.snapshot, self._replica.here
        begun, begins = snapshot.begun, self._begins
        number, self._calls = self._calls, self._calls + 1
        while number >= len(begun):
            found = None
            if begins > 1 or snapshot.they_begin:
                found = self._together(member, [array, np.zeros((0, kind, number), array.dtype)], weight, kind)
            if found is None and not (self._replica.chief and begins == 1) and self._look(member):
                continue
            if number >= len(begun):
                if found is None and not self._replica.chief:
                    return None
                found = found or Summed([array], weight, 0, True, True)
                begun.append(self._kept(found, kind))
                return found
        came = begun[number]
        if came is None or came.size != array.size + 1:
            return None
        return Summed([came[:-1].astype(array.dtype)], float(came[-1]), 0, True, True)

    @property
    def _begins(self) -> int:
        """Processes that begin together; 0: the job has trained."""
        return self._replica.here.begins_with if self._begins_with is None else self._begins_with

    def end(self) -> None:
        """Of the beginning: the model of the chief is everybody's with the next sum."""
        if self.open:
            self.open = self._replica.snapshot.is_beginning = False
            if self._replica.here.step >= 0:
                self._replica.here.renew()

    def _kept(self, found: Summed, kind: int) -> Array | None:
        """What a newcomer is given of it."""
        size = sum(one.nbytes for one in self._replica.snapshot.begun if one is not None)
        if kind == BARRIER or size + found.arrays[0].nbytes > BEGUN_BYTES:
            return None
        return np.append(found.arrays[0], np.array(found.weight, found.arrays[0].dtype))

    def _together(self, member: Member, arrays: list[Array], weight: float, kind: int) -> Summed | None:
        """None: the others are elsewhere, and perhaps have the result of this call."""
        try:
            while member.step < 0:  # of who comes into a ring with a sum that counts nothing
                member.attend(arrays, exact=2)
            summed = member.sum(arrays, weight, other=True, exact=2)
        except OtherError as error:
            log.info("the others are elsewhere: %s", error)
            member.pause()
            return None
        self._replica.heard(summed)
        if kind == BROADCAST and not summed.weight and summed.members == 1 and not self._replica.chief:
            member.pause()  # those who have it were lost, or are further
            return None
        return summed

    def _look(self, member: Member) -> bool:
        """Asks what the others have come to; whether to try again."""
        snapshot, chief = self._replica.snapshot, self._replica.chief
        if not chief:
            member.wait_for_somebody()
        elif not self._others(member):
            return False
        if self._has_looked and not snapshot.they_begin:
            return False
        found = member.look()
        self._has_looked = self._has_looked or found
        if found and not snapshot.they_begin:
            return False
        if member.leaving.wait(AGAIN_SECONDS):
            member.leave()
        return found or not chief

    @staticmethod
    def _others(member: Member) -> bool:
        return any(one.name != member.identity.name for one in member.view.workers)
