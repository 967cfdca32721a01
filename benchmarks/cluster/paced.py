"""A worker of a job without PS, each of whose records takes a known time: a cluster of many cores on a machine of two.

Where it stands in for a model that computes, what is measured of a cluster (waiting, giving way, makespan, use) is real; what a
step of a real model costs on shared cores is not. It notes when it has made its first step. `paced_wide_deep.py` and
`paced_resnet.py` compute as well: there a record takes no less than the known time.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from deeprec_ext import allreduce


class Pace:
    """Steps of a process that also computes: as long as the known time of their records, whatever part of that it computed.

    Args:
        seconds: that a record takes.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last = 0.0

    def made(self, records: int) -> None:
        """Called once a step: returns when so many records have taken their time since it last returned."""
        least = self._seconds * records
        time.sleep(min(least, max(0.0, self._last + least - time.monotonic())) if self._last else least)
        self._last = time.monotonic()


def note(path: Path) -> None:
    """That a step was made, if it is not noted yet."""
    if not path.exists():
        path.write_text(f"{time.time():.3f}\n")


def flags(about: str, batch: int, seconds: float) -> argparse.ArgumentParser:
    """What all of these workers are given."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--batch", type=int, default=batch)
    parser.add_argument("--seconds", type=float, default=seconds, help="that a record takes")
    parser.add_argument("--notes", type=Path, required=True, help="a file for each process that has made a step")
    parser.add_argument("--name", required=True)
    return parser


def noted_at(arguments: argparse.Namespace) -> Path:
    """The file of this process."""
    path: Path = arguments.notes / f"{arguments.name}-{time.time_ns()}"
    return path


class Steps:
    def __init__(self) -> None:
        self.step = np.zeros((), np.int64)

    def take(self) -> list[np.ndarray]:
        return [self.step]

    def put(self, arrays: list[np.ndarray]) -> None:
        self.step[...] = arrays[0]


def main() -> None:
    arguments = flags(__doc__, batch=6, seconds=0.02).parse_args()
    steps, numbers = Steps(), np.ones(8, np.float32)
    noted = noted_at(arguments)

    def gradients(batch: list[object]) -> list[np.ndarray]:
        time.sleep(arguments.seconds * len(batch))
        return [numbers]

    def apply(summed: allreduce.Summed) -> None:
        note(noted)
        steps.step[...] = summed.step

    allreduce.train(
        steps, gradients, apply, arguments.records, arguments.batch, 1, reader="range", shard_records=96, like=[numbers]
    )


if __name__ == "__main__":
    main()
