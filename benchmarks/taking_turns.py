"""Step time and processor time of one job ÷ of another, in pairs of turns.

Two whole jobs; one runs while the other is stopped (SIGSTOP). The order in a pair is random. Of each pair: the ratio of the
mean step times, so that a stall counts; and that of the processor seconds of all processes of the job per step. The second is
disturbed less by other work on the machine, and is what the first becomes where training has no processor to spare.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import signal
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from benchmarks.job import Job, running, say
from benchmarks.stock import steps

PATIENT = ("--setting", "ps_heartbeat_limit_seconds=100000", "--setting", "worker_heartbeat_limit_seconds=100000")
SETTLE_SECONDS = 2.0
FLUSH_SECONDS = 0.5
"""The trainers write their steps down every 0.2 s."""


@dataclass(frozen=True)
class Turn:
    """A job ran alone for so long."""

    begin: float
    end: float
    cpu_seconds: float
    """User and system time of all its processes."""


@dataclass(frozen=True)
class Cost:
    """Of one step, in seconds."""

    step: float
    """Mean over the trainers."""
    cpu: float


def _send(job: Job, number: signal.Signals) -> None:
    for process in job.everyone():
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _cpu_seconds(job: Job) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in job.everyone())


@dataclass(frozen=True)
class Kind:
    """Of a job. `command`: script and arguments; `flags`: of `deeprec-ext run`."""

    command: Sequence[str]
    flags: Sequence[str] = ()


@contextlib.contextmanager
def _both(kinds: Mapping[str, Kind], ps: int, workers: int) -> Iterator[dict[str, Job]]:
    """A job of each, both warm, packed and stopped."""
    with contextlib.ExitStack() as stack:
        jobs: dict[str, Job] = {}
        for name, kind in kinds.items():
            flags = [*kind.flags, *PATIENT]
            job = stack.enter_context(running(kind.command, ps=ps, workers=workers, flags=flags, label=name))
            stack.callback(_send, job, signal.SIGCONT)
            job.wait_steps(100, 0.0)
            job.wait_steady(5.0)
            job.wait_prepared()
            _send(job, signal.SIGSTOP)
            jobs[name] = job
        yield jobs


def _turn(job: Job, seconds: float) -> Turn:
    _send(job, signal.SIGCONT)
    time.sleep(SETTLE_SECONDS)
    begin, before = time.time(), _cpu_seconds(job)
    time.sleep(seconds)
    end, after = time.time(), _cpu_seconds(job)
    time.sleep(FLUSH_SECONDS)
    _send(job, signal.SIGSTOP)
    return Turn(begin, end, after - before)


def _cost(recorded: dict[str, list[steps.Step]], trainers: Sequence[str], turn: Turn) -> Cost:
    means, count = [], 0
    for name in trainers:
        times = [step.time for step in recorded[name] if turn.begin <= step.time <= turn.end]
        means.append((times[-1] - times[0]) / (len(times) - 1))
        count += len(times)
    return Cost(statistics.mean(means), turn.cpu_seconds / count)


def _quartiles(values: Sequence[float]) -> dict[str, float]:
    low, median, high = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
    return {"low": low, "median": median, "high": high}


def in_pairs(kinds: Mapping[str, Kind], seconds: float, pairs: int, ps: int = 2, workers: int = 1) -> dict[str, Any]:
    """Ratios of the first kind ÷ the second, as median and quartiles over the pairs.

    Args:
        seconds: the length of a turn; where one kind does something from time to time, the time between two of these.
    """
    dice, (first, second) = random.Random(1), kinds
    turns: dict[str, list[Turn]] = {name: [] for name in kinds}
    with _both(kinds, ps, workers) as jobs:
        for pair in range(pairs):
            for name in dice.sample(list(jobs), 2):
                turns[name].append(_turn(jobs[name], seconds))
            say(f"pair {pair + 1} of {pairs}")
        recorded = {name: steps.read(job.recorded) for name, job in jobs.items()}
        trainers = jobs[first].trainers
        for job in jobs.values():
            _send(job, signal.SIGCONT)
    costs = {name: [_cost(recorded[name], trainers, turn) for turn in some] for name, some in turns.items()}
    both = list(zip(costs[first], costs[second]))
    return {
        "interval_seconds": seconds, "pairs": pairs,
        "step_ratio": _quartiles([a.step / b.step for a, b in both]),
        "cpu_ratio": _quartiles([a.cpu / b.cpu for a, b in both]),
        "step_seconds": {name: _quartiles([one.step for one in some]) for name, some in costs.items()},
        "cpu_seconds": {name: _quartiles([one.cpu for one in some]) for name, some in costs.items()},
        "costs": {name: [dataclasses.asdict(one) for one in some] for name, some in costs.items()},
    }  # fmt: skip
