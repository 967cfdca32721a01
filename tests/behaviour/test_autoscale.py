"""`--autoscale` with real processes in real cgroups: it decides, the job changes, nothing is lost, the record replays."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deeprec_ext.aimaster.state.declared import declaration_in, estimates_in
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.autoscaler.history.estimates import NAMES, Estimates, estimate, known
from deeprec_ext.autoscaler.history.history import Finished, History
from deeprec_ext.autoscaler.model.memory_model import Layout
from deeprec_ext.autoscaler.observe.features import declared_model, fingerprint_of
from deeprec_ext.autoscaler.observe.observed import Model, Size, Window
from deeprec_ext.autoscaler.policy.record import read
from deeprec_ext.gazer.host import machine, processors
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.behaviour.jobs import HUNGRY, ROOT, RealJob, environment
from tests.unit.autoscaler.facts import fact

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("groups_can_be_made")]

OFTEN = ("--autoscale", "--history", "off", "--setting", "decide_seconds=1", "--setting", "window_seconds=2")
MIB = 1 << 20
TABLES = ("--fields", "26", "--hidden", "64", "--state", "600000000", "--batch", "64", "--steps", "500")


def command(job: RealJob, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "deeprec_ext.cli.main", *words, str(job.directory)], env=environment(), text=True,
        capture_output=True, timeout=60,
    )  # fmt: skip


def decisions(job: RealJob) -> list[dict[str, Any]]:
    shown = command(job, "decisions", "--json")
    assert shown.returncode == 0, shown.stderr
    return json.loads(shown.stdout)


@pytest.mark.smoke
def test_a_job_that_starts_small_grows_and_its_decisions_can_be_read_and_made_again(begin: Callable[..., RealJob]):
    job = begin(*OFTEN, "--worker-cpu", "0.3", "--ps-cpu", "0.5", "--max-ps", "1", "--max-workers", "1")
    job.wait_training("chief-0", "worker-0")
    job.until(lambda: job.events("scaling_ended"), "the end of the scaling")
    job.until(
        lambda: any(one["outcome"] for one in decisions(job)) and decisions(job)[-1]["action"] == "keep",
        "what came of it, and a look after it", every=1.0,
    )  # fmt: skip
    assert job.finish() == 0, job.output
    job.check_counts()
    made = decisions(job)
    seen = read(job.directory)[-1].observed
    assert seen.hosts[0].free_memory_bytes > 0
    assert seen.changes and seen.changes[-1].decision > 0 and seen.changes[-1].foretold > 0
    assert (made[0]["number"], made[0]["action"], made[0]["size"]["workers"]) == (0, "start", 0)
    grown = [one for one in made if one["action"] == "explore"]  # of one size nobody knows how good the model is
    assert grown[0]["size"]["workers"] == 1
    for later in grown[1:]:  # where tests beside it come and go, a size may be tried again in what others leave
        assert "others leave" in later["reason"], later
    assert grown[0]["outcome"]["outcome"] == "committed" and grown[0]["outcome"]["examples_per_second_after"] > 0
    again = command(job, "plan", "--replay")
    assert again.returncode == 0, again.stdout + again.stderr


@pytest.mark.parametrize(
    ("speed", "why"),
    [
        pytest.param(70_000, "worker-0 was killed for lack of memory", id="at once"),
        pytest.param(10, "a minute and is full in", id="slowly", marks=pytest.mark.long),
    ],
)
def test_a_worker_that_needs_more_memory_is_given_it(begin: Callable[..., RealJob], speed: int, why: str):
    """After it was killed where it came without warning, and else before."""
    job = begin(
        *OFTEN, "--max-ps", "1", "--min-workers", "1", "--max-workers", "1", "--worker-memory", "1500MiB",
        "--max-worker-memory", "3GiB", command=HUNGRY,
    )  # fmt: skip
    job.wait_training("chief-0", "worker-0")
    job.put("eat-worker-0", f"1024 {speed}")
    job.until(lambda: job.events("decision_refused", "scaling_ended"), "an answer")
    assert [(one["kind"], one["target"], one["outcome"]) for one in job.events("scaling_ended")] == [
        ("resize", "worker", "committed")
    ]
    job.until(
        lambda: (one := job.role("worker-0")) is not None and one.process.memory_limit_bytes >= 2250 * MIB,
        "its new limit",
    )
    job.wait_training("worker-0", "chief-0")
    assert job.finish() == 0, job.output
    job.check_counts({"worker-0": 1})
    reasons = [one["reason"] for one in decisions(job) if one["action"] == "resize"]
    assert len(reasons) == 1 and why in reasons[0]
    causes = [one["cause"] for one in job.summary()["failures"]]
    assert causes == (["oom: memory limit of 1.6 GB"] if "killed" in why else [])


@pytest.mark.timeout(400)
@pytest.mark.long
def test_the_declared_model_says_how_many_ps_there_are_before_it_exists(begin: Callable[..., RealJob]):
    """600 MB of variables and as much of copies of them: of PS of 1.6 GB three are needed, and there before anything is."""
    job = begin(
        "--autoscale", "--history", "off", "--max-ps", "6", "--max-workers", "0", "--max-ps-memory", "1600MB",
        "--setting", "decide_seconds=600", command=("python", str(ROOT / "benchmarks" / "stock" / "train.py"), *TABLES),
    )  # fmt: skip
    assert job.end(300) == 0, job.output  # 500 large steps: 100 s where they were 5 a second
    (declared,) = job.events("declared")
    (formed,) = job.events("view_formed")
    (live,) = job.events("model_live")
    assert declared["bytes"] > 590e6 and formed["ps"] == 3
    assert declared["sequence"] < formed["sequence"] < live["sequence"]
    assert not job.events("scaling_ended") and not job.summary()["failures"], "it has written its last checkpoint too"
    start = decisions(job)[0]
    assert start["size"]["ps"] == 3 and "its variables need 3 PS" in start["reason"]
    (memory,) = job.summary()["estimator"]["ps_memory"]
    assert memory["low"] < memory["used"] < memory["high"], memory


def test_a_model_of_keras_is_declared_before_it_is_on_a_ps_and_by_estimate_in_the_same_words(
    begin: Callable[..., RealJob],
):
    """`fit` as it is written: its step is captured and declared, and then its first variable is initialised on a PS."""
    script = ("python", str(ROOT / "examples" / "keras_wide_deep" / "train.py"), "--epochs", "1", "--steps", "400")
    sizes = ("--max-ps", "1", "--max-workers", "0")
    job = begin("--autoscale", "--history", "off", *sizes, "--setting", "decide_seconds=600", command=script)
    assert job.end() == 0, job.output
    (declared,) = job.events("declared")
    (formed,) = job.events("view_formed")
    (live,) = job.events("model_live")
    assert declared["sequence"] < formed["sequence"] < live["sequence"]
    declaration, model, told = declared_of(job)
    assert (declaration.batch_size, declaration.lookups_per_example) == (256, 4)
    assert model.fields == 3, "Adagrad's are no tables of their own, and one of four is small enough to be copied whole"
    assert round(model.optimizer_slots, 3) == 1
    assert not [field.name for field in dataclasses.fields(Model) if field.name not in known(model)]
    assert told.figures and job.summary()["estimator"]["ps_memory"][0]["used"] > 0
    shown = subprocess.run(
        [sys.executable, "-m", "deeprec_ext.cli.main", "estimate", "--json", "--history", "off", *sizes, "--", *script],
        env=environment(), text=True, capture_output=True, timeout=240,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["model"] == dataclasses.asdict(model)


def a_stored_job(like: Model, number: int) -> Finished:
    """Of another script on this machine, with so many times the model: a step of it takes so much longer."""
    times = 0.4 * 1.5**number
    model = dataclasses.replace(
        like, table_bytes=int(like.table_bytes * times), dense_bytes=int(like.dense_bytes * times),
        batch_size=like.batch_size * times, lookups_per_step=like.lookups_per_step * times * times,
        flops_per_example=like.flops_per_example * times, variables=like.variables + number,
    )  # fmt: skip
    window = fact(
        Window, start=0.0, seconds=60.0, size=Size(1, 0), examples_per_second=5000 / times,
        examples_per_step=model.batch_size, trainer_cpu_cores=0.3 * times, ps_cpu_cores=0.1 * times,
        host_cores=float(len(processors())),
    )  # fmt: skip
    return Finished(
        f"other-{number}", 1e9 + number, "succeeded", 60.0, model, (window,), int(4e8 * times), int(8e8 * times), 10**6,
        fingerprint=f"f{number}", machine=machine(), name=f"stored-{number}", ps_computed_bytes=int(4e8 * times),
        ps_stored_bytes=int(1e8 * times),
    )  # fmt: skip


def declared_of(job: RealJob) -> tuple[pb.Declaration, Model, Estimates]:
    """What its chief has declared, what the AIMaster has read of that, and what it has estimated from it."""
    with contextlib.closing(Store(job.directory / "aimaster.db", read_only=True)) as store:
        declaration, told = declaration_in(store), estimates_in(store)
        assert declaration is not None and told is not None
        return declaration, declared_model(declaration, int(store.get("slots", 0))), told


def test_what_the_models_read_comes_from_the_job_and_scikit_learn_decides_where_it_says_so(
    begin: Callable[..., RealJob], tmp_path: Path
):
    """The first job teaches nothing but what this script declares; the second finds seven jobs of other scripts."""
    script = ("python", str(ROOT / "benchmarks" / "stock" / "train.py"))
    words = ("--fields", "8", "--hidden", "32", "--state", "30000000", "--batch", "64", "--steps", "60")
    sizes = ("--autoscale", "--max-ps", "1", "--max-workers", "0", "--setting", "decide_seconds=600")
    first = begin(*sizes, "--history", "off", command=(*script, *words))
    assert first.end() == 0, first.output
    _, model, alone = declared_of(first)
    nothing = [field.name for field in dataclasses.fields(Model) if field.name not in known(model)]
    assert not nothing, "a real job has told every feature that there is"
    assert not any(figure.learner for figure in alone.figures)

    place = tmp_path / "history.db"
    jobs = [a_stored_job(model, number) for number in range(7)]
    with contextlib.closing(History(place)) as history:
        for one in jobs:
            history.add(one)
    for _ in range(3):
        second = begin(*sizes, "--history", str(place), command=(*script, *words))
        assert second.end() == 0, second.output
        shown = command(second, "decisions")
        unread = "finished jobs cannot be read" in shown.stdout + second.output
        if not unread:  # within ten seconds, which a starved machine may not have
            break
    declaration, seen, told = declared_of(second)
    figures = {figure.name: figure for figure in told.figures}
    in_time = "finished jobs in time" not in shown.stdout  # else the start could not wait for them, and its figures did
    assert (set(figures), bool(told.like)) == (set(NAMES), in_time), shown.stdout + second.output
    again = estimate(
        seen, told.size, jobs[::-1], layout=Layout.of(declaration.catalogue, 8), machine=machine(),
        cores=float(len(processors())), fingerprint=fingerprint_of(declaration.catalogue),
    )  # fmt: skip
    for figure in again.figures:
        learners = ("ridge", "gradient boosting", "nearest neighbours", "Gaussian process", "three together")
        assert figure.learner in learners, figure
        assert figure.learner in figures[figure.name].ground and "7 jobs" in figures[figure.name].ground
        assert figures[figure.name].predicted == pytest.approx(figure.predicted, rel=1e-6), figure.name
        read = {name for name in figures[figure.name].features if hasattr(seen, name)}
        assert read == set(known(seen)) and all(getattr(seen, name) > 0 for name in read)
    assert "Estimated before the start:" in shown.stdout and "it was" in shown.stdout
    assert ("stored-" in shown.stdout) == in_time
