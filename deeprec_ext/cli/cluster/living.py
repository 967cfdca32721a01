"""Commands that are about the living AIMaster and nothing else: they run in its pod, or not at all."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from deeprec_ext.cli.cluster.forwarding import explain, forward, running_aimaster
from tfjob.api.client import Api, ForbiddenError


async def graph(name: str, arguments: argparse.Namespace, api: Api, namespace: str) -> int:
    words = ["--json"] if arguments.json else []
    for flag in ("slot", "rows"):
        value = getattr(arguments, flag)
        words += [f"--{flag}", str(value)] if value is not None else []
    return await in_pod(api, namespace, name, "graph", words)


async def plan(name: str, arguments: argparse.Namespace, api: Api, namespace: str) -> int:
    words = ["--json"] if arguments.json else []
    for change in arguments.changes:
        words += ["--set", change]
    return await in_pod(api, namespace, name, "plan", words)


async def in_pod(api: Api, namespace: str, name: str, command: str, words: Sequence[str]) -> int:
    """Raises UsageError, ApiError, UnreachableError."""
    pod = await running_aimaster(api, namespace, name)
    try:
        return await forward(api, namespace, pod, command, words)
    except ForbiddenError as error:
        raise explain(error) from error
