"""Entry point. Exit codes: 0 done, 1 the job failed, 2 bad usage, 75 no room in its pool within --max-wait, 130 Ctrl-C. An
error is one line on stderr: what to do.

With --json there is an object with this line as its `error` on stdout as well.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from deeprec_ext.errors import DeepRecError, UsageError
from deeprec_ext.printable import LineFormatter, SafeStream, behind, printable

COMMANDS = (
    "run", "status", "scale", "plan", "decisions", "simulate", "report", "logs", "graph", "backup", "doctor", "aimaster",
    "operator", "submit", "jobs", "history", "estimate", "train", "evaluate", "predict", "queue",
)  # fmt: skip
KUBECTL = ("submit", "status", "scale", "plan", "decisions", "report", "logs", "graph", "jobs", "queue")
"""Commands of `kubectl deeprec`: those about TFJobs."""

NOT_LOOKED_AT = (errno.EACCES, errno.ENAMETOOLONG)
"""What pathlib raises where it is only asked whether there is such a file: nobody can say. The error has the file's name."""


class _BadWords(SystemExit):
    """What argparse ends with."""

    def __init__(self, line: str) -> None:
        super().__init__(2)
        self.line = line


class _Parser(argparse.ArgumentParser):
    """argparse prints the whole usage before an error; here an error is one line. It takes `-5m` for a flag, and says that an
    argument is missing; here it is a value, like `-5`, which is refused as what it is."""

    def __init__(self, *words: Any, **named: Any) -> None:
        super().__init__(*words, **named)
        self._negative_number_matcher = re.compile(r"-\.?\d")

    def error(self, message: str) -> None:  # type: ignore[override]
        line = f"{self.prog}: {message} (see {self.prog} --help)"
        print(line, file=sys.stderr)
        raise _BadWords(line)


def build_parser(prog: str = "deeprec-ext", names: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    from deeprec_ext.launch.job import version

    parser = _Parser(prog=prog, description="Elastic parameter-server training on stock TensorFlow.")
    parser.add_argument(
        "--version", action="version", version=f"deeprec-ext {version('deeprec-ext') or '(not installed)'}"
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    for name in names:
        command = importlib.import_module(f"deeprec_ext.cli.{name}")
        command.add(commands)
        commands.choices[name].set_defaults(run=command.run)
    return parser


def main(words: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    return _run(lambda: build_parser().parse_args(words), words)


def kubectl(words: Sequence[str] | None = None) -> int:
    """`kubectl deeprec …` (the executable `kubectl-deeprec`): JOB is a TFJob, by default in the kubeconfig's namespace."""

    def parsed() -> argparse.Namespace:
        return build_parser("kubectl deeprec", KUBECTL).parse_args(words, argparse.Namespace(kubectl=True))

    return _run(parsed, words)


def _run(parsed: Callable[[], argparse.Namespace], words: Sequence[str] | None) -> int:
    try:
        arguments = parsed()
    except _BadWords as error:
        given = list(sys.argv[1:] if words is None else words)
        if "--json" in given[: given.index("--") if "--" in given else None]:  # else it is the script's own
            print(json.dumps({"error": error.line}))
        raise
    except KeyboardInterrupt:  # all commands are imported first, which takes a second
        print("deeprec-ext: stopped before anything was started", file=sys.stderr)
        return 130
    handler = _Stderr()
    handler.setFormatter(LineFormatter("deeprec-ext: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    out, err = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = SafeStream(behind(out)), SafeStream(behind(err))  # type: ignore[assignment]
    try:
        return _outcome(arguments)
    finally:
        sys.stdout, sys.stderr = out, err


def _outcome(arguments: argparse.Namespace) -> int:
    try:
        return int(arguments.run(arguments))
    except DeepRecError as error:
        return _fail(error, error.exit_code, arguments)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `deeprec-ext logs | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.errno not in NOT_LOOKED_AT or not error.filename:
            raise
        return _fail(UsageError(f"{os.fsdecode(error.filename)}: {error.strerror}; give another"), 2, arguments)


class _Stderr(logging.Handler):
    """Writes to what `sys.stderr` is at the moment: the live table replaces it to print above itself."""

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):  # a full disk: what is logged is not worth an error
            print(self.format(record), file=sys.stderr, flush=True)


def _fail(error: DeepRecError, code: int, arguments: argparse.Namespace) -> int:
    line = printable(" ".join(str(error).split()))
    print(f"deeprec-ext: {line}", file=sys.stderr)
    if getattr(arguments, "json", False):
        print(json.dumps({"error": line}), flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
