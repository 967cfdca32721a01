"""`deeprec-ext queue` of this machine's pools."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import pytest

from deeprec_ext.cli import queue
from deeprec_ext.cli.main import main
from deeprec_ext.launch.pool.leading import Leader
from deeprec_ext.launch.pool.membership import Membership
from deeprec_ext.launch.pool.places import PoolDirectory
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


def test_a_pool_is_of_no_cluster(pool: PoolDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["queue", "--pool", "ads", "-n", "ads"]) == 2
    assert "--pool is of this machine" in capsys.readouterr().err
