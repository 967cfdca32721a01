"""`deeprec-ext train` and `predict` of a model's module, in real jobs: each record is trained, or predicted, whoever dies."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.behaviour.jobs import SCRIPTS, RealJob, environment

pytestmark = pytest.mark.slow
RECORDS = 6_000
MODEL = ("--model-def", "numbers_model.custom_model", "--model-zoo", str(SCRIPTS))


@pytest.fixture
def data(tmp_path: Path) -> str:
    """6 000 records in three files."""
    (tmp_path / "data").mkdir()
    for number in range(3):
        lines = "".join(f"{one}\n" for one in range(2_000 * number, 2_000 * (number + 1)))
        (tmp_path / "data" / f"part-{number}.txt").write_text(lines)
    return str(tmp_path / "data")


def finish(job: RealJob) -> None:
    (job.directory / "hurry").touch()
    assert job.end() == 0, job.tails()


def times_of(weights: Path) -> np.ndarray:
    """How often each record was trained."""
    import h5py

    tables: list[np.ndarray] = []

    def look(name: str, item: object) -> None:
        if getattr(item, "shape", ()) == (RECORDS, 1) and not name.startswith("optimizer"):
            tables.append(item[()])  # type: ignore[index]

    with h5py.File(weights) as file:
        file.visititems(look)
    assert len(tables) == 1
    return np.rint(tables[0][:, 0]).astype(int)


@pytest.mark.smoke
@pytest.mark.timeout(400)
def test_train_trains_every_record_of_every_epoch_when_a_worker_and_the_chief_are_killed(begin_command, data):
    flags = ("--batch-size", "20", "--shard-records", "200", "--epochs", "2")
    job = begin_command("train", *MODEL, "--data", data, *flags, "--ps", "1", "--workers", "2")
    job.until(lambda: job.step() >= 60, "60 steps")
    job.kill("worker-0")
    job.until(lambda: job.step() >= 200, "200 steps")
    job.kill("chief-0")
    job.until(lambda: job.step() >= 350, "350 steps")
    finish(job)
    times, report = times_of(job.directory / "output" / "model.weights.h5"), job.summary()["data"]
    assert times.min() >= 2, f"{(times < 2).sum()} records were not trained in every epoch: {report}"
    assert report["records"] == report["trained"] == 2 * RECORDS and report["lost"] == 0, report
    leases = sum(one["leases"] for one in job.events("leases_returned"))
    assert times.sum() - 2 * RECORDS <= 200 * leases + 20, "what the killed had leased, and the chief's first step"
    assert re.findall(r"^epoch (\d)/2: ", job.log("worker-1"), re.MULTILINE) == ["1", "2"]
    assert (job.directory / "output" / "saved_model" / "saved_model.pb").is_file()
    assert not any("a pass of its own" in job.log(name) for name in ("chief-0", "worker-1")), "they are divided"


@pytest.mark.timeout(300)
def test_fewer_shards_than_trainers_are_trained_and_the_job_ends(begin_command, data):
    """Workers that had them all would wait for a chief that waits for records."""
    flags = ("--batch-size", "500", "--shard-records", "2000")
    job = begin_command("train", *MODEL, "--data", data + "/part-0.txt", *flags, "--ps", "1", "--workers", "2")
    job.until(lambda: (job.directory / "job.json").is_file(), "the run directory")
    finish(job)
    times = times_of(job.directory / "output" / "model.weights.h5")
    assert (times[:2000] == 1).all() and not times[2000:].any()


@pytest.mark.timeout(400)
def test_predict_writes_each_record_once_when_a_worker_is_killed(begin_command, data, tmp_path):
    here = [sys.executable, "-m", "deeprec_ext.cli.main"]
    words = ["train", *MODEL, "--data", data, "--local", "--output", str(tmp_path / "model")]
    done = subprocess.run([*here, *words], env=environment(), capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    output = tmp_path / "predictions"
    job = begin_command(
        "predict", *MODEL, "--data", data, "--weights", str(tmp_path / "model"), "--output", str(output), "--workers", "2",
        "--batch-size", "20", "--shard-records", "40",
    )  # fmt: skip
    job.until(lambda: len(list(output.glob("part-*"))) >= 20, "20 shards")
    job.kill("worker-1")
    job.until(lambda: len(list(output.glob("part-*"))) >= 60, "60 shards")
    finish(job)
    seen: list[int] = []
    for part in sorted(output.glob("part-*.jsonl")):
        file, first, count = map(int, part.stem.split("-")[1:])
        lines = [json.loads(line) for line in part.read_text().splitlines()]
        assert [line["number"] for line in lines] == [2_000 * file + first + place for place in range(count)]
        seen += [line["number"] for line in lines]
        assert all(line["times"] == 1.0 for line in lines), "the model is the one that was trained"
    assert seen == list(range(RECORDS))
    assert json.loads((output / "predictions.json").read_text())["records"] == RECORDS
    assert job.summary()["data"]["lost"] == 0
    assert job.summary()["steps"] >= RECORDS // 40


@pytest.mark.timeout(200)
def test_a_module_without_a_feed_ends_the_job_with_the_line_to_write(begin_command, data, tmp_path):
    (tmp_path / "half.py").write_text("import numbers_model\ncustom_model = numbers_model.custom_model\n")
    flags = ("--model-def", "half.custom_model", "--model-zoo", str(tmp_path), "--data", data)
    (tmp_path / "numbers_model.py").write_text((SCRIPTS / "numbers_model.py").read_text())
    job = begin_command("train", *flags, "--ps", "1", "--workers", "0")
    assert job.end() == 2, job.output
    for what in ("feed", "loss", "optimizer"):
        assert f"half has no {what}: write `def {what}(" in job.output
