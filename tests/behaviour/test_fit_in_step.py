"""`fit` in jobs without PS: all workers make each step together, whoever comes, goes, hangs and dies."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter, defaultdict

import pytest

from tests.behaviour.jobs import SCRIPTS, RealJob

pytestmark = pytest.mark.slow

SCRIPT = str(SCRIPTS / "stepped.py")


def lines(job, kind: str) -> dict[str, list[list[str]]]:
    return {
        file.name: [line.split() for line in file.read_text().splitlines()] for file in (job.directory / kind).glob("*")
    }


def step(job) -> int:
    return max((int(rows[-1][0]) for rows in lines(job, "steps").values() if rows), default=0)


def wait_steps(job, count: int = 10) -> None:
    before = step(job)
    job.until(lambda: step(job) >= before + count, f"{count} steps after step {before}")


def wait_together(job, *roles: str, count: int = 5) -> None:
    """Until these roles have all had batches in the same steps."""

    def seen() -> bool:
        known, names = lines(job, "steps"), [f"{role}.{job.pid(role)}" for role in roles]
        return len(set.intersection(*({row[0] for row in known.get(name, ())} for name in names))) >= count

    job.until(seen, f"steps of {roles} together")


def check(job) -> None:
    """After each step all have the same, bit for bit; no process goes back, and no step comes twice in one."""
    known: dict[int, set[str]] = defaultdict(set)
    final = step(job)
    for name, rows in lines(job, "steps").items():
        steps = [int(row[0]) for row in rows]
        assert steps == sorted(set(steps)), name
        for row in rows if steps[-1:] == [final] else rows[:-1]:
            known[int(row[0])].add(row[1])
    assert {number: states for number, states in known.items() if len(states) > 1} == {}


def times_given(job) -> Counter:
    return Counter(int(row) for rows in lines(job, "rows").values() for given in rows for row in given)


def hurry(job) -> int:
    (job.directory / "hurry").touch()
    return job.end()


def test_an_unchanged_script_trains_each_row_once_an_epoch_while_workers_come_and_go(begin):
    job = begin("--strategy", "allreduce", "--workers", "1", command=("python", SCRIPT, "--fits", "2", "--buckets"))
    wait_together(job, "chief-0", "worker-0")
    for workers, roles in ((3, ("worker-1", "worker-2")), (1, ("worker-0",)), (2, ("worker-0", "worker-1"))):
        assert job.scale(workers=workers).outcome == "committed"
        wait_together(job, "chief-0", *roles)
    job.until(lambda: step(job) > 100_000, "the second fit")
    assert job.scale(workers=3).outcome == "committed"
    wait_together(job, "chief-0", "worker-0", "worker-2")
    assert hurry(job) == 0, job.output
    check(job)
    assert set(times_given(job).values()) == {6} and len(times_given(job)) == 6400
    summary = job.summary()
    assert all(one["restarted"] == 0 for one in summary["roles"].values())
    ends = lines(job, "end")
    assert len(ends) >= 2 and len({tuple(map(tuple, rows)) for rows in ends.values()}) == 1
    for kind in ("history", "measured"):
        assert len({tuple(map(tuple, rows)) for rows in lines(job, kind).values() if len(rows) == 2}) == 1, kind


def test_epochs_of_so_many_steps_end_with_them_or_with_the_records(begin):
    """Of 200 batches 60, and then all, which is fewer than the steps: both end in the same step for all."""
    command = ("python", SCRIPT, "--fits", "2", "--epochs", "1", "--steps", "60", "300", "--seconds", "0.05")
    job = begin("--strategy", "allreduce", "--workers", "1", command=command)
    wait_together(job, "chief-0", "worker-0")
    job.until(lambda: step(job) > 100_000, "the second fit")
    wait_together(job, "chief-0", "worker-0")
    assert hurry(job) == 0, job.output
    check(job)
    times: dict[bool, Counter] = {False: Counter(), True: Counter()}
    for name, rows in lines(job, "rows").items():
        for (number, _), given in zip(lines(job, "steps")[name], rows, strict=True):
            times[int(number) > 100_000].update(given)
    assert (
        sum(times[False].values()) == 60 * 32
    )  # whose next pass may have begun while others held the rest of the first
    assert len(times[True]) == 6400 and set(times[True].values()) == {1}
    assert job.log("chief-0").count("ran out of data") == 1
    assert len({tuple(map(tuple, rows)) for rows in lines(job, "end").values()}) == 1


@pytest.mark.parametrize(
    ("more", "flags"),
    [
        pytest.param((), ("--twice",), id="two sums a step", marks=pytest.mark.long),
        pytest.param((), ("--buckets",), id="in buckets", marks=pytest.mark.long),
        pytest.param(("worker_batch_max=10", "sum_compression=fp16"), (), id="in parts"),
    ],
)
def test_a_worker_that_dies_or_hangs_and_a_chief_that_dies_take_nothing_with_them(begin, more, flags):
    settings = [word for one in ("step_batch=each", "rate_scaling=linear", *more) for word in ("--setting", one)]
    job = begin(
        "--strategy", "allreduce", "--workers", "2", *settings, command=("python", SCRIPT, "--epochs", "15", *flags)
    )
    wait_together(job, "chief-0", "worker-0", "worker-1")
    for role in ("worker-1", "chief-0"):
        killed = job.kill(role)
        wait_steps(job)
        job.until(lambda role=role, killed=killed: job.pid(role) != killed, f"another process of {role}")
        wait_together(job, "chief-0", "worker-0", "worker-1")
    stopped = job.stop("worker-0")
    wait_steps(job)
    job.go_on(stopped)
    wait_together(job, "chief-0", "worker-0", "worker-1")
    assert hurry(job) == 0, job.output
    check(job)
    times = times_given(job)
    assert len(times) == 6400 and min(times.values()) >= 15
    assert sum(count - 15 for count in times.values()) < 1500
    assert len({tuple(map(tuple, rows)) for rows in lines(job, "end").values()}) == 1


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_thirty_changes_and_kills_of_a_fit_at_random(begin):
    """`SEED` chooses which. No process that is not killed begins again, and each record is trained in each epoch."""
    dice = random.Random(int(os.environ.get("SEED", "1")))
    job = begin("--strategy", "allreduce", "--workers", "2", command=("python", SCRIPT, "--epochs", "120"))
    wait_together(job, "chief-0", "worker-0", "worker-1")
    workers, struck = 2, 0
    for _ in range(30):
        kind = dice.choice(["scale", "scale", "kill", "hang", "replace"])
        here = job.roles_of("worker")
        pids = {role: job.pid(role) for role in here}
        role = ""
        if kind == "scale" or not here:
            workers = dice.choice([count for count in range(4) if count != workers])
            assert job.scale(workers=workers).outcome == "committed"
        elif kind == "replace":
            role = dice.choice(here)
            assert job.scale(replace=role).outcome == "committed"
        else:
            role = dice.choice([*here, "chief-0"] if kind == "kill" else here)
            before = job.kill(role) if kind == "kill" else job.stop(role)
            struck += 1
            if kind == "hang":
                wait_steps(job, 3)
                job.go_on(before)
            job.until(lambda role=role, before=before: job.pid(role) != before, f"another process of {role}")
        job.until(lambda workers=workers: len(job.roles_of("worker")) == workers, f"{workers} workers")
        wait_together(job, "chief-0", *job.roles_of("worker"), count=2)
        stayed = {one: pid for one, pid in pids.items() if one in job.roles_of("worker") and one != role}
        assert {one: job.pid(one) for one in stayed} == stayed
    (job.directory / "hurry").touch()
    assert job.end(900) == 0, job.output
    check(job)
    times = times_given(job)
    assert len(times) == 6400 and min(times.values()) >= 120
    assert sum(times.values()) - 120 * 6400 < 1000 * struck
    assert len({tuple(map(tuple, rows)) for rows in lines(job, "end").values()}) == 1


def test_who_comes_when_all_is_trained_has_the_model_of_the_others(begin):
    """A chief that trains alone in a moment, or nearly so: its workers are not there before."""
    job = begin(
        "--strategy",
        "allreduce",
        "--workers",
        "2",
        command=("python", SCRIPT, "--rows", "96", "--epochs", "1", "--seconds", "0"),
    )
    assert job.end() == 0, job.output
    assert len({tuple(map(tuple, rows)) for rows in lines(job, "end").values()}) == 1 < len(lines(job, "end"))


@pytest.mark.parametrize("how", [pytest.param("killed", marks=pytest.mark.long), "resumed"])
def test_a_model_that_nobody_has_any_more_goes_back_and_its_records_with_it(begin, how):
    """To what the chief has kept, with the epoch that has ended: what was trained since then is trained again."""
    flags, command = ("--strategy", "allreduce", "--workers", "0"), ("python", SCRIPT, "--rows", "1920")
    job = begin(*flags, command=command)
    job.until(lambda: step(job) >= 90, "the middle of the second epoch")  # of 60 steps each
    before = job.pid("chief-0")
    if how == "killed":
        job.kill("chief-0")
    else:
        job.process.send_signal(signal.SIGINT)
        job.end()
        job = RealJob(job.directory, ("--resume", *flags), command)
    try:
        job.until(lambda: job.pid("chief-0") != before, "another chief")
        wait_together(job, "chief-0")
        pid = job.pid("chief-0")
        assert hurry(job) == 0, job.output
    finally:
        job.close()
    again = Counter(int(row) for given in lines(job, "rows")[f"chief-0.{pid}"] for row in given)
    assert set(again.values()) == {2} and len(again) == 1920, "the model that is left has had each row in both epochs"
    assert [one["trained"] for one in job.events("ledger_rewound")] == [1920]
    assert [int(row[0]) for row in lines(job, "steps")[f"chief-0.{pid}"]] == list(range(61, 181))


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(("--buckets",), id="session"),
        pytest.param(("--estimator",), id="estimator", marks=pytest.mark.long),
    ],
)
def test_sessions_of_tensorflow_1_make_each_step_together(begin, flags):
    script = ("python", str(SCRIPTS / "session_stepped.py"), "--steps", "2000", *flags)
    scaling = () if "--estimator" in flags else ("--setting", "rate_scaling=root")
    job = begin("--strategy", "allreduce", "--workers", "1", *scaling, command=script)
    wait_together(job, "chief-0", "worker-0")
    job.until(lambda: job.status().last_step == 2000, "the step at which the sessions stop")
    assert job.scale(workers=2).outcome == "committed"
    wait_together(job, "chief-0", "worker-0", "worker-1")
    for role in ("worker-1", "chief-0"):
        killed = job.kill(role)
        wait_steps(job)
        job.until(lambda role=role, killed=killed: job.pid(role) != killed, f"another process of {role}")
        wait_together(job, "chief-0", "worker-0", "worker-1")
    assert job.scale(workers=1).outcome == "committed"
    wait_together(job, "chief-0", "worker-0")
    assert hurry(job) == 0, job.output
    check(job)
    assert step(job) == 2000
    assert list((job.directory / "model").glob("model.ckpt-2000.index"))
    if "--estimator" in flags:
        found = {name: rows[0][0] for name, rows in lines(job, "evaluated").items() if not name.startswith("worker-1")}
        assert len(found) == 2 and set(found.values()) == {"2000"}, found  # worker-1 has left before
