"""`deeprec-ext train --model-def …`: trains what a module defines, as `run` trains a script."""

from __future__ import annotations

import argparse
from typing import Any

from deeprec_ext.bounds import whole
from deeprec_ext.cli import defined, submitting
from deeprec_ext.cli import run as run_command

FLAGS = ("validation-data", "epochs", "output", "seed", "no-shuffle", "shard-records")


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "train", help="train a model that a module defines: no training code",
        description="Trains what --model-def names until each record of --data is trained in each epoch, whoever dies: "
        "as `run` trains a script, with the flags of `run`; or in one process with --local, or as a TFJob with --submit.",
    )  # fmt: skip
    defined.add_flags(parser)
    parser.add_argument("--validation-data", metavar="PATHS", help="evaluated by the chief after each epoch")
    parser.add_argument(
        "--epochs", type=whole("count"), metavar="N", help="how often each record is trained (default 1)"
    )
    parser.add_argument(
        "--output", metavar="DIR", help="where the trained model goes (default: output/ in the run directory)"
    )
    add_data_flags(parser)
    parser.add_argument("--seed", type=whole("seed"), metavar="N", help="of the order of the records (default 0)")
    parser.add_argument("--no-shuffle", action="store_true", help="records as they stand in their files")
    add_ways(parser)


def add_data_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--shard-records", type=whole("count"), metavar="N", help="records in a lease (default: 32 batches)"
    )


def add_ways(parser: argparse.ArgumentParser) -> None:
    """Where it runs."""
    parser.add_argument("--local", action="store_true", help="in one process of this machine, without PS and AIMaster")
    submitting.add_flags(parser)
    run_command.add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    return start("train", arguments, FLAGS)


def start(name: str, arguments: argparse.Namespace, flags: tuple[str, ...]) -> int:
    """As it was asked: tried, submitted, in one process, or as a job here. Returns the exit code; raises UsageError."""
    words = defined.command(name, arguments, flags)
    if arguments.dry_run and not arguments.submit:
        code = defined.checked(words, arguments.json)
        if code or arguments.local or arguments.json:
            return code
    if arguments.submit:
        return submitting.submit(name, words, arguments)
    if arguments.local:
        return defined.run_here([*words, *(["--json"] if arguments.json and name == "train" else [])])
    arguments.script = ["--", *words]
    arguments.label = defined.label(name, arguments)
    if arguments.layout in (None, "auto"):
        arguments.layout = "chief"
    return run_command.run(arguments)
