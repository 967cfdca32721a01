"""All workers of a job without PS train on leased records in step; the model counts how often it was given each of them."""

from __future__ import annotations

import argparse
import os
import time
import zlib
from pathlib import Path

import numpy as np

from deeprec_ext import allreduce, env


class Counts:
    def __init__(self, records: int) -> None:
        self.counts, self.step = np.zeros(records), np.zeros((), np.int64)

    def take(self):
        return [self.counts, self.step]

    def put(self, arrays):
        for mine, other in zip(self.take(), arrays):
            mine[...] = other


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=0.01, help="that a batch takes")
    parser.add_argument("--hurry", type=Path, help="it takes no time once this file is there")
    arguments = parser.parse_args()
    model = Counts(arguments.records)
    place = Path(env.workdir() or ".") / "sums"
    place.mkdir(exist_ok=True)
    name = f"{env.role()}-{env.index()}"

    def gradients(batch):
        time.sleep(0.0 if arguments.hurry is not None and arguments.hurry.exists() else arguments.seconds)
        given = np.zeros(arguments.records)
        given[batch] = 1 / len(batch)  # the mean by weight makes a count of it again
        return [given]

    with (place / f"{name}.{os.getpid()}").open("a", buffering=1) as file:

        def apply(summed):
            model.counts += np.round(summed.arrays[0] * summed.weight)
            model.step[...] = summed.step
            file.write(f"{summed.step} {zlib.crc32(model.counts.tobytes())} {summed.weight:g} {time.time():.4f}\n")

        allreduce.train(
            model, gradients, apply, arguments.records, arguments.batch, arguments.epochs, reader="range",
            shard_records=96, like=[model.counts],
        )  # fmt: skip
    np.save(place / f"{name}.{os.getpid()}.npy", model.counts)


if __name__ == "__main__":
    main()
