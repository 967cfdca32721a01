"""What the page reads: right, bounded, and of this job alone."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from starlette.types import ASGIApp

from deeprec_ext.aimaster.core.records import Failure, Scaling
from deeprec_ext.aimaster.dashboard.app import EVENTS_MAX, LINES_MAX, STATIC
from deeprec_ext.aimaster.dashboard.source import KEPT_SECONDS
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.autoscaler.history.estimates import Estimates, Figure, Like
from deeprec_ext.autoscaler.observe.observed import Size
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.aimaster.collected import HandClock, flush, make_job, make_scalings, steps, tell
from tests.unit.aimaster.dashboard.asgi import application, ask

Scenario = Callable[[Job, ASGIApp], Awaitable[None]]


def play(workdir: Path, scenario: Scenario) -> None:
    workdir.mkdir(exist_ok=True)
    job = make_job(workdir, HandClock())
    try:
        asyncio.run(asyncio.wait_for(scenario(job, application(job, make_scalings(job))), 60))
    finally:
        job.close()


# ---------------------------------------------------------------------------------------------------------- the page


def test_the_page_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    async def scenario(job: Job, app: ASGIApp) -> None:
        page = await ask(app, "/")
        assert page.status == 200 and page.headers["content-type"].startswith("text/html")
        linked = re.findall(r'(?:src|href)="([^"#]+)"', page.body.decode())
        assert set(linked) == {"static/icon.svg", "static/style.css", "static/app.js"}
        for name in linked:
            assert (await ask(app, f"/{name}")).status == 200
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert page.headers["x-content-type-options"] == "nosniff"
        assert page.headers["referrer-policy"] == "no-referrer"

    play(tmp_path, scenario)


def test_every_module_that_is_imported_is_there_and_nothing_is_written_as_html() -> None:
    for path in STATIC.glob("*.js"):
        script = path.read_text()
        for name in re.findall(r'from "\./([^"]+)"', script):
            assert (STATIC / name).is_file(), f"{path.name} imports {name}"
        for forbidden in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "Function(",
            "http://",
            "https://",
        ):
            assert forbidden not in script.replace("http://www.w3.org/2000/svg", ""), f"{path.name}: {forbidden}"


def test_a_file_that_has_not_changed_is_not_sent_again(tmp_path: Path) -> None:
    async def scenario(job: Job, app: ASGIApp) -> None:
        first = await ask(app, "/static/app.js")
        again = await ask(app, "/static/app.js", if_none_match=first.headers["etag"])
        assert (again.status, again.body) == (304, b"")

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/", "/nothing", "/api/", "/static/nothing.js"]
)
def test_what_is_not_there_is_one_line(tmp_path: Path, path: str) -> None:
    async def scenario(job: Job, app: ASGIApp) -> None:
        answer = await ask(app, path)
        assert answer.status == 404 and answer.json == {"error": "Not Found"}

    play(tmp_path, scenario)


def test_a_name_that_leads_to_this_machine_by_a_trick_is_refused(tmp_path: Path) -> None:
    async def scenario(job: Job, app: ASGIApp) -> None:
        for host in ("evil.example", "evil.example:8080", "10.0.0.1:8080", "localhost.evil.example", ""):
            answer = await ask(app, "/api/status", host=host)
            assert answer.status == 403 and "demo" not in answer.body.decode(), host
        for host in ("localhost", "LOCALHOST:1", "127.0.0.1:8080", "[::1]:8080", "[::1]", "job.localhost:80"):
            assert (await ask(app, "/api/status", host=host)).status == 200, host
        assert (await ask(app, "/api/status", host="evil.example", server="::ffff:127.0.0.1")).status == 403
        for server in ("10.1.2.3", "::ffff:10.1.2.3", "fd00::5"):
            assert (await ask(app, "/api/status", host="ai.example", server=server)).status == 200, server

    play(tmp_path, scenario)


# ---------------------------------------------------------------------------------------------------------- the job


def test_status_is_the_whole_reply_and_is_made_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = HandClock()
    job = make_job(tmp_path, clock)

    async def scenario() -> None:
        app = application(job, make_scalings(job))
        first = (await ask(app, "/api/status")).json
        assert first["job"] == job.spec.name and {role["name"] for role in first["roles"]} >= {
            "ps-0",
            "ps-1",
            "chief-0",
        }
        monkeypatch.setattr("deeprec_ext.aimaster.dashboard.source.make_status", lambda *_: pb.StatusReply(job="later"))
        assert (await ask(app, "/api/status")).json["job"] == job.spec.name
        clock.now += 2 * KEPT_SECONDS
        assert (await ask(app, "/api/status")).json["job"] == "later"

    asyncio.run(scenario())
    job.close()


def test_series_are_what_gazer_measured(tmp_path: Path) -> None:
    clock = HandClock()
    job = make_job(tmp_path, clock)
    for speed in (5, 10, 15):
        tell(job, "chief-0", **steps(speed))
        flush(job, clock)

    async def scenario() -> None:
        app = application(job, make_scalings(job))
        lines = (await ask(app, "/api/series?subject=chief-0&metric=steps_per_second")).json["lines"]
        assert [(line["subject"], line["metric"], line["means"]) for line in lines] == [
            ("chief-0", "steps_per_second", [5, 10, 15])
        ]
        later = lines[0]["times"][0]
        lines = (await ask(app, f"/api/series?subject=chief-0&subject=job&metric=steps_per_second&since={later}")).json[
            "lines"
        ]
        assert {line["subject"]: line["means"] for line in lines} == {"chief-0": [10, 15], "job": [10, 15]}

    asyncio.run(scenario())
    job.close()


@pytest.mark.parametrize(
    "query, what",
    [
        ("", "name subject and metric"),
        ("subject=job", "name subject and metric"),
        ("metric=step", "name subject and metric"),
        ("subject=nobody-1&metric=step", "nobody-1"),
        ("subject=../ps-0&metric=step", "no subject"),
        ("subject=job&metric=step&since=yesterday", "since=yesterday"),
        ("subject=job&metric=step&since=-1", "since=-1"),
        ("subject=job&metric=step&since=nan", "since=nan"),
        ("subject=job&metric=step&points=1e99", "points=1e99"),
        ("&".join(["subject=job"] * (LINES_MAX + 1)) + "&metric=step", f"at most {LINES_MAX} lines"),
    ],
)
def test_a_question_that_makes_no_sense_is_answered_so(tmp_path: Path, query: str, what: str) -> None:
    async def scenario(job: Job, app: ASGIApp) -> None:
        answer = await ask(app, f"/api/series?{query}")
        assert answer.status == 400 and what in answer.json["error"]

    play(tmp_path, scenario)


def test_events_are_the_newest_or_those_after_one(tmp_path: Path) -> None:
    async def scenario(job: Job, app: ASGIApp) -> None:
        for number in range(600):
            job.event("warning", "ps-0", text=f"number {number}")
        last = job.store.rows("SELECT max(sequence) FROM events")[0][0]
        newest = (await ask(app, "/api/events?limit=3")).json["events"]
        assert [event["text"] for event in newest] == ["number 597", "number 598", "number 599"]
        assert newest[-1]["sequence"] == last and newest[-1]["role"] == "ps-0"
        assert len((await ask(app, "/api/events?after=0&limit=100000")).json["events"]) == EVENTS_MAX
        assert (await ask(app, f"/api/events?after={last}")).json["events"] == []
        assert (await ask(app, "/api/events?limit=many")).status == 400

    play(tmp_path, scenario)


def test_history_has_scalings_and_failures_with_their_times(tmp_path: Path) -> None:
    async def scenario(job: Job, app: ASGIApp) -> None:
        done = Scaling(1, "scale-up", "ps", from_count=2, to_count=3, outcome="committed", started=1e9, seconds=4.0,
                       pause_seconds=(0.05, 0.02, 0.03), bytes_moved=7)  # fmt: skip
        job.store.save_scaling(done)
        job.store.save_scaling(Scaling(2, "rebalance", "ps"))
        job.store.save_failure(Failure(0, "ps-1", "killed by signal 9", 1e9 + 60, 0.04))
        found = (await ask(app, "/api/history")).json
        first, second = found["scalings"]
        assert (first["id"], first["started"], first["seconds"], first["bytes"]) == (1, 1e9, 4, 7)
        assert (first["pause"], first["pause_median"]) == (0.05, 0.03)
        assert (second["outcome"], second["pause"]) == ("", None)
        assert found["failures"][0]["name"] == "ps-1" and found["failures"][0]["recovered"] is None

    play(tmp_path, scenario)


def test_what_has_just_happened_is_never_missing_from_the_history(tmp_path: Path) -> None:
    async def scenario(job: Job, app: ASGIApp) -> None:
        assert (await ask(app, "/api/history")).json["failures"] == []
        job.store.save_failure(Failure(0, "ps-1", "killed by signal 9", 1e9, 0.04))
        job.event("failure", "ps-1", cause="killed by signal 9")
        assert len((await ask(app, "/api/history")).json["failures"]) == 1, "in the same second"

    play(tmp_path, scenario)


def test_decisions_say_what_came_of_them(tmp_path: Path) -> None:
    async def scenario(job: Job, app: ASGIApp) -> None:
        assert (await ask(app, "/api/decisions")).json == {"autoscale": "", "decisions": [], "estimate": []}

    play(tmp_path / "none", scenario)

    async def some(job: Job, app: ASGIApp) -> None:
        for number in range(6):
            job.event("decision", number=number, action="scale", reason=f"because {number}", ps=2, workers=number)
        job.event("decision_refused", number=1, reason="outside of the limits")
        job.event("decision_failed", number=5, reason="OSError: reset")
        for number, decision, outcome in ((1, 2, "committed"), (2, 2, "rolled_back"), (3, 3, "committed"), (4, 4, "")):
            job.store.save_scaling(Scaling(number, "scale-up", "ps", decision=decision, outcome=outcome))
        memory = Figure("ps_memory", "ps", 1e9, 8e8, 1.3e9, "computed from the variables")
        job.declared.foretell(Estimates(Size(2, 1), (memory,), like=(Like("ctr-3", "train", 0.92, elsewhere=True),)))
        job.event("estimated", text="")
        first, second = (await ask(app, "/api/decisions")).json["estimate"]
        assert first == "it begins with 2 PS and 1 worker; by ctr-3 (92% alike, on another kind of machine)"
        assert second.startswith("memory of the fullest PS: 1.0 GB, 800 MB to 1.3 GB") and "it was" not in second
        found = (await ask(app, "/api/decisions")).json["decisions"]
        assert [(one["number"], one["outcome"]) for one in found] == [
            (0, ""), (1, "refused: outside of the limits"), (2, "rolled_back"), (3, "committed"), (4, "under way"),
            (5, "failed: OSError: reset"),
        ]  # fmt: skip
        assert found[3]["reason"] == "because 3" and found[3]["workers"] == 3 and found[3]["time"] > 0

    play(tmp_path / "some", some)


def test_a_slot_tells_its_largest_variables(tmp_path: Path) -> None:
    async def scenario(job: Job, app: ASGIApp) -> None:
        found = (await ask(app, "/api/slots/1")).json
        assert [one["name"] for one in found["variables"]] == ["table1", "dense1"]
        assert found["variables"][0] == {"name": "table1", "shape": [9, 25], "bytes": 900, "update": "rows"}
        assert (await ask(app, f"/api/slots/{job.spec.slots}")).status == 404

    play(tmp_path, scenario)


def test_edges_come_from_the_newest_trace_of_each_trainer(tmp_path: Path) -> None:
    clock = HandClock()
    job = make_job(tmp_path, clock)
    for count in (100, 300):
        trace = pb.Trace(
            step=5, seconds=0.1, edges=[pb.EdgeUse(source="ps-0", target="chief-0", bytes=count, tensors=1)]
        )
        tell(job, "chief-0", **steps(10), traces=[trace])
        flush(job, clock)

    async def scenario() -> None:
        found = (await ask(application(job, make_scalings(job)), "/api/edges")).json["edges"]
        assert found == [{"source": "ps-0", "target": "chief-0", "rate": 3000}]

    asyncio.run(scenario())
    job.close()


# ---------------------------------------------------------------------------------------------------------- logs


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    directory = tmp_path / "logs"
    directory.mkdir()
    (directory / "ps-0.log").write_text("one\ntwo\n")
    (directory / "aimaster.log").write_text("master\n")
    (directory / "stranger.log").write_text("of nobody\n")
    (tmp_path / "secret.log").write_text("secret\n")
    return tmp_path


def test_the_log_of_a_role_and_what_is_added(logs: Path) -> None:
    async def scenario(job: Job, app: ASGIApp) -> None:
        found = (await ask(app, "/api/logs/ps-0?tail=5")).json
        assert found == {"role": "ps-0", "text": "two\n", "start": 4, "end": 8, "size": 8}
        assert (await ask(app, "/api/logs/ps-0?after=8")).json["text"] == ""
        assert (await ask(app, "/api/logs/aimaster")).json["text"] == "master\n"
        assert (await ask(app, "/api/logs/ps-0?tail=none")).status == 400

    play(logs, scenario)


@pytest.mark.parametrize("role", ["stranger", "..%2fsecret", "%2e%2e%2fsecret", "ps-7", "ps-0.log", "ps-0%00", ".."])
def test_only_logs_of_roles_of_this_job_are_read(logs: Path, role: str) -> None:
    async def scenario(job: Job, app: ASGIApp) -> None:
        answer = await ask(app, f"/api/logs/{role}")
        assert answer.status == 404 and b"secret" not in answer.body and b"nobody" not in answer.body

    play(logs, scenario)


def test_where_there_is_no_log_the_answer_says_so(tmp_path: Path) -> None:
    async def scenario(job: Job, app: ASGIApp) -> None:
        answer = await ask(app, "/api/logs/ps-1")
        assert answer.status == 404 and "kubectl logs" in answer.json["error"]

    play(tmp_path, scenario)


# ---------------------------------------------------------------------------------------------------------- trouble


def test_an_error_of_ours_is_one_line_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(job: Job, app: ASGIApp) -> None:
        def broken(*_: object) -> pb.StatusReply:
            raise KeyError("a bug with details")

        monkeypatch.setattr("deeprec_ext.aimaster.dashboard.source.make_status", broken)
        answer = await ask(app, "/api/status")
        assert answer.status == 500 and answer.json == {"error": "internal error; see the log of the AIMaster"}
        assert "a bug with details" in caplog.text
        assert (await ask(app, "/api/history")).status == 200

    play(tmp_path, scenario)


def test_gets_change_nothing(tmp_path: Path) -> None:
    async def scenario(job: Job, app: ASGIApp) -> None:
        before = "\n".join(job.store._db.iterdump())
        for path in ("/", "/api/status", "/api/events", "/api/history", "/api/decisions", "/api/edges", "/api/slots/0",
                     "/api/access", "/api/series?subject=job&metric=step", "/api/scale?ps=4", "/api/logs/ps-0"):  # fmt: skip
            await ask(app, path, authorization="Bearer sesame")
        assert (await ask(app, "/api/scale?ps=4", authorization="Bearer sesame")).status == 405
        assert "\n".join(job.store._db.iterdump()) == before

    play(tmp_path, scenario)


def test_the_picture_is_json_of_the_moment(tmp_path: Path) -> None:
    clock = HandClock()
    job = make_job(tmp_path, clock)
    job.event("warning", text="last")
    from deeprec_ext.aimaster.dashboard.source import Source

    source = Source(job, make_scalings(job))
    found = json.loads(json.dumps(source.picture(), allow_nan=False))
    assert found["event"] == job.store.rows("SELECT max(sequence) FROM events")[0][0]
    assert found["time"] == clock.wall()
    assert found["ps"]["names"] == "ps-0:1" and found["slots"]["count"] == job.spec.slots
    job.close()
