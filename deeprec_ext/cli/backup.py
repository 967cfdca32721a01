"""`deeprec-ext backup list | verify | restore | export DIR`: what is in a disk backup, and checkpoints made of it.

`python -m deeprec_ext.backup` does the work: writing a checkpoint takes TensorFlow, which this side never imports.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "backup", help="list or verify a disk backup, or make a checkpoint of it", add_help=False
    )
    parser.add_argument("words", nargs=argparse.REMAINDER)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "deeprec_ext.backup", *arguments.words])
