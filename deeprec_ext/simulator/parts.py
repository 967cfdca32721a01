"""A long trace in several processes.

Every job has its luck to itself; jobs meet only where they want room in the cluster. So parts of the trace are simulated as
if there were room for all, and what they took and asked for is compared with the cluster afterwards: where all of it fits at
any time, each job has fared as it would have among the others. Where it does not, the trace has to be simulated as one.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

from deeprec_ext.autoscaler.observe.observed import Size
from deeprec_ext.autoscaler.policy.thresholds import Policy
from deeprec_ext.simulator.baselines import Sweep, doubled, static_sizes
from deeprec_ext.simulator.pool import Unbounded
from deeprec_ext.simulator.simulation import Ended, Simulation
from deeprec_ext.simulator.trace import SimulatedCluster, Trace

JOBS_MIN = 100
"""Jobs of a trace from which other processes, which take a second to start, are worth it."""

JOBS_OF_PART = 8
"""Few enough that all processes end at about the same time."""

PROCESSES_MAX = 16


@dataclass(frozen=True)
class Lot:
    """What became of some jobs, with one way to size them, and the room they took."""

    ended: list[Ended]
    taken: list[tuple[float, float, float]]  # (time, cores, bytes), negative when given back
    cores_asked: float  # the most at once
    bytes_asked: float


@dataclass(frozen=True)
class Part:
    """Some jobs of a trace, with each way to size them; static sizes by the name of the job."""

    policy: Lot
    twice: Lot
    best: Lot
    best_sizes: dict[str, Size]
    fastest_sizes: dict[str, Size]


def in_parts(trace: Trace, policy: Policy, seed: int, done: Callable[[int], None]) -> list[Part] | None:
    """None: the trace is short, there is one core, or there can be no other process.

    Args:
      done: is called with the number of jobs that are simulated so far.

    Raises UsageError: no size within a job's limits has the memory it needs.
    """
    cores = len(os.sched_getaffinity(0))
    if len(trace.jobs) < JOBS_MIN or cores < 2:
        return None
    count = -(-len(trace.jobs) // JOBS_OF_PART)
    parts: list[Part] = []
    jobs = 0
    try:
        with ProcessPoolExecutor(min(cores, PROCESSES_MAX, count), multiprocessing.get_context("spawn")) as pool:
            pieces = [dataclasses.replace(trace, jobs=trace.jobs[number::count]) for number in range(count)]
            futures = {pool.submit(simulate_part, piece, policy, seed): len(piece.jobs) for piece in pieces}
            try:
                for future in as_completed(futures):
                    parts.append(future.result())
                    jobs += futures[future]
                    done(jobs)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    except BrokenProcessPool:
        return None
    return parts


def simulate_part(trace: Trace, policy: Policy, seed: int) -> Part:
    best = static_sizes(trace.jobs, policy, Sweep.best)
    twice = {name: doubled(size) for name, size in best.items()}
    return Part(
        _lot(trace, policy, seed, None), _lot(trace, None, seed, twice), _lot(trace, None, seed, best), best,
        static_sizes(trace.jobs, policy, Sweep.fastest),
    )  # fmt: skip


def together(lots: Sequence[Lot], trace: Trace) -> list[Ended] | None:
    """All jobs in the order in which they ended; None: they would have been in each other's way."""
    if not fit_together(lots, trace.cluster):
        return None
    places = {work.name: place for place, work in enumerate(trace.jobs)}
    ended = [one for lot in lots for one in lot.ended]
    return sorted(ended, key=lambda one: (one.started + one.seconds, places[one.work.name]))


def fit_together(lots: Sequence[Lot], cluster: SimulatedCluster) -> bool:
    """Whether there was room for all, and for whatever any of them asked for, at any time."""
    cores = memory = most_cores = most_memory = 0.0
    for _, more_cores, more_memory in sorted(
        (one for lot in lots for one in lot.taken), key=lambda one: (one[0], -one[1])
    ):
        cores, memory = cores + more_cores, memory + more_memory
        most_cores, most_memory = max(most_cores, cores), max(most_memory, memory)
    most_cores += max((lot.cores_asked for lot in lots), default=0.0)
    most_memory += max((lot.bytes_asked for lot in lots), default=0.0)
    return most_cores <= cluster.cores and most_memory <= cluster.memory


def _lot(trace: Trace, policy: Policy | None, seed: int, sizes: dict[str, Size] | None) -> Lot:
    simulation = Simulation(trace, policy, seed, sizes)
    simulation.pool = pool = Unbounded(trace.cluster, simulation.clock)
    return Lot(simulation.run(), pool.taken, pool.cores_asked, pool.bytes_asked)
