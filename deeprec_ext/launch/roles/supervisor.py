"""The roles by name: created and deleted, restarted as `restarting` says, every change told to the watchers.

The one supervisor of all that the launcher runs, by whatever runner.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from deeprec_ext.aimaster.pods.restarting import Action, Verdict
from deeprec_ext.decoding import alike
from deeprec_ext.errors import UsageError
from deeprec_ext.launch.records.logs import why
from deeprec_ext.launch.resources import Resources
from deeprec_ext.launch.roles.printing import Printing
from deeprec_ext.launch.roles.runner import Command, Runner, Running
from deeprec_ext.proto import deeprec_ext_pb2 as pb2

_log = logging.getLogger(__name__)
_WATCH_QUEUE_MAX = 1000
START_AGAIN_SECONDS = 1.0
DEFECTS_MAX = 10
"""How often in a row a defect of ours may keep a pod from being judged, or started again, before that ends the job."""
STEADY_SECONDS = 600.0
"""An AIMaster that has run for so long has all its restarts again: jobs run for months, and each costs them little."""


@dataclass
class Pod:
    """One name and what became of it. Lives as long as the launcher; the process in it comes and goes."""

    name: str
    role: str
    index: int
    log: Path
    printing: Printing = field(repr=False)
    process: Running | None = None  # from its start to its end
    pid: int = 0  # of the last process
    exit_code: int = 0
    told: int | None = None  # exit code of the script, when its process had to be killed because it did not end
    cause: str = ""  # of the exit, where the code does not tell
    resources: Resources = field(default_factory=Resources)
    restarting: bool = False
    deleted: bool = False
    starts: int = 0
    restarts: int = 0  # of all time, for the summary
    restarted_after: Counter[str] = field(default_factory=Counter)  # what the process before had ended with
    recent_restarts: int = 0  # since the last Create: what the policy counts
    recent_error_restarts: int = 0
    raised_at: str = ""  # by what exception of its script the last process has ended, where it did so
    supervisor: asyncio.Task[None] | None = field(default=None, repr=False)
    creating: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.pid > 0

    @property
    def state(self) -> str:
        return "exited" if self.process is None else "running" if self.process.pid else "waiting"

    def why(self) -> str:
        """The error with which it ended, in one line, where its log tells."""
        return why(self.log, by_signal=self.exit_code > 128)

    def status(self) -> pb2.PodStatus:
        """As the AIMaster sees it, at this moment."""
        return alike(
            pb2.PodStatus, self,
            last_line=self.why() if self.process is None and self.exit_code and not self.deleted else "",
            cause=self.cause if self.process is None else self.process.waiting, resources=self.resources.to_proto(),
        )  # fmt: skip


Judge = Callable[[Pod, int, bool], Awaitable[Verdict]]
"""(pod, exit code, by a signal) → what to do. Also the place to note that the job has failed."""


class Pods:
    """All roles of one job. Not thread-safe: everything happens on the loop of the main thread."""

    def __init__(
        self, command_of: Callable[[Pod], Command], log_of: Callable[[str], Path], judge: Judge, runner: Runner,
        local: Runner | None = None,
    ) -> None:  # fmt: skip
        """`local`: the AIMaster's own runner, where roles have another."""
        self._command_of = command_of
        self._log_of = log_of
        self._judge = judge
        self._runner, self._local = runner, local or runner
        self._pods: dict[str, Pod] = {}
        self._watchers: set[asyncio.Queue[pb2.PodStatus | None]] = set()
        self._stops: set[asyncio.Task[None]] = set()
        self.closed = False
        self.unwritten: dict[str, str] = {}  # name -> why its log cannot be written at present
        self.broke: Callable[[str, Exception], None] = lambda name, error: None  # nobody looks after this pod any more

    def get(self, name: str) -> Pod | None:
        return self._pods.get(name)

    def all(self) -> list[Pod]:
        return list(self._pods.values())

    async def create(self, name: str, role: str, index: int, resources: Resources | None = None) -> Pod:
        """Start it, also when it has exited or was deleted; nothing happens while it runs or is about to restart.

        Raises UsageError when these resources cannot be had.
        """
        if self.closed:
            raise UsageError(f"{name} is not started: the job is ending")
        pod = self._pods.get(name)
        if pod is None:
            log = self._log_of(name)
            pod = self._pods[name] = Pod(name, role, index, log, Printing(log, self._trouble(name)))
        async with pod.creating:
            if pod.supervisor is not None and not pod.supervisor.done():
                if not pod.deleted:
                    return pod
                await asyncio.wait([pod.supervisor])  # it is being stopped; `delete` bounds that
            pod.deleted, pod.restarting = False, False
            pod.recent_restarts = pod.recent_error_restarts = 0
            pod.raised_at = ""
            await self._start(pod, resources)
            pod.supervisor = asyncio.create_task(self._supervise(pod), name=f"supervise {name}")
        return pod

    def delete(self, name: str, grace_seconds: float) -> None:
        """Stop it, now or after the grace; it is not restarted. Idempotent; unknown names are as good as stopped."""
        pod = self._pods.get(name)
        if pod is None:
            return
        pod.deleted, pod.restarting = True, False
        if pod.process is not None:
            self._stop(pod.process, grace_seconds)
        elif pod.supervisor is not None and not pod.supervisor.done():
            pod.supervisor.cancel()  # it waited for its restart
            self._tell(pod)
        else:
            self._tell(pod)

    def end(self, name: str, pid: int, exit_code: int) -> None:
        """Kill a process that has outstayed the end of its script. Where it is the role's own, that ends with this exit code,
        as it should have; where the role's command has started it, the command goes on. Idempotent."""
        pod = self._pods.get(name)
        if pod is None or pod.process is None:
            return
        if pod.process.end(pid):
            pod.told = exit_code

    def resize(self, name: str, resources: Resources) -> None:
        """One pod, or a role with all its pods, while they run. Raises UsageError, and then nothing has changed."""
        for changed in self._runner.resize(name, resources):
            pod = self._pods[changed]
            pod.resources = self._runner.resources(changed)
            self._tell(pod)

    async def wait_exited(self, names: list[str], timeout_seconds: float) -> bool:
        """Whether all of them have ended within the time."""
        waits = [pod.supervisor for name in names if (pod := self._pods.get(name)) and pod.supervisor is not None]
        if not waits:
            return True
        _, pending = await asyncio.wait(waits, timeout=timeout_seconds)
        return not pending

    async def stop(self, names: list[str], grace_seconds: float) -> None:
        """Delete them and wait until they are gone."""
        names = [name for name in names if self._alive(name)]
        for name in names:
            self.delete(name, grace_seconds)
        if not await self.wait_exited(names, grace_seconds + 5.0):
            for name in names:
                self.delete(name, 0)
            await self.wait_exited(names, 10.0)

    def _alive(self, name: str) -> bool:
        """Running, or about to run again."""
        pod = self._pods.get(name)
        return pod is not None and pod.supervisor is not None and not pod.supervisor.done()

    def signal(self, name: str, number: int) -> bool:
        """Send a signal to a running role; False if it does not run."""
        pod = self._pods.get(name)
        if pod is None or pod.process is None or not pod.running:
            return False
        pod.process.signal(number)
        return True

    def statuses(self) -> list[pb2.PodStatus]:
        """Of all pods but those being started: they would look like ones that have exited, and are told soon."""
        return [pod.status() for pod in self._pods.values() if not pod.creating.locked()]

    async def watch(self) -> AsyncIterator[pb2.PodStatus]:
        """All pods, then each one that changes. Ends when the watcher is too slow: it comes again and gets all."""
        queue: asyncio.Queue[pb2.PodStatus | None] = asyncio.Queue(_WATCH_QUEUE_MAX)
        for status in self.statuses():
            queue.put_nowait(status)
        self._watchers.add(queue)
        try:
            while (item := await queue.get()) is not None:
                yield item
        finally:
            self._watchers.discard(queue)

    def _trouble(self, name: str) -> Callable[[str], None]:
        def told(why: str) -> None:
            if why:
                self.unwritten[name] = why
            else:
                self.unwritten.pop(name, None)

        return told

    def close(self) -> None:
        """From now on nothing starts, watchers end, and logs are written as far as they can be."""
        self.closed = True
        for pod in self._pods.values():
            pod.printing.close()
        for queue in list(self._watchers):
            self._end(queue)

    async def _start(self, pod: Pod, resources: Resources | None = None) -> None:
        runner = self._local if pod.role == "aimaster" else self._runner
        pod.starts += 1
        pod.process = await runner.start(pod.name, pod.starts, self._command_of(pod), pod.printing, resources)
        pod.resources = runner.resources(pod.name)
        pod.pid, pod.exit_code, pod.cause, pod.restarting = pod.process.pid, 0, "", False
        if pod.deleted or self.closed:  # while it was being forked
            self._stop(pod.process, 0)
        self._tell(pod)

    def _stop(self, process: Running, grace_seconds: float) -> None:
        stop = asyncio.create_task(process.stop(grace_seconds))
        self._stops.add(stop)  # a task nobody refers to may be collected
        stop.add_done_callback(self._stops.discard)

    async def _supervise(self, pod: Pod) -> None:
        """Until it is done. What fails here and is not mended by trying again is told: the pod has nobody any more."""
        try:
            await self._look_after(pod)
        except Exception as error:
            _log.exception("%s is given up, because the launcher failed with it", pod.name)
            if pod.process is not None:  # not known to have ended, and nobody waits for it
                pod.process.signal(signal.SIGKILL)
            pod.process, pod.restarting = None, False
            self.broke(pod.name, error)
            self._tell(pod)

    async def _look_after(self, pod: Pod) -> None:
        """Wait, judge, start again."""
        while pod.process is not None:
            process = pod.process
            while not await process.begun():
                self._tell(pod)
            if pod.pid != process.pid:
                pod.pid = process.pid
                self._tell(pod)
            code, by_signal = await process.wait(), process.killed_by_signal
            if pod.told is not None and code == 128 + signal.SIGKILL:
                code, by_signal = pod.told, False
            pod.process, pod.told = None, None
            pod.exit_code, pod.cause = code, process.cause
            if pod.role == "aimaster" and time.monotonic() - process.started_at > STEADY_SECONDS:
                pod.recent_restarts = pod.recent_error_restarts = 0  # it works, and is killed now and then (memory)
            verdict = await self._verdict(pod, code, by_signal)
            pod.restarting = verdict.action is Action.RESTART and not pod.deleted
            if pod.restarting:
                pod.restarts += 1
                pod.restarted_after[verdict.reason] += 1
                pod.recent_restarts += verdict.counts
                pod.recent_error_restarts += verdict.counts and not by_signal
            self._tell(pod)
            if not pod.restarting:
                return
            _log.info("%s %s; starting it again in %.1f s", pod.name, verdict.reason, verdict.delay_seconds)
            await asyncio.sleep(verdict.delay_seconds)
            await self._start_again(pod)

    async def _verdict(self, pod: Pod, code: int, by_signal: bool) -> Verdict:
        """Raises what the judge raises again and again."""
        for _ in range(DEFECTS_MAX - 1):
            try:
                return await self._judge(pod, code, by_signal)
            except Exception:
                _log.exception("%s could not be judged; it is tried again", pod.name)
            await asyncio.sleep(START_AGAIN_SECONDS)
        return await self._judge(pod, code, by_signal)

    async def _start_again(self, pod: Pod) -> None:
        """Unless it is not wanted any more. Raises what keeps it from that again and again, and is no lack of anything."""
        defects = 0
        while not (pod.deleted or self.closed):
            try:
                await self._start(pod)
                return
            except (OSError, UsageError) as error:  # it was started before, so it is not the command
                _log.warning("%s cannot be started: %s; it is tried again", pod.name, error)
            except Exception:
                defects += 1
                if defects >= DEFECTS_MAX or pod.process is not None:  # it runs: a second one may not
                    raise
                _log.exception("%s could not be started; it is tried again", pod.name)
            await asyncio.sleep(START_AGAIN_SECONDS)
        pod.restarting = False

    def _tell(self, pod: Pod) -> None:
        for queue in list(self._watchers):
            try:
                queue.put_nowait(pod.status())
            except asyncio.QueueFull:
                self._end(queue)

    @staticmethod
    def _end(queue: asyncio.Queue[pb2.PodStatus | None]) -> None:
        while queue.full():
            queue.get_nowait()
        with contextlib.suppress(asyncio.QueueFull):
            queue.put_nowait(None)
