"""`submit --wait`: says what happens to a job until it ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from deeprec_ext.cli.cluster.seen import Seen, look
from deeprec_ext.errors import UnreachableError, UsageError
from tfjob.api.client import Api
from tfjob.api.finding import why_not_running
from tfjob.model import conditions, names

LOOK_SECONDS = 2.0
NOTICED_SECONDS = 30.0
"""An operator notices a job within a second or two."""


async def wait(api: Api, namespace: str, name: str, say: Callable[[str], None]) -> int:
    """0: it has succeeded; 1: it has failed, or is gone. Goes on over interruptions of the API server."""
    told: set[str] = set()
    began, warned = time.monotonic(), False
    while True:
        try:
            seen = await look(api, namespace, name)
        except UsageError as error:
            say(f"it has been deleted: {error}")
            return 1
        except UnreachableError as error:
            told = _tell(told, {str(error)}, say)
            await asyncio.sleep(LOOK_SECONDS)
            continue
        told = _tell(told, news(seen), say)
        if seen.ended:
            return 0 if has_succeeded(seen) else 1
        unnoticed = seen.found.operator and not seen.status.get("conditions")
        if unnoticed and not warned and time.monotonic() - began > NOTICED_SECONDS:
            warned = True
            say("nobody has noticed the job yet: is the operator running, and does it watch this namespace?")
        await asyncio.sleep(LOOK_SECONDS)


def _tell(told: set[str], now: set[str] | list[str], say: Callable[[str], None]) -> set[str]:
    for line in now:
        if line not in told:
            say(line)
    return set(now)


def news(seen: Seen) -> list[str]:
    """What is so now; what was so before has been said."""
    found = []
    for one in seen.status.get("conditions") or []:
        if one.get("status") == "True":
            found.append(f"{one['type']}: {one.get('message', '')}")
    if line := seen.found.annotations.get(names.STATUS_ANNOTATION):
        found.append(line)
    if not seen.found.operator:
        found.append(
            seen.state if seen.ended or seen.aimaster is None else f"AIMaster: {why_not_running(seen.aimaster)}"
        )
    return found


def has_succeeded(seen: Seen) -> bool:
    if seen.found.operator:
        return conditions.is_true(seen.status, conditions.SUCCEEDED)
    if seen.summary is not None:
        return seen.summary.get("status") == "succeeded"
    return ((seen.aimaster or {}).get("status") or {}).get("phase") == "Succeeded"
