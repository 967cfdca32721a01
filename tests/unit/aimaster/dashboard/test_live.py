"""Server-Sent Events: one message for all, nothing queued, nobody waited for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from deeprec_ext.aimaster.dashboard import live
from deeprec_ext.aimaster.dashboard.live import Live
from tests.unit.aimaster.dashboard.asgi import scope


class Pictures:
    """Counts how often a picture was made; the next one is made when the test says so."""

    def __init__(self) -> None:
        self.made = 0
        self.fails = False
        self._go = asyncio.Event()

    def make(self) -> dict[str, Any]:
        self.made += 1
        if self.fails:
            raise RuntimeError("no picture today")
        return {"number": self.made}

    async def change(self, seconds: float) -> None:
        await self._go.wait()
        self._go.clear()

    def next(self) -> None:
        self._go.set()


class Client:
    """One page. While `reads` is not set it takes nothing."""

    def __init__(self, app: Live) -> None:
        self.sent: list[bytes] = []
        self.status = 0
        self.reads = asyncio.Event()
        self.reads.set()
        self._leave = asyncio.Event()
        self.task = asyncio.ensure_future(app(scope("/api/live", {}), self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        await self._leave.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        await self.reads.wait()
        self.sent.append(message["body"])

    async def close(self) -> None:
        self._leave.set()
        await self.task

    @property
    def numbers(self) -> list[int]:
        return [json.loads(body[6:])["number"] for body in self.sent if body.startswith(b"data: ")]


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("not in time")


def play(scenario: Callable[[Live, Pictures], Awaitable[None]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "SOONEST_SECONDS", 0.0)

    async def main() -> None:
        pictures = Pictures()
        await scenario(Live(pictures.make, pictures.change), pictures)

    asyncio.run(main())


def test_everybody_gets_the_same_message_and_it_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(app: Live, pictures: Pictures) -> None:
        clients = [Client(app) for _ in range(5)]
        await until(lambda: all(client.numbers == [1] for client in clients))
        pictures.next()
        await until(lambda: all(client.numbers == [1, 2] for client in clients))
        assert pictures.made == 2
        assert clients[0].sent[0] == live.RETRY and clients[0].sent[-1].endswith(b"\n\n")
        for client in clients:
            await client.close()
        assert app.clients == 0

    play(scenario, monkeypatch)


def test_while_nobody_looks_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(app: Live, pictures: Pictures) -> None:
        client = Client(app)
        await until(lambda: client.numbers == [1])
        await client.close()
        await until(lambda: app._ticker is not None and app._ticker.done())
        pictures.next()
        assert pictures.made == 1
        late = Client(app)
        await until(lambda: late.numbers == [2])
        await late.close()

    play(scenario, monkeypatch)


def test_a_client_that_reads_nothing_is_dropped_and_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "SLOW_SECONDS", 0.02)

    async def scenario(app: Live, pictures: Pictures) -> None:
        slow, quick = Client(app), Client(app)
        await until(lambda: slow.numbers == quick.numbers == [1])
        slow.reads.clear()
        pictures.next()
        await until(lambda: quick.numbers == [1, 2])
        with pytest.raises(asyncio.TimeoutError):
            await slow.task
        assert app.clients == 1
        await quick.close()

    play(scenario, monkeypatch)


def test_a_slow_client_gets_the_newest_and_not_what_it_has_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(app: Live, pictures: Pictures) -> None:
        slow, quick = Client(app), Client(app)
        await until(lambda: slow.numbers == quick.numbers == [1])
        slow.reads.clear()
        for number in (2, 3, 4):
            pictures.next()
            await until(lambda number=number: quick.numbers[-1] == number)
        slow.reads.set()
        await until(lambda: slow.numbers[-1] == 4)
        assert slow.numbers == [1, 2, 4], "2 was on its way"
        await slow.close()
        await quick.close()

    play(scenario, monkeypatch)


def test_too_many_pages_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "CLIENTS_MAX", 2)

    async def scenario(app: Live, pictures: Pictures) -> None:
        clients = [Client(app) for _ in range(3)]
        await clients[2].task
        assert clients[2].status == 503 and app.clients == 2
        for client in clients[:2]:
            await client.close()

    play(scenario, monkeypatch)


def test_a_picture_that_cannot_be_made_is_logged_and_the_next_one_is_sent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(app: Live, pictures: Pictures) -> None:
        pictures.fails = True
        client = Client(app)
        await until(lambda: "no picture today" in caplog.text)
        pictures.fails = False
        pictures.next()
        await until(lambda: client.numbers == [2])
        await client.close()

    play(scenario, monkeypatch)


def test_a_huge_job_is_shown_less_often() -> None:
    assert live.rest_seconds(0.0, 100) == live.SOONEST_SECONDS
    assert live.rest_seconds(0.5, 100) == 10.0, "making messages takes a twentieth of the time"
    assert live.rest_seconds(0.0, 640_000) == 10.0
