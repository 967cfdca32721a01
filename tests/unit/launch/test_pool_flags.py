"""`run --pool`: what is said, what contradicts itself, what the processes of the job are told, and who gives up waiting."""

from __future__ import annotations

import argparse
import dataclasses
import io
import json
import os
import signal
import threading
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from deeprec_ext.arbiter.observed import Count
from deeprec_ext.cli.main import main
from deeprec_ext.cli.run import add_arguments, make_plan
from deeprec_ext.errors import UsageError
from deeprec_ext.launch.plan import RunPlan, aimaster_command, describe_plan, role_command
from deeprec_ext.launch.pool.entry import Asked
from deeprec_ext.launch.pool.places import PoolDirectory, put
from deeprec_ext.launch.pool.seen import look
from tests.unit.launch.test_autoscale_flags import told
from tests.unit.launch.test_pool import an_entry

SCRIPT = ("--", "python", "-c", "pass")


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def plan(tmp_path: Path, *flags: str) -> RunPlan:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return make_plan(parser.parse_args([*flags, "--workdir", str(tmp_path / "run"), *SCRIPT]))


def test_without_the_flag_a_job_is_in_no_pool(tmp_path: Path) -> None:
    made = plan(tmp_path)
    assert made.pool is None and describe_plan(made)["pool"] is None
    assert told(made).settings.bid_file == told(made).settings.allowance_file == ""


def test_the_flags_say_what_the_pool_is_told(tmp_path: Path) -> None:
    flags = ("--pool", "ads", "--priority", "-3", "--weight", "2.5", "--pool-cores", "1500m", "--max-wait", "10m")
    assert plan(tmp_path, *flags).pool == Asked("ads", 1.5, -3, 2.5, 600.0)
    assert plan(tmp_path, "--pool", "ads").pool == Asked("ads", 0.0, 0, 1.0, 0.0)


@pytest.mark.parametrize(
    ("flags", "what"),
    [
        (("--priority", "1"), "--priority is about jobs that share this machine: name their --pool too"),
        (("--max-wait", "1m"), "--max-wait is about"),
        (("--pool", "../x"), "--pool ../x: a name has"),
        (("--pool", "ads", "--weight", "0"), "--weight 0: must be more than 0"),
        (("--pool", "ads", "--weight", "-1"), "--weight -1: must be more than 0"),
        (("--pool", "ads", "--pool-cores", "many"), "--pool-cores 'many' is no number of cores"),
        (("--pool", "ads", "--pool-cores", "0"), "no job would ever have room"),
        (("--pool", "ads", "--max-wait", "10"), "--max-wait: '10' is no duration"),
        (("--pool", "ads", "--backend", "slurm"), "has a queue of its own"),
    ],
)
def test_what_contradicts_itself_is_refused(tmp_path: Path, flags: tuple[str, ...], what: str) -> None:
    with pytest.raises(UsageError) as refused:
        plan(tmp_path, *flags)
    assert what in str(refused.value)


def test_the_aimaster_is_told_what_was_asked_for_and_where_it_hears_what_it_may_have(tmp_path: Path) -> None:
    made = dataclasses.replace(plan(tmp_path, "--pool", "ads", "--ps", "2", "--workers", "3"), allowed=Count(1, 1))
    spec, pool, job = told(made), PoolDirectory.of("ads"), str(made.directory.path)
    assert (spec.ps, spec.workers) == (2, 3)
    assert (spec.settings.bid_file, spec.settings.allowance_file) == (str(pool.bid(job)), str(pool.told(job)))
    assert made.first == Count(1, 1)
    assert dataclasses.replace(made, allowed=Count(4, 4)).first == Count(2, 3), "never more than was asked for"
    assert "--pool" not in aimaster_command(made, "127.0.0.1:1", "127.0.0.1:2").argv


def test_a_worker_without_ps_is_told_how_many_it_begins_with(tmp_path: Path) -> None:
    made = dataclasses.replace(
        plan(tmp_path, "--pool", "ads", "--strategy", "allreduce", "--workers", "3"), allowed=Count(0, 1)
    )
    assert role_command(made, "127.0.0.1:1", "worker", 0).environment["DEEPREC_EXT_WORKERS"] == "1"


def command(*words: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(words)
    return code, out.getvalue(), err.getvalue()


def taken(cores: float, workers: int) -> PoolDirectory:
    """A pool in which this process has a job with so many workers, and that nobody leads."""
    pool = PoolDirectory.of("ads")
    pool.make()
    put(pool.size, {"cores": cores, "memory_bytes": 64 << 30})
    entry = dataclasses.replace(
        an_entry("/other", now=time.time()), running=True, chief=1, ps=1, workers=workers, time=time.time()
    )
    put(pool.job("/other"), dataclasses.asdict(entry))
    return pool


def test_a_dry_run_says_who_is_there_and_leaves_nothing(tmp_path: Path) -> None:
    pool = taken(4.0, 2)
    before = sorted(pool.path.rglob("*"))
    code, out, _ = command("run", "--pool", "ads", "--dry-run", "--workdir", str(tmp_path / "run"), *SCRIPT)
    assert code == 0 and "pool ads: 4 cores, 1 other job; this one asks for 4, and needs 2 to start" in out
    assert sorted(pool.path.rglob("*")) == before and not (tmp_path / "run").exists()
    code, out, _ = command("run", "--pool", "ads", "--dry-run", "--json", "--workdir", str(tmp_path / "run"), *SCRIPT)
    assert code == 0 and json.loads(out)["pool"]["name"] == "ads"


def test_who_could_never_have_room_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    code, _, err = command(
        "run", "--pool", "ads", "--pool-cores", "1", "--workdir", str(tmp_path / "a" / "run"), *SCRIPT
    )
    assert code == 2 and "needs 2 cores at least (1 PS, the chief and 0 workers), and the pool has 1" in err
    assert not (tmp_path / "a").exists() and look(PoolDirectory.of("ads"), time.time()).entries == ()


def test_who_waits_too_long_gives_up_with_a_code_of_its_own_and_leaves_nothing(tmp_path: Path) -> None:
    pool = taken(4.0, 2)  # all four cores, by a job that does not give back: nobody tells it to
    entry = json.loads(pool.job("/other").read_text())
    put(pool.job("/other"), {**entry, "least": {"ps": 1, "workers": 2}})
    words = ("run", "--pool", "ads", "--max-wait", "2s", "--json", "--workdir", str(tmp_path / "a" / "run"), *SCRIPT)
    code, out, err = command(*words)
    assert code == 75, err
    assert "the pool ads had no room for the job within 2.0 s" in json.loads(out)["error"]
    assert "waits for room in the pool ads: " in err and "2.0 cores" in err
    assert not (tmp_path / "a").exists()
    assert [one.job for one in look(pool, time.time()).entries] == ["/other"], "it has left"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_the_waiting_and_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    pool = taken(4.0, 2)
    entry = json.loads(pool.job("/other").read_text())
    put(pool.job("/other"), {**entry, "least": {"ps": 1, "workers": 2}})
    threading.Timer(1.0, os.kill, (os.getpid(), number)).start()
    words = ("run", "--pool", "ads", "--max-wait", "60s", "--json", "--workdir", str(tmp_path / "run"), *SCRIPT)
    code, out, err = command(*words)
    assert code == 130 and "stopped while it waited for room in the pool ads; nothing was started" in err
    assert "stopped while it waited" in json.loads(out)["error"]
    assert not (tmp_path / "run").exists()
    assert [one.job for one in look(pool, time.time()).entries] == ["/other"]
