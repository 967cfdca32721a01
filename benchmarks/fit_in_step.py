"""`fit` in step ÷ stock TensorFlow's MultiWorkerMirroredStrategy: the same models, two workers, the same cores, taking turns.

    python -m benchmarks.fit_in_step                       # eight minutes on two cores
    python -m benchmarks.fit_in_step --models cnn --turns 3

  cnn   1 M parameters: three convolutions, a dense layer; pictures of 28 x 28
  mlp   25 M parameters: dense layers

A script (`train` of this file) calls `fit` of arrays with a global batch of 64; stock makes the model within
its strategy. Both are whole: two processes each, started anew for each turn. A step's time is that between two calls of
`on_train_batch_end` of the first worker; 30 steps since both make them are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.job import ROOT, end_on_signals, environment, running, say
from benchmarks.stock import steps

SCRIPT = Path(__file__)
FLAGS = ("--strategy", "allreduce", "--workers", "1")
BATCH, WARM = 64, 30
KINDS = ("stock", "ours")
SHAPES: dict[str, tuple[int, ...]] = {"cnn": (28, 28, 1), "mlp": (784,)}


def build(name: str) -> Any:
    """One of the models, compiled."""
    from tensorflow import keras

    if name == "cnn":
        inside = [
            keras.layers.Conv2D(32, 3, activation="relu"), keras.layers.Conv2D(64, 3, strides=2, activation="relu"),
            keras.layers.Conv2D(64, 3, strides=2, activation="relu"), keras.layers.Flatten(),
            keras.layers.Dense(480, activation="relu"),
        ]  # fmt: skip
    else:
        inside = [keras.layers.Dense(3300, activation="relu") for _ in range(3)]
    model = keras.Sequential([*inside, keras.layers.Dense(10)])
    model.compile("sgd", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def train(arguments: argparse.Namespace) -> None:
    """The script of a worker."""
    import numpy as np
    import tensorflow as tf

    name = os.environ.get("BENCHMARK_NAME") or (f"{os.environ['DEEPREC_EXT_ROLE']}-{os.environ['DEEPREC_EXT_INDEX']}")
    rows = BATCH * arguments.steps
    keras = tf.keras

    shape = SHAPES[arguments.models[0]]
    chance = np.random.default_rng(0)
    x = chance.random((min(rows, 64 * BATCH), *shape), np.float32)
    x = np.resize(x, (rows, *shape))
    y = chance.integers(10, size=rows)

    class Watch(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            told.write(f"{time.time():.5f} {batch}\n")

    with (Path(os.environ[steps.DIRECTORY_VARIABLE]) / f"{name}.steps").open("a", buffering=1) as told:
        if os.environ.get("BENCHMARK_NAME"):
            strategy = tf.distribute.MultiWorkerMirroredStrategy()
            with strategy.scope():
                model = build(arguments.models[0])
        else:
            model = build(arguments.models[0])
        model.fit(x, y, batch_size=BATCH, epochs=1, verbose=0, callbacks=[Watch()])
    if name in ("stock-0", "chief-0"):
        print("parameters", model.count_params(), flush=True)


def stock(command: list[str], place: Path) -> Path:
    """One run of two processes; where their steps are."""
    ports = []
    held = [socket.socket() for _ in range(2)]
    for one in held:
        one.bind(("127.0.0.1", 0))
        ports.append(one.getsockname()[1])
    for one in held:
        one.close()
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
    recorded = place / "steps"
    recorded.mkdir()
    processes = []
    for index in range(2):
        config = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
        variables = environment(
            **{"TF_CONFIG": config, "BENCHMARK_NAME": f"stock-{index}", steps.DIRECTORY_VARIABLE: str(recorded)}
        )
        log = (place / f"stock-{index}.log").open("wb")
        processes.append(subprocess.Popen([sys.executable, *command], env=variables, cwd=ROOT, stdout=log, stderr=log))
    try:
        for one in processes:
            if one.wait(600):
                raise RuntimeError((place / "stock-0.log").read_text()[-2000:])
    finally:
        for one in processes:
            one.kill()
            one.wait()
    return recorded


def ours(command: list[str]) -> dict[str, list[steps.Step]]:
    with running(
        command, ps=0, workers=1, flags=FLAGS, label="fit", variables={"PYTHONPATH": str(ROOT)}, sized=False
    ) as job:
        job.process.wait(600)
        return steps.read(job.recorded)


def median(found: dict[str, list[steps.Step]], first: str) -> float:
    """Of the steps that both make: ours begins with one while the other is being made ready."""
    if len(found) != 2:
        raise RuntimeError(f"steps of {sorted(found)}, and not of two processes")
    begun = max(rows[0].time for rows in found.values())
    together = [one for one in found[first] if one.time >= begun][WARM:]
    if len(together) < WARM:
        raise RuntimeError(f"{len(together)} steps of both are too few: take more --steps")
    return steps.median_step_seconds(together)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("train",), help=argparse.SUPPRESS)
    parser.add_argument("--models", nargs="+", default=["cnn", "mlp"], choices=("cnn", "mlp"))
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.what:
        train(arguments)
        return
    end_on_signals()
    told: dict[str, dict[str, list[float]]] = {}
    for name in arguments.models:
        command = [str(SCRIPT), "train", "--models", name, "--steps", str(arguments.steps)]
        told[name] = {kind: [] for kind in KINDS}
        for turn in range(arguments.turns):
            for kind in KINDS if turn % 2 else KINDS[::-1]:
                with tempfile.TemporaryDirectory() as place:
                    found = steps.read(stock(command, Path(place))) if kind == "stock" else ours(command)
                told[name][kind].append(median(found, "stock-0" if kind == "stock" else "chief-0"))
                say(f"{name}, turn {turn + 1}, {kind}: {told[name][kind][-1] * 1e3:.1f} ms")
    if arguments.json:
        print(json.dumps(told))
        return
    for name, kinds in told.items():
        ratios = sorted(one / other for one, other in zip(kinds["ours"], kinds["stock"]))
        stocks, owns = (statistics.median(kinds[kind]) * 1e3 for kind in KINDS)
        print(
            f"{name}: stock {stocks:.1f} ms, ours {owns:.1f} ms, "
            f"÷ {statistics.median(ratios):.3f} ({ratios[0]:.3f}–{ratios[-1]:.3f})"
        )


if __name__ == "__main__":
    sys.exit(main())
