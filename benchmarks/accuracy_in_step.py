"""Does a model whose workers come, go and die learn as well as in one process? Jobs without PS, Keras's `fit` unchanged.

    python -m benchmarks.accuracy_in_step                       # half an hour on two cores
    python -m benchmarks.accuracy_in_step --models cnn --seeds 1

  cnn      two convolutions, pictures of 28 x 28 (as MNIST's)
  resnet   ResNet-20 (He et al., 2016) with BatchNormalization, pictures of 32 x 32 x 3 (as CIFAR-10's)

Each model and seed thrice, from the same first values over the same generated pictures as often: by plain Keras in one
process, in a job of two that stay, and under `deeprec-ext run --strategy allreduce`, where the chief and its workers go
1 → 4 → 2 and one is killed (SIGKILL) between, each at a share of the steps. Accuracy is that of pictures that nobody has
trained. A job in which not all of that has happened is an error.
"""

from __future__ import annotations

import argparse
import json
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
MODELS = {"cnn": (12000, 15, 1.2), "resnet": (3000, 8, 2.5)}
"""Pictures, epochs, noise."""
TESTED = 3000
KINDS = ("plain", "fixed", "elastic")
UP, KILL, DOWN = 0.15, 0.4, 0.6
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


def build(name: str) -> Any:
    from tensorflow import keras

    layers = keras.layers
    if name == "cnn":
        body = [layers.Conv2D(16, 3, activation="relu"), layers.MaxPooling2D(), layers.Conv2D(32, 3, activation="relu"),
                layers.MaxPooling2D(), layers.Flatten(), layers.Dropout(0.3), layers.Dense(10)]  # fmt: skip
        return keras.Sequential([keras.Input((28, 28, 1)), *body]), keras.optimizers.Adam(0.001)

    def convolved(x: Any, filters: int, strides: int = 1) -> Any:
        x = layers.Conv2D(filters, 3, strides=strides, padding="same", use_bias=False)(x)
        return layers.BatchNormalization(momentum=0.9)(x)

    given = keras.Input((32, 32, 3))
    x = layers.ReLU()(convolved(given, 16))
    for stage in range(3):
        for block in range(3):
            filters, strides = 16 << stage, 2 if stage and not block else 1
            inside = convolved(layers.ReLU()(convolved(x, filters, strides)), filters)
            if strides > 1:
                x = layers.Conv2D(filters, 1, strides=strides, use_bias=False)(x)
            x = layers.ReLU()(layers.Add()([x, inside]))
    top = layers.Dense(10)(layers.GlobalAveragePooling2D()(x))
    return keras.Model(given, top), keras.optimizers.SGD(0.05, momentum=0.9)


def train(name: str, seed: int, out: Path) -> None:
    """The script: plain Keras."""
    from tensorflow import keras

    keras.utils.set_random_seed(seed)
    count, epochs, noise = MODELS[name]
    kind = (*((28, 1) if name == "cnn" else (32, 3)), noise)
    x, y = pictures(*kind, count, seed)
    model, optimizer = build(name)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    model.fit(x, y, batch_size=BATCH, epochs=epochs, verbose=2)
    accuracy = model.evaluate(*pictures(*kind, TESTED, 100 + seed), batch_size=250, verbose=0)[1]
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


def measure(name: str, seed: int, kinds: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {"model": name, "seed": seed}
    count, epochs, _ = MODELS[name]
    with tempfile.TemporaryDirectory(prefix="accuracy-") as place:
        for kind in kinds:
            out, told = Path(place) / f"{kind}.json", {}
            words = [str(SCRIPT), "train", "--models", name, "--seeds", str(seed), "--out", str(out)]
            began = time.time()
            if kind == "plain":
                subprocess.run([sys.executable, *words], env=environment(PYTHONPATH=str(ROOT)), cwd=ROOT, check=True,
                               stdout=subprocess.DEVNULL, timeout=LIMIT_SECONDS)  # fmt: skip
            elif kind == "fixed":
                told = fixed(words)
            else:
                told = elastic(words, -(-count // BATCH) * epochs, Path(place))
            found[kind] = {**json.loads(out.read_text()), "seconds": time.time() - began, **told}
            say(f"{name}, seed {seed}, {kind}: {found[kind]}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("train",), help=argparse.SUPPRESS)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--kinds", default=",".join(KINDS), help="plain: one process; fixed: two; elastic: as they come and go"
    )
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.what:
        train(arguments.models, arguments.seeds, arguments.out)
        return
    end_on_signals()
    kinds = tuple(arguments.kinds.split(","))
    rows = [
        measure(name, seed, kinds) for name in arguments.models.split(",") for seed in range(1, arguments.seeds + 1)
    ]
    if arguments.json:
        print(json.dumps(rows))
        return
    for name in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == name]
        for kind in kinds:
            values = [row[kind]["accuracy"] for row in own]
            print(f"{name}, {kind}: {statistics.fmean(values):.4f} ({min(values):.4f}–{max(values):.4f})")


if __name__ == "__main__":
    main()
