"""What leasing records costs: steps of the census example, read from its file through the data ledger ÷ from memory.

    python -m benchmarks.census_input                    # ten pairs, about six minutes on two cores
    python -m benchmarks.census_input --pairs 3 --batch 512

Two whole jobs of the example's model, one PS and the chief, take turns. One is the example as it is: lines of a file, leased
from the AIMaster, looked up by their encoding. The other has the same records, encoded, in memory, and tf.data alone shuffles
and batches them. Beside these, in this process, what a batch of each takes without a model (`alone`).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.job import end_on_signals
from benchmarks.stock.cluster import ROOT
from benchmarks.taking_turns import Kind, in_pairs

INPUTS = ("ledger", "memory")
WARM_BATCHES, BATCHES = 300, 3000


def _example() -> Any:
    sys.path.insert(0, str(ROOT / "examples" / "census_wide_deep"))
    import train  # type: ignore[import-not-found]

    return train


def _input(kind: str, directory: str, batch: int) -> tuple[Callable[[], Any], list[int]]:
    """The input of the example, or the same records from memory; and the rows that each of its tables needs."""
    import tensorflow as tf

    example = _example()
    path, _, vocabularies, rows = example.load(None, directory)
    if kind == "ledger":
        return example.training(path, vocabularies, batch, None), rows
    columns, labels = example.read(path)
    fields, crossings = example.encode(columns, vocabularies)
    features = {"fields": fields, "crossings": crossings}

    def from_memory() -> Any:
        records = tf.data.Dataset.from_tensor_slices((features, labels))
        return records.shuffle(len(labels), seed=1).repeat().batch(batch).prefetch(4)

    return from_memory, rows


def train(kind: str, batch: int) -> None:
    """The script of the jobs: what the example does, and the time of every step."""
    import tensorflow as tf

    from benchmarks.stock import steps
    from benchmarks.stock.train import StepLog

    model_dir = str(Path(os.environ["DEEPREC_EXT_WORKDIR"]) / "model")
    task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {"type": "chief", "index": 0})
    log = Path(os.environ[steps.DIRECTORY_VARIABLE]) / f"{task['type']}-{task['index']}.steps"
    input_fn, rows = _input(kind, model_dir, batch)
    config = tf.estimator.RunConfig(
        model_dir, save_checkpoints_secs=3600, save_summary_steps=None, log_step_count_steps=1000
    )
    parameters = {"rows": rows, "dim": 8, "hidden": [64, 32]}
    estimator = tf.estimator.Estimator(_example().model_fn, config=config, params=parameters)
    spec = tf.estimator.TrainSpec(input_fn, max_steps=10**9, hooks=[StepLog(log)])
    tf.estimator.train_and_evaluate(estimator, spec, tf.estimator.EvalSpec(input_fn, steps=1))


def alone(kind: str, batch: int) -> dict[str, float]:
    """Seconds of a batch that nothing trains, and of all threads of the processor for it."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with tempfile.TemporaryDirectory(prefix="census-") as directory, tf.Graph().as_default() as graph:
        iterator = v1.data.make_initializable_iterator(_input(kind, directory, batch)[0]())
        one = tf.group(*tf.nest.flatten(iterator.get_next()))
        with v1.Session(graph=graph) as session:
            session.run(iterator.initializer)
            run = session.make_callable(one)
            for _ in range(WARM_BATCHES):
                run()
            began, before = time.perf_counter(), time.process_time()
            for _ in range(BATCHES):
                run()
            took, spent = time.perf_counter() - began, time.process_time() - before
    return {"seconds": took / BATCHES, "cpu_seconds": spent / BATCHES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=5.0, help="of a turn")
    parser.add_argument("--alone", action="store_true", help="no jobs: batches that nothing trains")
    parser.add_argument("--train", choices=INPUTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train:
        train(arguments.train, arguments.batch)
        return
    end_on_signals()
    found: dict[str, Any] = {"alone": {kind: alone(kind, arguments.batch) for kind in INPUTS}}
    if not arguments.alone:
        script, words = str(Path(__file__).resolve()), ("--batch", str(arguments.batch))
        kinds = {kind: Kind((script, *words, "--train", kind)) for kind in INPUTS}
        found["jobs"] = in_pairs(kinds, arguments.seconds, arguments.pairs, ps=1, workers=0)
        del found["jobs"]["costs"]
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
