"""Views of a job without PS as generations of a ring: who is in the newest one sums with the others in it."""

from __future__ import annotations

import hmac
import logging
import threading
from collections.abc import Callable

from deeprec_ext.allreduce import meeting
from deeprec_ext.allreduce.meeting import Generation
from deeprec_ext.proto import deeprec_ext_pb2 as pb

log = logging.getLogger("deeprec_ext")

LOOK_SECONDS = 1.0
"""How often who waits for a view looks by himself."""


class LeaveError(SystemExit):
    """This process is to leave the job: its script ends with exit code 0, as if it had said so itself."""

    def __init__(self, why: str) -> None:
        super().__init__(0)
        self.why = why

    def __str__(self) -> str:
        return self.why


class Views:
    """The `Generations` of one process, from what its agent hears.

    Args:
      name, incarnation: of this process, as views call it.
      lost: is told of the epoch of a ring that is of no use any more, and why; by the thread that sums.
    """

    def __init__(self, name: str, incarnation: str, lost: Callable[[int, str], None]) -> None:
        self._me, self._lost = (name, incarnation), lost
        self.newest = pb.View()
        self.secret = b""  # of the job
        self._leaves = ""  # why this process is to leave
        self._told: list[Callable[[], None]] = []
        self._changed = threading.Condition()

    # ------------------------------------------------------------------------------------------------ the agent's thread

    def take(self, view: pb.View) -> None:
        with self._changed:
            if view.epoch <= self.newest.epoch:
                return
            self.newest = view
            self._changed.notify_all()
        for told in list(self._told):
            told()

    def leave(self, why: str) -> None:
        """This process will be in no later view."""
        with self._changed:
            self._leaves = self._leaves or why
            self._changed.notify_all()

    # ------------------------------------------------------------------------------------------------ the thread that sums

    def after(self, number: int, trouble: str) -> Generation:
        """See `meeting.Generations`. Raises LeaveError where this process is to leave."""
        if trouble and number == self.newest.epoch:
            log.info("the ring of epoch %d is of no use: %s", number, trouble)
            self._lost(number, trouble)
        with self._changed:
            while True:
                view = self.newest
                members = [(one.name, one.incarnation) for one in view.workers]
                if view.epoch > number and self._me in members:
                    return self._generation(view, members.index(self._me))
                if self._leaves and self._me not in members:
                    raise LeaveError(self._leaves)
                self._changed.wait(LOOK_SECONDS)

    def _generation(self, view: pb.View, rank: int) -> Generation:
        places = tuple(meeting.read(one.address) for one in view.workers)
        secret = hmac.digest(self.secret, view.epoch.to_bytes(8, "big"), "sha256")
        return Generation(view.epoch, rank, places, secret, tuple(one.name for one in view.workers))

    def place(self) -> tuple[int, int]:
        """(members of the newest view, this one's place among them; 0 if it is in none)."""
        members = [(one.name, one.incarnation) for one in self.newest.workers]
        return max(1, len(members)), members.index(self._me) if self._me in members else 0

    @property
    def is_first(self) -> bool:
        """Whether nobody in the newest view has a lower place."""
        return [(one.name, one.incarnation) for one in self.newest.workers[:1]] == [self._me]

    def over(self, number: int) -> bool:
        return self.newest.epoch > number

    def watch(self, told: Callable[[], None]) -> None:
        self._told.append(told)
