"""`train_on_batch`, and disk backups, in jobs without PS: workers come, go, hang and die, and what they have stays equal."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from deeprec_ext.backup import process_cuts, snapshots
from deeprec_ext.backup.files import directory
from tests.behaviour.jobs import SCRIPTS, environment
from tests.behaviour.test_fit_in_step import check, hurry, lines, step, times_given, wait_steps, wait_together

pytestmark = pytest.mark.slow

GAN, FIT = str(SCRIPTS / "gan.py"), str(SCRIPTS / "stepped.py")


def drawn(job, role: str) -> set[tuple[str, ...]]:
    return {tuple(row) for row in lines(job, "batches")[f"{role}.{job.pid(role)}"]}


@pytest.mark.parametrize("critic", ["1", pytest.param("3", marks=pytest.mark.long)])
def test_a_gan_of_train_on_batch_trains_in_step(begin, critic):
    """Each on batches of its own; who comes into the middle of a loop over two models gets both."""
    job = begin("--strategy", "allreduce", "--workers", "1", command=("python", GAN, "--critic", critic))
    wait_together(job, "chief-0", "worker-0")
    assert len(drawn(job, "chief-0") & drawn(job, "worker-0")) <= 1  # what is drawn before the first call is alike
    chief = job.pid("chief-0")
    assert job.scale(workers=2).outcome == "committed"
    wait_together(job, "chief-0", "worker-0", "worker-1")
    killed = job.kill("worker-0")
    wait_steps(job)
    job.until(lambda: job.pid("worker-0") != killed, "another process of worker-0")
    wait_together(job, "chief-0", "worker-0", "worker-1")
    stopped = job.stop("worker-1")
    wait_steps(job)
    job.go_on(stopped)
    wait_together(job, "chief-0", "worker-0", "worker-1")
    assert job.scale(workers=1).outcome == "committed"
    wait_together(job, "chief-0", "worker-0")
    assert job.pid("chief-0") == chief
    (job.directory / "enough").touch()
    assert job.end() == 0, job.output
    check(job)
    assert (job.directory / "generator.weights.h5").exists()


def test_a_chief_that_begins_while_all_others_rest_takes_the_model_of_who_comes_back(begin):
    """All do something else; the chief dies; its successor trains by itself what its script has, before a worker comes back."""
    job = begin("--strategy", "allreduce", "--workers", "1", command=("python", str(SCRIPTS / "rests.py")))
    wait_together(job, "chief-0", "worker-0", count=30)
    (job.directory / "rest").touch()
    job.until(lambda: len(lines(job, "rests")) == 2, "that both rest")
    job.until(lambda: not job.events("view_published")[-1]["workers"], "that nobody is in the ring")
    newest, worker = step(job), f"worker-0.{job.pid('worker-0')}"
    killed = job.kill("chief-0")
    job.until(lambda: job.pid("chief-0") != killed, "another chief")
    chief = f"chief-0.{job.pid('chief-0')}"
    job.until(lambda: len(lines(job, "steps").get(chief, ())) >= 5, "steps of another chief by itself")
    assert int(lines(job, "steps")[chief][0][0]) == 1, "of a model of its own"
    (job.directory / "back-worker-0").touch()

    def numbers(name: str) -> list[int]:
        return [int(row[0]) for row in lines(job, "steps")[name]]

    job.until(lambda: min(numbers(chief)[-1], numbers(worker)[-1]) > newest + 10, "steps of both together")
    (job.directory / "enough").touch()
    assert job.end() == 0, job.output
    assert numbers(worker) == sorted(set(numbers(worker))), "the worker has lost nothing"
    known = lines(job, "steps")
    ours, theirs = ({row[0]: row[1] for row in known[one] if int(row[0]) > newest} for one in (chief, worker))
    both = ours.keys() & theirs.keys()
    assert len(both) >= 5 and all(ours[one] == theirs[one] for one in both)


def cuts(path) -> list:
    return snapshots.look(directory(str(path)), may_be_new=True).manifests


def test_a_job_begins_with_the_disk_backup_of_one_that_is_gone(begin, tmp_path):
    """Of another size, with records that are not trained yet; while the chief hangs, a worker writes."""
    path = tmp_path / "backups"
    flags = ("--strategy", "allreduce", "--backup", f"disk={path}", "--setting", "disk_backup_seconds=1")
    command = ("python", FIT, "--epochs", "2", "--seconds", "0.1", "--data", "7")
    job = begin(*flags, "--workers", "1", command=command)
    job.until(lambda: cuts(path) and cuts(path)[0].step > 50, "a cut")
    stopped = job.stop("chief-0")
    pattern = re.compile(r"cut \d+ of the disk backup is written")
    job.until(lambda: pattern.search(job.log("worker-0")), "a cut of worker-0")
    job.go_on(stopped)
    wait_together(job, "chief-0", "worker-0")
    job.process.kill()
    job.process.wait(30)
    newest = cuts(path)[0]
    arrays = zip(newest.variables, process_cuts.read(directory(str(path)), newest))
    steps = max(int(array) for variable, array in arrays if variable.name.startswith("iteration"))
    assert 40 < steps <= step(job) and newest.ledger
    subprocess.run(
        [sys.executable, "-m", "deeprec_ext.cli.main", "backup", "restore", str(path), str(tmp_path / "run1" / "model")],
        check=True, env=environment(), timeout=60,
    )  # fmt: skip
    other = begin(*flags, "--workers", "2", command=command)
    wait_steps(other)
    assert hurry(other) == 0, other.output
    check(other)
    assert min(int(row[0]) for rows in lines(other, "steps").values() for row in rows) == steps + 1
    left, together = times_given(other), times_given(job) + times_given(other)
    assert sum(left.values()) < 12_800 - 32 * (steps - 25)  # what is trained is told within half a second
    assert len(together) == 6400 and min(together.values()) == 2
    assert other.summary()["data"]["trained"] == 12_800
    assert cuts(path)[0].job_id != newest.job_id
