"""A real `deeprec-ext run` under measurement: watched and struck from outside, and dead when the benchmark ends.

Whatever ends the benchmark, the launcher and all processes it has started end too: in order (SIGINT) when the context is
left, by pid when that takes too long, and through the kernel (PR_SET_PDEATHSIG) when the benchmark itself is killed.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TypeVar

import grpc
import psutil

from benchmarks.stock import steps
from benchmarks.stock.cluster import ROOT
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc
from deeprec_ext.security.credentials import open_channel, server_name

CHILD = ROOT / "deeprec_ext" / "launch" / "roles" / "child.py"
LIMIT_SECONDS = 300.0
END_SECONDS = 60.0
T = TypeVar("T")


def say(text: str) -> None:
    """Progress, on stderr: stdout is for the result."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def end_on_signals() -> None:
    """SIGTERM and SIGHUP leave all contexts, as Ctrl-C does."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)


def environment(**more: str) -> dict[str, str]:
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TF_CONFIG", "DEEPREC_EXT_"))}
    return {**kept, "PYTHONPATH": paths, "CUDA_VISIBLE_DEVICES": "", **more}


class Job:
    """One run with `workers` beside the chief, whose script writes its step times (`benchmarks.stock.steps`)."""

    def __init__(self, base: Path, process: subprocess.Popen[bytes], ps: int, workers: int) -> None:
        self.base, self.workdir, self.recorded = base, base / "run", base / "steps"
        self.process, self.ps = process, ps
        self.trainers = ["chief-0", *(f"worker-{index}" for index in range(workers))]
        self._stub: rpc.AdminStub | None = None
        self._stopped: set[int] = set()

    # ------------------------------------------------------------------------------------------------ waiting

    def until(self, condition: Callable[[], T], what: str, seconds: float = LIMIT_SECONDS, every: float = 0.1) -> T:
        """The first true value. Raises RuntimeError when the job ends before, or time runs out."""
        deadline = time.monotonic() + seconds
        while not (value := condition()):
            if self.process.poll() is not None:
                raise RuntimeError(
                    f"deeprec-ext run ended (exit code {self.process.returncode}) before {what}; see {self.base}"
                )
            if time.monotonic() > deadline:
                raise RuntimeError(f"no {what} within {seconds:g} s; see {self.base}")
            time.sleep(every)
        return value

    def wait_steps(self, count: int, since: float, seconds: float = LIMIT_SECONDS) -> dict[str, list[steps.Step]]:
        """Until each trainer has completed so many steps after `since`; all steps so far."""

        def done() -> dict[str, list[steps.Step]] | None:
            seen = steps.read(self.recorded)
            enough = all(sum(step.time > since for step in seen.get(name, ())) >= count for name in self.trainers)
            return seen if enough else None

        found = self.until(done, f"{count} steps of every trainer", seconds, every=0.25)
        assert found is not None
        return found

    def wait_steady(self, settle_seconds: float = 3.0, seconds: float = LIMIT_SECONDS) -> None:
        """Until all PS and trainers run, nothing is being changed, every slot has its backup, for so long on end."""
        since: float | None = None

        def settled() -> bool:
            nonlocal since
            if not self.is_steady():
                since = None
                return False
            since = since or time.time()
            return time.time() - since >= settle_seconds

        self.until(settled, "steady state", seconds + settle_seconds, every=0.25)
        self.wait_steps(20, time.time() - settle_seconds, seconds)

    def wait_prepared(self, quiet_seconds: float = 10.0, seconds: float = LIMIT_SECONDS) -> None:
        """Until no trainer has finished a session, or the packing of a run, for so long on end: what is done for that takes
        processor time from the steps, and they are not as they will be."""
        known, since = -1, 0.0

        def quiet() -> bool:
            nonlocal known, since
            logs = [(self.workdir / "logs" / f"{name}.log").read_text(errors="replace") for name in self.trainers]
            count = sum(log.count(mark) for log in logs for mark in (" prepared a session ", " packed from now on"))
            if count != known:
                known, since = count, time.monotonic()
            return time.monotonic() - since >= quiet_seconds

        self.until(quiet, "end of what is prepared beside training", seconds, every=0.5)

    def is_steady(self) -> bool:
        status = self.status()
        if status is None or status.state != "training" or not status.live:
            return False
        running = [role for role in status.roles if role.state == "running" and role.heartbeat_age_seconds < 2]
        serving = [role for role in running if role.role == pb.PS and role.slots and role.bytes]
        training = {role.name for role in running if role.heartbeat.training}
        if len(serving) != self.ps or not training >= set(self.trainers):
            return False
        return not status.backup.peer or not status.backup.unprotected_slots

    # ------------------------------------------------------------------------------------------------ looking

    def status(self, seconds: float = 5.0) -> pb.StatusReply | None:
        """None while no AIMaster answers."""
        try:
            if self._stub is None:
                described = json.loads((self.workdir / "job.json").read_text())
                name = server_name("aimaster", described["job"])
                channel = open_channel(described["aimaster"], name, "admin", self.workdir / "certs")
                self._stub = rpc.AdminStub(channel)
            return self._stub.Status(pb.StatusRequest(), timeout=seconds)
        except (OSError, ValueError, KeyError, grpc.RpcError):
            return None

    def role(self, name: str) -> pb.RoleStatus:
        status = self.until(self.status, "answer of the AIMaster")
        return next(role for role in status.roles if role.name == name)

    def servers(self) -> list[str]:
        """Names of the PS that own slots."""
        status = self.until(self.status, "answer of the AIMaster")
        return sorted(role.name for role in status.roles if role.role == pb.PS and role.slots)

    def ask(self, **request: Any) -> int:
        """Asks for a scaling; its number, 0 when there is nothing to do. Raises grpc.RpcError when it is refused."""
        self.until(self.status, "answer of the AIMaster")
        assert self._stub is not None
        return self._stub.Scale(pb.ScaleRequest(**request), timeout=10).scaling_id

    def graph(self) -> pb.Catalogue:
        assert self._stub is not None
        return self._stub.Graph(pb.CatalogueRequest(), timeout=10).catalogue

    def events(self, *types: str) -> list[dict[str, Any]]:
        path = self.workdir / "events.jsonl"
        found = []
        for line in path.read_text().splitlines() if path.exists() else ():
            with contextlib.suppress(ValueError):  # torn by a kill, or being written
                event = json.loads(line)
                if not types or event["type"] in types:
                    found.append(event)
        return found

    def pid(self, role: str) -> int:
        """Of the running process, from the last start in its log: also of the AIMaster."""
        log = (self.workdir / "logs" / f"{role}.log").read_text(errors="replace")
        starts = [line for line in log.splitlines() if line.startswith(f"--- deeprec-ext: {role}, start")]
        return int(starts[-1].split("pid ")[1].split()[0].rstrip(",;:-"))

    # ----------------------------------------------------------------------------------------------- striking

    def send(self, role: str, number: signal.Signals) -> float:
        """Sends the signal; the moment before it, in Unix seconds."""
        pid = self.pid(role)
        if number == signal.SIGSTOP:
            self._stopped.add(pid)
        now = time.time()
        os.kill(pid, number)
        return now

    def everyone(self) -> list[psutil.Process]:
        root = psutil.Process(self.process.pid)
        return [root, *root.children(recursive=True)]

    def go_on(self, pid: int) -> None:
        """Ends a SIGSTOP."""
        self._stopped.discard(pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def end(self) -> None:
        """In order if it can be had, and by force otherwise."""
        if self.process.poll() is not None:
            return
        known = self.everyone()
        for pid in list(self._stopped):
            self.go_on(pid)
        self.process.send_signal(signal.SIGCONT)
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for process in known:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()  # psutil compares the start time: never another process with the same pid

    def summary(self) -> dict[str, Any]:
        """After the end."""
        found: dict[str, Any] = json.loads((self.workdir / "summary.json").read_text())
        return found


@contextlib.contextmanager
def running(
    command: Sequence[str], *, ps: int = 2, workers: int = 1, flags: Sequence[str] = (), label: str = "bench",
    variables: dict[str, str] | None = None, base: Path | None = None, sized: bool = True,
) -> Iterator[Job]:  # fmt: skip
    """`deeprec-ext run` of a Python script (`command`: script and arguments). Ended when the context ends.

    `sized` false: `ps` and `workers` are what is expected, and not asked for. Its directory (`base`, else a new one) goes when
    the benchmark ends, unless the context was left by an error.
    """
    base = base or Path(tempfile.mkdtemp(prefix=f"{label}-"))
    (base / "steps").mkdir()
    words = [
        sys.executable, "-I", "-S", str(CHILD), str(os.getpid()),
        sys.executable, "-m", "deeprec_ext.cli.main", "run", "--workdir", str(base / "run"), "--quiet",
        *(("--ps", str(ps), "--workers", str(workers)) if sized else ()),
        "--setting", "restarts_max=1000", "--history", "off", *flags, "--",
        sys.executable, *command,
    ]  # fmt: skip
    env = environment(**{steps.DIRECTORY_VARIABLE: str(base / "steps"), **(variables or {})})
    with open(base / "out.log", "ab") as out:
        process = subprocess.Popen(words, env=env, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
    job = Job(base, process, ps, workers)
    try:
        yield job
        atexit.register(shutil.rmtree, base, ignore_errors=True)
    finally:
        job.end()
