"""Has programs read their flags, and no more: `python parsing.py` with a JSON list of command lines on stdin.

Each command line is what stands after `python`: `-m MODULE flags` or `FILE flags`. The program is run as far as the end of
its `parse_args`. On stdout: a JSON list with what each says of its flags, empty where it takes them. All in one process,
because importing TensorFlow once per program would take a minute.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import runpy
import sys
from typing import Any

_parse_args = argparse.ArgumentParser.parse_args


class _Parsed(BaseException):
    """Nothing of the program's own catches it."""


def _then_stop(self: argparse.ArgumentParser, *words: Any, **named: Any) -> Any:
    _parse_args(self, *words, **named)
    raise _Parsed


def complaint(words: list[str]) -> str:
    errors = io.StringIO()
    module = words[1] if words[0] == "-m" else ""
    sys.argv = [words[0], *words[2 if module else 1 :]]
    try:
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            runpy.run_module(module, run_name="__main__") if module else runpy.run_path(words[0], run_name="__main__")
    except _Parsed:
        return ""
    except SystemExit as end:
        if not end.code and "--help" in words:
            return ""
        return errors.getvalue() or f"ended with {end.code} before it had read its flags"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "reads no flags"


if __name__ == "__main__":
    argparse.ArgumentParser.parse_args = _then_stop  # type: ignore[method-assign]
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.path.insert(0, os.getcwd())
    print(json.dumps([complaint(words) for words in json.load(sys.stdin)]))
