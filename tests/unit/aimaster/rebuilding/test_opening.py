"""An AIMaster whose store cannot be written yet: it waits, says so to who asks for the status, and refuses everything else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest

from deeprec_ext.aimaster.rebuilding import opening
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


def test_a_store_that_cannot_be_opened_is_not_writable_and_a_new_one_is(tmp_path: Path) -> None:
    assert opening.unwritable(tmp_path / "aimaster.db") == ""
    (tmp_path / "folder.db").mkdir()
    assert "unable to open" in opening.unwritable(tmp_path / "folder.db")
