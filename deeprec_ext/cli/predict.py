"""`deeprec-ext predict --model-def …`: the outputs of a trained model for all records, in files, each record once."""

from __future__ import annotations

import argparse
from typing import Any

from deeprec_ext.cli import defined, train

FLAGS = ("output", "shard-records")


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "predict", help="predict with a model that a module defines, each record exactly once",
        description="Writes what the model gives of each record of --data: a JSON line for a record, a file for a shard. "
        "Workers share the shards; one that dies leaves nothing half done. With the flags of `run`, --local or --submit.",
    )  # fmt: skip
    defined.add_flags(parser)
    parser.add_argument(
        "--output", metavar="DIR", help="where predictions go (default: predictions/ in the run directory)"
    )
    train.add_data_flags(parser)
    train.add_ways(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.ps is None and not arguments.autoscale:
        arguments.ps = 1  # it has a count of shards to keep, no more
    return train.start("predict", arguments, FLAGS)
