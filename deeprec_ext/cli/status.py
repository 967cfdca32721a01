"""`deeprec-ext status JOB`: what the job does now, once or as a live table; of an ended job, its summary."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

from deeprec_ext.bounds import whole
from deeprec_ext.cli import inpool
from deeprec_ext.cli.cluster.target import on_cluster
from deeprec_ext.cli.job import add_job, as_dict, directory_of, print_json
from deeprec_ext.cli.roles import SORTS
from deeprec_ext.errors import UnreachableError, UsageError
from deeprec_ext.launch.client import JobClient
from deeprec_ext.launch.job import Scene
from deeprec_ext.launch.records.eventlog import EventTail, format_event
from deeprec_ext.proto import deeprec_ext_pb2 as pb2
from deeprec_ext.rundir import RunDirectory
from deeprec_ext.security import lifetimes
from deeprec_ext.security.tokens import page_line

_WATCH_SECONDS = 0.5
_WIDTH = 160
_ROWS = 40
"""Of roles and of slots on a terminal, unless --rows says otherwise."""
_PATIENCE_SECONDS = 10.0
"""The AIMaster may be just being restarted."""


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "status", help="show what a job does", description="Shows what a job does, or how it ended."
    )
    add_job(parser)
    parser.add_argument("--watch", action="store_true", help="live, until the job ends or Ctrl-C")
    parser.add_argument(
        "--sort", choices=SORTS, default="load",
        help="roles and slots by load (busiest PS, then slowest trainers; the default), name or memory",
    )  # fmt: skip
    parser.add_argument(
        "--rows", type=whole("rows"), metavar="N",
        help=f"at most so many roles and so many slots; 0: all (default: what fits; without --watch {_ROWS})",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="as JSON; with --watch one line each half second")


def run(arguments: argparse.Namespace) -> int:
    if arguments.rows is not None and arguments.rows < 0:
        raise UsageError(f"--rows {arguments.rows}: must be 0 or more")
    if (code := on_cluster("status", arguments)) is not None:
        return code
    path = arguments.job.resolve()
    if inpool.show(path, arguments) and (not arguments.watch or not RunDirectory(path).description.exists()):
        return 0  # it waits, or has given up
    directory = directory_of(arguments)
    if not directory.in_use():
        return show_ended(directory, arguments.json)
    try:
        asyncio.run(_watch(directory, arguments) if arguments.watch else _once(directory, arguments))
    except UnreachableError as error:
        if (
            directory.in_use()
        ):  # a launcher waits for an AIMaster that starts, or for room to write down what came of the job
            raise UnreachableError(
                f"{error}; its `deeprec-ext run` is still there, and says what it waits for"
            ) from None
        return show_ended(directory, arguments.json)  # it ended while we asked
    if arguments.watch:
        return show_ended(directory, arguments.json)
    return 0


def show_ended(directory: RunDirectory, as_json: bool) -> int:
    """The summary the launcher wrote; of a launcher that was killed, what the AIMaster's store says."""
    from deeprec_ext.cli.ending import print_summary
    from deeprec_ext.launch.records.summary import read_stored

    try:
        summary = json.loads(directory.summary.read_text())
    except (FileNotFoundError, ValueError):
        summary = read_stored(directory, None)
        if not summary:
            raise UsageError(f"{directory.path}: the job ended before it began; see {directory.logs}") from None
        summary = {**summary, "status": "interrupted"}
    if as_json:
        print_json(summary)
    else:
        print_summary(summary, directory.path)
    return 0


async def _once(directory: RunDirectory, arguments: argparse.Namespace) -> None:
    from deeprec_ext.cli.console import Console
    from deeprec_ext.cli.table import render

    async with JobClient.of(directory) as client:
        status = await patient_status(client)
    if arguments.json:
        print_json(_values(directory, status))
        return
    console = Console(wide=_WIDTH)
    rows = _ROWS if arguments.rows is None and console.is_terminal else arguments.rows
    console.print(
        render(scene_of(directory, status), _last_events(directory), sort=arguments.sort, slots=True, rows=rows or None)
    )


async def _watch(directory: RunDirectory, arguments: argparse.Namespace) -> None:
    """Until the launcher has ended."""
    from rich.live import Live

    from deeprec_ext.cli.console import Console
    from deeprec_ext.cli.table import plain_line, render

    console = Console()
    async with JobClient.of(directory) as client:
        if arguments.json or not console.is_terminal:
            async for status in _statuses(directory, client):
                values = _values(directory, status) if arguments.json else {}
                print(json.dumps(values) if arguments.json else plain_line(scene_of(directory, status)), flush=True)
            return
        with Live(console=console, auto_refresh=False, vertical_overflow="ellipsis", transient=True) as live:
            async for status in _statuses(directory, client):
                rows = arguments.rows or None
                lines = console.size.height - 1 if arguments.rows is None else None
                picture = render(
                    scene_of(directory, status), _last_events(directory), sort=arguments.sort, slots=True, lines=lines,
                    rows=rows,
                )  # fmt: skip
                live.update(picture, refresh=True)


def _values(directory: RunDirectory, status: pb2.StatusReply) -> dict[str, Any]:
    """The answer, and beside it when the certificates with which it was given expire."""
    first = lifetimes.earliest(directory.certificates, ("ca", "aimaster", "admin"))
    ends = {} if first is None else {"expire": first[0].ends, "renewed_from": first[0].due}
    return {**as_dict(status), "certificates": ends}


async def _statuses(directory: RunDirectory, client: JobClient) -> AsyncIterator[pb2.StatusReply]:
    while directory.in_use():
        with contextlib.suppress(UnreachableError):  # restarted, or the end: the lock tells
            yield await client.status()
        await asyncio.sleep(_WATCH_SECONDS)


async def patient_status(client: JobClient) -> pb2.StatusReply:
    """The first answer within the time an AIMaster takes to come back. Raises UnreachableError."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return await client.status()
        except UnreachableError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.2)


def scene_of(directory: RunDirectory, status: pb2.StatusReply) -> Scene:
    page = page_line(status.dashboard, directory.door, directory.certificates)
    return Scene(status.job, directory.path, status.seconds, status, dashboard=page)


def _last_events(directory: RunDirectory, count: int = 6) -> list[str]:
    return [format_event(event) for event in EventTail(directory.events).poll()[-count:]]
