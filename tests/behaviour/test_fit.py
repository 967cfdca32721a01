"""`fit` of a job: every row is trained once an epoch, whoever comes, goes or dies, and all see the same epochs."""

from __future__ import annotations

import json
import signal

import h5py
import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.keras import milestones
from tests.behaviour.jobs import SCRIPTS, RealJob
from tests.behaviour.scripts import deciding, many_callbacks, refitted, rounds, saved, several, tables
from tests.behaviour.scripts.fitted import HURRY

pytestmark = pytest.mark.slow

SCRIPT = ("python", str(SCRIPTS / "fitted.py"))
TWICE = ("python", str(SCRIPTS / "refitted.py"))
ROWS, TABLE_ROWS = 20_000, 4_000_000
MEAN = (ROWS - 1) / 2
"""Of the numbers of all rows, which the metric `number` averages."""


def trained(job: RealJob) -> int:
    status = job.status()
    return status.data[0].trained if status is not None and status.data else 0


def finish(job: RealJob) -> None:
    (job.directory / HURRY).touch()
    assert job.end(240) == 0, job.tails()


def times(job: RealJob) -> np.ndarray:
    """How often each row was trained, as the chief has it after `fit`."""
    [found] = job.directory.glob("times-chief-*.npy")
    return np.rint(np.load(found)).astype(int)


def epochs(job: RealJob) -> list[list[dict]]:
    """By process, what its callback was told at the end of each epoch."""
    files = sorted(job.directory.glob("epochs-*.jsonl"))
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in files]


@pytest.mark.smoke
@pytest.mark.timeout(400)
def test_rows_of_arrays_are_trained_once_an_epoch_though_a_worker_and_a_ps_are_killed(begin):
    job = begin(
        "--ps", "2", "--workers", "2", "--setting", "peer_backup_seconds=0.5",
        command=(*SCRIPT, "--rows", str(ROWS), "--epochs", "3", "--sleep", "0.01"),
    )  # fmt: skip
    job.until(lambda: trained(job) >= 3000, "3000 rows")
    job.kill("worker-0")
    job.until(lambda: trained(job) >= ROWS + 3000, "an epoch and 3000 rows")
    job.kill("ps-1")
    job.until(lambda: trained(job) >= ROWS + 8000, "5000 rows more")
    finish(job)
    report, counted = job.summary()["data"], times(job)
    assert report["records"] == report["trained"] == 3 * ROWS and report["lost"] == 0, report
    assert np.maximum(0, 3 - counted).sum() <= report["stale"], report
    assert np.maximum(0, counted - 3).sum() <= report["repeated"], report
    told = [each for each in epochs(job) if len(each) == 3]
    assert len(told) == 3, "chief, the worker that lived, and the one in place of the killed"
    check_all_hear_the_same(told)


@pytest.mark.timeout(300)
@pytest.mark.long
def test_of_each_model_of_a_script_each_row_is_trained_once_an_epoch(begin):
    """A worker closes its session to make the step of another model, with a batch of it in hand."""
    job = begin("--ps", "2", "--workers", "2", command=("python", str(SCRIPTS / "several.py")))
    assert job.end(240) == 0, job.tails()
    found = [json.loads(path.read_text()) for path in sorted(job.directory.glob("times-*.json"))]
    assert found and all(one == [[several.EPOCHS] * several.ROWS] * several.MODELS for one in found)
    assert job.summary()["data"]["repeated"] == 0


@pytest.mark.timeout(400)
@pytest.mark.long
def test_epochs_of_a_resumed_run_are_those_that_its_model_has_not_trained(begin):
    """It goes back to its last checkpoint: no epoch that is trained again is taken for over. Steps that others made while that
    was written are in it, and nobody knows."""
    command = (*SCRIPT, "--rows", str(ROWS), "--epochs", "3", "--sleep", "0.01")
    first = begin("--ps", "1", "--workers", "1", command=command)
    first.until(
        lambda: len(first.events("epoch_ended")) >= 1 and trained(first) >= ROWS + 3000, "an epoch and 3000 rows"
    )
    first.process.send_signal(signal.SIGINT)
    assert first.end() == 130, first.output
    second = RealJob(first.directory, ("--resume", "--ps", "1", "--workers", "1"), command)
    try:
        finish(second)
    finally:
        second.close()
    [restored] = second.events("restored")
    ended = [one["number"] for one in second.events("epoch_ended") if one["sequence"] > restored["sequence"]]
    over = restored["data"]["fit 1"]["epoch"]
    counted = times(second)
    assert ended == [*range(over, 3)]
    assert counted.min() == 3 and (counted - 3).sum() <= second.summary()["data"]["repeated"]
    told = [each for each in epochs(second) if len(each) == 3]
    assert len(told) == 2, "the chief and the worker of the second run"


@pytest.mark.timeout(300)
def test_what_a_worker_writes_after_fit_is_its_own(begin, tmp_path, monkeypatch):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))  # what is below it is left alone
    path = tmp_path / "result.txt"
    job = begin("--ps", "1", "--workers", "1", command=("python", str(SCRIPTS / "writes.py"), str(path)))
    job.until(lambda: job.pid("chief-0") and job.pid("worker-0"), "their processes")
    pids = {name: job.pid(name) for name in ("chief-0", "worker-0")}
    assert job.end(240) == 0, job.tails()
    own = job.directory / "workers" / "worker-0" / str(path).lstrip("/")
    assert [int(one.read_text()) for one in (path, own)] == [pids["chief-0"], pids["worker-0"]]
    assert f"{path} is written to {own} here" in job.log("worker-0")


@pytest.mark.timeout(300)
def test_a_worker_loads_what_its_script_has_saved_when_the_chief_has(begin, tmp_path):
    path = tmp_path / "model.keras"
    path.write_bytes(b"of an earlier job")
    command = ("python", str(SCRIPTS / "reloaded.py"), str(path), "--late", "5")
    job = begin("--ps", "1", "--workers", "1", command=command)
    assert job.end(240) == 0, job.tails()
    steps = {role: float((tmp_path / f"model.keras.{role}.txt").read_text()) for role in ("chief", "worker")}
    assert steps == {"chief": 20.0, "worker": 20.0}


@pytest.mark.timeout(300)
def test_rows_of_arrays_are_given_out_when_the_model_has_decided_the_size(begin):
    """The chief declares it before it asks for rows, of which nobody gives it any before."""
    command = (*SCRIPT, "--rows", str(ROWS), "--epochs", "1")
    job = begin("--autoscale", "--history", "off", "--max-ps", "2", "--max-workers", "1", command=command)
    assert job.end(240) == 0, job.tails()
    assert job.summary()["data"]["trained"] == ROWS and (times(job) == 1).all()


@pytest.mark.timeout(300)
def test_figures_are_of_the_job_and_the_chief_alone_validates_and_writes(begin):
    command = (*SCRIPT, "--rows", str(ROWS), "--epochs", "2", "--sleep", "0.002")
    job = begin("--ps", "1", "--workers", "1", command=command)
    assert job.end(240) == 0, job.tails()
    assert job.summary()["data"]["repeated"] == 0 and (times(job) == 2).all()
    told = epochs(job)
    assert len(told) == 2 and all(sum(one["batches"] for one in each) > 0 for each in told), told
    check_all_hear_the_same(told)
    for said in told[0]:
        assert said["logs"]["records"] == ROWS and said["logs"]["number"] == pytest.approx(MEAN, rel=1e-3)
        assert said["logs"]["val_number"] == 4.5
    [log] = job.directory.glob("log.csv")
    rows = log.read_text().splitlines()
    assert len(rows) == 3 and rows[0].split(",")[0] == "epoch"
    assert len(list(job.directory.glob("epoch-*.h5"))) == 2


@pytest.mark.timeout(300)
def test_all_stop_where_early_stopping_of_the_chief_does_also_who_came_late(begin):
    command = (*SCRIPT, "--rows", "4000", "--epochs", "40", "--sleep", "0.15", "--patience", "3")
    job = begin("--ps", "1", "--workers", "1", "--max-workers", "3", command=command)
    job.until(lambda: trained(job) >= 4500, "an epoch")
    assert job.scale(workers=2).outcome == "committed"
    finish(job)
    told = epochs(job)
    assert len(told) == 3
    check_all_hear_the_same(told)
    heard = [len(each) for each in told]
    assert heard[:2] == [4, 4], "the first epoch and three without a better one"
    assert 1 <= heard[2] <= 4, "it goes through them until the chief's script has ended, and the job with it"


@pytest.mark.timeout(400)
@pytest.mark.parametrize("policy", ["float32", pytest.param("mixed_float16", marks=pytest.mark.long)])
@pytest.mark.long
def test_callbacks_that_decide_come_to_the_same_everywhere_and_files_are_those_of_the_best_epoch(begin, policy):
    job = begin(
        "--ps", "2", "--workers", "1", "--max-workers", "2",
        command=("python", str(SCRIPTS / "many_callbacks.py"), "--policy", policy),
    )  # fmt: skip
    job.until(lambda: trained(job) >= 5500, "an epoch of 4 800 rows")
    assert job.scale(workers=2).outcome == "committed"
    assert job.scale(ps=1).outcome == "committed"
    finish(job)
    ends = [json.loads(path.read_text()) for path in job.directory.glob("end-*.json")]
    [chief] = [one for one in ends if one["role"] == "chief"]
    others = [one for one in ends if one is not chief]
    assert others, "a worker has come to the end of its script"
    for one in others:
        assert (one["epochs"], one["history"]) == (chief["epochs"], chief["history"])
        assert one["rate"] == chief["rate"] and one["loss"] == pytest.approx(chief["loss"], rel=1e-5)
    count = len(chief["epochs"])
    rates, rate = [], many_callbacks.RATE
    for epoch in range(count):
        rates.append(rate := rate * (many_callbacks.TIMES if epoch == many_callbacks.FASTER else 1))
        rate *= 0.5 if epoch else 1.0
    [name] = set(chief["history"]) & {"lr", "learning_rate"}
    assert chief["history"][name] == pytest.approx(rates) and chief["rate"] == pytest.approx(rate)
    best = int(np.argmin(chief["history"]["val_loss"]))
    assert best > 0 and count < 20, "it has got better, and stopped early"
    reloaded = tf.keras.models.load_model(job.directory / "best.keras")
    assert reloaded.evaluate(*many_callbacks.records(1000), verbose=0)[0] == pytest.approx(chief["loss"], rel=0.02)
    assert len((job.directory / "log.csv").read_text().splitlines()) == count + 1
    assert {one.name for one in (job.directory / "board").iterdir()} == {"train", "validation"}
    assert len(list((job.directory / "board").rglob("events*"))) == 2, "the chief alone writes them"


@pytest.mark.timeout(300)
def test_a_tutorial_of_two_rounds_over_slices_is_what_it_is_in_plain_keras(begin):
    job = begin("--strict", "--ps", "2", "--workers", "2", command=("python", str(SCRIPTS / "rounds.py")))
    assert job.end(240) == 0, job.tails()
    ends = [json.loads(path.read_text()) for path in job.directory.glob("end-*.json")]
    [chief] = [one for one in ends if one["role"] == "chief"]
    assert chief["moved"] == 0.0, "nobody trains the second round, or its frozen layer, while the chief is in the first"
    for one in ends:
        assert one["apart"] == 0.0, "the model does not change when fit has returned"
        assert (one["first"], one["second"]) == (chief["first"], chief["second"])
    summary = job.summary()
    assert summary["data"]["trained"] == 2 * rounds.EPOCHS * rounds.ROWS and summary["data"]["lost"] == 0
    assert summary["notices"] == [], "each process has the same rows, in an order of its own"
    assert chief["second"]["accuracy"][-1] > 0.8


@pytest.mark.timeout(300)
def test_an_elastic_dataset_is_read_once_an_epoch_of_fit(begin):
    command = (*SCRIPT, "--rows", str(ROWS), "--epochs", "2", "--sleep", "0.01", "--elastic-dataset")
    job = begin("--ps", "1", "--workers", "2", command=command)
    job.until(lambda: trained(job) >= 3000, "3000 rows")
    job.kill("worker-1")
    finish(job)
    report, counted = job.summary()["data"], times(job)
    assert report["records"] == report["trained"] == 2 * ROWS and report["lost"] == 0, report
    assert counted.min() >= 2 and counted.sum() - 2 * ROWS <= report["repeated"], report


@pytest.mark.timeout(400)
def test_records_of_files_are_trained_once_an_epoch_though_a_worker_and_a_ps_are_killed(begin, tmp_path):
    for part, rows in enumerate(np.array_split(np.arange(ROWS), 4)):
        np.savetxt(tmp_path / f"part-{part}.txt", rows, fmt="%d")
    command = (*SCRIPT, "--rows", str(ROWS), "--epochs", "3", "--sleep", "0.01", "--files", f"{tmp_path}/part-*.txt")
    job = begin("--ps", "2", "--workers", "2", "--setting", "peer_backup_seconds=0.5", command=command)
    job.until(lambda: trained(job) >= 3000, "3000 rows")
    job.kill("worker-0")
    job.until(lambda: trained(job) >= ROWS + 3000, "an epoch and 3000 rows")
    job.kill("ps-1")
    finish(job)
    report, counted = job.summary()["data"], times(job)
    assert report["records"] == report["trained"] == 3 * ROWS and report["lost"] == 0, report
    assert np.maximum(0, 3 - counted).sum() <= report["stale"], report
    assert np.maximum(0, counted - 3).sum() <= report["repeated"], report
    assert not any("a pass of its own" in job.log(name) for name in ("chief-0", "worker-1"))


def made(job: RealJob) -> int:
    """Steps."""
    status = job.status()
    return next((one.trained for one in (status.data if status is not None else ()) if one.name.startswith("steps")), 0)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("own", [False, True], ids=["files", "an input of each process"])
@pytest.mark.long
def test_steps_of_an_epoch_are_divided_though_a_worker_and_a_ps_are_killed(begin, tmp_path, own):
    for part, rows in enumerate(np.array_split(np.arange(ROWS), 4)):
        np.savetxt(tmp_path / f"part-{part}.txt", rows, fmt="%d")
    steps, command = 600, (*SCRIPT, "--rows", str(ROWS), "--epochs", "3", "--sleep", "0.02", "--steps", "600")
    command += ("--own",) if own else ("--files", f"{tmp_path}/part-*.txt")
    job = begin("--ps", "2", "--workers", "2", "--setting", "peer_backup_seconds=0.5", command=command)
    job.until(lambda: made(job) >= 100, "100 steps")
    job.kill("worker-0")
    job.until(lambda: made(job) >= steps + 100, "an epoch and 100 steps")
    job.kill("ps-1")
    finish(job)
    told = [each for each in epochs(job) if len(each) == 3]
    assert len(told) == 3, "chief, the worker that lived, and the one in place of the killed"
    check_all_hear_the_same(told)
    data = job.summary()["data"]["datasets"]
    counts = next(values for name, values in data.items() if name.startswith("steps"))
    assert counts["records"] == counts["trained"] == 3 * steps and counts["lost"] == 0, data
    records, counted = [values for values in data.values() if values is not counts], times(job)
    assert job.summary()["data"]["trained"] == sum(one["trained"] for one in records), "steps are no records"
    assert len(records) == (0 if own else 1)
    unsure = 32 * (counts["repeated"] + counts["stale"]) + sum(one["repeated"] + one["stale"] for one in records)
    least, most = (
        0.95 * 3 * steps * 32 - unsure,
        3 * steps * 32 + unsure,
    )  # a batch may have fewer rows while files are counted
    assert least <= counted.sum() <= most, (data, counted.sum())
    assert own or counted.min() >= 2 or records[0]["stale"], "each pass has every row"


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("rows", "passes", "steps", "of_epochs"),
    [(1280, 3, 40, 3), (1280, 3, 50, 3), (1300, 1, 20, 2)],
    ids=["as many steps as batches", "records end first", "steps end first"],
)
def test_a_pipeline_with_an_end_ends_for_all_where_its_steps_or_records_do(
    begin, tmp_path, rows, passes, steps, of_epochs
):
    """A file is a lease here: one process has the last records, and others what is left of the steps."""
    for part, numbers in enumerate(np.array_split(np.arange(rows), 2)):
        np.savetxt(tmp_path / f"part-{part}.txt", numbers, fmt="%d")
    command = (*SCRIPT, "--rows", str(rows), "--epochs", str(of_epochs), "--sleep", "0.02", "--steps", str(steps))
    command += ("--passes", str(passes), "--files", f"{tmp_path}/part-*.txt")
    job = begin("--ps", "1", "--workers", "1", command=command)
    assert job.end(300) == 0, job.tails()
    whole, batches = steps * of_epochs, rows * passes // 32
    made, said = min(whole, batches), epochs(job)
    if whole <= batches:  # else each hears of its own part of the last one
        check_all_hear_the_same(said)
    assert [len(each) for each in said] == [of_epochs] * 2, said
    assert sum(one["batches"] for each in said for one in each) == made
    data, counted = job.summary()["data"], times(job)
    of_steps = next(values for name, values in data["datasets"].items() if name.startswith("steps"))
    assert of_steps["trained"] == made and data["repeated"] == data["stale"] == data["lost"] == 0, data
    if rows % 32 == 0:
        assert (counted == passes).all() and data["trained"] == data["records"] == passes * rows, data
    else:
        assert counted.max() == 1 and counted.sum() == data["trained"] >= (made - 2) * 32, data
    ran_out = ["ran out of data" in job.log(name) for name in ("chief-0", "worker-0")]
    assert ran_out == [whole > batches] * 2
    assert not [one for one in job.events() if "suspect" in json.dumps(one) or "trains nothing" in json.dumps(one)]


@pytest.mark.timeout(300)
def test_a_chief_that_is_killed_goes_on_where_the_job_is(begin):
    command = (*SCRIPT, "--rows", "8000", "--epochs", "3", "--sleep", "0.02")
    job = begin("--ps", "1", "--workers", "1", command=command)
    job.until(lambda: trained(job) >= 9000, "an epoch")
    first = next(job.directory.glob("epoch-1.weights.h5")).stat()
    job.kill("chief-0")
    finish(job)
    report, counted = job.summary()["data"], times(job)
    assert report["trained"] == 3 * 8000 and report["lost"] == 0 and counted.min() >= 3, report
    assert next(job.directory.glob("epoch-1.weights.h5")).stat().st_mtime == first.st_mtime, "it is that of the epoch"
    told = [each for each in epochs(job) if len(each) == 3]
    assert len(told) == 2
    check_all_hear_the_same(told)


@pytest.mark.timeout(300)
def test_a_callback_that_raises_on_one_worker_costs_that_process_alone(begin):
    command = (*SCRIPT, "--rows", "8000", "--epochs", "2", "--sleep", "0.02", "--raises", "1")
    job = begin("--ps", "1", "--workers", "1", command=command)
    job.until(lambda: "KeyError: 'of the script'" in job.log("worker-0"), "Keras's own words in the log")
    finish(job)
    report, counted = job.summary()["data"], times(job)
    assert report["trained"] == 2 * 8000 and report["lost"] == 0 and counted.min() >= 2, report
    assert counted.sum() - 2 * 8000 <= report["repeated"], report
    assert job.summary()["roles"]["worker-0"]["restarted"] == 1


@pytest.mark.timeout(400)
@pytest.mark.long
def test_a_worker_that_raises_again_and_again_is_given_up_and_the_job_goes_on_without_it(begin):
    command = (*SCRIPT, "--rows", "8000", "--epochs", "3", "--sleep", "0.2", "--raises", "99")
    job = begin("--ps", "1", "--workers", "1", command=command)
    [told] = job.until(lambda: [one for one in job.events("notice") if one["code"] == "given-up"], "the notice")
    assert told["role"] == "worker-0" and "KeyError" in told["text"] and "given up" in told["text"], told
    status = job.status()
    assert status is not None and status.state == "training" and not status.failure
    assert [one.name for one in status.roles if one.name.startswith(("chief", "worker"))] == ["chief-0"]
    assert [one.notice.text for one in status.notices if one.notice.code == "given-up"] == [told["text"]]
    finish(job)
    report, counted = job.summary()["data"], times(job)
    assert report["trained"] == 3 * 8000 and report["lost"] == 0 and counted.min() >= 3, report
    assert job.summary()["roles"]["worker-0"]["restarted"] == 3


@pytest.mark.timeout(300)
@pytest.mark.parametrize("rows", ["reversed", "others"])
def test_processes_with_other_rows_are_told_and_with_another_order_need_not_be(begin, rows):
    command = (*SCRIPT, "--rows", "4000", "--epochs", "2", f"--{rows}")
    job = begin("--ps", "1", "--workers", "1", command=command)
    assert job.end(240) == 0, job.tails()
    told = [one for one in job.events("notice") if one["code"] == "other-records"]
    if rows == "reversed":
        assert not told and (times(job) == 2).all(), "they are shuffled: a number means the same row"
    else:
        assert len(told) == 1 and "load the same records everywhere" in told[0]["remedy"] and not told[0]["mended"]


def check_all_hear_the_same(told: list[list[dict]]) -> None:
    for one in zip(*told):
        assert len({json.dumps(said["logs"], sort_keys=True) for said in one}) == 1, "all hear the same of an epoch"


def bias(job: RealJob) -> float:
    return float((job.directory / "bias.txt").read_text())


STEPS = refitted.EPOCHS * refitted.ROWS // refitted.BATCH


@pytest.mark.timeout(300)
def test_nobody_trains_before_the_chief_has_a_model_nor_before_its_script_has_set_it_anew(begin):
    """The worker comes first: it would hold all of the few records there are, and wait for the chief's model for ever. And it
    comes to the second `fit` first: what it trained then was overwritten by what the chief's script sets between the two."""
    job = begin("--ps", "1", "--workers", "1", command=(*TWICE, "--late", "8", "--between", "5", "--sleep", "0.02"))
    assert job.end(240) == 0, job.tails()
    report = job.summary()["data"]
    assert report["trained"] == (1 + refitted.EPOCHS) * refitted.ROWS and report["repeated"] == report["lost"] == 0, (
        report
    )
    assert bias(job) == -STEPS - refitted.EPOCHS * refitted.TAKEN


@pytest.mark.timeout(300)
@pytest.mark.long
def test_what_callbacks_and_the_script_write_into_the_model_is_written_once_though_the_chief_is_killed(begin):
    job = begin("--ps", "1", "--workers", "1", command=(*TWICE, "--sleep", "0.3"))
    job.until(lambda: len(job.events("epoch_ended")) == 2, "the first epoch of the second fit")
    job.until(lambda: trained_in(job, 1) > 1.2 * refitted.ROWS, "a part of the next")
    job.kill("chief-0")
    assert job.end(240) == 0, job.tails()
    report = job.summary()["data"]
    assert report["lost"] == 0, report
    missed = STEPS + refitted.EPOCHS * refitted.TAKEN + bias(job)
    assert -report["repeated"] <= missed * refitted.BATCH <= report["stale"], (bias(job), report)


@pytest.mark.timeout(300)
@pytest.mark.long
def test_a_chief_that_is_killed_between_two_fits_goes_on_with_what_the_first_has_come_to(begin):
    job = begin("--ps", "1", "--workers", "1", command=(*TWICE, "--keep", "--between", "8"))
    done = job.directory / milestones.NAME
    job.until(lambda: done.exists() and json.loads(done.read_text())["ended"] == 1, "the end of the first fit")
    job.kill("chief-0")
    assert job.end(240) == 0, job.tails()
    first = refitted.ROWS // refitted.BATCH + refitted.TAKEN
    assert bias(job) == -first - STEPS - refitted.EPOCHS * refitted.TAKEN
    assert job.summary()["data"]["trained"] == (1 + refitted.EPOCHS) * refitted.ROWS


@pytest.mark.timeout(600)
def test_a_script_that_decides_between_fits_goes_one_way_everywhere(begin, tmp_path):
    """Also in a process that comes late, or again; one round the chief leaves by an exception, which the script catches."""
    all_there, last = tmp_path / "all-there", f"round {deciding.ROUNDS - 1}"
    job = begin("--ps", "1", "--workers", "1", command=("python", str(SCRIPTS / "deciding.py"), str(all_there)))
    job.until(lambda: "round 3" in job.log("chief-0"), "the fourth round")
    assert job.scale(workers=2).outcome == "committed"
    job.until(lambda: "round 4" in job.log("worker-1"), "the fifth round of who comes late")
    before = job.log("worker-0").count(last)
    job.kill("worker-0")
    job.until(lambda: job.log("worker-0").count(last) > before, "the last round of who comes again")
    job.until(lambda: all(last in job.log(role) for role in ("chief-0", "worker-1")), "the last round of the others")
    all_there.touch()
    assert job.end(240) == 0, job.tails()
    told = {
        role: [line.partition("SAYS ")[2] for line in job.log(role).splitlines() if "SAYS" in line][-deciding.LINES :]
        for role in ("chief-0", "worker-0", "worker-1")
    }
    assert len(told["chief-0"]) == deciding.LINES and "left" in told["chief-0"][2], told
    assert told["chief-0"] == told["worker-0"] == told["worker-1"], told
    assert job.summary()["data"]["lost"] == 0


def trained_in(job: RealJob, number: int) -> int:
    status = job.status()
    return status.data[number].trained if status is not None and len(status.data) > number else 0


def told_of_tables(job: RealJob) -> list[dict]:
    """By chief and worker."""
    return [
        json.loads(line.removeprefix(tables.TOLD))
        for role in ("chief-0", "worker-0")
        for line in job.log(role).splitlines() if line.startswith(tables.TOLD)
    ]  # fmt: skip


@pytest.mark.timeout(400)
@pytest.mark.long
def test_a_large_table_and_what_its_optimizer_keeps_of_it_are_on_the_ps_alone(begin):
    command = ("python", str(SCRIPTS / "tables.py"), "--rows", str(TABLE_ROWS))
    job = begin("--ps", "2", "--workers", "1", "--backup", "off", command=command)
    assert job.end(300) == 0, job.tails()
    told = told_of_tables(job)
    assert len(told) == 2 and all(np.isfinite(one["loss"]).all() for one in told), told
    assert all(one["grown"] < TABLE_ROWS * tables.WIDTH * 4 / 2 for one in told), told
    [declared] = job.events("catalogue")[-1:]
    assert declared["bytes"] > 2 * TABLE_ROWS * tables.WIDTH * 4


@pytest.mark.timeout(600)
@pytest.mark.long
def test_a_large_table_is_saved_and_loaded_by_pieces(begin, tmp_path):
    """What is in the files is twice what processes may grow by: a table, and as much that its optimizer keeps."""
    script, table = ("python", str(SCRIPTS / "tables.py"), "--rows", str(TABLE_ROWS)), TABLE_ROWS * tables.WIDTH * 4
    usual = ("--ps", "2", "--workers", "1", "--backup", "off")
    job = begin(*usual, command=(*script, "--save", str(tmp_path)))
    assert job.end(300) == 0, job.tails()
    chief, worker = told_of_tables(job)
    assert chief["grown"] + chief["saving"] < table, chief
    assert all((tmp_path / name).stat().st_size > 2 * table for name in ("all.weights.h5", "model.keras"))
    again = begin(*usual, command=(*script, "--load", str(tmp_path / "model.keras")))
    assert again.end(300) == 0, again.tails()
    for before, after in zip((chief, worker), told_of_tables(again), strict=True):
        assert after["grown"] < table and np.isfinite(after["loss"]).all(), after
        assert after["loss"][0] < before["loss"][0], "it goes on where the first has ended"


@pytest.mark.timeout(400)
@pytest.mark.long
def test_a_table_that_is_saved_while_a_ps_dies_and_while_it_moves_is_whole(begin, tmp_path):
    job = begin(
        "--ps", "2", "--workers", "1", "--max-ps", "3", "--setting", "peer_backup_seconds=0.5",
        command=("python", str(SCRIPTS / "saved.py"), str(tmp_path)),
    )  # fmt: skip
    job.until(saved.told(tmp_path, "killed", 2).exists, "three pieces")
    job.kill("ps-1")
    job.until(saved.told(tmp_path, "scaled", 2).exists, "three pieces")
    assert job.scale(ps=3).outcome == "committed"
    saved.moved(tmp_path).touch()
    assert job.end(300) == 0, job.tails()
    assert [one["role"] for one in job.events("promoted")] == ["ps-1"]
    files = [tables_in(saved.file_of(tmp_path, name)) for name in saved.NAMES]
    for one in files[1:]:
        assert sorted(one) == sorted(files[0]) and len(one) == 2, "the table, and what its optimizer keeps of it"
        for name, values in one.items():
            np.testing.assert_array_equal(values, files[0][name])


def tables_in(path) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, one: found.update({name: one[()]}) if getattr(one, "ndim", 0) == 2 else None)
    return {name: value for name, value in found.items() if len(value) == saved.ROWS}
