"""Jobs without PS: chief and workers sum, step by step; they come, go, hang and die, and what they have stays equal."""

from __future__ import annotations

import os
import random
import re
from collections import defaultdict
from pathlib import Path

import grpc
import numpy as np
import pytest

from tests.behaviour.jobs import SCRIPTS

pytestmark = pytest.mark.slow

SUMS = ("python", str(SCRIPTS / "sums.py"))
BATCH = 32


COUNTED = ("python", str(SCRIPTS / "counted.py"))


def counts(job) -> list[np.ndarray]:
    """How often each record was given to a step, as each process had it that came to the end."""
    return [np.load(file) for file in sorted((job.directory / "sums").glob("*.npy"))]


def lines(job) -> dict[str, list[tuple[int, int, float]]]:
    """role.pid → (step, check of what it has after it, records of the step) of each step, in order."""
    found = {}
    for file in sorted((job.directory / "sums").glob("*")):
        if file.suffix == ".npy":
            continue
        rows = [line.split() for line in file.read_text().splitlines()]
        found[file.name] = [(int(row[0]), int(row[1]), float(row[2])) for row in rows if len(row) == 4]
    return found


def step(job) -> int:
    return max((rows[-1][0] for rows in lines(job).values() if rows), default=0)


def wait_steps(job, count: int = 10) -> None:
    before = step(job)
    job.until(lambda: step(job) >= before + count, f"{count} steps after step {before}")


def wait_together(job, *roles: str, count: int = 5, batch: int = BATCH) -> None:
    """Until a step has counted what each of these roles gave."""
    names = {f"{role}.{job.pid(role)}" for role in roles}

    def seen() -> bool:
        rows = [set(lines(job).get(name, ())) for name in names]
        return len([row for row in set.intersection(*rows) if row[2] == batch * len(names)]) >= count

    job.until(seen, f"steps of {sorted(names)} together")


def check(job, every: bool = True) -> None:
    """Equal bit for bit after each step; no step is left out, none comes twice in a process, none goes back.

    But for the last step of who was left out just then: the others may have summed it again without it. `every` false: sums to
    which nobody gave anything are no steps."""
    known: dict[int, set[tuple[int, float]]] = defaultdict(set)
    final = step(job)
    for name, rows in lines(job).items():
        steps = [row[0] for row in rows]
        assert steps == sorted(set(steps)), name
        for number, check, records in rows if steps[-1:] == [final] else rows[:-1]:
            known[number].add((check, records))
    assert not every or sorted(known) == list(range(1, max(known) + 1))
    assert {number: states for number, states in known.items() if len(states) > 1} == {}


def last(tmp_path: Path) -> tuple[Path, tuple[str, ...]]:
    file = tmp_path / "enough"
    return file, (*SUMS, "--steps", "100000", "--until", str(file))


def test_workers_come_go_hang_and_die_and_all_stay_equal(begin, tmp_path):
    enough, command = last(tmp_path)
    job = begin("--strategy", "allreduce", "--workers", "1", command=command)
    job.until(lambda: step(job) > 5, "first steps")
    wait_together(job, "chief-0", "worker-0")
    chief = job.pid("chief-0")
    assert job.scale(workers=3).outcome == "committed"
    wait_together(job, "chief-0", "worker-0", "worker-1", "worker-2")
    killed = job.kill("worker-1")
    wait_steps(job)
    job.until(lambda: job.pid("worker-1") != killed, "another process of worker-1")
    wait_together(job, "chief-0", "worker-0", "worker-1", "worker-2")
    stopped = job.stop("worker-2")
    wait_steps(job)
    job.go_on(stopped)
    wait_together(job, "chief-0", "worker-0", "worker-1", "worker-2")
    assert job.scale(workers=1).outcome == "committed"
    wait_together(job, "chief-0", "worker-0")
    assert job.pid("chief-0") == chief
    with pytest.raises(grpc.RpcError, match="this job has no PS"):
        job.ask(ps=2)
    enough.touch()
    assert job.end() == 0, job.output
    check(job)
    summary = job.summary()
    assert [one["outcome"] for one in summary["scaling"]] == ["committed"] * 2
    assert summary["roles"]["chief-0"]["restarted"] == 0


def test_each_record_is_trained_once_an_epoch_while_workers_come_and_go(begin):
    job = begin("--strategy", "allreduce", "--workers", "1", command=COUNTED)
    job.until(lambda: step(job) > 20, "first steps")
    for workers in (3, 1, 2, 0, 2):
        assert job.scale(workers=workers).outcome == "committed"
        wait_steps(job, 20)
    assert job.end() == 0, job.output
    check(job, every=False)
    found = counts(job)
    assert len(found) == 3 and all((one == 2).all() for one in found), [np.unique(one) for one in found]
    data = job.summary()["data"]
    assert data["trained"] == 40_000 and data["repeated"] == data["lost"] == 0, data


def test_who_gets_no_records_takes_part_and_has_what_the_others_have(begin):
    """One shard for three workers: two have never a batch, and end well, with the model."""
    job = begin(
        "--strategy", "allreduce", "--workers", "2",
        command=(*COUNTED, "--records", "96", "--batch", "4", "--epochs", "3", "--seconds", "0.2"),
    )  # fmt: skip
    assert job.end() == 0, job.output
    check(job, every=False)
    found = counts(job)
    assert len(found) == 3 and all((one == 3).all() for one in found)


def test_what_a_worker_that_dies_had_is_trained_by_others(begin):
    """What it had trained and not told yet is trained twice, and none is left out."""
    job = begin("--strategy", "allreduce", "--workers", "2", command=COUNTED)
    job.until(lambda: step(job) > 20, "first steps")
    wait_together(job, "chief-0", "worker-0", "worker-1", batch=24)
    killed = job.kill("worker-1")
    wait_steps(job, 20)
    job.until(lambda: job.pid("worker-1") != killed, "another process of worker-1")
    assert job.end() == 0, job.output
    check(job, every=False)
    found = counts(job)
    assert found and all((one == found[0]).all() for one in found) and found[0].min() >= 2
    assert (found[0] > 2).sum() < 2_000


def test_the_chief_dies_and_gets_what_the_others_have(begin, tmp_path):
    enough, command = last(tmp_path)
    job = begin("--strategy", "allreduce", "--workers", "1", command=command)
    job.until(lambda: step(job) > 5, "first steps")
    wait_together(job, "chief-0", "worker-0")
    before, killed = step(job), job.kill("chief-0")
    job.until(lambda: job.pid("chief-0") != killed, "another process of the chief")
    wait_together(job, "chief-0", "worker-0")
    assert step(job) > before
    enough.touch()
    assert job.end() == 0, job.output
    check(job)


def test_the_aimaster_dies_and_nobody_waits_for_it(begin, tmp_path):
    enough, command = last(tmp_path)
    job = begin("--strategy", "allreduce", "--workers", "1", command=command)
    job.until(lambda: step(job) > 5, "first steps")
    wait_together(job, "chief-0", "worker-0")
    job.kill_aimaster()
    wait_steps(job)
    assert job.scale(workers=2).outcome == "committed"
    wait_together(job, "chief-0", "worker-0", "worker-1")
    enough.touch()
    assert job.end() == 0, job.output
    check(job)


def test_who_sums_nothing_is_told_so(begin):
    job = begin("--strategy", "allreduce", "--workers", "1", command=(*SUMS, "--never"))
    assert job.end() == 1
    assert "allreduce.join" in job.output


MODEL = "m = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)]); m.compile('sgd', 'mse')"
NEVER = """
class Never(tf.keras.Sequential):
    def train_step(self, data):
        for one in self.trainable_weights:
            one.assign(0.9 * one)
        return {"loss": 0.0}
m = Never([tf.keras.Input((2,)), tf.keras.layers.Dense(1)]); m.compile('sgd', 'mse'); m.fit(np.ones((8, 2)), np.ones(8))"""


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (f"{MODEL}; m.fit(np.ones((8, 2)), np.ones(7))", "Data cardinality is ambiguous"),
        (f"{MODEL}; m.fit((lambda: (yield np.ones((8, 2)), np.ones(8)))())", "fit .* would train a model of its own"),
        (NEVER, "applies no gradients by an optimizer of the model"),
        ("graph = tf.Graph().as_default(); graph.__enter__(); v = tf.compat.v1.get_variable('v', [2])\n"
         "step = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(v)); s = tf.compat.v1.Session()\n"
         "s.run(tf.compat.v1.global_variables_initializer()); s.run(step)",
         "a plain tf.compat.v1.Session would make a step that no other process makes"),
        ("tf.Graph().as_default().__enter__(); tf.compat.v1.train.MonitoredTrainingSession()",
         "nothing in the graph of MonitoredTrainingSession is trained by an optimizer"),
        ("tf.Graph().as_default().__enter__(); tf.compat.v1.train.MonitoredTrainingSession('grpc://127.0.0.1:1')",
         "the script trains on a cluster of its own"),
    ],
    ids=["lengths", "generator", "never", "a session", "no optimizer", "a cluster"],
)  # fmt: skip
def test_what_would_train_alone_is_refused_by_name_before_it_does(begin, tmp_path, text, what):
    script = tmp_path / "alone.py"
    script.write_text(f"import numpy as np\nimport tensorflow as tf\n{text}\nprint('it has trained')\n")
    job = begin("--strategy", "allreduce", "--workers", "1", command=("python", str(script)))
    assert job.end() in (1, 2), job.output
    assert re.search(what, " ".join(job.output.split())), job.output
    assert "it has trained" not in job.log("chief-0")


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_thirty_changes_and_kills_at_random(begin, tmp_path):
    dice = random.Random(int(os.environ.get("SEED", "1")))
    enough, command = last(tmp_path)
    job = begin("--strategy", "allreduce", "--workers", "2", command=command)
    job.until(lambda: step(job) > 5, "first steps")
    wait_together(job, "chief-0", "worker-0", "worker-1")
    workers = 2
    for _ in range(30):
        kind = dice.choice(["scale", "scale", "kill", "hang", "replace"])
        here = job.roles_of("worker")
        if kind == "scale" or not here:
            workers = dice.choice([count for count in range(4) if count != workers])
            assert job.scale(workers=workers).outcome == "committed"
        elif kind == "replace":
            assert job.scale(replace=dice.choice(here)).outcome == "committed"
        else:
            role = dice.choice([*here, "chief-0"] if kind == "kill" else here)
            before = job.kill(role) if kind == "kill" else job.stop(role)
            if kind == "hang":
                wait_steps(job, 3)
                job.go_on(before)
            job.until(lambda role=role, before=before: job.pid(role) != before, f"another process of {role}")
        job.until(lambda workers=workers: len(job.roles_of("worker")) == workers, f"{workers} workers")
        wait_together(job, "chief-0", *job.roles_of("worker"), count=2)
    enough.touch()
    assert job.end() == 0, job.output
    check(job)
