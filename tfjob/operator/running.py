"""Work that ends together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable


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
