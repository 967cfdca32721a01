"""The training script of a hard day: an example of this repository with the brake, a hot table and the data ledger.

    python script.py census --epochs 20 --batch 128
    python script.py deepfm --epochs 1 --batch 256 --records 500000

The census example is otherwise unchanged. DeepFM's generated records are cut into batches by their numbers; here these
numbers are what the ledger leases: a record of the ledger is a batch of the example.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from types import ModuleType

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf

from deeprec_ext.data import elastic_dataset
from tests.chaos import brake

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CENSUS_HOT, CENSUS_ROWS, CENSUS_LOOKUPS = "wide/age_x_education_x_occupation", 10000, 1000
DEEPFM_HOT, DEEPFM_ROWS, DEEPFM_LOOKUPS = "C1/embedding", 5000, 4000


def census(batch: int, words: list[str]) -> None:
    brake.brake(batch)
    brake.heat(tf.nn, CENSUS_HOT, CENSUS_LOOKUPS, CENSUS_ROWS)
    example = brake.load(EXAMPLES / "census_wide_deep" / "train.py")
    sys.argv[1:] = ["--batch", str(batch), *words]
    example.main()


def deepfm(batch: int, epochs: int, words: list[str]) -> None:
    brake.brake(1)
    brake.heat(tf.compat.v1.nn, DEEPFM_HOT, DEEPFM_LOOKUPS, DEEPFM_ROWS)
    example = brake.load(EXAMPLES / "deepfm_criteo" / "train.py")
    lease_batches(example, epochs)
    size = ["--batch", str(batch), "--rows-per-table", str(DEEPFM_ROWS), "--dim", "8", "--steps", str(10**9)]
    sys.argv[1:] = [*size, *words]
    example.main()


def lease_batches(example: ModuleType, epochs: int) -> None:
    """Training reads each batch of the example once an epoch, over all workers together."""
    batches = example.batches

    def leased(arguments, seed=None, test=False):
        if test:
            return batches(arguments, seed, test=True)

        def generated(numbers):
            return example.generate(numbers[0], arguments.batch, arguments.rows_per_table, 2)

        count = arguments.records // arguments.batch
        return lambda: elastic_dataset(count, 1, epochs, seed=1, reader="range").map(generated).prefetch(4)

    example.batches = leased


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("example", choices=("census", "deepfm"))
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    options, rest = parser.parse_known_args()
    if options.example == "census":
        census(options.batch, ["--epochs", str(options.epochs), *rest])
    else:
        deepfm(options.batch, options.epochs, rest)
