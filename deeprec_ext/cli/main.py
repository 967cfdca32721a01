"""Entry point. Exit codes: 0 done, 1 the job failed, 2 bad usage, 130 Ctrl-C. An error is one line on stderr: what to do."""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib
import logging
import os
import sys
from collections.abc import Callable, Sequence

from deeprec_ext.errors import DeepRecError, UsageError
from deeprec_ext.printable import LineFormatter, SafeStream, behind, printable

COMMANDS = (
    "run", "status", "scale", "plan", "decisions", "simulate", "report", "logs", "graph", "backup", "doctor", "aimaster",
    "operator", "submit", "jobs", "history", "estimate", "train", "evaluate", "predict",
)  # fmt: skip
KUBECTL = ("submit", "status", "scale", "plan", "decisions", "report", "logs", "graph", "jobs")
"""Commands of `kubectl deeprec`: those about TFJobs."""

NOT_LOOKED_AT = (errno.EACCES, errno.ENAMETOOLONG)
"""What pathlib raises where it is only asked whether there is such a file: nobody can say. The error has the file's name."""


class _Parser(argparse.ArgumentParser):
    """argparse prints the whole usage before an error; here an error is one line."""

    def error(self, message: str) -> None:  # type: ignore[override]
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


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
    return _run(lambda: build_parser().parse_args(words))


def kubectl(words: Sequence[str] | None = None) -> int:
    """`kubectl deeprec …` (the executable `kubectl-deeprec`): JOB is a TFJob, by default in the kubeconfig's namespace."""

    def parsed() -> argparse.Namespace:
        return build_parser("kubectl deeprec", KUBECTL).parse_args(words, argparse.Namespace(kubectl=True))

    return _run(parsed)


def _run(parsed: Callable[[], argparse.Namespace]) -> int:
    try:
        arguments = parsed()
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
    except UsageError as error:
        return _fail(error, 2)
    except DeepRecError as error:
        return _fail(error, 1)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `deeprec-ext logs | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.errno not in NOT_LOOKED_AT or not error.filename:
            raise
        return _fail(UsageError(f"{os.fsdecode(error.filename)}: {error.strerror}; give another"), 2)


class _Stderr(logging.Handler):
    """Writes to what `sys.stderr` is at the moment: the live table replaces it to print above itself."""

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):  # a full disk: what is logged is not worth an error
            print(self.format(record), file=sys.stderr, flush=True)


def _fail(error: DeepRecError, code: int) -> int:
    print(f"deeprec-ext: {printable(' '.join(str(error).split()))}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
