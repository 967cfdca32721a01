"""A command of `deeprec-ext` in the pod of a job's AIMaster: the same one, on the run directory that the AIMaster keeps there.

So it says and does what it says and does on one machine, and the administrator's certificate never leaves the pod. What the
caller needs is the right to run commands in pods (`pods/exec`).
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from deeprec_ext.cli.cluster.inside import AGAIN
from deeprec_ext.cli.cluster.target import words_again
from deeprec_ext.errors import UsageError
from deeprec_ext.printable import behind
from tfjob.api.client import Api, ForbiddenError
from tfjob.api.exec import Sink, execute
from tfjob.api.finding import aimaster_pod, find, is_running, why_not_running
from tfjob.model import names
from tfjob.model.kinds import Manifest

SECONDS = 3600
"""Time to live of a command in the pod: longer than any scaling takes."""

WATCH_SECONDS = 300
"""The same for what is shown until the job ends: a caller who has gone leaves it behind for so long."""

START_SECONDS, LOOK_SECONDS = 30.0, 1.0
"""How long a command that needs the AIMaster waits for it to start, or to be started again."""

KILLED = (137, 143)
SHOW_CURSOR = "\x1b[?25h"


async def running_aimaster(
    api: Api, namespace: str, name: str, *, sleep: Callable[[float], Any] = asyncio.sleep
) -> Manifest:
    """The AIMaster's pod, as soon as a command can be run in it. Raises UsageError that says why not, ApiError."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        pod = await aimaster_pod(api, namespace, name)
        if pod is not None and is_running(pod):
            return pod
        found = await find(api, namespace, name)
        if not found.elastic:
            raise UsageError(
                f"TFJob {name} is not elastic, so it has no AIMaster: annotate it with {names.ANNOTATION_PREFIX}enabled: "
                '"true" before it starts'
            )
        ended = found.finished or (
            pod is not None and (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        )
        if ended:
            raise UsageError(f"TFJob {name} has ended; `deeprec-ext status -n {namespace} {name}` shows its summary")
        if time.monotonic() > deadline:
            raise UsageError(
                f"the AIMaster of {name} does not run (pod {names.aimaster_name(name)}: {why_not_running(pod)}); try again, or "
                f"see `deeprec-ext logs -n {namespace} {name} aimaster`"
            )
        await sleep(LOOK_SECONDS)


async def forward(
    api: Api, namespace: str, pod: Manifest, command: str, words: Sequence[str] = (), *, stdout: Sink | None = None,
    seconds: int = SECONDS,
) -> int:  # fmt: skip
    """Runs `deeprec-ext COMMAND DIR WORDS` in this pod of an AIMaster; returns its exit code, `AGAIN` when its time was up.

    Args:
        stdout: where its output goes; None: to this process's own.

    Raises ForbiddenError where the caller may not run commands in pods, ApiError, UnreachableError.
    """
    name = pod["metadata"]["name"]
    python, directory = _where(pod)
    there = (
        ["--terminal", "{}x{}".format(*shutil.get_terminal_size())] if stdout is None and sys.stdout.isatty() else []
    )
    line = [
        python, "-m", "deeprec_ext.cli.cluster.inside", "--seconds", str(seconds), "--directory", directory, *there, "--",
        command, directory, *words,
    ]  # fmt: skip
    try:
        code = await execute(api, namespace, name, names.AIMASTER_CONTAINER, line, stdout or write_out, write_error)
        if code in KILLED:
            print("the AIMaster's container has ended meanwhile, and the command with it", file=sys.stderr)
        return code
    finally:
        if there:
            behind(sys.stdout).write(SHOW_CURSOR)  # a live table that was cut off has hidden it
            sys.stdout.flush()


def explain(error: ForbiddenError) -> UsageError:
    """The right that is missing, and for what."""
    return UsageError(
        f"{error}; this command runs in the AIMaster's pod: it needs the verbs get and create on pods/exec in the namespace"
    )


async def run(name: str, arguments: argparse.Namespace, api: Api, namespace: str) -> int:
    """Of commands that are about the living AIMaster and nothing else. Raises UsageError, ApiError, UnreachableError."""
    pod = await running_aimaster(api, namespace, name)
    try:
        return await forward(api, namespace, pod, arguments.command, words_again(arguments))
    except ForbiddenError as error:
        raise explain(error) from error


def write_out(data: bytes) -> None:
    _write(sys.stdout, data)


def write_error(data: bytes) -> None:
    _write(sys.stderr, data)


def _write(stream: Any, data: bytes) -> None:
    if hasattr(stream, "buffer"):
        stream.flush()
        stream.buffer.write(data)
        stream.buffer.flush()
    else:  # replaced by something that takes text only
        stream.write(data.decode(errors="replace"))


def _where(pod: Manifest) -> tuple[str, str]:
    """The AIMaster's Python and its directory, from its own command line. Raises UsageError."""
    for container in pod["spec"]["containers"]:
        words = container.get("command") or []
        if container.get("name") == names.AIMASTER_CONTAINER and "--workdir" in words[:-1]:
            return str(words[0]), str(words[words.index("--workdir") + 1])
    raise UsageError(f"pod {pod['metadata']['name']} is no AIMaster of this version of deeprec-ext")


__all__ = ["AGAIN", "SECONDS", "WATCH_SECONDS", "explain", "forward", "running_aimaster", "write_error", "write_out"]
