"""The user's command: found, and checked as far as it can be before anything starts."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from deeprec_ext.errors import UsageError

_PYTHONS = ("python", "python3")
_OPTIONS_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")


def resolve_command(words: Sequence[str]) -> tuple[str, ...]:
    """The command with its program's full path. Raises UsageError if program or script do not exist."""
    if not words:
        raise UsageError("nothing to run; put the script behind two dashes: deeprec-ext run -- python train.py")
    program, arguments = words[0], tuple(words[1:])
    found = shutil.which(program)
    if program in _PYTHONS:
        found = _python(found)
    if found is None:
        if program.endswith(".py") and Path(program).is_file():
            raise UsageError(f"{program} is no program by itself; write: deeprec-ext run -- python {program}")
        if Path(program).is_dir():
            raise UsageError(f"{program} is a directory; of a run it is given so: --workdir {program}")
        raise UsageError(f"{program}: no such program; check the name, or give its path")
    if os.path.basename(found).startswith("python"):
        script = script_of(words)
        if script is not None and not (Path(script).is_file() or (Path(script) / "__main__.py").is_file()):
            raise UsageError(f"{script}: no such script (looked in {os.getcwd()}); check the path")
    return (os.path.abspath(found) if os.sep in found else found, *arguments)


def _python(found: str | None) -> str:
    """The `python` of the PATH, unless it lacks TensorFlow and ours has it: the venv of `deeprec-ext` is not activated."""
    if found is None or os.path.abspath(found) == sys.executable:  # no realpath: a venv's python links to the base's
        return sys.executable
    if importlib.util.find_spec("tensorflow") is None:
        return found
    probe = "import importlib.util, sys; sys.exit(importlib.util.find_spec('tensorflow') is None)"
    try:
        lacks = subprocess.run([found, "-c", probe], capture_output=True, timeout=20, check=False).returncode != 0
    except (OSError, subprocess.TimeoutExpired):
        lacks = True
    return sys.executable if lacks else found


def script_of(words: Sequence[str]) -> str | None:
    """The script a python command names; None for `-m`, `-c`, or no script at all."""
    rest = iter(words[1:])
    for word in rest:
        if word in _OPTIONS_WITH_VALUE:
            next(rest, None)
        elif word in ("-m", "-c", "-"):
            return None
        elif not word.startswith("-"):
            return word
    raise UsageError("python without a script would wait for input; write: deeprec-ext run -- python train.py")
