"""Every record is trained, whoever dies: counted record by record in the last checkpoint, and compared with the report."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tests.behaviour.jobs import SCRIPTS, RealJob
from tests.behaviour.scripts import shards

pytestmark = pytest.mark.slow

SCRIPT = ("python", str(SCRIPTS / "shards.py"))
PACE = ("--sleep", "0.008")
"""Until `finish`: what a test does must happen before the data end, and other tests run beside it."""


def counts(job: RealJob) -> np.ndarray:
    """How often each record was trained."""
    import tensorflow as tf

    table = tf.train.load_checkpoint(str(job.directory / "model")).get_tensor(shards.TABLE)
    assert (table == table[:, :1]).all()
    return np.rint(table[:, 0]).astype(int)


def data(job: RealJob) -> dict:
    return job.summary()["data"]


def trained(job: RealJob) -> int:
    status = job.status()
    return status.data[0].trained if status is not None and status.data else 0


def until_trained(job: RealJob, records: int) -> None:
    job.until(lambda: trained(job) >= records, f"{records} records trained")


def finish(job: RealJob) -> None:
    """What is left of the data is trained without waiting between steps."""
    (job.directory / shards.HURRY).touch()
    assert job.end() == 0, job.tails()


def check(job: RealJob, records: int, epochs: int, stale: int = 0) -> np.ndarray:
    """Nothing is lost, and the report admits at least what was really repeated."""
    times, report = counts(job), data(job)
    assert times.min() >= epochs, f"{(times < epochs).sum()} records were not trained in every epoch: {report}"
    assert report["records"] == report["trained"] == records * epochs, report
    assert report["lost"] == 0 and report["stale"] <= stale, report
    assert report["repeated"] >= times.sum() - records * epochs, report
    return times


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, ...]:
    """Arguments of the script: 40 000 records in five files, read twice."""
    shards.write(str(tmp_path / "data"), 40_000, 5)
    return "--data", str(tmp_path / "data"), "--records", "40000", "--epochs", "2"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_finite_epochs_end_the_job_with_every_record_trained_once_an_epoch(begin, files):
    job = begin("--ps", "2", "--workers", "2", command=(*SCRIPT, *files))
    assert job.end() == 0, job.tails()
    times = check(job, 40_000, 2)
    assert data(job)["repeated"] == 0 and times.max() == 2
    assert job.summary()["steps"] >= 80_000 // shards.BATCH


@pytest.mark.timeout(300)
def test_workers_come_and_go_and_no_record_is_lost_or_repeated(begin, files):
    job = begin("--ps", "1", "--workers", "1", command=(*SCRIPT, *files, *PACE))
    until_trained(job, 2000)
    assert job.scale(workers=3).outcome == "committed"
    until_trained(job, trained(job) + 4000)
    assert job.scale(workers=0).outcome == "committed"
    finish(job)
    times = check(job, 40_000, 2)
    assert data(job)["repeated"] == 0 and times.max() == 2


@pytest.mark.smoke
@pytest.mark.timeout(300)
def test_a_killed_worker_and_a_killed_chief_lose_nothing(begin, files):
    job = begin("--ps", "1", "--workers", "2", command=(*SCRIPT, *files, *PACE))
    until_trained(job, 3000)
    job.kill("worker-0")
    until_trained(job, 20_000)
    job.kill("worker-1")
    until_trained(job, 30_000)
    job.kill("chief-0")
    finish(job)
    times = check(job, 40_000, 2)
    assert times.max() <= 2 + 3, "a death repeats a record once at the most"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_killed_aimaster_stops_nobody_and_forgets_nothing(begin, files):
    job = begin("--ps", "1", "--workers", "1", command=(*SCRIPT, *files, *PACE))
    until_trained(job, 4000)
    job.kill_aimaster()
    until_trained(job, 40_000)
    job.kill_aimaster()
    finish(job)
    times = check(job, 40_000, 2)
    assert times.max() == 2, "nobody died who trained"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_ps_that_comes_back_from_a_checkpoint_takes_the_data_back_with_it(begin, files):
    job = begin("--ps", "1", "--workers", "1", command=(*SCRIPT, *files, *PACE, "--checkpoint-steps", "150"))
    until_trained(job, 30_000)
    job.kill("ps-0")
    finish(job)
    check(job, 40_000, 2, stale=80_000)


@pytest.mark.timeout(300)
@pytest.mark.long
def test_a_ps_that_is_promoted_forgets_no_more_than_the_report_says(begin, files):
    job = begin("--ps", "2", "--workers", "1", command=(*SCRIPT, *files, *PACE))
    until_trained(job, 30_000)
    job.kill("ps-1")
    finish(job)
    times, report = counts(job), data(job)
    assert report["records"] == report["trained"] == 80_000 and report["lost"] == 0, report
    assert np.maximum(0, 2 - times).sum() <= report["stale"], report
    assert np.maximum(0, times - 2).sum() <= report["repeated"], report


@pytest.mark.timeout(300)
def test_with_ids_records_may_be_mixed_and_filtered_and_none_is_lost_when_a_worker_dies(begin, files):
    job = begin("--ps", "1", "--workers", "2", command=(*SCRIPT, *files, "--ids", *PACE))
    job.until(lambda: job.step() >= 300, "300 steps")  # filtered records keep leases open: progress is told at the end
    job.kill("worker-0")
    finish(job)
    times, report = counts(job), data(job)
    assert times[1::2].min() >= 2 and not times[::2].any(), report
    assert report["records"] == report["trained"] == 80_000 and report["lost"] == 0, report
    assert report["repeated"] >= times[1::2].sum() - 40_000, report


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ids", [pytest.param(False, marks=pytest.mark.long), True])
def test_damaged_records_are_skipped_and_counted_and_no_other_is_lost_when_a_worker_dies(begin, tmp_path, ids):
    bad = (0, 7, 199, *range(400, 600), 11_111, 19_999)
    (tmp_path / "data").mkdir()
    shards.write_tfrecord(str(tmp_path / "data" / "part-0"), 20_000, bad)
    files = ("--data", str(tmp_path / "data"), "--reader", "tfrecord", "--records", "20000", "--epochs", "2")
    script = (*SCRIPT, *files, *PACE, *(("--ids",) if ids else ()))
    job = begin("--ps", "1", "--workers", "2", "--bad-records", "skip", command=script)
    job.until(lambda: job.step() >= 200, "200 steps")
    job.kill("worker-0")
    finish(job)
    times, report, good = counts(job), data(job), np.ones(20_000, bool)
    good[list(bad)] = False
    if ids:
        good &= np.arange(20_000) % 2 == 1  # the script filters the others
    assert not times[~good].any(), "what is damaged is not trained, and nothing else for it"
    assert times[good].min() >= 2, report
    assert (report["trained"], report["skipped"]) == (40_000 - 2 * len(bad), 2 * len(bad)), report
    assert report["records"] == 40_000 and report["lost"] == report["left"] == 0, report
    again = np.maximum(0, times[good] - 2).sum()
    bounds = report["repeated_at_least"], report["repeated"]
    assert bounds[0] <= again <= bounds[1], (bounds, again, job.events("leases_returned", "failure"))


@pytest.mark.timeout(300)
def test_a_damaged_record_ends_the_job_with_its_file_and_place(begin, tmp_path):
    (tmp_path / "data").mkdir()
    shards.write_tfrecord(str(tmp_path / "data" / "part-0"), 2000, (1234,))
    files = ("--data", str(tmp_path / "data"), "--reader", "tfrecord", "--records", "2000")
    job = begin("--ps", "1", "--workers", "1", command=(*SCRIPT, *files))
    assert job.end() != 0
    reason = job.summary()["reason"]
    assert "part-0: record 1234, at byte 29616, is damaged: the CRC of its data is wrong" in reason, reason


@pytest.mark.timeout(300)
def test_a_worker_that_dies_early_repeats_no_more_than_it_had_given_to_steps(begin):
    script = (*SCRIPT, "--records", "400000", "--shard", "4000", "--sleep", "0.05")
    job = begin("--ps", "1", "--workers", "1", command=script)
    job.until(lambda: job.step() >= 20, "20 steps")
    job.kill("worker-0")
    before = trained(job)
    until_trained(job, before + 2000)
    told = job.status().data[0]
    assert told.repeated <= 4000, f"its leases were many times that: {told}"
    assert told.repeated_at_least <= told.repeated


@pytest.mark.timeout(300)
def test_evaluation_reads_every_record_and_is_reported(begin):
    job = begin("--ps", "1", "--workers", "0", command=(*SCRIPT, "--records", "5000", "--evaluate"))
    assert job.end() == 0, job.tails()
    check(job, 5000, 1)
    assert job.summary()["metrics"]["records"] == 5000
    others = [one for name, one in data(job)["datasets"].items() if name.startswith("evaluate")]
    assert others and all(one["trained"] == one["records"] == 5000 for one in others), data(job)


@pytest.mark.parametrize("stage, word", [("shuffle", "shuffle=True"), ("filter", "weight 0"), ("repeat", "epochs=")])
def test_a_stage_that_loses_the_order_stops_the_job_with_the_remedy(begin, files, stage, word):
    job = begin("--ps", "1", "--workers", "0", command=(*SCRIPT, *files, "--stage", stage))
    assert job.end() != 0
    assert word in job.output and stage in job.output.lower()


def test_a_pattern_that_matches_nothing_stops_the_job(begin, tmp_path):
    command = (*SCRIPT, "--data", str(tmp_path / "nowhere"), "--records", "10")
    job = begin("--ps", "1", "--workers", "0", command=command)
    assert job.end() != 0
    assert "no file matches" in job.output and "nowhere" in job.output


@pytest.mark.parametrize("harm", ["shrinks", "vanishes"])
def test_a_file_that_changes_while_training_stops_the_job_with_its_name_and_the_shard(begin, files, harm):
    job = begin("--ps", "1", "--workers", "0", command=(*SCRIPT, *files, "--sleep", "0.002"))
    until_trained(job, 1000)
    path = os.path.join(files[1], "part-3.txt")
    if harm == "shrinks":
        os.truncate(path, os.path.getsize(path) // 2)
    else:
        os.remove(path)
    assert job.end() != 0
    assert "part-3.txt" in job.output and "shard" in job.output, job.output
    assert ("shrunk" if harm == "shrinks" else "vanished") in job.output
