"""DeepFM of the examples, with an option to make one of its tables hot: for the report, which has to name it.

    python deepfm.py --hot 400 --rows-per-table 50000 ...     # look up 400 rows of C1/embedding per record, instead of one

All other options are those of examples/deepfm_criteo/train.py.
"""

from __future__ import annotations

import argparse
import sys

import tensorflow as tf

from examples.deepfm_criteo import train

HOT_TABLE = "C1/embedding"


def heat(lookups: int, rows: int) -> None:
    """From now on a look-up in the hot table takes so many rows per id, and gives their mean."""
    v1 = tf.compat.v1
    look_up = v1.nn.embedding_lookup

    def embedding_lookup(table, ids, **options):
        if table.op.name != HOT_TABLE:
            return look_up(table, ids, **options)
        many = tf.math.floormod(ids[:, None] * 31 + 7919 * tf.range(lookups, dtype=ids.dtype), rows)
        return tf.reduce_mean(look_up(table, many, **options), 1)

    v1.nn.embedding_lookup = embedding_lookup


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--hot", type=int, default=0)
    parser.add_argument("--rows-per-table", type=int, default=10000)
    options, rest = parser.parse_known_args()
    if options.hot:
        heat(options.hot, options.rows_per_table)
    sys.argv[1:] = [*rest, "--rows-per-table", str(options.rows_per_table)]
    train.main()
