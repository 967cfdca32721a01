"""`status` of a TFJob: in the AIMaster's pod while it runs; else what the API server knows of the job, and its summary.

With `--watch` the one follows the other, as the job goes from its first pod to its end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys

from deeprec_ext.cli.cluster.forwarding import AGAIN, SECONDS, WATCH_SECONDS, forward
from deeprec_ext.cli.cluster.seen import Seen, lines, look
from deeprec_ext.cli.cluster.target import words_again
from deeprec_ext.cli.job import print_json
from deeprec_ext.errors import UnreachableError
from tfjob.api.client import Api, ApiError, ForbiddenError
from tfjob.api.finding import aimaster_pod, is_running

WATCH_PAUSE_SECONDS = 2.0
USAGE = 2
"""Exit code of a command in the pod that does not know what is asked of it: that does not change."""


async def run(name: str, arguments: argparse.Namespace, api: Api, namespace: str) -> int:
    if not arguments.watch:
        return await _once(name, arguments, api, namespace)
    shown = ""
    while True:
        with contextlib.suppress(UnreachableError):  # of an API server that is being restarted
            code = await _in_pod(name, arguments, api, namespace)
            if code == USAGE:
                return USAGE
            seen = await look(api, namespace, name)
            if code is None or seen.ended:
                shown = _show_change(seen, shown, arguments.json)
            if seen.ended:
                return 0
            if code == AGAIN:
                continue
        await asyncio.sleep(WATCH_PAUSE_SECONDS)


async def _once(name: str, arguments: argparse.Namespace, api: Api, namespace: str) -> int:
    code = await _in_pod(name, arguments, api, namespace)
    if code is not None:
        return code
    seen = await look(api, namespace, name)
    if arguments.json:
        print_json(seen.values())
    else:
        print("\n".join(lines(seen)), flush=True)
        show_summary(seen)
    return 0


async def _in_pod(name: str, arguments: argparse.Namespace, api: Api, namespace: str) -> int | None:
    """Exit code of the command in the AIMaster's pod; None: there is none to ask, or the caller may not."""
    try:
        pod = await aimaster_pod(api, namespace, name)
    except ForbiddenError:  # what else there is may be seen all the same
        return None
    if pod is None or not is_running(pod):
        return None
    seconds = WATCH_SECONDS if arguments.watch else SECONDS
    try:
        return await forward(api, namespace, pod, "status", words_again(arguments), seconds=seconds)
    except ApiError as error:  # most often 403
        print(f"what the cluster knows, because the AIMaster could not be asked: {error}", file=sys.stderr)
        return None


def _show_change(seen: Seen, shown: str, as_json: bool) -> str:
    text = json.dumps(seen.values()) if as_json else "\n".join(lines(seen))
    if text != shown:
        print(text, flush=True)
        if seen.ended and not as_json:
            show_summary(seen)
    return text


def show_summary(seen: Seen) -> None:
    from deeprec_ext.cli.console import Console
    from deeprec_ext.cli.ending import WIDTH, print_body

    if seen.summary is not None:
        print_body(seen.summary, Console(highlight=False, soft_wrap=True, wide=WIDTH))
