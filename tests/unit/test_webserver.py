"""What the web servers of AIMaster and operator withstand, over real sockets, plain and with TLS."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from deeprec_ext import webserver
from tests.unit.aimaster.kubernetes.fake_api import FakeApi
from tfjob.operator.certificates import serving_certificates as certificates

SECONDS = 10.0
BODY_MAX = 1000
LARGE = 64 << 20


@dataclass
class World:
    """A server, and how its clients speak to it."""

    port: int = 0
    server_tls: ssl.SSLContext | None = None
    client_tls: ssl.SSLContext | None = None
    hold: asyncio.Event = field(default_factory=asyncio.Event)
    """Until then `/slow` is not answered."""
    held: int = 0
    """Requests that wait for it."""

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self.client_tls)

    async def raw(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Without the handshake, if there is one."""
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, path: str = "/", head: str = "GET", body: bytes = b"") -> bytes:
        """The whole answer, on a connection of its own."""
        reader, writer = await self.connect()
        writer.write(
            f"{head} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        )
        writer.write(body)
        answer = await asyncio.wait_for(reader.read(), SECONDS)
        writer.close()
        return answer

    async def answers(self) -> bool:
        with contextlib.suppress(OSError):
            return (await self.ask()).startswith(b"HTTP/1.1 200")
        return False

    async def lives(self) -> None:
        """Waits until it answers: on a busy machine a handshake may take longer than the little patience of a test."""
        while not await self.answers():
            await asyncio.sleep(0.02)


def application(world: World) -> Starlette:
    async def show(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def slow(_: Request) -> Response:
        world.held += 1
        await world.hold.wait()
        return PlainTextResponse("ok\n")

    async def large(_: Request) -> Response:
        chunk = bytes(1 << 16)

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(LARGE // len(chunk)):
                yield chunk

        return StreamingResponse(chunks(), headers={"content-length": str(LARGE)})

    async def take(request: Request) -> Response:
        body = await webserver.body_of(request, BODY_MAX)
        return PlainTextResponse("too long\n", 413) if body is None else PlainTextResponse(f"{len(body)} bytes\n")

    return Starlette(
        routes=[Route("/", show), Route("/slow", slow), Route("/large", large), Route("/", take, methods=["POST"])]
    )


@pytest.fixture(params=["plain", "tls"])
def serve(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., None]:
    """Plays a scenario with a server, after which nothing of it is left."""

    def play(scenario: Callable[[World], Awaitable[None]], **options: Any) -> None:
        async def main() -> None:
            world = World()
            if request.param == "tls":
                await _with_tls(world, tmp_path)
            with contextlib.closing(webserver.bind("127.0.0.1", 0)) as listener:
                world.port = listener.getsockname()[1]
                serving = asyncio.ensure_future(
                    webserver.serve(application(world), listener, tls=world.server_tls, **options)
                )
                try:
                    await asyncio.wait_for(_listening(listener), SECONDS)
                    await asyncio.wait_for(scenario(world), 40)
                    assert not serving.done()
                finally:
                    serving.cancel()
                    await asyncio.gather(serving, return_exceptions=True)
            await asyncio.sleep(0.05)
            left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            assert left == [], left

        asyncio.run(main())

    return play


async def _listening(listener: socket.socket) -> None:
    while not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        await asyncio.sleep(0.01)


async def _with_tls(world: World, directory: Path) -> None:
    now = datetime.datetime.now(datetime.timezone.utc)
    files = await certificates.ensure(FakeApi(), "ns", ["127.0.0.1"], now)  # type: ignore[arg-type]
    for name in (certificates.CERTIFICATE, certificates.KEY):
        (directory / name).write_bytes(files[name])
    world.server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    world.server_tls.load_cert_chain(directory / certificates.CERTIFICATE, directory / certificates.KEY)
    world.client_tls = ssl.create_default_context(cadata=files[certificates.AUTHORITIES].decode())


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webserver, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(webserver, "PATIENCE_SECONDS", 0.2)


async def cut(reader: asyncio.StreamReader) -> bool:
    try:
        return await asyncio.wait_for(reader.read(), SECONDS) == b""
    except ConnectionError:
        return True


@pytest.mark.usefixtures("_impatient")
def test_who_does_not_send_is_cut(serve: Callable[..., None]) -> None:
    async def scenario(world: World) -> None:
        silent, mute, half, begun = [await one() for one in (world.raw, world.connect, world.connect, world.connect)]
        half[1].write(b"GET / HTTP/1.1\r\nHost: loc")
        begun[1].write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf of it")
        assert [await cut(reader) for reader, _ in (silent, mute, half, begun)] == [True] * 4
        await world.lives()

    serve(scenario)


@pytest.mark.usefixtures("_impatient")
def test_who_does_not_read_is_cut(serve: Callable[..., None]) -> None:
    async def scenario(world: World) -> None:
        reader, writer = await world.connect()
        writer.write(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.sleep(1.0)  # the reader has taken what it buffers, and takes no more
        received = 0
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while data := await asyncio.wait_for(reader.read(1 << 20), SECONDS):
                received += len(data)
        assert 0 < received < LARGE
        await world.lives()

    serve(scenario)


def test_who_waits_for_an_answer_or_goes_on_asking_is_not_cut(
    serve: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an API server does, whose calls share few connections: it may be that it is looked at between two of them only."""
    monkeypatch.setattr(webserver, "LOOK_SECONDS", 0.05)

    async def scenario(world: World) -> None:
        waiting = asyncio.ensure_future(world.ask("/slow"))
        reader, writer = await world.connect()
        while world.held < 1:
            await asyncio.sleep(0.02)
        monkeypatch.setattr(webserver, "PATIENCE_SECONDS", 0.2)  # of handshakes as well, which are over
        for _ in range(40):  # in all, ten times as long as anybody may stand still
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"200 OK" in await asyncio.wait_for(reader.readuntil(b"ok\n"), SECONDS)
            await asyncio.sleep(0.05)
        writer.close()
        assert not waiting.done()
        world.hold.set()
        assert (await waiting).startswith(b"HTTP/1.1 200")

    serve(scenario)


def test_more_connections_than_allowed_are_cut_and_the_server_lives(serve: Callable[..., None]) -> None:
    """Those that never begin their handshake count as well: each is a file of the process."""

    async def scenario(world: World) -> None:
        most = 4 + webserver.CONNECTIONS_MORE
        held = [await world.raw() for _ in range(most)]
        assert await cut((await world.raw())[0])
        assert not await world.answers()
        for _, writer in held:
            writer.close()
        await world.lives()

    serve(scenario, requests_max=4)


def test_as_many_as_allowed_may_come_at_once(serve: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webserver, "PATIENCE_SECONDS", 60.0)  # all these handshakes are work of one busy process

    async def scenario(world: World) -> None:
        most = 4 + webserver.CONNECTIONS_MORE
        held = await asyncio.gather(*(world.connect() for _ in range(most)))
        with pytest.raises(asyncio.TimeoutError):  # none is cut
            await asyncio.wait_for(asyncio.wait([asyncio.ensure_future(one.read()) for one, _ in held],
                                                return_when=asyncio.FIRST_COMPLETED), 0.3)  # fmt: skip
        for _, writer in held:
            writer.close()
        await asyncio.sleep(0.1)

    serve(scenario, requests_max=4)


def test_more_requests_than_allowed_are_answered_with_503(serve: Callable[..., None]) -> None:
    async def scenario(world: World) -> None:
        waiting = [asyncio.ensure_future(world.ask("/slow")) for _ in range(3)]
        while world.held < 3:
            await asyncio.sleep(0.02)
        assert (await world.ask()).startswith(b"HTTP/1.1 503")
        world.hold.set()
        assert [(await one).startswith(b"HTTP/1.1 200") for one in waiting] == [True] * 3
        await world.lives()

    serve(scenario, requests_max=4)


def test_headers_and_bodies_have_a_largest_size(serve: Callable[..., None]) -> None:
    async def scenario(world: World) -> None:
        reader, writer = await world.connect()
        writer.write(b"GET / HTTP/1.1\r\n" + b"X: " + b"y" * 100_000)
        assert (await asyncio.wait_for(reader.read(), SECONDS)).startswith(b"HTTP/1.1 4")
        assert b"1000 bytes\n" in await world.ask(head="POST", body=bytes(BODY_MAX))
        assert (await world.ask(head="POST", body=bytes(BODY_MAX + 1))).startswith(b"HTTP/1.1 413")

    serve(scenario)


def test_one_that_speaks_no_tls_is_no_error(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    async def main() -> None:
        world = World()
        await _with_tls(world, tmp_path)
        with contextlib.closing(webserver.bind("127.0.0.1", 0)) as listener:
            world.port = listener.getsockname()[1]
            serving = asyncio.ensure_future(webserver.serve(application(world), listener, tls=world.server_tls))
            await _listening(listener)
            reader, writer = await world.raw()
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await cut(reader)
            await world.lives()
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    with caplog.at_level(logging.INFO):
        asyncio.run(asyncio.wait_for(main(), 20))
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING], caplog.text


def test_where_no_file_is_left_it_waits_and_goes_on(
    serve: Callable[..., None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(webserver, "AGAIN_SECONDS", 0.05)
    accept, failures = socket.socket.accept, [OSError(24, "Too many open files")] * 3

    def fails(one: socket.socket) -> Any:
        if failures:
            raise failures.pop()
        return accept(one)

    monkeypatch.setattr(socket.socket, "accept", fails)

    async def scenario(world: World) -> None:
        await world.lives()

    serve(scenario)
    assert failures == []
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert said == ["a web server cannot accept connections: [Errno 24] Too many open files"] * 3


def test_who_comes_before_it_serves_waits_and_is_not_refused() -> None:
    """The history told where it is served before it was: a client that read it at once was refused."""
    with contextlib.closing(webserver.bind("127.0.0.1", 0)) as listener:
        with contextlib.closing(socket.create_connection(listener.getsockname(), SECONDS)) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")

            async def served() -> bytes:
                app = Starlette(routes=[Route("/", lambda request: PlainTextResponse("here"))])
                serving = asyncio.create_task(webserver.serve(app, listener))
                try:
                    return await asyncio.wait_for(asyncio.to_thread(client.recv, 4096), SECONDS)
                finally:
                    serving.cancel()
                    await asyncio.wait([serving], timeout=SECONDS)

            assert asyncio.run(served()).startswith(b"HTTP/1.1 200")


# ------------------------------------------------------------------------------------------------ addresses of both kinds


@pytest.mark.parametrize("without", [False, True])
def test_everywhere_is_ipv6_and_ipv4_where_there_are_both(monkeypatch: pytest.MonkeyPatch, without: bool) -> None:
    if without:
        monkeypatch.setattr(webserver.socket, "AF_INET6", 255)  # a family that no kernel has
    listener = webserver.bind(webserver.EVERYWHERE, 0)
    with contextlib.closing(listener):
        port = listener.getsockname()[1]
        socket.create_connection(("127.0.0.1", port), 5).close()
        if listener.family == socket.AF_INET:
            return
        socket.create_connection(("::1", port), 5).close()
        with pytest.raises(OSError, match="in use"):
            webserver.bind(webserver.EVERYWHERE, port)
