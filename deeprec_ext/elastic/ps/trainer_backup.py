"""A trainer that keeps the backups of a single PS, which has no other PS to keep them: the *holder*.

The copies lie on the trainer's own TensorFlow server, and are kept up by the same `PeerBackup` as on a PS, with a set of dirty
rows of its own, in threads of low priority. They never become variables here: when the PS dies, the one that replaces it
pulls them (`fetching`). The trainer goes by a task number of its own in the sessions of ours, which is in no view.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from deeprec_ext.elastic.agent.agent import Agent
from deeprec_ext.elastic.agent.commands import Table, carry_out
from deeprec_ext.elastic.ps.collecting import Collecting
from deeprec_ext.elastic.ps.peer_backup import PeerBackup
from deeprec_ext.errors import DeepRecError
from deeprec_ext.proto import deeprec_ext_pb2 as pb

log = logging.getLogger("deeprec_ext")

HOLD_LIMIT_SECONDS = 5.0
"""How long Hold waits for a collection of dirty marks that is under way, as on a PS."""

CLOSE_LIMIT_SECONDS = 3.0
"""How long the end of the trainer waits until its sessions are closed: where a PS has gone as well, that never ends."""


class TrainerBackup:
    """Of one trainer. Nothing is made before the first command."""

    COMMANDS = ("guard", "refresh", "hold", "freeze")

    def __init__(self, target: str, agent: Agent, chunk_bytes: Callable[[], int]) -> None:
        self._agent = agent
        self._task = -1
        self._collecting = Collecting()
        self._peer_backup = PeerBackup(
            target, lambda: self._task, chunk_bytes, self._collecting, agent.send, reader="hold", promotes=False
        )
        self._table: Table = {
            "guard": self._guard, "refresh": lambda _: self._peer_backup.refresh(), "hold": self._hold,
            "freeze": lambda _: None,  # since it came
        }  # fmt: skip
        self._jobs: queue.SimpleQueue[Callable[[], bool]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ended = False

    def put(self, command: pb.Command) -> None:
        """In the agent's thread: what may take long happens in one of ours, in the order of the commands."""
        if self._ended:
            return
        if command.WhichOneof("command") == "freeze":
            self._peer_backup.freeze()  # at once
        self._jobs.put(lambda: self._obey(command))
        if self._thread is None:
            thread = threading.Thread(target=self._work, name="deeprec-holder", daemon=True)
            thread.start()
            self._thread = thread  # only now: the end of the script joins it

    def report_again(self) -> None:
        """To an AIMaster that may be new."""
        if self._thread is not None and not self._ended:
            self._peer_backup.report_again()

    def close(self) -> None:
        """The script ends. A session that nobody closes stays on the PS that it reads for good."""
        self._ended = True
        if self._thread is not None:
            self._jobs.put(self._close)
            self._thread.join(CLOSE_LIMIT_SECONDS)

    def _work(self) -> None:
        while self._jobs.get()():
            pass

    def _close(self) -> bool:
        self._peer_backup.close()
        return False

    def _obey(self, command: pb.Command) -> bool:
        carry_out(self._table, command, self._agent.identity.name, self._agent.ack)
        return True

    def _guard(self, command: pb.Command) -> None:
        self._task = command.guard.own_task
        self._collecting.hold(0.0, 0.0)
        self._peer_backup.guard(command.guard)

    def _hold(self, command: pb.Command) -> None:
        if not self._collecting.hold(command.hold.lease_seconds, HOLD_LIMIT_SECONDS):
            raise DeepRecError(f"a backup did not end within {HOLD_LIMIT_SECONDS:g} s")
