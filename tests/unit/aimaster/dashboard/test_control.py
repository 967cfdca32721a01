"""Scaling from the page: exactly as by Admin.Scale, and only with the job's token, from our own page."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from starlette.types import ASGIApp

from tests.unit.aimaster.dashboard.asgi import HOST, TOKEN, application, ask, scale
from tests.unit.aimaster.world import World, world

Scenario = Callable[[World, ASGIApp], Awaitable[None]]


def play(workdir: Path, scenario: Scenario, token: str = TOKEN) -> None:
    async def main() -> None:
        async with world(workdir) as it:
            await scenario(it, application(it.master.job, it.master.scalings, token))

    asyncio.run(main())


def asked(it: World) -> int:
    return len(it.master.scalings.records())


def test_a_scaling_asked_for_by_the_page_is_an_ordinary_one(tmp_path: Path) -> None:
    async def scenario(it: World, app: ASGIApp) -> None:
        answer = await scale(app, {"ps": 3, "reason": "more"}, origin=f"http://{HOST}")
        assert answer.status == 200 and answer.json == {"scaling_id": 1, "message": "queued", "plan": None}
        ended = await it.ended()
        assert (ended.outcome, ended.to_count) == ("committed", 3)
        assert it.master.scalings.records()[0].asked_reason == "more"
        assert (await scale(app, {"ps": 3})).json["message"].startswith("no-op")
        replaced = await scale(app, {"replace": "worker-0"})
        assert replaced.json["scaling_id"] == 2
        assert (await it.ended(2)).kind == "replace"
        assert it.master.scalings.records()[1].asked_reason == "by hand, from the dashboard"

    play(tmp_path, scenario)


def test_a_preview_says_what_would_be_done_and_does_nothing(tmp_path: Path) -> None:
    async def scenario(it: World, app: ASGIApp) -> None:
        answer = await scale(app, {"ps": 4, "dry_run": True})
        assert answer.status == 200 and "ps-2, ps-3" in answer.json["message"]
        assert len(answer.json["plan"]["moves"]) == 4
        assert asked(it) == 0

    play(tmp_path, scenario)


def test_without_the_token_nothing_is_changed(tmp_path: Path) -> None:
    async def scenario(it: World, app: ASGIApp) -> None:
        for token in (None, "", "wrong", TOKEN[:-1], TOKEN + "x", "ß"):
            answer = await scale(app, {"ps": 3}, token=token)
            assert answer.status == 403 and "read-only" in answer.json["error"], token
        basic = await scale(app, {"ps": 3}, token=None, authorization=f"Basic {TOKEN}")
        assert basic.status == 403
        in_query = await ask(
            app, f"/api/scale?token={TOKEN}", method="POST", body=b'{"ps": 3}', content_type="application/json"
        )
        assert in_query.status == 403
        assert asked(it) == 0
        assert (await ask(app, "/api/access")).json == {"scale": False}
        assert (await ask(app, "/api/access", authorization=f"bearer {TOKEN}")).json == {"scale": True}

    play(tmp_path, scenario)


def test_a_job_without_a_token_cannot_be_scaled_by_any(tmp_path: Path) -> None:
    async def scenario(it: World, app: ASGIApp) -> None:
        assert (await scale(app, {"ps": 3}, token="")).status == 403
        assert (await scale(app, {"ps": 3}, authorization="Bearer ")).status == 403
        assert asked(it) == 0

    play(tmp_path, scenario, token="")


def test_another_page_in_the_same_browser_cannot_scale(tmp_path: Path) -> None:
    async def scenario(it: World, app: ASGIApp) -> None:
        for origin in ("http://evil.example", "http://127.0.0.1:9999", "null", f"http://{HOST}.evil.example", ""):
            answer = await scale(app, {"ps": 3}, origin=origin)
            assert answer.status == 403, origin
        assert (await scale(app, {"ps": 3}, sec_fetch_site="cross-site")).status == 403
        form = await scale(app, {"ps": 3}, content_type="text/plain")
        assert form.status == 415, "what a form of another page could send"
        assert asked(it) == 0

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    "wanted, status, what",
    [
        ({}, 409, "exactly one"),
        ({"ps": 2, "rebalance": True}, 409, "exactly one"),
        ({"ps": 0}, 409, "at least one"),
        ({"ps": 1000}, 409, "slots"),
        ({"replace": "chief-0"}, 409, "cannot be replaced"),
        ({"replace": "<b>"}, 409, "is no role"),
        ({"ps": "many"}, 400, "no request"),
        ({"ps": 1.5}, 400, "no request"),
        ({"ps": 10**12}, 400, "no request"),
        ({"colour": 1}, 400, "no request"),
        ([], 400, "no request"),
        (None, 400, "no request"),
        ("ps", 400, "no request"),
        ({"ps": 3, "reason": "x" * 5000}, 413, "longer"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_reason(tmp_path: Path, wanted: object, status: int, what: str) -> None:
    async def scenario(it: World, app: ASGIApp) -> None:
        answer = await scale(app, wanted)
        assert answer.status == status and what in answer.json["error"]
        assert asked(it) == 0

    play(tmp_path, scenario)


def test_a_body_that_is_no_json_is_refused(tmp_path: Path) -> None:
    async def scenario(it: World, app: ASGIApp) -> None:
        for body in (b"", b"{", b"\xff", b"[" * 4000):
            answer = await ask(app, "/api/scale", method="POST", body=body, content_type="application/json",
                               authorization=f"Bearer {TOKEN}")  # fmt: skip
            assert answer.status == 400, body

    play(tmp_path, scenario)


def test_a_full_queue_and_an_ended_job_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(it: World, app: ASGIApp) -> None:
        monkeypatch.setattr("deeprec_ext.aimaster.scaling.queue.QUEUED_MAX", 0)
        full = await scale(app, {"rebalance": True})
        assert full.status == 429 and "queued already" in full.json["error"]
        it.master.job.end("finished")
        over = await scale(app, {"ps": 3})
        assert over.status == 409 and "is finished" in over.json["error"]

    play(tmp_path, scenario)
