"""Does a model whose workers come, go and die learn as well as in one process? Jobs without PS, Keras's `fit` unchanged.

    python -m benchmarks.accuracy_in_step                       # about half an hour on two cores
    python -m benchmarks.accuracy_in_step --models resnet --seeds 5
    python -m benchmarks.accuracy_in_step --models cnn --seeds 1

  cnn      two convolutions, pictures of 28 x 28 (as MNIST's)
  resnet   ResNet-20 (He et al., 2016) with BatchNormalization, pictures of 16 x 16 x 3

Each model and seed thrice, from the same first values over the same generated pictures as often: by plain Keras in one
process, in a job of two that stay, and under `deeprec-ext run --strategy allreduce`, where the chief and its workers go
1 → 4 → 2 and one is killed (SIGKILL) between, each at a share of the steps. Accuracy is that of pictures that nobody has
trained. A job in which not all of that has happened is an error.

The learning rate falls to nothing by a cosine over the steps, so that accuracy is that of where training has come to rest and
not of the epoch at which it was cut off. All seeds have the same pictures, to train and to test: what is left of the spread
is of first values, order and, in jobs, of who has computed what. Differences are given with two standard errors.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.job import ROOT, end_on_signals, environment, running, say

SCRIPT = Path(__file__)
BATCH = 64
MODELS = {"cnn": (12000, 15, (28, 1, 1.2)), "resnet": (10000, 16, (16, 3, 1.5))}
"""Pictures, epochs; size, colours and noise of a picture."""
TESTED = 6000
KINDS = ("plain", "fixed", "elastic")
UP, KILL, DOWN = 0.1, 0.5, 0.7
"""Shares of the steps at which workers come, one is killed, workers go."""
LIMIT_SECONDS = 1800.0


def pictures(size: int, colours: int, noise: float, count: int, seed: int) -> Any:
    """Ten classes of three smooth patterns each, shifted, dimmed and under noise: not all can be told apart."""
    import numpy as np

    smooth = np.random.default_rng(7).standard_normal((10, 3, 6, 6, colours))
    each = -(-size // 6)
    patterns = np.repeat(np.repeat(smooth, each, 2), each, 3)[:, :, :size, :size]
    chance = np.random.default_rng(seed)
    classes, kinds = chance.integers(10, size=count), chance.integers(3, size=count)
    shifts, light = chance.integers(-6, 7, (count, 2)), chance.uniform(0.4, 1.2, (count, 1, 1, 1))
    x = np.stack([np.roll(patterns[c, k], tuple(s), (0, 1)) for c, k, s in zip(classes, kinds, shifts)])
    x = x * light + noise * chance.standard_normal(x.shape)
    return x.astype(np.float32), classes


def build(name: str, steps: int) -> Any:
    from tensorflow import keras

    def falling(rate: float) -> Any:
        return keras.optimizers.schedules.CosineDecay(rate, steps)

    layers = keras.layers
    if name == "cnn":
        body = [layers.Conv2D(16, 3, activation="relu"), layers.MaxPooling2D(), layers.Conv2D(32, 3, activation="relu"),
                layers.MaxPooling2D(), layers.Flatten(), layers.Dropout(0.3), layers.Dense(10)]  # fmt: skip
        return keras.Sequential([keras.Input((28, 28, 1)), *body]), keras.optimizers.Adam(falling(0.002))

    def convolved(x: Any, filters: int, strides: int = 1) -> Any:
        x = layers.Conv2D(filters, 3, strides=strides, padding="same", use_bias=False)(x)
        return layers.BatchNormalization(momentum=0.9)(x)

    given = keras.Input((16, 16, 3))
    x = layers.ReLU()(convolved(given, 16))
    for stage in range(3):
        for block in range(3):
            filters, strides = 16 << stage, 2 if stage and not block else 1
            inside = convolved(layers.ReLU()(convolved(x, filters, strides)), filters)
            if strides > 1:
                x = layers.Conv2D(filters, 1, strides=strides, use_bias=False)(x)
            x = layers.ReLU()(layers.Add()([x, inside]))
    top = layers.Dense(10)(layers.GlobalAveragePooling2D()(x))
    return keras.Model(given, top), keras.optimizers.SGD(falling(0.1), momentum=0.9)


def steps_of(name: str, epochs: int) -> int:
    return -(-MODELS[name][0] // BATCH) * epochs


def train(name: str, seed: int, epochs: int, out: Path) -> None:
    """The script: plain Keras."""
    from tensorflow import keras

    keras.utils.set_random_seed(seed)
    count, _, kind = MODELS[name]
    x, y = pictures(*kind, count, 1)
    model, optimizer = build(name, steps_of(name, epochs))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    model.fit(x, y, batch_size=BATCH, epochs=epochs, verbose=2)
    accuracy = model.evaluate(*pictures(*kind, TESTED, 101), batch_size=250, verbose=0)[1]
    if os.environ.get("DEEPREC_EXT_ROLE", "chief") == "chief":
        out.write_text(json.dumps({"accuracy": accuracy}))


def fixed(words: list[str]) -> dict[str, Any]:
    """A job of the chief and a worker, all the time."""
    flags = ("--strategy", "allreduce", "--workers", "1", "--max-workers", "1")
    with running(words, ps=0, workers=1, flags=flags, label="accuracy", sized=False) as job:
        if job.process.wait(LIMIT_SECONDS):
            raise RuntimeError(f"the job has failed; see {job.base}")
        return {"repeated": job.summary()["data"]["repeated"]}


def elastic(words: list[str], steps: int, place: Path) -> dict[str, Any]:
    events = place / "events.yaml"
    events.write_text(
        f"- {{at_step: {int(UP * steps)}, scale: {{workers: 3}}}}\n- {{at_step: {int(KILL * steps)}, kill: worker-1}}\n"
        f"- {{at_step: {int(DOWN * steps)}, scale: {{workers: 1}}}}\n"
    )
    flags = ("--strategy", "allreduce", "--workers", "0", "--max-workers", "3", "--events", str(events))
    with running(words, ps=0, workers=0, flags=flags, label="accuracy", sized=False) as job:
        if job.process.wait(LIMIT_SECONDS):
            raise RuntimeError(f"the job has failed; see {job.base}")
        summary = job.summary()
        sizes = [int(one["workers"]) for one in job.events("view_published")]
    outcomes = [one["outcome"] for one in summary["scaling"]]
    if outcomes != ["committed"] * 2 or not summary["failures"] or max(sizes) != 4:
        raise RuntimeError(f"not what was to be measured: {outcomes}, {sizes} workers, losses {summary['failures']}")
    return {"sizes": sizes, "repeated": summary["data"]["repeated"]}


def measure(name: str, seed: int, kinds: tuple[str, ...], epochs: int) -> dict[str, Any]:
    found: dict[str, Any] = {"model": name, "seed": seed}
    epochs = epochs or MODELS[name][1]
    with tempfile.TemporaryDirectory(prefix="accuracy-") as place:
        for kind in kinds:
            out, told = Path(place) / f"{kind}.json", {}
            given = {"models": name, "seeds": seed, "epochs": epochs, "out": out}
            words = [str(SCRIPT), "train", *(str(word) for key, one in given.items() for word in (f"--{key}", one))]
            began = time.time()
            if kind == "plain":
                subprocess.run([sys.executable, *words], env=environment(PYTHONPATH=str(ROOT)), cwd=ROOT, check=True,
                               stdout=subprocess.DEVNULL, timeout=LIMIT_SECONDS)  # fmt: skip
            elif kind == "fixed":
                told = fixed(words)
            else:
                told = elastic(words, steps_of(name, epochs), Path(place))
            found[kind] = {**json.loads(out.read_text()), "seconds": time.time() - began, **told}
            say(f"{name}, seed {seed}, {kind}: {found[kind]}")
    return found


def apart(values: list[float], others: list[float]) -> tuple[float, float]:
    """The difference of two means, and two standard errors of it; those are endless where there is one value of either."""
    found = statistics.fmean(values) - statistics.fmean(others)
    if min(len(values), len(others)) < 2:
        return found, math.inf
    return found, 2 * math.sqrt(sum(statistics.variance(one) / len(one) for one in (values, others)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("train",), help=argparse.SUPPRESS)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--kinds", default=",".join(KINDS), help="plain: one process; fixed: two; elastic: as they come and go"
    )
    parser.add_argument("--epochs", type=int, default=0, help="0: those of the model, by which it has come to rest")
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.what:
        train(arguments.models, arguments.seeds, arguments.epochs, arguments.out)
        return
    end_on_signals()
    kinds = tuple(arguments.kinds.split(","))
    rows = [
        measure(name, seed, kinds, arguments.epochs)
        for name in arguments.models.split(",") for seed in range(1, arguments.seeds + 1)
    ]  # fmt: skip
    if arguments.json:
        print(json.dumps(rows))
        return
    for name in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == name]
        values = {kind: [row[kind]["accuracy"] for row in own] for kind in kinds}
        for kind in kinds:
            some = values[kind]
            print(f"{name}, {kind}: {statistics.fmean(some):.4f} ({min(some):.4f}–{max(some):.4f})")
        for kind in kinds if "plain" in kinds else ():
            if kind != "plain":
                found, error = apart(values[kind], values["plain"])
                word = "within" if abs(found) <= error < math.inf else "beyond" if error < math.inf else "nobody knows"
                print(f"{name}, {kind} − plain: {found:+.4f} ± {error:.4f}, the spread of seeds: {word}")


if __name__ == "__main__":
    main()
