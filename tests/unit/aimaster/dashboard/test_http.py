"""The AIMaster's web server, over real sockets: what it answers, what it withstands, and that it never ends the AIMaster."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from deeprec_ext import webserver
from deeprec_ext.aimaster.core import extras
from deeprec_ext.aimaster.dashboard import http
from deeprec_ext.aimaster.dashboard.http import HttpServer
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.main import main, parse
from deeprec_ext.aimaster.reporting import exporting
from deeprec_ext.errors import UsageError
from deeprec_ext.options import specification
from tests.unit.aimaster.collected import HandClock, make_job, make_scalings

SECONDS = 10.0


@contextlib.asynccontextmanager
async def serving(workdir: Path, address: str = "127.0.0.1:0") -> AsyncIterator[tuple[Job, HttpServer]]:
    job = make_job(workdir, HandClock())
    server = HttpServer(job, make_scalings(job), address, None)
    task = asyncio.get_running_loop().create_task(server.run())
    try:
        await until(lambda: bool(job.dashboard) or bool(warnings(job)))
        yield job, server
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait([task])
        job.close()


def play(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60))


async def until(condition: Callable[[], bool]) -> None:
    deadline = asyncio.get_running_loop().time() + SECONDS
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "not in time"
        await asyncio.sleep(0.01)


def warnings(job: Job) -> list[str]:
    return [json.loads(row[5])["text"] for row in job.store.events(0) if row[2] == "warning"]


def port(job: Job) -> int:
    return int(job.dashboard.rstrip("/").rpartition(":")[2])


async def ask(job: Job, path: str, method: str = "GET", host: str = "localhost") -> tuple[int, dict[str, str], bytes]:
    """(status, headers, body), on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port(job))
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    answer = await asyncio.wait_for(reader.read(), SECONDS)
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return int(first.split()[1]), headers, body


def test_metrics_health_and_dashboard_are_served(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as (job, _):
            assert job.dashboard.startswith("http://127.0.0.1:") and job.dashboard.endswith("/")
            status, headers, body = await ask(job, "/metrics")
            assert status == 200 and headers["content-type"].startswith("text/plain; version=0.0.4")
            assert b"deeprec_parameter_servers 2.0\n" in body and int(headers["content-length"]) == len(body)
            assert (await ask(job, "/healthz"))[::2] == (200, b"ok\n")
            status, headers, body = await ask(job, "/")
            assert status == 200 and headers["content-type"].startswith("text/html")
            job.stale.set()
            assert (await ask(job, "/healthz"))[0] == 503
        assert job.dashboard == ""

    play(test)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("path", ["/metrics", "/healthz"])
def test_nothing_can_be_written(tmp_path: Path, path: str, method: str) -> None:
    async def test() -> None:
        async with serving(tmp_path) as (job, _):
            assert (await ask(job, path, method))[0] in (404, 405)

    play(test)


def test_a_page_of_another_name_cannot_read_it(tmp_path: Path) -> None:
    """DNS rebinding: a browser is led to the loopback address under the name of a web site."""

    async def test() -> None:
        async with serving(tmp_path) as (job, _):
            assert (await ask(job, "/metrics", host="evil.example"))[0] == 403
            assert (await ask(job, "/metrics", host=f"127.0.0.1:{port(job)}"))[0] == 200

    play(test)


def test_many_who_ask_at_once_get_one_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    original = http.exposition
    monkeypatch.setattr(http, "exposition", lambda facts: made.append(1) or original(facts))

    async def test() -> None:
        async with serving(tmp_path) as (job, _):
            answers = await asyncio.gather(*(ask(job, "/metrics") for _ in range(20)))
            assert {status for status, _, _ in answers} == {200} and len(made) <= 2

    play(test)


def test_a_busy_port_is_a_warning_and_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "RETRY_SECONDS", 0.05)

    async def test() -> None:
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            async with serving(tmp_path, f"127.0.0.1:{other.getsockname()[1]}") as (job, _):
                await asyncio.sleep(0.3)
                assert len(warnings(job)) == 1 and "is not served" in warnings(job)[0] and not job.dashboard
                other.close()
                await until(lambda: bool(job.dashboard))
                assert (await ask(job, "/healthz"))[0] == 200

    play(test)


def test_a_server_that_breaks_is_started_again_at_the_same_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "RETRY_SECONDS", 0.05)
    original, broken = webserver.Server.main_loop, []

    async def breaks(self: webserver.Server) -> None:
        if not broken:
            await asyncio.sleep(0.1)
            broken.append(1)
            raise SystemExit(3)  # what uvicorn does where it cannot start
        await original(self)

    monkeypatch.setattr(webserver.Server, "main_loop", breaks)

    async def test() -> None:
        async with serving(tmp_path) as (job, server):
            first = server._port
            await until(lambda: bool(broken) and bool(warnings(job)) and bool(job.dashboard))  # the first one is over
            assert port(job) == first and (await ask(job, "/healthz"))[0] == 200
            assert len(warnings(job)) == 1

    play(test)


def test_a_page_that_cannot_be_made_is_an_error_of_that_request_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(facts: object) -> bytes:
        raise ValueError("a bug")

    monkeypatch.setattr(http, "exposition", breaks)

    async def test() -> None:
        async with serving(tmp_path) as (job, _):
            assert (await ask(job, "/metrics"))[0] == 500
            assert (await ask(job, "/healthz"))[0] == 200

    play(test)


def test_a_page_that_is_asked_for_at_the_end_of_the_job_leaves_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        asked = asyncio.Event()

        async def slow(*_: object) -> object:
            asked.set()
            await asyncio.sleep(60)

        monkeypatch.setattr(exporting, "collect", slow)
        async with serving(tmp_path) as (job, _):
            waiting = asyncio.ensure_future(ask(job, "/metrics"))
            await asked.wait()
        await asyncio.wait([waiting], timeout=SECONDS)
        assert waiting.done()
        waiting.exception()

    play(test)
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")], caplog.text


def arguments(*more: str) -> list[str]:
    return ["--listen", "127.0.0.1:0", "--workdir", "x", "--launcher", "127.0.0.1:1", *more]


@pytest.mark.parametrize("address", ["8080", "localhost", "localhost:http", "127.0.0.1:70000", ":80", "127.0.0.1:-1"])
def test_an_address_that_is_none_is_bad_usage(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments("--http", address)) == 2
    assert "HOST:PORT" in capsys.readouterr().err


def test_without_the_libraries_the_flag_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extras.EXTRAS, "dashboard", ("starlette", "no_such_library"))
    with pytest.raises(UsageError, match=r"no_such_library not installed; pip install 'deeprec-ext\[dashboard\]'"):
        parse(arguments("--http", "127.0.0.1:0"))
    monkeypatch.setenv("DEEPREC_EXT_SPECIFICATION", specification((), name="j"))
    assert parse(arguments())[0].http is None


def test_addresses_of_both_kinds() -> None:
    assert extras.parse_address("[::1]:80") == ("::1", 80) and extras.parse_address("0.0.0.0:0") == ("0.0.0.0", 0)


def test_nothing_of_the_web_is_imported_unless_it_is_asked_for() -> None:
    """An AIMaster starts in under a second, and without the extra."""
    program = (
        "import sys, deeprec_ext.aimaster.main, deeprec_ext.aimaster.rpc.server, deeprec_ext.cli.main, deeprec_ext.launch.job;"
        f"print([name for name in {extras.EXTRAS['dashboard']} if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "[]"
