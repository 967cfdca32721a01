"""`deeprec-ext backup list | verify | restore | export DIR`: what is in a disk backup, and checkpoints made of it.

`python -m deeprec_ext.backup` does the work: writing a checkpoint takes TensorFlow, which this side never imports.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from typing import Any

ACTIONS = {
    "list": "the cuts in a backup directory, newest first",
    "verify": "read every byte; name what is torn, flipped or missing",
    "restore": "make a cut the newest checkpoint of a model directory, for any number of slots and PS",
    "export": "write a cut as an ordinary TensorFlow checkpoint",
}


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "backup", help="list or verify a disk backup, or make a checkpoint of it",
        usage="deeprec-ext backup ACTION DIR [flags]", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="\n".join(f"{name:<8} {what}" for name, what in ACTIONS.items()),
        epilog="Each action has --help.",
    )  # fmt: skip
    parser.add_argument("action", choices=tuple(ACTIONS), metavar="ACTION", help=", ".join(ACTIONS))
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="DIR ...", help="backup directory, and flags")


def run(arguments: argparse.Namespace) -> int:
    words = [sys.executable, "-m", "deeprec_ext.backup", arguments.action, *arguments.words]
    return subprocess.run(words, check=False).returncode
