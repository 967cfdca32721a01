"""`python -m deeprec_ext.inject TARGET`: copies what a training process needs of this package, for a Kubernetes init container.

The container runs either our image or the user's own, where the package is installed (annotation `package`); the training
container then finds the copy through PYTHONPATH, whatever its image. Standard library only, and no TensorFlow.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
AUTOLOAD = "_autoload"
PYTHON_PATH_FILE = "python_path"
"""Beside our sitecustomize.py: what the image itself has as PYTHONPATH, which ours in the pod's environment replaces."""

_MASTER_SIDE = (
    "aimaster", "autoscaler", "simulator", "history", "launch", "cli", "yamlfiles.py", "webserver.py",
)  # fmt: skip
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")


def copy_package(target: Path) -> Path:
    """Copies the package into `target`, over what an earlier try has left; returns where it is. Raises OSError."""

    def left_out(directory: str, names: list[str]) -> set[str]:
        master_side = _MASTER_SIDE if Path(directory) == PACKAGE else ()
        return {*_LEFT_OUT(directory, names), *(name for name in names if name in master_side)}

    copied = target / PACKAGE.name
    shutil.copytree(PACKAGE, copied, ignore=left_out, dirs_exist_ok=True, copy_function=shutil.copyfile)
    return copied


def keep_python_path(copied: Path, python_path: str) -> None:
    """Writes the entries for our sitecustomize, one a line; relative ones mean another place there and are left out."""
    entries = [entry for entry in python_path.split(os.pathsep) if os.path.isabs(entry)]
    (copied / AUTOLOAD / PYTHON_PATH_FILE).write_text("".join(f"{entry}\n" for entry in entries), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m deeprec_ext.inject", description=__doc__)
    parser.add_argument("target", type=Path, help="directory that will stand in PYTHONPATH")
    parser.add_argument(
        "--keep-python-path",
        action="store_true",
        help="this is the image of the training container: keep its PYTHONPATH",
    )
    options = parser.parse_args(arguments)
    try:
        copied = copy_package(options.target)
        if options.keep_python_path:
            keep_python_path(copied, os.environ.get("PYTHONPATH", ""))
    except OSError as error:  # shutil.Error, too
        print(f"deeprec-ext: the package cannot be copied to {options.target}: {error}", file=sys.stderr)
        return 1
    print(f"deeprec-ext: copied to {copied}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
