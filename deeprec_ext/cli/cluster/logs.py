"""`logs` of a TFJob: of its pods, through the API server; by the names of roles, `ps-0`, `worker-1`, `aimaster`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

from deeprec_ext.cli.cluster.forwarding import write_out
from deeprec_ext.cli.roles import role_called, role_order
from deeprec_ext.errors import UnreachableError, UsageError
from deeprec_ext.launch.records.logs import lines_of
from tfjob.api.client import Api, ApiError, ForbiddenError, NotFoundError
from tfjob.api.finding import find, pods_of, why_not_running
from tfjob.api.logs import follow, has_ended, read
from tfjob.model import names
from tfjob.model.kinds import Manifest

FOLLOWED_MAX = 100
"""Pods at the same time: each is a connection to the API server."""

LOOK_SECONDS = 3.0
NOT_YET = 400


async def run(name: str, arguments: argparse.Namespace, api: Api, namespace: str) -> int:
    pods = await _pods(api, namespace, name)
    if arguments.role:
        arguments.role = role_called(arguments.role, pods)
    if arguments.role and arguments.role not in pods:
        await find(api, namespace, name)  # or say that there is no such job
        there = ", ".join(pods) or "none yet"
        raise UsageError(f"{arguments.role}: TFJob {name} has no such pod; there are {there}")
    if not pods:
        await find(api, namespace, name)
        if not arguments.follow:
            print(f"TFJob {name} has no pods yet", file=sys.stderr)
    chosen = [arguments.role] if arguments.role else list(pods)
    if arguments.follow:
        return await _follow(api, namespace, name, arguments)
    for role in chosen:
        if not arguments.role:
            print(f"==> {role} <==", flush=True)
        await _show(api, namespace, pods[role], arguments.lines)
    return 0


async def _pods(api: Api, namespace: str, name: str) -> dict[str, Manifest]:
    """Role → pod, in the order of roles. Raises ApiError, UnreachableError."""
    found = await pods_of(api, namespace, name)
    roles = {role_of(pod, name): pod for pod in found}
    return {role: roles[role] for role in sorted(roles, key=role_order)}


def role_of(pod: Manifest, job: str) -> str:
    """A pod's name without the job's: in a job without a chief, worker 0 is `worker-0` here."""
    return str(pod["metadata"]["name"]).removeprefix(f"{job}-")


def container_of(pod: Manifest) -> str:
    return names.CONTAINER if names.TYPE_LABEL in (pod["metadata"].get("labels") or {}) else names.AIMASTER_CONTAINER


async def _show(api: Api, namespace: str, pod: Manifest, lines: int) -> None:
    name = pod["metadata"]["name"]
    try:
        async for _, line in read(api, namespace, name, container_of(pod), lines=lines):
            write_out(_shown(line))
    except NotFoundError:
        print(f"{name}: its pod has gone", file=sys.stderr)
    except ForbiddenError:
        raise
    except ApiError as error:
        if error.status != NOT_YET:
            raise
        print(f"{name} has not started: {why_not_running(pod)}", file=sys.stderr)


def _shown(line: bytes) -> bytes:
    return "".join(f"{part}\n" for part in lines_of(line) or [""]).encode()


async def _follow(api: Api, namespace: str, name: str, arguments: argparse.Namespace) -> int:
    """Until all of it has ended; pods that come later are followed from their first line."""
    tasks: dict[str, asyncio.Task[None]] = {}  # by uid
    first = True
    try:
        while True:
            pods = await _listed(api, namespace, name)
            for role, pod in pods.items() if pods is not None else ():
                uid = pod["metadata"].get("uid") or role
                if uid not in tasks and arguments.role in (None, role):
                    _check_number(tasks)
                    prefix = "" if arguments.role else f"{role}: "
                    lines = arguments.lines if first else 1 << 20
                    tasks[uid] = asyncio.ensure_future(_write_all(api, namespace, pod, prefix, lines))
            first = False
            _raise_broken(tasks)
            done = all(task.done() for task in tasks.values())
            if pods is not None and done and await _ended(api, namespace, name, pods, arguments.role):
                return 0
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


async def _listed(api: Api, namespace: str, name: str) -> dict[str, Manifest] | None:
    with contextlib.suppress(UnreachableError):
        return await _pods(api, namespace, name)
    return None


def _check_number(tasks: dict[str, asyncio.Task[None]]) -> None:
    if sum(not task.done() for task in tasks.values()) >= FOLLOWED_MAX:
        raise UsageError(f"more than {FOLLOWED_MAX} pods cannot be followed at once; name one, for example chief-0")


def _raise_broken(tasks: dict[str, asyncio.Task[None]]) -> None:
    for task in tasks.values():
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            raise error


async def _ended(api: Api, namespace: str, name: str, pods: dict[str, Manifest], role: str | None) -> bool:
    """Nothing more will be written: of one role, once its pod has ended or gone; else once the job has."""
    if role is not None:
        return role not in pods or has_ended(pods[role])
    if not all(has_ended(pod) for pod in pods.values()):
        return False
    try:
        found = await find(api, namespace, name)
    except UsageError:
        return True  # deleted
    except UnreachableError:
        return False
    return found.finished or not found.operator


async def _write_all(api: Api, namespace: str, pod: Manifest, prefix: str, lines: int) -> None:
    start: AsyncIterator[bytes] = follow(api, namespace, pod["metadata"]["name"], container_of(pod), lines=lines)
    before = prefix.encode()
    async for line in start:
        write_out(before + _shown(line))
