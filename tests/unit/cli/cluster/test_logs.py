"""Logs of a TFJob: each line once, whatever happens to connections and pods."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from deeprec_ext.cli.cluster import logs
from deeprec_ext.cli.main import main
from tests.unit.cli.cluster.server import Server, aimaster, pod, running, tfjob
from tests.unit.cli.usage import check_refused
from tfjob.api import logs as lines
from tfjob.api.client import Api
from tfjob.model.kinds import PODS, TFJOBS

N = ["-n", "team"]


def stamped(*texts: str, second: int = 0) -> list[tuple[str, str]]:
    """Nanoseconds, whose last zeros are not written."""
    return [
        (f"2026-01-01T00:00:{second:02}.{number + 1:03}Z".replace("0Z", "Z"), text) for number, text in enumerate(texts)
    ]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(lines, "PAUSE_SECONDS", 0.01)


@pytest.fixture
def job(server: Server) -> Server:
    server.api.put(TFJOBS, tfjob())
    server.api.put(PODS, aimaster())
    for name in ("ctr-worker-0", "ctr-ps-0"):
        server.api.put(PODS, pod(name))
    server.logs = {"ctr-aimaster": stamped("listens"), "ctr-ps-0": stamped("one", "two", "three")}
    return server


def test_the_last_lines_of_every_pod_in_the_order_of_roles(job: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", *N, "ctr", "--lines", "2"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "==> aimaster <==\nlistens\n==> ps-0 <==\ntwo\nthree\n==> worker-0 <==\n"
    assert "ctr-worker-0 has not started" in captured.err
    assert {one["container"] for one in job.log_queries} == {"aimaster", "tensorflow"}


def test_one_role_alone_has_no_heading(job: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", *N, "ctr", "ps-0", "--tail", "1"]) == 0
    assert capsys.readouterr().out == "three\n"
    check_refused(["logs", *N, "ctr", "ps-7"], "there are aimaster, ps-0, worker-0", capsys)
    assert main(["logs", *N, "ctr", "ps", "--tail", "1"]) == 0, "the only one"
    assert capsys.readouterr().out == "three\n"


def test_the_right_that_is_missing_is_named(job: Server, capsys: pytest.CaptureFixture[str]) -> None:
    job.api.forbidden = {("get", "pods/log")}
    assert main(["logs", *N, "ctr"]) == 1
    assert 'cannot get resource "pods/log"' in capsys.readouterr().err
    assert main(["logs", *N, "ctr", "--follow"]) == 1
    assert 'cannot get resource "pods/log"' in capsys.readouterr().err


def test_following_repeats_and_loses_nothing_when_connections_are_cut(
    job: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [f"line {number}" for number in range(40)]
    job.logs["ctr-ps-0"] = stamped(*texts)
    job.api.change(PODS, "ctr-ps-0", pod("ctr-ps-0", "Succeeded"))
    job.cut_logs = 2
    assert main(["logs", *N, "ctr", "ps-0", "--follow", "--lines", "100"]) == 0
    assert capsys.readouterr().out.splitlines() == texts
    assert job.cut_logs == 0


def test_following_goes_on_until_the_job_ends_and_takes_up_new_pods(
    job: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    list_pods = logs._pods

    async def pods(*arguments: Any) -> Any:
        looks.append(1)
        if len(looks) == 3:
            job.api.put(PODS, pod("ctr-ps-1", "Succeeded"))
            job.logs["ctr-ps-1"] = stamped("late", second=9)
        if len(looks) == 6:
            for name in ("ctr-aimaster", "ctr-ps-0", "ctr-worker-0"):
                job.logs.setdefault(name, [])
                job.api.change(PODS, name, {"status": {"phase": "Succeeded"}})
            job.api.change(TFJOBS, "ctr", tfjob(condition="Succeeded"))
        return await list_pods(*arguments)

    monkeypatch.setattr(logs, "_pods", pods)
    assert main(["logs", *N, "ctr", "-f"]) == 0
    out = sorted(capsys.readouterr().out.splitlines())
    assert out == sorted(["aimaster: listens", "ps-0: one", "ps-0: two", "ps-0: three", "ps-1: late"])


def test_many_pods_are_followed_at_once_and_too_many_are_refused(
    job: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than the connections that a client usually has."""
    for name in ("ctr-aimaster", "ctr-ps-0", "ctr-worker-0"):
        job.api.vanish(PODS, name)
    names = [f"ctr-worker-{number}" for number in range(40)]
    for name in names:
        job.api.put(PODS, pod(name, "Succeeded"))
        job.logs[name] = stamped("done")
    job.api.change(TFJOBS, "ctr", tfjob(condition="Succeeded"))
    job.held_logs = len(names)
    assert main(["logs", *N, "ctr", "--follow"]) == 0
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(f"worker-{number}: done" for number in range(40))
    monkeypatch.setattr(logs, "FOLLOWED_MAX", 39)
    check_refused(["logs", *N, "ctr", "--follow"], "name one, for example chief-0", capsys)


def test_a_line_without_an_end_comes_in_pieces(tmp_path: Path) -> None:
    async def pieces() -> list[bytes]:
        async def chunks() -> Any:
            for _ in range(50):
                yield b"x" * 10_000
            yield b"\ny\n\nz"

        return [line async for line in lines._pieces(chunks())]

    found = asyncio.run(pieces())
    assert max(map(len, found)) == lines.LINE_BYTES_MAX
    assert b"".join(found) == b"x" * 500_000 + b"yz" and found[-3:] == [b"y", b"", b"z"]


@pytest.mark.parametrize(("stamp", "other", "later"), [
    ("2026-01-01T00:00:00.12Z", "2026-01-01T00:00:00.123Z", False),
    ("2026-01-01T00:00:00.2Z", "2026-01-01T00:00:00.123456789Z", True),
    ("2026-01-01T00:00:01Z", "2026-01-01T00:00:00.999Z", True), ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", False),
])  # fmt: skip
def test_times_are_compared_although_their_zeros_are_not_written(stamp: str, other: str, later: bool) -> None:
    assert lines.after(stamp, other) == later


def test_a_pod_that_has_gone_ends_its_log(tmp_path: Path) -> None:
    with running(tmp_path) as (server, kubeconfig):
        server.api.put(PODS, pod("ctr-ps-0"))
        server.logs["ctr-ps-0"] = stamped("one")

        async def follow() -> list[bytes]:
            async with Api.from_environment(kubeconfig=str(kubeconfig)) as api:
                found = []
                async for line in lines.follow(api, "team", "ctr-ps-0", "tensorflow", lines=5):
                    found.append(line)
                    server.api.vanish(PODS, "ctr-ps-0")
                return found

        assert asyncio.run(asyncio.wait_for(follow(), 20)) == [b"one"]
