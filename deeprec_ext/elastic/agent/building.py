"""The one thread of a trainer that builds sessions, in the order of the AIMaster's commands, while training goes on."""

from __future__ import annotations

import logging
import queue
import sys
import threading
from collections.abc import Callable

from deeprec_ext.elastic.agent.background import GivenUpError, offer_usual_priority
from deeprec_ext.elastic.agent.commands import Ack, answered

log = logging.getLogger("deeprec_ext")

SWITCH_SECONDS = 0.0005
"""The interpreter's switch interval: while sessions are built and packed beside training a step would wait for 5 ms, Python's
own, each time that it comes back from TensorFlow."""


class Builder:
    """Args:
    ack: answers a command by its number, with what went wrong.
    """

    def __init__(self, ack: Ack) -> None:
        self._ack = ack
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._working = False
        self._idle = threading.Event()
        self.ended = False
        """The script ends: nothing is worth being built any more."""

    def start(self) -> None:
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_SECONDS))
        offer_usual_priority()
        threading.Thread(target=self._work, name="deeprec-prepare", daemon=True).start()

    @property
    def busy(self) -> bool:
        return self._working or not self._jobs.empty() or not self._commands.empty()

    def put(self, job: Callable[[], None]) -> None:
        """A job of our own, after all that wait; dropped once the end has begun."""
        if not self.ended:
            self._jobs.put(job)

    def obey(self, command_id: int, work: Callable[[], None]) -> None:
        """A command, after the commands that wait and before all jobs of our own; answered when it is done."""
        self.urge(lambda: answered(self._ack, command_id, f"command {command_id}", work))

    def urge(self, job: Callable[[], None]) -> None:
        """Of our own, but training stands still for it: as a command, with nobody to answer to."""
        self._commands.put(job)
        self._jobs.put(_look)

    def obey_beside(self, command_id: int, work: Callable[[], None]) -> None:
        """A command that waits for runs, not for sessions: in a thread of its own."""
        given = self._ack, command_id, f"command {command_id}", work
        threading.Thread(target=answered, args=given, name="deeprec-ack", daemon=True).start()

    def settle(self, limit_seconds: float) -> None:
        """Until nothing is being built, and nothing will be; not longer than that."""
        self.ended = True
        self._jobs.put(self._idle.set)
        if not self._idle.wait(limit_seconds):
            log.info("the process ends while a session is being prepared")

    def _work(self) -> None:
        while not self._idle.is_set():
            job = self._jobs.get()
            while not self._commands.empty():
                self._do(self._commands.get())
            self._do(job)

    def _do(self, job: Callable[[], None]) -> None:
        self._working = True
        try:
            job()
        except GivenUpError as error:
            log.info("a session that was being prepared is given up: %s", error)
        except Exception as error:
            if self.ended:  # its session is closed under it
                log.info("what was being prepared is not wanted any more: the script ends (%s)", type(error).__name__)
            else:
                log.exception("preparing failed")
        finally:
            self._working = False


def _look() -> None:
    """Wakes the thread: a command waits."""
