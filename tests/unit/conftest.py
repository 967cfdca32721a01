"""What unit tests share."""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from collections.abc import Callable, Iterator

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


@pytest.fixture(autouse=True)
def _packed_throughout(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """With `DEEPREC_EXT_TEST_PACK=on` every run of a session of these tests is packed, however small it is, and must be."""
    mode = os.environ.get("DEEPREC_EXT_TEST_PACK")
    if not mode:
        yield
        return
    from deeprec_ext.elastic.session import making, packed
    from tests.unit.elastic.cluster import FakeHost

    monkeypatch.setattr(FakeHost, "pack", mode)
    monkeypatch.setattr(making, "OWN_NODES_MIN", 0)
    monkeypatch.setattr(packed, "OWN_MAX", 1000)
    failed: list[str] = []

    def noting(original: Callable[..., None]) -> Callable[..., None]:
        def log(text: str, *arguments: object) -> None:
            if "no session of its own" in text:
                failed.append(f"{text % arguments} {traceback.format_exc()}")
            original(text, *arguments)

        return log

    for name in ("warning", "exception"):
        monkeypatch.setattr(packed.log, name, noting(getattr(packed.log, name)))
    yield
    assert not failed or "DEEPREC_EXT_TEST_PACK" not in os.environ, failed
