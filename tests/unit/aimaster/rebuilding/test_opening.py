"""An AIMaster whose store cannot be written yet: it waits, says so to who asks for the status, and refuses everything else."""

from __future__ import annotations

import asyncio
import errno
import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest

from deeprec_ext.aimaster.rebuilding import opening
from deeprec_ext.errors import UsageError
from deeprec_ext.launch.ports import HOST, free_port
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc


def test_who_asks_an_aimaster_that_cannot_begin_hears_what_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec: Any = SimpleNamespace(name="demo", workdir=tmp_path)
    reasons = ["database or disk is full"]
    monkeypatch.setattr(opening, "unwritable", lambda path: reasons[0] if reasons else "")

    async def scenario() -> None:
        address = f"{HOST}:{free_port()}"
        waiting = asyncio.create_task(opening.wait_for(spec, None, address))
        async with grpc.aio.insecure_channel(address) as channel:
            stub = rpc.AdminStub(channel)
            status = await stub.Status(pb.StatusRequest(), wait_for_ready=True, timeout=20)
            [told] = status.notices
            assert "the AIMaster cannot begin" in told.notice.text and reasons[0] in told.notice.text
            assert "goes on by itself" in told.notice.remedy and status.state == "starting"
            with pytest.raises(
                grpc.aio.AioRpcError, match="cannot write its store: database or disk is full; come again"
            ):
                await stub.Scale(pb.ScaleRequest(ps=3), timeout=20)
            assert not waiting.done()
        reasons.clear()
        await asyncio.wait_for(waiting, 20)

    asyncio.run(scenario())


def test_a_disk_that_fails_while_the_store_is_opened_is_waited_for_and_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can be written, and a moment later it cannot be opened (run 48 of `benchmarks.faults`)."""
    spec: Any = SimpleNamespace(name="demo", workdir=tmp_path)
    monkeypatch.setattr(opening, "AGAIN_SECONDS", 0.01)
    failures: list[Exception] = [sqlite3.OperationalError("disk I/O error"), OSError(errno.EROFS, "Read-only")]

    async def begin() -> str:
        if failures:
            raise failures.pop()
        return "begun"

    assert asyncio.run(opening.opened(spec, None, "", begin)) == "begun"
    failures.extend(sqlite3.OperationalError("disk I/O error") for _ in range(opening.OPEN_TRIES + 5))
    with pytest.raises(sqlite3.OperationalError):
        asyncio.run(opening.opened(spec, None, "", begin))
    assert len(failures) == 5

    async def refuses() -> None:
        failures.clear()
        raise UsageError("two processes are called ps-0")

    with pytest.raises(UsageError):
        asyncio.run(opening.opened(spec, None, "", refuses))


def test_a_store_that_cannot_be_opened_is_not_writable_and_a_new_one_is(tmp_path: Path) -> None:
    assert opening.unwritable(tmp_path / "aimaster.db") == ""
    (tmp_path / "folder.db").mkdir()
    assert "unable to open" in opening.unwritable(tmp_path / "folder.db")
