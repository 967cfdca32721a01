"""A model of NumPy that all workers of a job train in step: each writes down what it has after every step."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np

from deeprec_ext import allreduce, env

SIZE, BATCH, RATE, MOMENTUM = 1000, 32, 0.01, 0.9


class Model:
    """Linear regression; `records`: how many all workers together have given to steps that count."""

    def __init__(self) -> None:
        self.weights, self.moments = np.zeros(SIZE), np.zeros(SIZE)
        self.step, self.records = np.zeros((), np.int64), np.zeros(())

    def take(self):
        return [self.weights, self.moments, self.step, self.records]

    def put(self, arrays):
        for mine, other in zip(self.take(), arrays):
            mine[...] = other

    def check(self) -> int:
        return zlib.crc32(b"".join(one.tobytes() for one in self.take()))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=0.01, help="that a step takes")
    parser.add_argument("--until", type=Path, help="train on while this file is not there; steps count then")
    parser.add_argument("--never", action="store_true", help="join and sum nothing")
    arguments = parser.parse_args()
    if arguments.never:
        return
    subprocess.run([sys.executable, "-c", "print('a child of the script ends')"], check=True)  # and is no role
    name = f"{env.role()}-{env.index()}"
    place = Path(env.workdir() or ".") / "sums"
    place.mkdir(exist_ok=True)
    chance, model = np.random.default_rng(zlib.crc32(f"{name} {os.getpid()}".encode())), Model()
    wanted = np.random.default_rng(0).normal(size=SIZE)
    member = allreduce.join(model)
    with (place / f"{name}.{os.getpid()}").open("a", buffering=1) as file:
        while model.step < arguments.steps:
            batch = chance.normal(size=(BATCH, SIZE))
            gradient = batch.T @ (batch @ (model.weights - wanted)) / BATCH
            time.sleep(arguments.seconds)
            last = float(arguments.until is None or arguments.until.exists())
            summed = member.sum([gradient, np.array([last])], BATCH)
            mean, goes_on = summed.arrays
            model.moments *= MOMENTUM
            model.moments += mean
            model.weights -= RATE * model.moments
            model.records += summed.weight
            model.step[...] = summed.step
            file.write(f"{summed.step} {model.check()} {summed.weight:g} {time.time():.4f}\n")
            if arguments.until is not None and goes_on[0] > 0:
                break


if __name__ == "__main__":
    main()
