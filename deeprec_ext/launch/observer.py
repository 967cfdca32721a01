"""What the launcher knows of the job: it asks the AIMaster for its status twice a second, and kills one that hangs."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable

from deeprec_ext.errors import DeepRecError
from deeprec_ext.gazer.hostload import queued_seconds
from deeprec_ext.launch.client import JobClient
from deeprec_ext.launch.roles.supervisor import Pods
from deeprec_ext.proto import deeprec_ext_pb2 as pb2

_log = logging.getLogger(__name__)

POLL_SECONDS = 0.5
ASK_SECONDS = 2.0
AIMASTER_SILENCE_SECONDS = 15.0
"""An AIMaster that has answered before and does not for so long is hung: it is killed and started again.

Longer than a stall on an overloaded machine.
"""
STARVED_SHARE, AIMASTER_STARVED_SECONDS = 0.3, 60.0
"""One that stood in the kernel's queue for the processor for so large a share of its silence is starved, not hung: to kill it
makes the machine no emptier. It has so long."""
AIMASTER_START_SECONDS = 60.0
"""The same of one that has not answered yet: every new one has to be loaded first, which takes long on such a machine."""


class Observer:
    """`latest` is the last answer; `trained` the names of the roles that have made a step in this launcher's time."""

    def __init__(self, client: JobClient, pods: Pods) -> None:
        self._client = client
        self._pods = pods
        self._heard_at = time.monotonic()
        self._pid = 0  # of the AIMaster that the time counts for ...
        self._answered = False  # ... and whether it has answered: it, and not one before
        self._queued = 0.0  # seconds that it had waited for the processor by then
        self.latest: pb2.StatusReply | None = None
        self.trained: set[str] = set()
        self._since: dict[str, tuple[str, float]] = {}  # role -> the process that trains, and from when on it did
        self.served = False
        self.on_status: list[Callable[[pb2.StatusReply], None]] = []

    @property
    def silent_seconds(self) -> float:
        """Since the AIMaster has answered, or since it was first asked."""
        return time.monotonic() - self._heard_at

    async def ask(self, timeout_seconds: float = ASK_SECONDS) -> pb2.StatusReply | None:
        """A fresh status, None if there is no answer in time."""
        try:
            status = await self._client.status(timeout_seconds)
        except DeepRecError as error:
            _log.debug("no status: %s", error)
            return None
        self._heard_at, self.served, self.latest = time.monotonic(), True, status
        pod = self._pods.get("aimaster")
        self._pid, self._answered = (pod.pid if pod is not None else 0), True
        self._queued = queued_seconds(f"/proc/{self._pid}")
        for role in status.roles:
            if role.heartbeat.training:
                self.trained.add(role.name)
                if self._since.get(role.name, ("", 0.0))[0] != role.incarnation:
                    self._since[role.name] = role.incarnation, time.monotonic()
        return status

    def trained_seconds(self, name: str) -> float:
        """For how long the last process of a role that has registered was seen to train; 0: it has made no step."""
        incarnation, since = self._since.get(name, ("", 0.0))
        roles = self.latest.roles if self.latest is not None else ()
        present = next((role.incarnation for role in roles if role.name == name), "")
        return time.monotonic() - since if incarnation and present in ("", incarnation) else 0.0

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            status = await self.ask(self._patience())
            if status is not None:
                for listener in self.on_status:
                    listener(status)
            else:
                self._suspect()
            await asyncio.sleep(POLL_SECONDS)

    def _limit(self) -> float:
        if not self._answered:
            return AIMASTER_START_SECONDS
        silent = time.monotonic() - self._heard_at
        if (
            silent >= AIMASTER_SILENCE_SECONDS
            and queued_seconds(f"/proc/{self._pid}") - self._queued > STARVED_SHARE * silent
        ):
            return AIMASTER_STARVED_SECONDS
        return AIMASTER_SILENCE_SECONDS

    def _patience(self) -> float:
        """Seconds for the next question. One that always needs a little more than the usual is slow, and not hung: the
        longer it has been silent, the longer it is waited for, but not past the limit."""
        silent = time.monotonic() - self._heard_at
        return max(ASK_SECONDS, min(silent, self._limit() - silent))

    def _suspect(self) -> None:
        pod = self._pods.get("aimaster")
        if pod is None or pod.process is None:
            return
        if pod.pid != self._pid:  # a new one: its time starts with it
            self._pid, self._heard_at, self._answered = pod.pid, pod.process.started_at, False
        limit = self._limit()
        if time.monotonic() - max(self._heard_at, pod.process.started_at) > limit:
            _log.warning("the AIMaster (pid %d) has not answered for %.0f s; killing it", pod.pid, limit)
            self._heard_at = time.monotonic()
            pod.process.signal(signal.SIGKILL)
