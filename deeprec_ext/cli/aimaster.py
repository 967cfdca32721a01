"""`deeprec-ext aimaster …`: the AIMaster by itself, as a pod runs it, with the flags of `python -m deeprec_ext.aimaster`."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "aimaster", help="run the AIMaster of one job (the launcher does it for you)", add_help=False,
        prefix_chars="\0",  # every word is taken as it is: argparse refuses a flag as the first of the REMAINDER
    )  # fmt: skip
    parser.add_argument("words", nargs=argparse.REMAINDER)


def run(arguments: argparse.Namespace) -> int:
    os.execv(sys.executable, [sys.executable, "-m", "deeprec_ext.aimaster", *arguments.words])
