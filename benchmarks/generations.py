"""What a thousand changes of workers leave behind in a process that goes through all of them.

    python -m benchmarks.generations                     # a minute and a half on two cores
    python -m benchmarks.generations --generations 200 --megabytes 40

Three members of a job without PS, each a process of its own; who is in a generation alternates, so that the one that is
measured gives its state to a newcomer every other time, or has lost a neighbour. It sums a few steps in each. Told are its
memory, threads and open files after some of them, and how long a generation took from the word of it to its first sum.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import psutil

from deeprec_ext.allreduce.meeting import Generation, Listener
from deeprec_ext.allreduce.summing import Summing

STEPS = 3
"""Of each generation."""


class Told:
    """`Generations`, by what the parent says."""

    def __init__(self, rank_of: str, said: Connection) -> None:
        self._me, self._said = rank_of, said
        self._newest: tuple[int, dict[str, int]] = (-1, {})
        self._changed = threading.Condition()
        self._told: list[Callable[[], None]] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            newest = self._said.recv()
            with self._changed:
                self._newest = newest
                self._changed.notify_all()
            for told in self._told:
                told()

    def after(self, number: int, trouble: str) -> Generation:
        with self._changed:
            self._changed.wait_for(lambda: self._newest[0] > number and self._me in self._newest[1])
            number, members = self._newest
        addresses = tuple(("127.0.0.1", port) for port in members.values())
        return Generation(number, list(members).index(self._me), addresses, b"%d" % number)

    def over(self, number: int) -> bool:
        return self._newest[0] > number

    def watch(self, told: Callable[[], None]) -> None:
        self._told.append(told)


class Weights:
    def __init__(self, megabytes: float) -> None:
        self.weights = np.zeros(int(megabytes * 1e6 / 4), np.float32)

    def take(self) -> list[Any]:
        return [self.weights]

    def put(self, arrays: Any) -> None:
        self.weights[:] = arrays[0]


def member(name: str, megabytes: float, said: Connection, tells: Connection) -> None:
    """A process: tells its port, and then the generation of each sum."""
    model, listener = Weights(megabytes), Listener()
    summing = Summing(listener, Told(name, said), model)
    tells.send(listener.port)
    gradient = np.ones(model.weights.size, np.float32)
    while True:
        model.weights -= np.float32(0.01) * summing.sum([gradient], 1.0).arrays[0]
        tells.send(summing._number)


def look(process: psutil.Process) -> dict[str, float]:
    return {"megabytes": process.memory_info().rss / 1e6, "threads": process.num_threads(), "files": process.num_fds()}


def measured(generations: int, megabytes: float) -> tuple[dict[int, dict[str, float]], list[float]]:
    begun = multiprocessing.get_context("spawn")
    processes, says, hears, ports = {}, {}, {}, {}
    for name in "abc":
        (ours, says[name]), (hears[name], theirs) = begun.Pipe(False), begun.Pipe(False)
        processes[name] = begun.Process(target=member, args=(name, megabytes, ours, theirs), daemon=True)
        processes[name].start()
        ports[name] = hears[name].recv()
    first, seen, times = psutil.Process(processes["a"].pid), {}, []
    for number in range(generations):
        names = ("ab", "abc", "ac", "abc", "a")[number % 5]
        began = time.perf_counter()
        for name in names:
            says[name].send((number, {one: ports[one] for one in names}))
        for name in names:
            while hears[name].recv() != number:
                pass
        times.append(time.perf_counter() - began)
        for name in names:
            for _ in range(STEPS - 1):
                hears[name].recv()
        if number + 1 in (10, 100, 300, generations) or (number + 1) % 1000 == 0:
            seen[number + 1] = look(first)
    for one in processes.values():
        one.kill()
    return seen, times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generations", type=int, default=1000)
    parser.add_argument("--megabytes", type=float, default=4.0, help="of weights, and of gradients")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    seen, times = measured(arguments.generations, arguments.megabytes)
    if arguments.json:
        print(json.dumps({"seen": seen, "seconds": times}))
        return
    for number, one in seen.items():
        print(f"{number:>6} generations: {one['megabytes']:.0f} MB, {one['threads']} threads, {one['files']} files")
    print(f"a generation: median {statistics.median(times):.3f} s, worst {max(times):.3f} s; {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
