"""What deciding by itself is worth: a job that starts with a bad size, against the best static size, and a careless one.

    python -m benchmarks.autoscale                        # about forty minutes
    python -m benchmarks.autoscale --steady 20            # the autoscaled job trains on: decisions once it has converged
    python -m benchmarks.autoscale --minutes 3 --quick    # a look, with a coarse sweep
    python -m benchmarks.autoscale --scenario all --repeat 3 --json regret.json    # eleven scenarios: hours
    python -m benchmarks.autoscale --scenario machine     # one of them (benchmarks/scenarios.py): twenty minutes

One model of benchmarks/sizes.py, roles held to a share of a core each by cgroups; nothing is padded, nothing sleeps. As on a
cluster, whose pods have whole cores, a pod that starts has a whole core until it trains (the benchmark resizes it then):
importing TensorFlow on a tenth of a core would take a minute, and the startup of processes is not what is measured.

1. *Sweep*: throughput at the sizes of a grid, then at the neighbours of the best one; twice at the best three.
2. *Best*: a job of the best static size trains N examples, so many that it takes `--minutes`.
3. *Autoscaled*: a job that starts with a bad size (1 PS, no worker) and `--autoscale` trains the same N. Time from the start
   of the command to the N-th example, for both.
4. *Careless*: a job of twice the pods of the best size, as someone would have asked for to be safe; a fifth of N, scaled.

Waste is what pods requested minus what they used, CPU and memory, integrated from the moment each pod trains. Memory
requested is what the largest process of the role at the best size used, with a fifth on top.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import grpc
import psutil

from benchmarks import scenarios
from benchmarks.job import Job, end_on_signals, running, say
from benchmarks.sizes import SCRIPT, SHAPES, Rig, Shape, rig
from benchmarks.stock import steps
from deeprec_ext.autoscaler.observe.observed import Size
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc
from deeprec_ext.security.credentials import open_channel, server_name

PS_CPU, WORKER_CPU = 0.2, 0.15
MAX_PS, MAX_WORKERS = 3, 6
START_CPU = 1.0
HEADROOM = 1.2
CARELESS_SHARE = 0.2
RATIO_AT_LEAST, WASTE_AT_LEAST = 1.25, 0.42
GRID = ((1, 0), (1, 1), (1, 2), (1, 3), (2, 3), (2, 4), (2, 5), (2, 6), (3, 6), (3, 5))
QUICK_GRID = ((1, 1), (1, 3), (2, 4), (3, 6))


@dataclass
class Pod:
    """One process from its start on."""

    role: str  # ps, worker
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    memory_seconds: float = 0.0  # byte seconds used
    highest: float = 0.0  # bytes


@dataclass
class Ledger:
    """What the pods of one job used, by pid; fed twice a second."""

    pods: dict[int, Pod] = field(default_factory=dict)

    def waste(self, request: dict[str, tuple[float, float]]) -> tuple[float, float]:
        """(core seconds, byte seconds) requested and not used. `request`: role -> (cores, bytes) of a pod."""
        cpu = sum(max(0.0, request[pod.role][0] * pod.seconds - pod.cpu_seconds) for pod in self.pods.values())
        memory = sum(max(0.0, request[pod.role][1] * pod.seconds - pod.memory_seconds) for pod in self.pods.values())
        return cpu, memory

    def highest(self, role: str) -> float:
        return max((pod.highest for pod in self.pods.values() if pod.role == role), default=0.0)


class Watch:
    """Gives pods their quota once they train, and counts what they use, in a thread."""

    def __init__(self, job: Job) -> None:
        self._job, self.ledger = job, Ledger()
        self._launcher: rpc.LauncherStub | None = None
        self._held: set[tuple[str, int]] = set()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._cpu: dict[int, float] = {}
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        last = time.monotonic()
        while not self._end.wait(0.5):
            now = time.monotonic()
            with contextlib.suppress(grpc.RpcError, OSError, ValueError, KeyError):
                self._look(now - last)
            last = now

    def _look(self, seconds: float) -> None:
        if self._launcher is None and (self._job.workdir / "job.json").exists():
            self._connect()
        status = self._job.status(2.0)
        for role in status.roles if status is not None else ():
            if role.state != "running" or not role.pid or role.role not in (pb.PS, pb.CHIEF, pb.WORKER):
                continue
            with contextlib.suppress(psutil.NoSuchProcess):
                self._hold(role)
                self._count(role, seconds)

    def _hold(self, role: pb.RoleStatus) -> None:
        key = role.name, role.pid
        started = role.heartbeat.training if role.role != pb.PS else bool(role.slots and role.bytes)
        if started and key not in self._held:
            self._resize(role.name, PS_CPU if role.role == pb.PS else WORKER_CPU)
            self._held.add(key)

    def _count(self, role: pb.RoleStatus, seconds: float) -> None:
        process = psutil.Process(role.pid)
        used, memory = sum(process.cpu_times()[:2]), float(process.memory_info().rss)
        pod = self.ledger.pods.setdefault(role.pid, Pod("ps" if role.role == pb.PS else "worker"))
        if (role.name, role.pid) in self._held:  # its start is the same for all, and on a whole core
            pod.seconds += seconds
            pod.cpu_seconds += used - self._cpu.get(role.pid, used)
            pod.memory_seconds += memory * seconds
        pod.highest = max(pod.highest, memory)
        self._cpu[role.pid] = used

    def _connect(self) -> None:
        described = json.loads((self._job.workdir / "job.json").read_text())
        server = server_name("launcher", described["job"])
        channel = open_channel(described["launcher"], server, "admin", self._job.workdir / "certs")
        self._launcher = rpc.LauncherStub(channel)
        for kind in ("ps", "worker"):  # those there are, and those to come
            self._resize(kind, START_CPU)

    def _resize(self, name: str, cpu: float) -> None:
        assert self._launcher is not None
        self._launcher.Resize(pb.ResizeRequest(name=name, resources=pb.Resources(cpu=cpu)), timeout=5)


@dataclass
class Trained:
    """One job: how long N examples took from the start of its command, and what it used meanwhile."""

    seconds: float
    ledger: Ledger
    decisions: list[dict[str, Any]] = field(default_factory=list)


def flags(ps: int, workers: int) -> tuple[str, ...]:
    return (
        "--ps-cpu", str(PS_CPU), "--worker-cpu", str(WORKER_CPU), "--max-ps", str(max(ps, MAX_PS)), "--max-workers",
        str(max(workers, MAX_WORKERS)), "--slots", "16",
    )  # fmt: skip


def script(shape: Shape, last_step: int) -> list[str]:
    return [str(SCRIPT), *shape.flags, "--batch", str(shape.batch), "--steps", str(last_step)]


@contextlib.contextmanager
def watched(
    shape: Shape, ps: int, workers: int, more: Sequence[str], last_step: int = 10**9
) -> Iterator[tuple[Job, Watch]]:
    words = script(shape, last_step)
    with running(words, ps=ps, workers=workers, flags=(*flags(ps, workers), *more), label="autoscale") as job:
        watch = Watch(job)
        try:
            yield job, watch
        finally:
            watch.stop()


def examples(job: Job, shape: Shape) -> int:
    return shape.batch * sum(len(found) for found in steps.read(job.recorded).values())


def moment_of(job: Job, shape: Shape, count: int) -> float:
    """Unix seconds at which so many examples had been trained."""
    times = sorted(step.time for found in steps.read(job.recorded).values() for step in found)
    return times[-(-count // shape.batch) - 1]


def train(shape: Shape, ps: int, workers: int, count: int, name: str, more: Sequence[str] = ()) -> Trained:
    """A whole job of so many examples."""
    began, beyond = time.time(), int(1.02 * count / shape.batch) + 100  # it knows about when it ends
    with watched(shape, ps, workers, more, beyond) as (job, watch):
        follow(job, lambda: examples(job, shape) / count, name)
        seconds = moment_of(job, shape, count) - began
        watch.stop()
        found = Trained(seconds, watch.ledger, decisions(job))
    say(f"{name}: {count} examples in {seconds:.0f} s")
    return found


def follow(job: Job, done: Callable[[], float], name: str) -> None:
    """Until `done`, a share, is 1, with a line now and then. Raises RuntimeError when the job ends before."""
    began = said = time.time()
    while (share := done()) < 1:
        time.sleep(0.5)
        if job.process.poll() is not None:
            raise RuntimeError(f"the job ended too early; see {job.base}")
        if time.time() > said + 30:
            said = time.time()
            say(f"{name}: {share:.0%} after {said - began:.0f} s, {_size(job)}, {len(changes(job, began))} changes")


def _size(job: Job) -> str:
    status = job.status()
    if status is None:
        return "the AIMaster does not answer"
    ps = sum(role.role == pb.PS and bool(role.slots) for role in status.roles)
    workers = sum(role.role == pb.WORKER and role.heartbeat.training for role in status.roles)
    return f"{ps} PS, {workers} workers"


def decisions(job: Job) -> list[dict[str, Any]]:
    """With what came of them, oldest first; of a job without autoscaler none."""
    path, found = job.workdir / "decisions.jsonl", []
    for line in path.read_text().splitlines() if path.exists() else ():
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found


def changes(job: Job, since: float) -> list[float]:
    """When the job changed its size by itself."""
    return [
        event["time"] for event in job.events("decision") if event["time"] >= since and event.get("action") != "start"
    ]


# ------------------------------------------------------------------------------------------------------------ parts


def sweep(shape: Shape, seconds: float, quick: bool) -> dict[tuple[int, int], list[float]]:
    """(PS, workers) -> examples per second, each time it was measured."""
    found: dict[tuple[int, int], list[float]] = {}

    def look(job: Rig, ps: int, workers: int) -> None:
        rate = job.measure(Size(ps, workers, PS_CPU, WORKER_CPU), seconds).examples_per_second
        found.setdefault((ps, workers), []).append(rate)
        say(f"sweep: {ps} PS, {workers} workers: {rate:.0f} examples/s")

    with rig(shape, MAX_PS, MAX_WORKERS) as job:
        for ps, workers in QUICK_GRID if quick else GRID:
            look(job, ps, workers)
        for _ in range(1 if quick else 2):  # neighbours of the best, then of what was better than it
            ps, workers = best_of(found)
            near = [(ps, workers + 1), (ps, workers - 1), (ps + 1, workers), (ps - 1, workers)]
            for size in near:
                if size not in found and 1 <= size[0] <= MAX_PS and 0 <= size[1] <= MAX_WORKERS:
                    look(job, *size)
        for size in sorted(found, key=lambda size: -max(found[size]))[: 1 if quick else 3]:
            look(job, *size)
    return found


def best_of(found: dict[tuple[int, int], list[float]]) -> tuple[int, int]:
    """The fastest size; among those within 2 % of it the smallest."""
    rates = {size: sum(all_) / len(all_) for size, all_ in found.items()}
    top = max(rates.values())
    return min((size for size, rate in rates.items() if rate >= 0.98 * top), key=lambda size: (sum(size), -rates[size]))


def steady(shape: Shape, ps: int, workers: int, minutes: float, settle: float) -> dict[str, Any]:
    """A job that has had `settle` minutes to converge: what it still decides."""
    began = time.time()
    with watched(shape, ps, workers, ("--autoscale",)) as (job, _):
        follow(job, lambda: (time.time() - began) / 60 / (settle + minutes), "steady")
        late = changes(job, began + 60 * settle)
        made = decisions(job)
    return {
        "settle_minutes": settle, "minutes": minutes, "changes": len(late), "per_hour": len(late) * 60 / minutes,
        "decisions": made,
    }  # fmt: skip


def bench(arguments: argparse.Namespace) -> dict[str, Any]:
    shape = SHAPES[arguments.shape]
    if arguments.steady_only:
        return {"steady": steady(shape, *arguments.steady_only, arguments.steady, arguments.settle)}
    if arguments.best:
        found, (ps, workers), rate = {}, arguments.best[:2], float(arguments.best[2])
        ps, workers = int(ps), int(workers)
    else:
        found = sweep(shape, arguments.seconds, arguments.quick)
        ps, workers = best_of(found)
        rate = sum(found[ps, workers]) / len(found[ps, workers])
    count = int(rate * 60 * arguments.minutes)
    say(f"best: {ps} PS, {workers} workers, {rate:.0f} examples/s; {count} examples are to be trained")
    best = train(shape, ps, workers, count, "best static size")
    memory = {role: HEADROOM * best.ledger.highest(role) for role in ("ps", "worker")}
    auto = train(shape, 1, 0, count, "autoscaled", ("--autoscale",))
    trainers = 2 * (workers + 1)  # the chief is one
    careless = train(shape, 2 * ps, trainers - 1, max(shape.batch, int(count * CARELESS_SHARE)), "twice the size")
    request = {"ps": (PS_CPU, memory["ps"]), "worker": (WORKER_CPU, memory["worker"])}
    waste = {
        "best": best.ledger.waste(request), "autoscaled": auto.ledger.waste(request),
        "careless": tuple(one / CARELESS_SHARE for one in careless.ledger.waste(request)),
    }  # fmt: skip
    less = [1 - mine / theirs for mine, theirs in zip(waste["autoscaled"], waste["careless"])]
    result: dict[str, Any] = {
        "shape": shape.name, "sweep": [[*size, *rates] for size, rates in sorted(found.items())],
        "best": [ps, workers], "examples": count,
        "seconds": {"best": best.seconds, "autoscaled": auto.seconds, "careless": careless.seconds / CARELESS_SHARE},
        "ratio": auto.seconds / best.seconds, "waste": waste, "waste_less": {"cpu": less[0], "memory": less[1]},
        "decisions": auto.decisions,
    }  # fmt: skip
    if arguments.steady:
        result["steady"] = steady(shape, ps, workers, arguments.steady, arguments.settle)
    return result


def told(result: dict[str, Any]) -> str:
    lines = []
    if "ratio" in result:
        seconds, waste = result["seconds"], result["waste"]
        lines += [
            f"{result['examples']} examples of `{result['shape']}`; best static size {result['best'][0]} PS, "
            f"{result['best'][1]} workers",
            "| job | seconds | CPU wasted, core s | memory wasted, GB s |",
            "|---|---|---|---|",
            *(
                f"| {name} | {seconds[name]:.0f} | {waste[name][0]:.0f} | {waste[name][1] / 1e9:.0f} |"
                for name in ("best", "autoscaled", "careless")
            ),
            f"autoscaled ÷ best: {result['ratio']:.2f} (target {RATIO_AT_LEAST})",
            f"waste against twice the best size: CPU {-result['waste_less']['cpu']:+.0%}, memory "
            f"{-result['waste_less']['memory']:+.0%} (target {-WASTE_AT_LEAST:+.0%})",
        ]
    if "steady" in result:
        one = result["steady"]
        lines.append(
            f"after {one['settle_minutes']:g} minutes, in {one['minutes']:g} more: {one['changes']} changes, "
            f"{one['per_hour']:.1f} an hour (target 1)"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=tuple(SHAPES), default="wide")
    parser.add_argument("--minutes", type=float, default=10.0, help="that the best static size trains (default 10)")
    parser.add_argument("--seconds", type=float, default=12.0, help="of a window of the sweep (default 12)")
    parser.add_argument("--quick", action="store_true", help="a coarse sweep")
    parser.add_argument("--best", nargs=3, metavar=("PS", "WORKERS", "RATE"), help="of an earlier sweep: none is made")
    parser.add_argument("--steady", type=float, default=0.0, metavar="MINUTES", help="and then a job that converged")
    parser.add_argument("--settle", type=float, default=5.0, metavar="MINUTES", help="that it has before (default 5)")
    parser.add_argument("--steady-only", nargs=2, type=int, metavar=("PS", "WORKERS"), help="start it so; nothing else")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result here too")
    parser.add_argument(
        "--scenario",
        action="append",
        choices=("all", *scenarios.SCENARIOS),
        help="instead: is it ever worse than no autoscaler",
    )
    parser.add_argument("--repeat", type=int, default=1, help="of each scenario")
    parser.add_argument(
        "--share", type=float, default=1.0, help="of a scenario's examples that a static job trains (default 1)"
    )
    parser.add_argument("--go-on", action="store_true", help="what is in --json is not measured again")
    parser.add_argument("--again", action="store_true", help="but for the autoscaled jobs")
    arguments = parser.parse_args()
    end_on_signals()
    if arguments.scenario:
        names = list(scenarios.SCENARIOS) if "all" in arguments.scenario else arguments.scenario
        minutes = arguments.minutes if "--minutes" in sys.argv else 0.0

        def keep(rows: Any) -> None:
            if arguments.json:
                arguments.json.write_text(json.dumps(rows, indent=1))

        go_on = arguments.go_on and arguments.json and arguments.json.exists()
        rows = json.loads(arguments.json.read_text()) if go_on else []
        scenarios.bench(
            names, arguments.repeat, arguments.seconds, minutes, arguments.share, arguments.again, rows, keep
        )
        print(scenarios.told(rows))
        return
    result = bench(arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1, default=asdict))
    print(told(result))


if __name__ == "__main__":
    sys.exit(main())
