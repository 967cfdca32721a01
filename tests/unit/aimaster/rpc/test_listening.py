"""Where the AIMaster listens, and whom it asks for pods, while the disk is no help."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import grpc.aio
import pytest

from deeprec_ext.aimaster.pods import backend as backends
from deeprec_ext.aimaster.pods.backend import LauncherBackend
from deeprec_ext.aimaster.rpc import listening
from deeprec_ext.errors import UnreachableError, UsageError


def test_a_socket_that_cannot_be_made_now_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its directory is read-only, full, or (here, where root may do everything) not there."""
    monkeypatch.setattr(listening, "AGAIN_SECONDS", 0.0)

    async def scenario() -> None:
        server, place = grpc.aio.server(), tmp_path / "later"
        assert listening.try_listen(server, f"unix:{place}/a.sock", None) is None
        waiting = asyncio.ensure_future(listening.listen(server, f"unix:{place}/a.sock", None))
        await asyncio.sleep(0)
        assert not waiting.done()
        place.mkdir()
        assert await asyncio.wait_for(waiting, 20)
        assert (place / "a.sock").is_socket()
        await server.stop(None)

    asyncio.run(scenario())


def test_a_port_that_is_taken_is_bad_usage() -> None:
    async def scenario() -> None:
        one, other = (grpc.aio.server(options=[("grpc.so_reuseport", 0)]) for _ in range(2))
        port = await listening.listen(one, "127.0.0.1:0", None)
        await one.start()
        with pytest.raises(UsageError, match="in use"):
            await listening.listen(other, f"127.0.0.1:{port}", None)
        await one.stop(None)
        await other.stop(None)

    asyncio.run(scenario())


def test_a_launcher_without_room_for_a_pod_at_present_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its disk has none for the certificate; for how long it is asked is bounded."""
    asked: list[str] = []

    async def create(_: object) -> str:
        asked.append("create")
        if len(asked) < 3:
            code = grpc.StatusCode.RESOURCE_EXHAUSTED
            raise grpc.aio.AioRpcError(
                code, grpc.aio.Metadata(), grpc.aio.Metadata(), "ps-3 cannot be started: no space"
            )
        return "made"

    async def scenario() -> None:
        launcher = LauncherBackend("127.0.0.1:1", "job", None)
        assert await launcher._call("create ps-3", create) == "made"
        asked.clear()
        monkeypatch.setattr(backends, "TRY_SECONDS", -1.0)
        with pytest.raises(UnreachableError, match="no space"):
            await launcher._call("create ps-3", create)
        await launcher.close()

    asyncio.run(scenario())
