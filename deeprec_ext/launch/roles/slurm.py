"""Roles as jobs of Slurm: `deeprec-ext run --backend slurm`, on a login node or in a job of its own.

Launcher and AIMaster stay where they are started; each start of a role is one batch job of one task, whose script becomes the
role (`exec`). Restarts, names and incarnations are the supervisor's, so Slurm is told not to requeue. The run directory, the
script and the Python environment have to be on file systems that all nodes share: certificates, logs and pids go through them.

| what | by |
|---|---|
| a start | `sbatch`, the script on its stdin, the role's environment as its own |
| what became of all of them | one `squeue` for all, every second, and never more than a twentieth of the time |
| one that `squeue` has forgotten | `scontrol show job`, then `sacct` |
| signals, the end | one `scancel` for all that are due |
| addresses | of this machine: by the way to the nodes (`sinfo`); of a role: `NodeAddr` of its node |

Whose partition, account or time limit: Slurm's own `SBATCH_PARTITION` and the like, and `--backend-arg`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import shlex
import shutil
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deeprec_ext.errors import UnreachableError, UsageError
from deeprec_ext.launch.resources import Resources, check
from deeprec_ext.launch.roles.guard import Guard
from deeprec_ext.launch.roles.printing import Printing
from deeprec_ext.launch.roles.runner import Command, JobOutline, marker
from deeprec_ext.printable import printable
from deeprec_ext.units import format_bytes

_log = logging.getLogger(__name__)

POLL_SECONDS, POLL_SHARE = 1.0, 0.05
CALL_SECONDS = 30.0
"""How long a command of Slurm may take; its own patience with a controller that does not answer is longer."""

TRANSIENT = ("not answered", "contact", "timed out", "temporarily", "limit")
"""In what `sbatch` says, where it is worth another try: the controller is away, or so many jobs are not allowed at once."""

SUBMITS_MAX = 8
"""At the same time."""

GATHER_SECONDS = 0.05
"""Signals of so long go with one `scancel`."""

FORGOTTEN_AFTER = 3
"""Answers of `squeue` in a row without a job."""

LEFT_SECONDS, GONE_SECONDS = 5.0, 30.0
"""How long a node may take to say that a job's processes have ended, when they have (an epilog runs), and when they were killed
(it does not answer): then the job counts as ended. The AIMaster believes no word of an incarnation that it has replaced."""

PID_SECONDS = 10.0
"""How long the number of a role's process is looked for in the run directory."""

FIELDS = "JobID:|,State:|,exit_code:|,NodeList:|,Reason:|"
WAITING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD")
RUNS = ("RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING")
LEAVING = "COMPLETING"
CAUSES = {
    "OUT_OF_MEMORY": "oom: out of memory", "TIMEOUT": "the time limit of its Slurm job", "NODE_FAIL": "node lost",
    "PREEMPTED": "preempted", "DEADLINE": "the deadline of its Slurm job", "BOOT_FAIL": "node lost: it did not start",
    "CANCELLED": "deleted: not by the launcher", "REVOKED": "deleted: not by the launcher",
}  # fmt: skip
"""State of an end that is no fault of the role → why it ended."""

SCRIPT = """\
#!/bin/bash
umask {umask:o}
node=$(scontrol --oneliner show node "$SLURMD_NODENAME" 2>/dev/null)
address=${{node##* NodeAddr=}}; address=${{address%% *}}
export DEEPREC_EXT_ADDRESS="${{address:-$SLURMD_NODENAME}}:0"
echo $$ > {pid}.new && mv {pid}.new {pid}
exec {command}
"""


@dataclass(frozen=True)
class Told:
    """One job, as Slurm tells of it. `status`: as `wait` gives it, or 0."""

    state: str
    status: int = 0
    node: str = ""
    reason: str = ""

    @classmethod
    def parse(cls, words: Sequence[str]) -> Told:
        state, status, node, reason = words
        return cls(
            state.split(" ")[0].rstrip("+"), int(status) if status.isdigit() else 0, node.replace("(null)", ""), reason
        )

    def exit_code(self) -> tuple[int, bool]:
        """(128 + number for a signal, whether it was one)."""
        code, number = self.status >> 8, self.status & 127
        if self.state == "COMPLETED":
            return 0, False
        if self.state in CAUSES or not self.status:
            return 128 + signal.SIGKILL, True
        return (128 + number, True) if number else (code, False)

    def cause(self, limit_bytes: int, asked: bool) -> str:
        """`asked`: its end was."""
        cause = CAUSES.get(self.state, "") if not (asked and self.state == "CANCELLED") else ""
        if self.state == "OUT_OF_MEMORY" and limit_bytes:
            return f"oom: memory limit of {format_bytes(limit_bytes)}"
        if self.state == "FAILED" and not self.node:  # it never ran
            return f"refused by Slurm: {self.reason}"
        return f"{cause} ({self.node})" if self.state == "NODE_FAIL" else cause


@dataclass(eq=False)
class SlurmJob:
    """One start of a role. Implements Running."""

    number: str  # Slurm's
    runner: SlurmRunner = field(repr=False)
    pid_file: Path
    limit_bytes: int = 0
    pid: int = 0
    waiting: str = "Slurm has not placed it yet"
    cause: str = ""
    started_at: float = field(default_factory=time.monotonic)
    told: Told | None = None
    missed: int = 0  # answers of squeue in a row without it
    since: float = 0.0  # when it began to run; then when it began to leave
    killed_at: float = 0.0
    code: int = -1
    killed_by_signal: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    @property
    def ended(self) -> bool:
        return self.code >= 0

    async def begun(self) -> bool:
        before = self.waiting
        while not (self.pid or self.ended) and self.waiting == before:
            await self._next()
        return bool(self.pid) or self.ended

    async def wait(self) -> int:
        while not self.ended:
            await self._next()
        return self.code

    async def _next(self) -> None:
        self.changed.clear()
        await self.changed.wait()

    def signal(self, number: int) -> None:
        if number == signal.SIGKILL and not self.killed_at:
            self.killed_at = time.monotonic()
        if not self.ended:
            self.runner.send(self, number)

    def end(self, pid: int) -> bool:
        if pid != self.pid:  # on its node, where nobody of ours is: its own timer ends it
            return False
        self.signal(signal.SIGKILL)
        return True

    async def stop(self, grace_seconds: float) -> None:
        if grace_seconds > 0 and self.pid:
            self.signal(signal.SIGCONT)  # a stopped process would sleep through its grace
            self.signal(signal.SIGTERM)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.wait(), grace_seconds)
        if not self.ended:
            self.signal(signal.SIGKILL)
            await self.wait()

    # ------------------------------------------------------------------------------------------------ what Slurm tells

    def hear(self, told: Told) -> None:
        """What an answer says of it."""
        now, before = time.monotonic(), self.told
        self.told, self.missed = told, 0
        if before is None or before.state != told.state:
            self.since = now
        if told.state in WAITING:
            self.waiting = f"Slurm: {told.reason}"
        elif told.state in RUNS:
            self._look_for_pid(now)
            if self.killed_at and now > self.killed_at + GONE_SECONDS:
                self._end(Told("NODE_FAIL", node=told.node))
        elif told.state != LEAVING:
            self._end(told)
        elif now > self.since + (GONE_SECONDS if self.killed_at and not told.status else LEFT_SECONDS):
            self._end(Told("FAILED" if told.status else "NODE_FAIL", told.status, told.node))
        self.changed.set()

    def _look_for_pid(self, now: float = 0.0) -> None:
        with contextlib.suppress(OSError, ValueError):
            self.pid = self.pid or int(self.pid_file.read_text())
        if not self.pid and now > self.since + PID_SECONDS:
            shared = "is the run directory on a file system that all nodes share?"
            _log.warning("job %s runs, and there is no %s yet: %s", self.number, self.pid_file, shared)
            self.pid = int(self.number)

    def _end(self, told: Told) -> None:
        self._look_for_pid()
        self.told = told
        self.code, self.killed_by_signal = told.exit_code()
        self.cause = told.cause(self.limit_bytes, bool(self.killed_at))
        self.runner.forget(self)


class SlurmRunner:
    """Implements Runner."""

    elsewhere = True

    def __init__(self, job: JobOutline, guard: Guard) -> None:
        """Raises UsageError where there is no Slurm, or an argument is none."""
        missing = [name for name in ("sbatch", "squeue", "scancel", "sinfo") if shutil.which(name) is None]
        if missing:
            raise UsageError(
                f"--backend slurm: {', '.join(missing)} is not on the PATH; run it where jobs are submitted"
            )
        self._job, self._guard, self.host = job, guard, ""
        self._sizes = {"ps": job.requests.ps, "worker": job.requests.worker}
        self._arguments = [role_argument(text) for text in job.arguments]
        self._environment, self._scancel = clean(os.environ), shutil.which("scancel") or "scancel"
        self._pids = job.directory / "slurm"
        self._jobs: dict[str, SlurmJob] = {}
        self._due: dict[int, list[str]] = {}
        self._submits = asyncio.Semaphore(SUBMITS_MAX)
        self._polling: asyncio.Task[None] | None = None
        self._sending: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------------------------------------ Runner

    async def begin(self) -> None:
        """Finds the way to the nodes, and ends what a launcher whose machine died has left."""
        nodes = (await self._ask("sinfo", "--noheader", "--Node", "--format=%o")).split()
        if not nodes:
            raise UsageError(
                "--backend slurm: sinfo names no node; look at SBATCH_PARTITION, or ask who runs the cluster"
            )
        self.host = address_towards(nodes)
        self._pids.mkdir(exist_ok=True)
        left = [
            line.partition("|")[0] for line in (await self._ask("squeue", "--me", "--noheader", "--format=%i|%k")).splitlines()
            if line.partition("|")[2] == self._comment
        ]  # fmt: skip
        if left:
            _log.warning("cancelling jobs of an earlier launcher in this run directory: %s", ", ".join(left))
            await self._ask("scancel", "--quiet", *left)
        self._polling = asyncio.create_task(self._poll())

    async def start(
        self, name: str, number: int, command: Command, printing: Printing, wanted: Resources | None
    ) -> SlurmJob:
        if wanted:
            self._sizes[name] = self.resources(name).changed(check(wanted))
        printing.add(f"{marker(name, number)}, {time.strftime('%Y-%m-%d %H:%M:%S')} ---\n".encode())
        pid_file = self._pids / f"{name}.{number}"
        pid_file.unlink(missing_ok=True)
        umask = 0o077 if command.umask is None else command.umask
        script = SCRIPT.format(umask=umask, pid=shlex.quote(str(pid_file)), command=shlex.join(command.argv))
        async with self._submits:
            try:
                answer = await self._ask(
                    "sbatch", *self.options(name), script=script, environment=clean(command.environment)
                )
            except UnreachableError as error:
                if any(word in str(error) for word in TRANSIENT):
                    raise OSError(str(error)) from error
                raise UsageError(f"{name}: {error}") from error
        found = SlurmJob(answer.partition(";")[0].strip(), self, pid_file, self.resources(name).memory_bytes)
        self._jobs[found.number] = found
        self._guard.add_job(self._scancel, found.number)
        return found

    def options(self, name: str) -> list[str]:
        """Of `sbatch`, for one role."""
        size, role = self.resources(name), name.rpartition("-")[0]
        return [
            "--parsable", "--no-requeue", "--nodes=1", "--ntasks=1", "--export=ALL", "--open-mode=append", "--input=/dev/null",
            f"--job-name={self._job.name}.{name}", f"--comment={self._comment}", f"--chdir={os.getcwd()}",
            f"--output={self._job.directory / 'logs' / name}.log",
            *([f"--cpus-per-task={math.ceil(size.cpu)}"] if size.cpu else []),
            *([f"--mem={math.ceil(size.memory_bytes / (1 << 20))}M"] if size.memory_bytes else []),
            *(word for of, word in self._arguments if of in ("", role)),
        ]  # fmt: skip

    def resources(self, name: str) -> Resources:
        kind = "ps" if name.startswith("ps-") else "worker"
        return self._sizes.get(name) or self._sizes[kind]

    def resize(self, name: str, wanted: Resources) -> list[str]:
        if name not in ("ps", "worker"):
            raise UsageError(
                f"{name}: a job of Slurm keeps its size; replace it (`scale --replace {name}`) to give it another"
            )
        self._sizes[name] = self._sizes[name].changed(check(wanted))
        return []

    async def close(self) -> None:
        for task in (self._polling, self._sending):
            if task is not None:
                task.cancel()
        if self._jobs:
            with contextlib.suppress(UnreachableError):
                await self._ask("scancel", "--quiet", *self._jobs)

    # ------------------------------------------------------------------------------------------------ its jobs

    @property
    def _comment(self) -> str:
        return f"deeprec-ext {self._job.directory}"

    def send(self, job: SlurmJob, number: int) -> None:
        """With others, in a moment."""
        self._due.setdefault(number, []).append(job.number)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send())

    def forget(self, job: SlurmJob) -> None:
        self._jobs.pop(job.number, None)
        self._guard.remove_job(self._scancel, job.number)

    async def _send(self) -> None:
        """SIGKILL is tried again until they have ended; who does not hear another signal gets that."""
        while self._due:
            await asyncio.sleep(GATHER_SECONDS)
            due, self._due = self._due, {}
            for number, jobs in due.items():
                try:
                    await self._ask("scancel", "--quiet", f"--signal={number}", "--full", *jobs)
                except UnreachableError as error:
                    _log.warning("signal %d does not reach %s: %s", number, ", ".join(jobs), error)
                    if left := [one for one in jobs if one in self._jobs and number == signal.SIGKILL]:
                        self._due.setdefault(number, []).extend(left)
                        await asyncio.sleep(POLL_SECONDS)

    async def _poll(self) -> None:
        while True:
            began = time.monotonic()
            try:
                if self._jobs:
                    await self._look()
            except UnreachableError as error:
                _log.warning("Slurm cannot be asked: %s", error)
            except Exception:
                _log.exception("what Slurm tells cannot be read")
            await asyncio.sleep(max(POLL_SECONDS, (time.monotonic() - began) / POLL_SHARE))

    async def _look(self) -> None:
        known = list(self._jobs.values())  # one that is submitted meanwhile may not be in the answer
        answer = await self._ask("squeue", "--me", "--noheader", "--states=all", f"--Format={FIELDS}")
        found = {words[0]: Told.parse(words[1:5]) for line in answer.splitlines() if len(words := line.split("|")) >= 5}
        for job in known:
            if job.number in found:
                job.hear(found[job.number])
                continue
            job.missed += 1
            if job.missed >= FORGOTTEN_AFTER:
                job.hear(await self._remembered(job.number))

    async def _remembered(self, number: str) -> Told:
        """Of a job that has ended so long ago that `squeue` has forgotten it: nobody could be asked for minutes."""
        for words in (
            ("scontrol", "--oneliner", "show", "job", number),
            (
                "sacct",
                f"--jobs={number}",
                "--allocations",
                "--noheader",
                "--parsable2",
                "--format=State,ExitCode,NodeList",
            ),
        ):
            with contextlib.suppress(UnreachableError):
                if told := past(await self._ask(*words)):
                    return told
        return Told("NODE_FAIL", reason="Slurm knows nothing of it any more")

    async def _ask(self, *words: str, script: str = "", environment: Mapping[str, str] | None = None) -> str:
        """What a command of Slurm prints. Raises UnreachableError with what it says against it."""
        environment = self._environment if environment is None else environment
        process = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env=environment,
        )  # fmt: skip
        try:
            out, said = await asyncio.wait_for(process.communicate(script.encode()), CALL_SECONDS)
        except asyncio.TimeoutError:
            raise UnreachableError(f"{words[0]} has not answered for {CALL_SECONDS:.0f} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            lines = [printable(line) for line in said.decode(errors="replace").splitlines() if line.strip()]
            raise UnreachableError(lines[-1] if lines else f"{words[0]} failed with exit code {process.returncode}")
        return out.decode(errors="replace")


def past(text: str) -> Told | None:
    """What `scontrol show job` or `sacct` says of a job that has ended; None where it says nothing of that kind."""
    line = text.strip().splitlines()[0] if text.strip() else ""
    if "JobState=" in line:
        fields = dict(word.split("=", 1) for word in line.split(" ") if "=" in word)
        state, code, node = fields.get("JobState", ""), fields.get("ExitCode", "0:0"), fields.get("NodeList", "")
    elif line.count("|") == 2:
        state, code, node = line.split("|")
    else:
        return None
    state, (exit_code, _, number) = state.split(" ")[0], code.partition(":")
    if not state or state in (*WAITING, *RUNS):
        return None
    return Told(state, (int(exit_code) << 8) + int(number), node)


def role_argument(text: str) -> tuple[str, str]:
    """`worker:--gres=gpu:1` → of that role; `--partition=long` → of all. Raises UsageError."""
    role, colon, word = text.partition(":")
    if colon and role in ("ps", "chief", "worker", "evaluator"):
        text = word
    else:
        role = ""
    if not text.startswith("--"):
        raise UsageError(f"--backend-arg {text}: write an option of sbatch with its value, as in ps:--partition=cpu")
    return role, text


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    """Without what says how the launcher's own job is, where it is one: its jobs would be so, too."""
    return {name: value for name, value in environment.items() if name == "SLURM_CONF" or not name.startswith("SLURM")}


def address_towards(nodes: Sequence[str]) -> str:
    """The address of this machine by which nodes reach it: the one that the kernel would take to reach the first of them."""
    for node in nodes:
        with contextlib.suppress(OSError):
            family, *_, place = socket.getaddrinfo(node, 6817, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(place)  # sends nothing
                host = str(probe.getsockname()[0])
                return f"[{host}]" if family == socket.AF_INET6 else host
    raise UsageError(f"--backend slurm: no address of a node is known here: {', '.join(nodes[:3])}")
