"""What `train`, `evaluate` and `predict` have in common: their flags, and the command that a process runs for them.

The processes run `python -m deeprec_ext.modeldef`, which imports TensorFlow; this side does not.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
from collections.abc import Sequence

from deeprec_ext.bounds import whole
from deeprec_ext.launch.command import resolve_command
from deeprec_ext.launch.environment import role_environment

MODULE = "deeprec_ext.modeldef"
READERS = ("auto", "tfrecord", "lines", "csv", "columns", "parquet")

_TEXTS = (
    ("model-def", "PKG.MODULE[.FUNCTION]", "the function that makes the model; its module has loss, optimizer, feed"),
    ("model-zoo", "DIR", "the directory in which PKG lies (default: this one)"),
    ("data", "PATHS", "the records: a directory, files or a pattern, several with commas between"),
    ("weights", "PATH", "of a trained model: what `train --output` has written"),
)  # fmt: skip
_NAMES = ("feed", "loss", "optimizer", "eval-metrics-fn", "callbacks", "prediction-outputs-processor")
_COUNTS = (
    ("batch-size", "records of a step (default 64; 256 without training)"),
    ("skip-lines", "lines at the beginning of each file that are no records"),
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Those of all three."""
    group = parser.add_argument_group("model and data")
    for name, metavar, text in _TEXTS:
        group.add_argument(f"--{name}", metavar=metavar, required=name in ("model-def", "data"), help=text)
    group.add_argument(
        "--reader", choices=READERS, default="auto",
        help="how files are read; columns: CSV with a header, a record is the row of its values (default: by their names)",
    )  # fmt: skip
    for name, text in _COUNTS:
        group.add_argument(f"--{name}", type=whole("count"), metavar="N", help=text)
    for name in _NAMES:
        group.add_argument(f"--{name}", metavar="NAME", help=f"what the module calls its {name.replace('-', '_')}")


def command(name: str, arguments: argparse.Namespace, flags: Sequence[str]) -> list[str]:
    """What a process runs.

    Args:
      flags: of this command, beside those of all three.
    """
    words = ["python", "-m", MODULE, name]
    for flag in (*(one[0] for one in (*_TEXTS, *_COUNTS)), "reader", *_NAMES, *flags):
        value = getattr(arguments, flag.replace("-", "_"), None)
        if value not in (None, "", False):
            words += [f"--{flag}"] if value is True else [f"--{flag}={value}"]
    return words


def label(name: str, arguments: argparse.Namespace) -> str:
    """Of its run directory, and in the history: `train-mnist_functional_api`."""
    parts = arguments.model_def.split(".")
    return re.sub(r"[^A-Za-z0-9_-]", "-", f"{name}-{parts[-2] if len(parts) > 1 else parts[0]}")


def run_here(words: Sequence[str]) -> int:
    """The command in one process of this machine, with stock TensorFlow; its exit code. Raises UsageError."""
    environment = {
        **os.environ, "PYTHONPATH": role_environment({}, autoload=False)["PYTHONPATH"],
        "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2"),
    }  # fmt: skip
    process = subprocess.Popen(resolve_command(words), env=environment)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:  # the process got it as well: what it ends with is what counts
            continue


def checked(words: Sequence[str], as_json: bool) -> int:
    """What is missing in module and data, printed; the exit code. Raises UsageError."""
    return run_here([*words, "--check", *(["--json"] if as_json else [])])
