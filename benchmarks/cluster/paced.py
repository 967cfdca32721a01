"""A worker of a job without PS, each of whose records takes a known time: a cluster of many cores on a machine of two.

Where it stands in for a model that computes, what is measured of a cluster (waiting, giving way, makespan, use) is real; what a
step of a real model costs on shared cores is not. It notes when its steps were made: the first, and the last of all.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from deeprec_ext import allreduce


class Steps:
    def __init__(self) -> None:
        self.step = np.zeros((), np.int64)

    def take(self) -> list[np.ndarray]:
        return [self.step]

    def put(self, arrays: list[np.ndarray]) -> None:
        self.step[...] = arrays[0]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--batch", type=int, default=6, help="of each worker")
    parser.add_argument("--seconds", type=float, default=0.02, help="that a record takes")
    parser.add_argument("--notes", type=Path, required=True, help="a file for each process that has made a step")
    parser.add_argument("--name", required=True)
    arguments = parser.parse_args()
    steps, numbers = Steps(), np.ones(8, np.float32)
    noted = arguments.notes / f"{arguments.name}-{time.time_ns()}"

    def gradients(batch: list[object]) -> list[np.ndarray]:
        time.sleep(arguments.seconds * len(batch))
        return [numbers]

    def apply(summed: allreduce.Summed) -> None:
        if not noted.exists():
            noted.write_text(f"{time.time():.3f} {int(summed.step)}\n")
        steps.step[...] = summed.step

    allreduce.train(
        steps, gradients, apply, arguments.records, arguments.batch, 1, reader="range", shard_records=96, like=[numbers]
    )


if __name__ == "__main__":
    main()
