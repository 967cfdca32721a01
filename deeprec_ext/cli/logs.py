"""`deeprec-ext logs JOB [ROLE]`: what the processes of a job wrote."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import IO, Any

from deeprec_ext.bounds import whole
from deeprec_ext.cli.cluster.target import on_cluster
from deeprec_ext.cli.job import add_job, directory_of
from deeprec_ext.cli.roles import role_called, role_order
from deeprec_ext.errors import UsageError
from deeprec_ext.launch.records.logs import lines_of
from deeprec_ext.rundir import RunDirectory

_POLL_SECONDS = 0.2


def add(commands: Any) -> None:
    parser = commands.add_parser("logs", help="show what the processes of a job wrote", description=__doc__)
    add_job(parser)
    parser.add_argument(
        "role",
        nargs="?",
        metavar="ROLE",
        help="e.g. ps-0, worker-1, aimaster; chief: the only one of its kind (default: all)",
    )
    parser.add_argument("--follow", "-f", action="store_true", help="go on until the job ends or Ctrl-C")
    parser.add_argument(
        "--lines",
        "--tail",
        type=whole("lines"),
        default=20,
        metavar="N",
        help="so many last lines of each (default 20)",
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.lines < 0:
        raise UsageError(f"--lines {arguments.lines}: must be 0 or more")
    if (arguments.namespace or "").isdigit() and arguments.job.is_dir():
        raise UsageError(f"-n {arguments.namespace} is a namespace here; write --lines {arguments.namespace}")
    if (code := on_cluster("logs", arguments)) is not None:
        return code
    directory = directory_of(arguments)
    if arguments.role:
        arguments.role = role_called(arguments.role, role_names(directory))
    names = [arguments.role] if arguments.role else role_names(directory)
    if arguments.role and not directory.log(arguments.role).is_file():
        there = ", ".join(role_names(directory)) or "none yet"
        raise UsageError(f"{arguments.role}: no log of such a role; there are {there}")
    followed: dict[str, Follower] = {}
    for name in names:
        followed[name] = _start(directory.log(name), name, arguments, alone=bool(arguments.role))
    while arguments.follow:
        running = directory.in_use()  # asked before reading: what was written before the end is still shown
        for name in names if arguments.role else role_names(directory):
            if name not in followed:
                followed[name] = Follower(directory.log(name), f"{name}: ", 0)
            followed[name].show()
        if not running:
            return 0
        time.sleep(_POLL_SECONDS)
    return 0


def role_names(directory: RunDirectory) -> list[str]:
    return sorted((path.stem for path in directory.logs.glob("*.log")), key=role_order)


def _start(path: Path, name: str, arguments: argparse.Namespace, alone: bool) -> Follower:
    with path.open("rb") as file:
        lines, end = last_lines(file, arguments.lines)
    if not alone and not arguments.follow:
        print(f"==> {name} <==")
    prefix = "" if alone or not arguments.follow else f"{name}: "
    for line in lines:
        print(f"{prefix}{line}", flush=True)
    return Follower(path, prefix, end)


def last_lines(file: IO[bytes], count: int) -> tuple[list[str], int]:
    """The last lines of a file, read from its end, and where they end."""
    end = position = file.seek(0, 2)
    data = b""
    while position > 0 and data.count(b"\n") <= count:
        step = min(position, 64 << 10)
        position -= step
        file.seek(position)
        data = file.read(step) + data
    lines = lines_of(data)
    return (lines[-count:] if count else []), end


class Follower:
    """Prints what is added to one log, whole lines only."""

    def __init__(self, path: Path, prefix: str, position: int) -> None:
        self._path, self._prefix, self._position = path, prefix, position

    def show(self) -> None:
        with self._path.open("rb") as file:
            file.seek(self._position)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._position += len(whole) + len(newline)
        if newline:
            for line in lines_of(whole) or [""]:
                print(f"{self._prefix}{line}", flush=True)
