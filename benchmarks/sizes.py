"""Throughput of real jobs at many sizes, on one machine: every process real, each held to its CPU by a cgroup.

Nothing is padded and nothing sleeps: a step takes the CPU it takes, and the kernel gives a role no more than its quota (0.06
to 0.15 of a core), so that seven trainers and four PS fit on two cores and more of either makes a difference. While a job
changes its size, new pods have a whole core each and the others a quarter; all get their quota when all of them train. Trainers
prepare no sessions for the loss of a PS, and trace no steps: that takes seconds of CPU after each change, which at these quotas
is a minute.

A job goes through its sizes in an order with few restarts. Throughput is counted from the times of steps that the trainers
themselves write, CPU from their processes.
How fast the machine is meanwhile is measured too (benchmarks/speed.py): it may change by half within minutes.
"""

from __future__ import annotations

import contextlib
import json
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from benchmarks import speed
from benchmarks.job import Job, running
from benchmarks.stock import steps
from benchmarks.stock.cluster import ROOT
from deeprec_ext.autoscaler.observe.observed import Size
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc
from deeprec_ext.security.credentials import open_channel, server_name

SCRIPT = ROOT / "benchmarks" / "stock" / "train.py"
FREE_CPU, BESIDE_CPU = 1.0, 0.25
SETTLE_SECONDS = 6.0
STEPS_MIN = 8
WINDOW_MAX_SECONDS = 90.0
MAX_PS, MAX_WORKERS = 4, 6
TOTAL_CPU = 1.3
"""Of all roles at a measured size: the rest of the two cores is for the AIMaster, the launcher, and others on the machine."""

WORKER_CPUS, PS_CPUS = (0.08, 0.15), (0.06, 0.12)


@dataclass(frozen=True)
class Shape:
    """One model: flags of the training script, and the batch size among them."""

    name: str
    batch: int
    flags: tuple[str, ...]


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("wide", 512, ("--fields", "26", "--hidden", "64", "--state", "64MB")),
        Shape("deep", 512, ("--fields", "8", "--hidden", "512,512,256", "--state", "16MB")),
        Shape("large batch", 4096, ("--fields", "8", "--hidden", "128,64", "--state", "64MB")),
        Shape("many fields", 64, ("--fields", "80", "--dim", "8", "--hidden", "64", "--state", "64MB")),
    )
}


@dataclass(frozen=True)
class Measured:
    """One window. CPU in cores: mean of a trainer, sum of all PS, what other processes of the machine used, the busiest PS."""

    size: Size
    seconds: float
    examples_per_second: float
    steps: int
    trainer_cpu: float
    ps_cpu: float
    others_cpu: float
    probe_seconds: float = 0.0  # mean of `speed.probe` meanwhile
    ps_cpu_most: float = 0.0


class Rig:
    """One running job that is taken from size to size."""

    def __init__(self, job: Job, shape: Shape) -> None:
        self._job, self._shape = job, shape
        described = json.loads((job.workdir / "job.json").read_text())
        certificates = job.workdir / "certs"
        self._launcher = rpc.LauncherStub(
            open_channel(described["launcher"], server_name("launcher", described["job"]), "admin", certificates)
        )
        self._admin = rpc.AdminStub(
            open_channel(described["aimaster"], server_name("aimaster", described["job"]), "admin", certificates)
        )

    def go(self, ps: int, workers: int) -> None:
        """Change the counts, if they differ, and wait until everybody trains."""
        job = self._job
        if (job.ps, len(job.trainers) - 1) == (ps, workers):
            return
        self._resize("ps", FREE_CPU)
        self._resize("worker", FREE_CPU)
        for name in (*job.trainers, *job.servers()):
            self._resize(name, BESIDE_CPU)
        for wanted in ({"workers": workers}, {"ps": ps}):
            reply = self._admin.Scale(pb.ScaleRequest(**wanted), timeout=20)
            job.until(lambda number=reply.scaling_id: self._ended(number), f"the change to {wanted}")
        job.ps, job.trainers = ps, ["chief-0", *(f"worker-{index}" for index in range(workers))]
        job.wait_steady(2.0)

    def measure(self, size: Size, seconds: float) -> Measured:
        self.go(size.ps, size.workers)
        self._resize("ps", size.ps_cpu)
        self._resize("worker", size.worker_cpu)
        time.sleep(SETTLE_SECONDS)
        job = self._job
        servers = job.servers()
        began, before, machine = time.time(), self._cpu([*job.trainers, *servers]), _machine_cpu()
        longest, probes = began + WINDOW_MAX_SECONDS, []
        while True:
            time.sleep(0.25)
            probes.append(speed.probe())
            seen = steps.read(job.recorded)
            inside = {name: [step.time for step in seen.get(name, ()) if step.time >= began] for name in job.trainers}
            fewest = min(len(times) for times in inside.values())
            if time.time() > began + seconds and (fewest >= STEPS_MIN or time.time() > longest):
                break
        after, machine_after, ended = self._cpu([*job.trainers, *servers]), _machine_cpu(), time.time()
        length = ended - began
        cpu = {name: (after[name] - before[name]) / length for name in after}
        rate = sum((len(times) - 1) / (times[-1] - times[0]) for times in inside.values() if len(times) > 1)
        return Measured(
            size, round(length, 2), round(rate * self._shape.batch, 3), sum(map(len, inside.values())),
            round(sum(cpu[name] for name in job.trainers) / len(job.trainers), 5),
            round(sum(cpu[name] for name in servers), 5),
            round((machine_after - machine) / length - sum(cpu.values()), 3), statistics.fmean(probes),
            round(max(cpu[name] for name in servers), 5),
        )  # fmt: skip

    def _resize(self, name: str, cpu: float) -> None:
        self._launcher.Resize(pb.ResizeRequest(name=name, resources=pb.Resources(cpu=cpu)), timeout=20)

    def _ended(self, number: int) -> bool:
        if number == 0:  # it has that size already
            return True
        status = self._job.status()
        found = next((one for one in status.scalings if one.id == number), None) if status is not None else None
        if found is not None and found.outcome not in ("", "committed"):
            raise RuntimeError(f"the scaling {found.outcome}: {found.reason}; see {self._job.base}")
        return found is not None and found.outcome == "committed"

    def _cpu(self, names: Sequence[str]) -> dict[str, float]:
        times = {name: psutil.Process(self._job.pid(name)).cpu_times() for name in names}
        return {name: time.user + time.system for name, time in times.items()}


@contextlib.contextmanager
def rig(shape: Shape, max_ps: int = MAX_PS, max_workers: int = MAX_WORKERS) -> Iterator[Rig]:
    """A job of this shape with one PS and one trainer."""
    flags = (
        "--ps-cpu", str(FREE_CPU), "--worker-cpu", str(FREE_CPU), "--max-ps", str(max_ps), "--max-workers", str(max_workers),
        "--setting", "standby_sessions_max=0", "--setting", "trace_seconds=0",
    )  # fmt: skip
    command = [str(SCRIPT), *shape.flags, "--batch", str(shape.batch), "--steps", str(10**9)]
    with running(command, ps=1, workers=0, flags=flags, label="estimator") as job:
        job.wait_steady(2.0)
        yield Rig(job, shape)


PATH = (
    (1, 0), (1, 1), (1, 2), (2, 2), (2, 4), (2, 6), (3, 6), (4, 6), (4, 4), (4, 2), (3, 2), (3, 1), (2, 1), (2, 0),
)  # fmt: skip
"""(PS, workers), in an order that changes little from one to the next."""


def sizes(seed: int, count: int) -> list[Size]:
    """So many sizes along the path, of each at least one, with the CPU of the roles at random."""
    chance = random.Random(seed)
    twice = set(chance.sample(range(len(PATH)), max(0, min(count - len(PATH), len(PATH)))))
    path = []
    for number, (ps, workers) in enumerate(PATH):
        fitting = [
            size for worker_cpu in WORKER_CPUS for ps_cpu in PS_CPUS
            if (size := Size(ps, workers, ps_cpu, worker_cpu)).cpu <= TOTAL_CPU
        ]  # fmt: skip
        path += chance.sample(fitting, 1 + (number in twice))
    return path


def _machine_cpu() -> float:
    times: Any = psutil.cpu_times()
    return float(times.user + times.system + times.nice + times.irq + times.softirq)
