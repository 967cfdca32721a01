"""What the scripts of real size share: their arguments, and the log of their steps."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.stock import steps


def add_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("--steps", type=int, default=10**9, help="training steps of all trainers together")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--summary-steps", type=int, default=100)
    parser.add_argument("--checkpoint-steps", type=int, default=2000)
    parser.add_argument("--model-dir", help="default: below $DEEPREC_EXT_WORKDIR, else a temporary directory")
    return parser


def model_dir(arguments: argparse.Namespace) -> str:
    workdir = os.environ.get("DEEPREC_EXT_WORKDIR")
    return arguments.model_dir or (os.path.join(workdir, "model") if workdir else tempfile.mkdtemp(prefix="real-"))


def step_log() -> Any:
    """A hook that writes when each step was completed (`benchmarks.stock.steps`)."""
    from benchmarks.stock.train import POLL_VARIABLE, StepLog, poll_more_often

    if os.environ.get(POLL_VARIABLE):
        poll_more_often(float(os.environ[POLL_VARIABLE]))
    task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {"type": "chief", "index": 0})
    directory = os.environ.get(steps.DIRECTORY_VARIABLE)
    return StepLog(Path(directory) / f"{task['type']}-{task['index']}.steps" if directory else None)
