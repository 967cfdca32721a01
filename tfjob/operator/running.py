"""Work that ends together, and work that is taken out of a queue."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from deeprec_ext.errors import DeepRecError
from tfjob.api.client import ConflictError
from tfjob.operator.queue import WorkQueue
from tfjob.operator.sight import Key


async def together(work: Iterable[Awaitable[None]]) -> None:
    """Until one of them ends, or we are cancelled; then none is left. Raises what it has raised."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def worked_off(
    queue: WorkQueue[Key], look: Callable[[Key], Awaitable[Any]], log: logging.Logger, ended: Callable[[bool], None]
) -> None:
    """For ever: a look at each name that comes. What fails is told, and comes again.

    Args:
        ended: called after each look, with whether it has failed.
    """
    while True:
        key = await queue.get()
        failed = True
        try:
            await look(key)
            failed = False
        except (DeepRecError, asyncio.TimeoutError) as error:
            level = logging.DEBUG if isinstance(error, ConflictError) else logging.WARNING
            log.log(level, "%s/%s: %s; trying again", *key, error)
        except Exception:
            log.exception("%s/%s could not be looked at", *key)
        finally:
            ended(failed)
            queue.done(key, failed=failed)
