"""What unit tests share."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator

import pytest

os.environ.setdefault("TF_GRPC_WORKER_CACHE_QUEUES", "4")
"""TensorFlow's servers cannot be stopped (`Server.__del__`: "we leak"), so those of each test stay until the process ends. 64
of the 80 threads of each wait at completion queues, one each, which is the default of this number: 36 session tests left 8 400
threads, and leave 2 500."""


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
