"""Commands that are about the living AIMaster and nothing else: they run in its pod, or not at all."""

from __future__ import annotations

import argparse

from deeprec_ext.cli.cluster.forwarding import explain, forward, running_aimaster
from deeprec_ext.cli.cluster.target import words_again
from tfjob.api.client import Api, ForbiddenError


async def run(name: str, arguments: argparse.Namespace, api: Api, namespace: str) -> int:
    """Raises UsageError, ApiError, UnreachableError."""
    pod = await running_aimaster(api, namespace, name)
    try:
        return await forward(api, namespace, pod, arguments.command, words_again(arguments))
    except ForbiddenError as error:
        raise explain(error) from error
