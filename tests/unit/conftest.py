"""What unit tests share."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _a_loop_for_python_3_9() -> Iterator[None]:
    """There, an asyncio.Event belongs to the loop of its thread, and asyncio.run leaves the thread without one."""
    if sys.version_info >= (3, 10):
        yield
        return
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    loop.close()
