"""A worker of a job without PS whose step costs a known time to compute, by its records, and some to sum, by its numbers."""

from __future__ import annotations

import argparse
import time

import numpy as np

from deeprec_ext import allreduce


class Steps:
    def __init__(self) -> None:
        self.step = np.zeros((), np.int64)

    def take(self):
        return [self.step]

    def put(self, arrays):
        self.step[...] = arrays[0]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=10**7)
    parser.add_argument("--batch", type=int, default=24, help="of each worker")
    parser.add_argument("--seconds", type=float, default=0.02, help="that a record takes")
    parser.add_argument("--numbers", type=int, default=8, help="to sum")
    arguments = parser.parse_args()
    steps, numbers = Steps(), np.ones(arguments.numbers, np.float32)

    def gradients(batch):
        time.sleep(arguments.seconds * len(batch))
        return [numbers]

    def apply(summed):
        steps.step[...] = summed.step

    allreduce.train(
        steps, gradients, apply, arguments.records, arguments.batch, 1, reader="range",
        shard_records=96, like=[numbers],
    )  # fmt: skip


if __name__ == "__main__":
    main()
