"""However a script ends, its process ends with it: with the exit code and about in the time of stock TensorFlow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.behaviour.jobs import COUNT, SCRIPTS, RealJob

pytestmark = pytest.mark.slow

ENDS = SCRIPTS / "ends.py"

FIRST = ("init", "device")
"""Before the model is live: who comes later attaches to it."""

FEW = (*FIRST, "unclosed", "exit 3", "queue")

ALL = (
    *FIRST, "two steps", "unclosed", "return", "import", "imported", "graph", "hook", "step", "exit 3", "closed exit 3",
    "raised exit 5", "os._exit 4", "SIGTERM", "SIGKILL", "SIGINT", "daemon thread", "thread", "thread fails", "atexit",
    "two sessions", "queue", "generator", "forgotten session",
)  # fmt: skip

LATER_SECONDS = 30.0
"""So much longer than stock's a process may take, over everything: start, registration, session, end. Less than the timer that
ends a process (`end_limit_seconds`, 60 by default): whom that ends is too late. No measure of speed: on a starved machine stock
TensorFlow has taken 8 s and the job's process 19."""

LIMIT_SECONDS = 3
"""`end_limit_seconds` of the job that is about it. With the default, 60, whom the timer ends is too late for all the others."""

TIMER = "s after the end of its script"
"""What a process says that the timer ends."""


def begun(begin, path: Path, *ways: str, settings: tuple[str, ...] = ()) -> RealJob:
    return begin(
        "--ps", "1", "--workers", "0", *settings,
        command=("python", str(ENDS), "--each", str(path), *ways),
    )  # fmt: skip


def results(path: Path) -> dict[str, tuple[int | None, float]]:
    return {way: (code, seconds) for way, (code, seconds) in json.loads(path.read_text()).items()}


def started_stock(path: Path, ways: tuple[str, ...]) -> subprocess.Popen[bytes]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("TF_CONFIG", "DEEPREC_", "PYTHON"))
    }
    with path.with_suffix(".log").open("w") as log:
        return subprocess.Popen(
            [sys.executable, str(ENDS), "--each", str(path), *ways], env=kept, stdout=log, stderr=subprocess.STDOUT
        )


def check(job: RealJob, stock: dict[str, tuple[int | None, float]], ours: dict[str, tuple[int | None, float]]) -> None:
    said = "\n".join(f"{way}: stock {stock.get(way)}, ours {ours.get(way)}" for way in stock)
    print(said)
    for way, (code, seconds) in stock.items():
        assert ours[way][0] == code, f"{way}\n{said}\n{job.log('chief-0')[-6000:]}"
        assert ours[way][1] < seconds + LATER_SECONDS, f"{way}\n{said}"


@pytest.mark.timeout(2000)
@pytest.mark.parametrize("ways", [FEW, pytest.param(ALL, marks=pytest.mark.long)], ids=["some", "all"])
def test_a_process_ends_with_its_script_as_it_does_with_stock_tensorflow(begin, tmp_path, ways):
    of_stock, of_ours = tmp_path / "stock.json", tmp_path / "ours.json"
    stock = started_stock(of_stock, ways)
    try:
        job = begun(begin, of_ours, *ways)
        assert job.end(1600) == 0, job.output
        stock.wait(300)
    finally:
        stock.kill()
        stock.wait()
    check(job, results(of_stock), results(of_ours))
    told = [event["exit_code"] for event in job.events("script_ended")]
    assert told[:2] == [1, 1], "told as failed"
    log = job.log("chief-0")
    assert TIMER not in log, f"nobody is to need the timer:\n{log[-6000:]}"
    assert "Exception ignored in" not in log, log[-6000:]
    for said in ("the thread has ended", "the handler has ended") if ways == ALL else ():
        assert said in log, "the script's own work was cut"


@pytest.mark.timeout(300)
def test_a_pod_whose_command_does_something_after_the_script_is_waited_for_and_that_is_told(begin, tmp_path):
    go_on = tmp_path / "go on"
    count, after = (
        f"{sys.executable} {COUNT[1]}",
        f"echo what comes after; while ! test -e '{go_on}'; do sleep 0.2; done; exit 0",
    )
    job: RealJob = begin(
        "--ps", "1", "--workers", "0", "--setting", "end_limit_seconds=1",
        command=("bash", "-c", f"{count}; {after}"),
    )  # fmt: skip
    job.wait_training("chief-0")
    trainer = job.role("chief-0").pid
    job.put("stop", json.dumps(["chief-0"]))
    [told] = job.until(lambda: job.events("outstayed"), "that the pod lives on")
    assert told["goes_on"] and told["exit_code"] == 0
    job.until(lambda: (role := job.role("chief-0")) and role.state == "ended", "status to say so")
    assert any("goes on with what else its command does" in event["text"] for event in job.events("warning"))
    assert not psutil.pid_exists(trainer), "the trainer has ended"
    assert "what comes after" in job.log("chief-0") and job.process.poll() is None
    go_on.touch()
    assert job.end() == 0, job.output


@pytest.mark.long
def test_what_hangs_after_its_script_is_ended_with_its_exit_code_and_a_handler_has_its_time(begin, tmp_path):
    """The timer's part, in a job of its own: the limit is short, the handler of `atexit` takes longer."""
    of_ours = tmp_path / "ours.json"
    job = begun(begin, of_ours, "atexit", "finaliser", settings=("--setting", f"end_limit_seconds={LIMIT_SECONDS}"))
    assert job.end(200) == 0, job.output
    ours, log = results(of_ours), job.log("chief-0")
    print(ours)
    assert (ours["atexit"][0], ours["finaliser"][0]) == (0, 6), "ended with the exit code of its script"
    assert log.count(TIMER) == 1, log[-6000:]
    assert log.index("the handler has ended") < log.index(TIMER), "the script's own work was cut"
    assert [event["exit_code"] for event in job.events("script_ended")] == [0, 6]
