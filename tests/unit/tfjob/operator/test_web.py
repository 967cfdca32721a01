"""What probes and Prometheus read of the operator."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from types import SimpleNamespace

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from deeprec_ext import webserver
from deeprec_ext.errors import UsageError
from tfjob.operator import web
from tfjob.operator.sight import Missing


def controller() -> SimpleNamespace:
    counts = SimpleNamespace(
        reconciled=7, failed=2, seconds=0.5, statuses=3, created={"Pod": 4}, deleted={"Service": 1}
    )
    return SimpleNamespace(counts=counts, jobs={"a": 1, "b": 2}, queue=[1], synced=False, missing=Missing())


def test_metrics_are_what_prometheus_accepts_with_those_that_are_to_be_watched():
    text = web.metrics(controller(), SimpleNamespace(reviewed={"allowed": 5})).decode()
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["deeprec_operator_queue",] == 1 and samples["deeprec_operator_reconcile_failed_total",] == 2
    assert samples["deeprec_operator_created_total", "Pod"] == 4
    assert samples["deeprec_operator_webhook_reviews_total", "allowed"] == 5


async def served(
    port: int, talk: Callable[[Callable[[str], Awaitable[int]]], Awaitable[None]], *arguments: object
) -> None:
    """Serves, and lets `talk` ask for the status of a path."""
    serving = asyncio.create_task(web.serve(arguments[0], port, *arguments[1:]))
    try:
        async with aiohttp.ClientSession() as session:

            async def status(path: str) -> int:
                for _ in range(500):  # until it listens
                    with contextlib.suppress(aiohttp.ClientConnectionError):
                        async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
                            return int(answer.status)
                    await asyncio.sleep(0.02)
                pytest.fail("it does not listen")

            await talk(status)
    finally:
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving


def test_it_is_ready_when_it_leads_or_waits_has_seen_all_and_serves_its_webhook(free_port):
    async def scenario() -> None:
        one, hook = controller(), SimpleNamespace(serving=asyncio.Event(), reviewed={})

        async def talk(status: Callable[[str], Awaitable[int]]) -> None:
            assert (await status("/healthz"), await status("/metrics")) == (200, 200)
            assert await status("/readyz") == 503
            one.synced = True
            assert await status("/readyz") == 503
            hook.serving.set()
            assert await status("/readyz") == 200

        await served(free_port(), talk, one, hook)

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_who_does_not_finish_a_request_is_cut(free_port, monkeypatch):
    monkeypatch.setattr(webserver, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(webserver, "PATIENCE_SECONDS", 0.2)

    async def scenario() -> None:
        port = free_port()

        async def talk(status: Callable[[str], Awaitable[int]]) -> None:
            assert await status("/healthz") == 200
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: loc")
            assert await reader.read() == b""

        await served(port, talk, controller())

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_port_that_is_taken_is_one_line_with_the_flag():
    async def scenario() -> None:
        with socket.create_server(("0.0.0.0", 0)) as taken:
            await web.serve(controller(), taken.getsockname()[1])

    with pytest.raises(UsageError, match=r"--metrics-port \d+: .*give another, or 0 for none"):
        asyncio.run(asyncio.wait_for(scenario(), 60))
