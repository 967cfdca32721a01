"""`deeprec-ext queue` of this machine's pools."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from deeprec_ext.arbiter.deciding import decide
from deeprec_ext.arbiter.record import Record
from deeprec_ext.cli import inpool, queue
from deeprec_ext.cli.main import main
from deeprec_ext.launch.pool import places
from deeprec_ext.launch.pool.leading import Leader
from deeprec_ext.launch.pool.membership import Membership
from deeprec_ext.launch.pool.places import PoolDirectory, put
from deeprec_ext.launch.pool.seen import look
from tests.unit.arbiter.clusters import cluster, job, nodes
from tests.unit.launch.test_pool import an_entry


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PoolDirectory:
    """With a job that trains in three of four cores, and one that waits."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("KUBECONFIG", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    directory = PoolDirectory.of("ads")
    for name, workers, least in (("deepfm", 1, 1), ("rank", 0, 0)):
        entry = an_entry(f"/runs/{name}", workers=workers, now=time.time())
        member = Membership(directory, dataclasses.replace(entry, least=dataclasses.replace(entry.least, workers=least)),
                            leader=Leader(directory))  # fmt: skip
        member.join(4.0)
        member.turn()
        if (may := member.allowance) is not None and may.runs:
            member.start(may)
            member._written = None
            member.turn()
        if name == "deepfm":
            member._leader.close()
    return directory


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["queue", *words]) == 0
    return capsys.readouterr().out


def test_the_queue_of_a_pool_is_a_table_and_json(pool: PoolDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "--pool", "ads")
    assert text.startswith("pool ads: 3 of 4 cores in use, 2 jobs\n")
    assert "deepfm" in text and "rank" in text and "2.0 cores" in text
    assert shown(capsys) == text, "all pools of this machine"
    values: dict[str, Any] = json.loads(shown(capsys, "--pool", "ads", "--json"))
    (one,) = values["pools"]
    assert (one["pool"], one["cores"], one["used_cores"], len(one["jobs"])) == ("ads", 4.0, 3.0, 2)


@pytest.mark.parametrize("columns", [60, 80, 132, 250])
def test_no_line_is_longer_than_the_terminal(
    pool: PoolDirectory, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    entry = json.loads(pool.job("/runs/rank").read_text())
    long = f"/runs/{'a-very-long-name-of-a-run-' * 3}"
    put(pool.job(long), {**entry, "job": long, "priority": 1_000_000_000, "time": time.time() - 100})
    text = shown(capsys, "--pool", "ads")
    assert max(map(len, text.splitlines())) <= columns
    assert "has stood still for 1:40" in " ".join(text.split()) and f"kill -CONT {os.getpid()}" in " ".join(
        text.split()
    )


def test_the_status_of_a_job_that_waits_says_since_when_for_what_and_who_is_before_it(
    pool: PoolDirectory, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["status", "/runs/rank"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("/runs/rank waits for room in the pool ads since ")
    assert lines[1:4] == [
        "it needs 2 cores to start, and asks for 2; 1 of 4 are free", "nobody waits before it",
        "cores are with deepfm 3 (priority 0, at least 3)",
    ]  # fmt: skip
    assert lines[4].startswith("the arbiter: needs 2.0 cores: 1.0 of 4.0 cores free")
    entry = json.loads(pool.job("/runs/rank").read_text())
    put(pool.job("/runs/first"), {**entry, "job": "/runs/first", "priority": 9})
    assert main(["status", "/runs/rank"]) == 0
    assert "1 job waits before it: first (priority 9, needs 2)" in capsys.readouterr().out
    assert main(["status", "/runs/rank", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert (values["status"], values["pool"], values["needs_cores"], values["free_cores"]) == (
        "waiting",
        "ads",
        2.0,
        1.0,
    )
    assert [one["job"] for one in values["before"]] == ["/runs/first"]

    def sleep(seconds: float) -> None:
        pool.remove("/runs/rank")

    monkeypatch.setattr(inpool.time, "sleep", sleep)
    assert main(["status", "/runs/rank", "--watch"]) == 0, "it gave up"
    assert main(["status", "/runs/rank"]) == 2 and "no such run directory" in capsys.readouterr().err
    assert main(["status", "/runs/deepfm"]) == 2, "that one runs, or would"


def test_watching_is_one_line_of_json_each_second(
    pool: PoolDirectory, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt

    slept: list[float] = []
    monkeypatch.setattr(queue.time, "sleep", sleep)
    assert main(["queue", "--watch", "--json"]) == 130
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and all(json.loads(line)["pools"][0]["pool"] == "ads" for line in lines)
    assert slept == [1.0] * 3


def test_the_page_of_a_pool_is_written_from_its_record(
    pool: PoolDirectory, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "pool.html"
    assert "written: " in shown(capsys, "--pool", "ads", "--html", str(path))
    text = path.read_text()
    assert "cores that jobs may have" in text and "deepfm" in text and "rank" in text
    assert main(["queue", "--html", str(tmp_path / "other.html")]) == 0, "the only pool there is"
    for place in (tmp_path, Path("."), tmp_path / "none" / "x.html"):
        assert main(["queue", "--pool", "ads", "--html", str(place)]) == 2
        assert "name a file to be written" in capsys.readouterr().err
    for other in ("--json", "--watch"):
        assert main(["queue", "--pool", "ads", "--html", str(path), other]) == 2
        assert f"leave out {other}" in capsys.readouterr().err


def test_paths_are_told_by_their_last_part_where_that_tells_them_apart(pool: PoolDirectory) -> None:
    seen = queue.view(pool, time.time())
    assert [job.name for job in queue.shortly(seen).cluster.jobs] == [Path(job.name).name for job in seen.cluster.jobs]
    jobs = tuple(dataclasses.replace(job, name=f"/{at}/same") for at, job in enumerate(seen.cluster.jobs))
    alike = dataclasses.replace(seen, cluster=dataclasses.replace(seen.cluster, jobs=jobs))
    assert [job.name for job in queue.shortly(alike).cluster.jobs] == [job.name for job in jobs]


def test_without_any_pool_it_says_how_to_begin_one(pool: PoolDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["queue", "--pool", "other"]) == 2
    assert "no job of yours has named the pool other; there are ads" in capsys.readouterr().err
    for name in ("/runs/deepfm", "/runs/rank"):
        pool.remove(name)
    assert "run --pool NAME" in shown(capsys)
    assert json.loads(shown(capsys, "--json")) == {"pools": []}


def test_a_job_s_priority_and_the_pool_s_size_are_changed_by_command(
    pool: PoolDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    def state() -> tuple[list[tuple[int, float]], float]:
        seen = look(pool, time.time())
        assert seen.size is not None
        return [(one.priority, one.weight) for one in seen.entries], seen.size.cores

    said = ("--pool", "ads", "--set", "rank", "priority=1000000", "weight=2", "--pool-cores", "500m")
    text = shown(capsys, *said, "--dry-run")
    assert text.splitlines() == [
        "/runs/rank: priority 0 → 1000000, weight 1 → 2", "pool ads: 4 → 0.5 cores",
        "the leasts of the jobs that run are 3 cores: nobody is ended, so they go on with these until some end",
        "/runs/rank, which waits, needs 2 cores at least and has no room in the pool so",
        "nothing was changed (--dry-run)",
    ]  # fmt: skip
    assert state() == ([(0, 1.0), (0, 1.0)], 4.0)
    assert shown(capsys, *said) == text.rpartition("nothing was")[0]
    assert state() == ([(0, 1.0), (1_000_000, 2.0)], 0.5)
    values = json.loads(shown(capsys, "--pool", "ads", "--pool-cores", "6", "--json"))
    assert (values["cores"], values["dry_run"], values["told"]) == (6.0, False, ["pool ads: 0.5 → 6 cores"])
    assert shown(capsys, "--pool", "ads").startswith("pool ads: 3 of 6 cores in use")
    for words, what in (
        (("--set", "rank", "priority=1"), "name it with --pool"),
        (("--pool", "ads", "--dry-run"), "--dry-run is about"),
        (("--pool", "ads", "--set", "rank", "priority=1", "--watch"), "--watch shows a pool"),
        (("-n", "ads", "--set", "rank", "priority=1"), "its priority is its pods' PriorityClass"),
        (("--pool", "ads", "--pool-cores", "many"), "--pool-cores 'many' is no number of cores"),
        (("--pool", "ads", "--set", "other", "priority=1"), "is not in the pool ads"),
    ):
        assert main(["queue", *words]) == 2, words
        assert what in capsys.readouterr().err


RUN = ("run", "--pool", "ads", "--dry-run", "--", "python", "-c", "pass")


@pytest.mark.parametrize("words", [("queue", "--pool", "ads"), RUN])
def test_a_pool_of_somebody_else_is_one_line(
    pool: PoolDirectory,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(places.os, "geteuid", lambda: 12345)
    assert main(list(words)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{pool.path}: is another user's; a pool is of one user. Set XDG_STATE_HOME" in line

    def listdir(path: object) -> list[str]:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.undo()
    monkeypatch.setenv("XDG_STATE_HOME", str(pool.path.parents[2]))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(places.os, "listdir", listdir)
    assert main(list(words)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{pool.path}: cannot be read (Permission denied); set XDG_STATE_HOME to a directory of yours" in line


def test_a_pool_is_of_no_cluster(pool: PoolDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["queue", "--pool", "ads", "-n", "ads"]) == 2
    assert "--pool is of this machine" in capsys.readouterr().err


def test_a_record_is_decided_again_and_what_differs_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "record.jsonl"
    seen = cluster([job("a", most=(0, 4)), job("b", power=None, priority=5)], nodes(2))
    decided = decide(seen)
    Record(path).add(seen, decided)
    assert main(["queue", "--replay", str(path)]) == 0
    assert capsys.readouterr().out == "1 of 1 decisions come out the same\n"
    changed = dataclasses.replace(decided.allowances[0], workers=99, why="by rules of another day")
    Record(path).add(seen, dataclasses.replace(decided, allowances=(changed, *decided.allowances[1:])))
    assert main(["queue", "--replay", str(path)]) == 1
    out = capsys.readouterr().out
    assert "99 workers: by rules of another day" in out and decided.allowances[0].why in out and "1 of 2" in out
    assert main(["queue", "--replay", str(path), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    (one,) = told["differences"][0]["jobs"]
    assert (told["decisions"], told["different"], told["differences"][0]["number"]) == (2, 1, 2)
    assert (one["recorded"]["workers"], one["now"]["workers"]) == (99, decided.allowances[0].workers)
    assert (
        main(["queue", "--replay", str(path), "--watch"]) == 2 and "leave out all but --json" in capsys.readouterr().err
    )
