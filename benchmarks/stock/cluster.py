"""Starts and stops the processes of one stock TF_CONFIG cluster on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TIED = (sys.executable, "-I", "-S", str(ROOT / "deeprec_ext" / "launch" / "roles" / "child.py"))
"""Then the pid of this process, then a program: it dies with us, whatever we die of."""


def free_addresses(count: int) -> list[str]:
    """Free ports; all are held until the last one is known, so that they differ."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{probe.getsockname()[1]}" for probe in probes]


@dataclass
class Cluster:
    """Running processes. `trainers` are the chief and the workers, by name."""

    servers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    trainers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    again: dict[str, Callable[[], subprocess.Popen[bytes]]] = field(default_factory=dict)
    """Name → starts the same process with the same address once more."""

    def respawn(self, server: str) -> float:
        """kill -9 of a PS, and the same again at once, sooner than any supervisor; the moment before, in Unix seconds."""
        struck = time.time()
        self.servers[server].kill()
        self.servers[server].wait()
        self.servers[server] = self.again[server]()
        return struck

    def request_stop(self) -> None:
        """Every trainer ends after its step; the chief writes a checkpoint first."""
        for process in self.trainers.values():
            process.send_signal(signal.SIGUSR1)

    def wait(self, seconds: float) -> None:
        """Until all trainers have ended. Raises RuntimeError for one that failed or does not end."""
        deadline = time.monotonic() + seconds
        for name, process in self.trainers.items():
            try:
                code = process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise RuntimeError(f"{name} did not end within {seconds:g} s; see its log") from None
            if code:
                raise RuntimeError(f"{name} ended with exit code {code}; see its log")

    def kill(self) -> None:
        for process in [*self.trainers.values(), *self.servers.values()]:
            if process.poll() is None:
                process.kill()
            process.wait()


@contextlib.contextmanager
def cluster(
    ps: int, workers: int, command: Sequence[str], logs: Path, environment: dict[str, str]
) -> Iterator[Cluster]:
    """`ps` servers, a chief and `workers` workers beside it. All are dead when the context ends."""
    addresses = free_addresses(ps + 1 + workers)
    members = {"ps": addresses[:ps], "chief": addresses[ps : ps + 1]}
    if workers:
        members["worker"] = addresses[ps + 1 :]
    running = Cluster()
    logs.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        stack.callback(running.kill)
        for job, of_job in members.items():
            for index in range(len(of_job)):
                task = {"cluster": members, "task": {"type": job, "index": index}}
                paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
                env = {
                    **os.environ,
                    **environment,
                    "TF_CONFIG": json.dumps(task),
                    "PYTHONPATH": paths,
                    "CUDA_VISIBLE_DEVICES": "",
                }
                log = stack.enter_context(open(logs / f"{job}-{index}.log", "ab"))
                what = [sys.executable, "-m", "benchmarks.stock.serve"] if job == "ps" else list(command)
                start = partial(
                    subprocess.Popen, [*TIED, str(os.getpid()), *what], env=env, stdout=log, stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                )  # fmt: skip
                running.again[f"{job}-{index}"] = start
                (running.servers if job == "ps" else running.trainers)[f"{job}-{index}"] = start()
        yield running
