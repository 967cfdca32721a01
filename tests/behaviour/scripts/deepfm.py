"""DeepFM of the examples, with an option to make one of its tables hot: for the report, which has to name it.

    python deepfm.py --hot 400 --rows-per-table 50000 ...     # look up 400 rows of C1/embedding per record, instead of one

All other options are those of examples/deepfm_criteo/train.py.
"""

from __future__ import annotations

import argparse
import sys

import tensorflow as tf

from examples.deepfm_criteo import train
from tests.chaos.brake import heat

HOT_TABLE = "C1/embedding"

if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--hot", type=int, default=0)
    parser.add_argument("--rows-per-table", type=int, default=10000)
    options, rest = parser.parse_known_args()
    if options.hot:
        heat(tf.compat.v1.nn, HOT_TABLE, options.hot, options.rows_per_table)
    sys.argv[1:] = [*rest, "--rows-per-table", str(options.rows_per_table)]
    train.main()
