"""`deeprec-ext evaluate --model-def …`: the metrics of a trained model, in one process."""

from __future__ import annotations

import argparse
from typing import Any

from deeprec_ext.cli import defined, submitting


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "evaluate", help="print the metrics of a model that a module defines",
        description="Evaluates a trained model on all records of --data, in one process, and prints its metrics.",
    )  # fmt: skip
    defined.add_flags(parser)
    parser.add_argument("--dry-run", action="store_true", help="say what is missing in module and data, and do nothing")
    parser.add_argument("--json", action="store_true", help="the metrics as JSON on stdout")
    submitting.add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    words = defined.command("evaluate", arguments, ())
    if arguments.submit:
        return submitting.submit("evaluate", words, arguments)
    if arguments.dry_run:
        return defined.checked(words, arguments.json)
    return defined.run_here([*words, *(["--json"] if arguments.json else [])])
