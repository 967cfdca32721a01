"""Jobs that an autoscaler could make slower, each trained three ways in one run: see `benchmarks/autoscale.py --scenario`.

Of a scenario, `--repeat` times: a job that stays at its first size trains for `minutes`; the autoscaled one trains as many
examples; and so does a job of the best static size, which a sweep has found before (of the same world: the same model, the
same limits, nothing that disturbs). Time counts from the start of the command to the last of the examples. A disturbance comes
at the same share of the examples in all three. A job that keeps its size may train `--share` of the examples only: the
others at the speed of its last half (not with a disturbance).
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.job import Job, running, say
from benchmarks.sizes import SCRIPT
from benchmarks.stock import steps
from deeprec_ext.autoscaler.policy.record import brought_by, read
from deeprec_ext.errors import DeepRecError
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc
from deeprec_ext.security.credentials import open_channel, server_name

BEST_AT_MOST, BEST_MEDIAN, FIRST_AT_MOST = 1.25, 1.10, 1.03
NEIGHBOUR_SECONDS = 120.0
BATCH = 512
SPIN = "import time\nend = time.monotonic() + {seconds}\nwhile time.monotonic() < end:\n    pass\n"
Size = tuple[int, int]
"""(PS, workers)"""


@dataclass(frozen=True)
class World:
    """What jobs train, and on what: sizes of one world can be compared, and have one best."""

    name: str
    flags: tuple[str, ...]  # of the script
    run: tuple[str, ...] = ()  # of `deeprec-ext run`
    grid: tuple[Size, ...] = ((1, 0), (1, 1), (1, 2), (2, 1), (2, 2))
    slow_worker: float = 0.0  # cores that worker-0 is held to
    input_seconds: float = 0.0  # that reading a batch takes, of all trainers together


WIDE = ("--fields", "26", "--hidden", "64", "--state", "64MB")
MACHINE = World("machine", WIDE)
HELD = World("held", WIDE, ("--ps-cpu", "0.3", "--worker-cpu", "0.3"), ((1, 0), (1, 1), (1, 2), (2, 2), (1, 3), (2, 3)))
HOT = World("hot table", ("--fields", "2", "--dim", "64", "--hidden", "64", "--state", "64MB"))
SLOW = World("slow worker", WIDE, ("--worker-cpu", "0.5"), slow_worker=0.15)
INPUT = World("input", WIDE, input_seconds=0.05)


@dataclass(frozen=True)
class Scenario:
    name: str
    world: World
    first: Size
    minutes: float = 5.0  # that the first size trains
    neighbour: bool = False
    history: bool = False


SCENARIOS = {
    one.name: one
    for one in (
        Scenario("machine", MACHINE, (1, 0)),
        Scenario("limits", HELD, (1, 1)),
        Scenario("too small", HELD, (1, 0)),
        Scenario("too large", MACHINE, (4, 4)),
        Scenario("too many PS", MACHINE, (4, 1)),
        Scenario("hot table", HOT, (2, 1)),
        Scenario("slow worker", SLOW, (1, 2)),
        Scenario("input", INPUT, (1, 1)),
        Scenario("neighbour", MACHINE, (1, 1), 6.0, neighbour=True),
        Scenario("short", MACHINE, (1, 0), 3.0),
        Scenario("history", MACHINE, (1, 0), history=True),
    )
}


DECIDED_MAX = 500
"""Decisions that are kept of a job, the last ones."""


@dataclass
class Trained:
    seconds: float
    changes: int = 0
    wrong: list[dict[str, Any]] = field(default_factory=list)
    last: Size = (0, 0)
    decided: list[list[Any]] = field(default_factory=list)
    """Of each decision: seconds since the start, action, reason."""


# ------------------------------------------------------------------------------------------------------------ jobs


def command(world: World, beyond: int, input_lock: Path) -> list[str]:
    slow = ("--input-seconds", str(world.input_seconds), "--input-lock", str(input_lock)) if world.input_seconds else ()
    return [str(SCRIPT), *world.flags, *slow, "--batch", str(BATCH), "--steps", str(beyond)]


@contextlib.contextmanager
def job_of(world: World, size: Size, more: Sequence[str] = (), beyond: int = 10**9) -> Iterator[Job]:
    flags = (*world.run, "--max-ps", str(max(4, size[0])), "--max-workers", str(max(4, size[1])), *more)
    with tempfile.TemporaryDirectory(prefix="scenario-") as place:
        words = command(world, beyond, Path(place) / "input")
        with running(words, ps=size[0], workers=size[1], flags=flags, label="scenario") as job, holding(world, job):
            yield job


@contextlib.contextmanager
def holding(world: World, job: Job) -> Iterator[None]:
    """Holds worker-0 to its CPU as soon as it trains, whichever process it is."""
    end = threading.Event()

    def look() -> None:
        held: set[int] = set()
        while not end.wait(0.5):
            status = job.status(2.0)
            for role in status.roles if status is not None else ():
                if role.name == "worker-0" and role.heartbeat.training and role.pid not in held:
                    with contextlib.suppress(OSError, KeyError, ValueError):
                        resize(job, role.name, world.slow_worker)
                        held.add(role.pid)

    thread = threading.Thread(target=look, daemon=True)
    if world.slow_worker:
        thread.start()
    try:
        yield
    finally:
        end.set()
        if world.slow_worker:
            thread.join()


def resize(job: Job, name: str, cpu: float) -> None:
    described = json.loads((job.workdir / "job.json").read_text())
    server = server_name("launcher", described["job"])
    with open_channel(described["launcher"], server, "admin", job.workdir / "certs") as channel:
        rpc.LauncherStub(channel).Resize(pb.ResizeRequest(name=name, resources=pb.Resources(cpu=cpu)), timeout=5)


def trained(job: Job, since: float = 0.0) -> int:
    """Examples of all trainers."""
    return BATCH * sum(step.time >= since for found in steps.read(job.recorded).values() for step in found)


def moment_of(job: Job, count: int) -> float:
    times = sorted(step.time for found in steps.read(job.recorded).values() for step in found)
    return times[-(-count // BATCH) - 1]


def train(
    scenario: Scenario, size: Size, wanted: int, name: str, more: Sequence[str] = (), share: float = 1.0
) -> Trained:
    """A job of so many examples, of which it trains a share; with its neighbour from a third of them on."""
    count = int(share * wanted)
    began, said, neighbour = time.time(), time.time(), None
    with job_of(scenario.world, size, more, int(1.02 * wanted / BATCH) + 100) as job:
        try:
            while (done := trained(job)) < count:
                if job.process.poll() is not None:
                    raise RuntimeError(f"the job ended too early; see {job.base}")
                if scenario.neighbour and neighbour is None and done > count / 3:
                    neighbour = subprocess.Popen([sys.executable, "-c", SPIN.format(seconds=NEIGHBOUR_SECONDS)])
                    say(f"{name}: another program takes a core")
                if time.time() > said + 30:
                    said = time.time()
                    say(f"{name}: {done / count:.0%} after {said - began:.0f} s")
                time.sleep(0.5)
            end = moment_of(job, count)
            rest = (wanted - count) * (end - moment_of(job, count // 2)) / (count - count // 2)
            found = Trained(end + rest - began, last=_size(job))
            with contextlib.suppress(DeepRecError, OSError):
                entries = read(job.workdir)
                found.decided = [
                    [round(one.decision.time), one.decision.action, one.decision.reason]
                    for one in entries[-DECIDED_MAX:]
                ]
                found.changes = sum(entry.decision.action not in ("keep", "start") for entry in entries)
                told = brought_by(entries)
                found.wrong = told.to_values()["wrong"] if told is not None else []
        finally:
            if neighbour is not None:
                neighbour.kill()
                neighbour.wait()
    say(f"{name}: {wanted} examples in {found.seconds:.0f} s, {found.changes} changes")
    return found


def _size(job: Job) -> Size:
    status = job.status()
    roles = status.roles if status is not None else ()
    ps = sum(role.role == pb.PS and bool(role.slots) for role in roles)
    return ps, sum(role.role == pb.WORKER and role.heartbeat.training for role in roles)


def sweep(world: World, seconds: float) -> dict[Size, float]:
    """Examples per second of each size of the grid, one job after the other's size; the first and the best twice."""
    found: dict[Size, list[float]] = {}

    def look(job: Job, size: Size) -> None:
        for role, number in (("workers", size[1]), ("ps", size[0])):
            if number == (len(job.trainers) - 1 if role == "workers" else job.ps):
                continue
            job.until(partial(_committed, job, job.ask(**{role: number})), f"{number} {role}")
        job.ps, job.trainers = size[0], ["chief-0", *(f"worker-{index}" for index in range(size[1]))]
        job.wait_steady(3.0)
        since = time.time()
        time.sleep(seconds)
        found.setdefault(size, []).append(trained(job, since) / (time.time() - since))
        say(f"{world.name}: {size[0]} PS, {size[1]} workers: {found[size][-1]:.0f} examples/s")

    with job_of(world, world.grid[0]) as job:
        job.wait_steady(3.0)
        for size in world.grid:
            look(job, size)
        look(job, max(found, key=lambda size: found[size][0]))
    return {size: statistics.fmean(rates) for size, rates in found.items()}


def _committed(job: Job, number: int) -> bool:
    status = job.status()
    one = next((one for one in status.scalings if one.id == number), None) if number and status is not None else None
    if one is not None and one.outcome in ("rolled_back", "refused"):
        raise RuntimeError(f"the scaling {one.outcome}: {one.reason}")
    return not number or (one is not None and one.outcome == "committed")


# ------------------------------------------------------------------------------------------------------------ scenarios


def bench(
    names: Sequence[str],
    repeat: int,
    seconds: float,
    minutes: float,
    share: float,
    again: bool,
    rows: list[dict[str, Any]],
    keep: Callable[[Any], None],
) -> None:
    """Makes rows, one per scenario and repetition, but for those that are there; `keep` is given all of them after each.

    Worlds are swept once. Of rows that are there, `again` measures the autoscaled job anew.
    """
    for turn in range(repeat):
        for name in names:
            scenario = SCENARIOS[name]
            there = next((row for row in rows if (row["scenario"], row["turn"]) == (name, turn)), None)
            if there is None:
                swept = [row["sweep"] for row in rows if SCENARIOS[row["scenario"]].world == scenario.world]
                rates = (
                    {(ps, workers): rate for ps, workers, rate in swept[0]} if swept else sweep(scenario.world, seconds)
                )
                there = _static(scenario, turn, 60 * (minutes or scenario.minutes), share, rates)
                rows.append(there)
            elif not again:
                continue
            _autoscaled(scenario, there)
            keep(rows)


def _static(scenario: Scenario, turn: int, seconds: float, share: float, rates: dict[Size, float]) -> dict[str, Any]:
    first, best = scenario.first, max(rates, key=lambda size: rates[size])
    label, share = f"{scenario.name} {turn + 1}", 1.0 if scenario.neighbour else share
    count = int(seconds * rates.get(first, max(rates.values())))
    alone = train(scenario, first, count, f"{label}, first size {first}", share=share)
    static = train(scenario, best, count, f"{label}, best size {best}", share=share) if best != first else alone
    return {
        "scenario": scenario.name, "turn": turn, "first": list(first), "best": list(best), "examples": count,
        "seconds": {"first": alone.seconds, "best": static.seconds},
        "sweep": [[*size, rate] for size, rate in sorted(rates.items())],
    }  # fmt: skip


def _autoscaled(scenario: Scenario, row: dict[str, Any]) -> None:
    """Adds to the row of static jobs what the autoscaler made of theirs."""
    label, count, seconds = f"{scenario.name} {row['turn'] + 1}", row["examples"], row["seconds"]
    with tempfile.TemporaryDirectory(prefix="history-") as place:
        history = ("--history", str(Path(place) / "history.db")) if scenario.history else ()
        if scenario.history:  # a job that was autoscaled before is what history has
            train(scenario, scenario.first, count // 2, f"{label}, a job before", ("--autoscale", *history))
        ours = train(scenario, scenario.first, count, f"{label}, autoscaled", ("--autoscale", *history))
    seconds["autoscaled"] = ours.seconds
    row.update(
        by_best=ours.seconds / seconds["best"], by_first=ours.seconds / seconds["first"], changes=ours.changes,
        last=list(ours.last), wrong=ours.wrong, decided=ours.decided,
    )  # fmt: skip


def told(rows: Sequence[dict[str, Any]]) -> str:
    lines = [
        "| scenario | first | best | last | ÷ best static | ÷ first size | changes | wrong, and why |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        wrong = "; ".join(
            f"{one['from']} → {one['to']} brought {_percent(one['gained'])} where {_percent(one['predicted'])} was predicted"
            for one in row["wrong"]
        )
        lines.append(
            f"| {row['scenario']} | {row['first']} | {row['best']} | {row['last']} | {row['by_best']:.2f} "
            f"| {row['by_first']:.2f} | {row['changes']} | {wrong or '–'} |"
        )
    best, first = [row["by_best"] for row in rows], [row["by_first"] for row in rows]
    lines.append(
        f"÷ best: median {statistics.median(best):.2f} (target {BEST_MEDIAN}), worst {max(best):.2f} (target {BEST_AT_MOST}); "
        f"÷ first size: worst {max(first):.2f} (target {FIRST_AT_MOST})"
    )
    return "\n".join(lines)


def _percent(share: float | None) -> str:
    return f"{share:+.0%}" if share is not None else "what is not known"
