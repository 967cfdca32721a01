"""The graphs of the roles differ: the chief has variables of its own (own.py), on the PS and beside."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.behaviour.jobs import COUNT, RealJob
from tests.behaviour.losses import Losses
from tests.behaviour.scripts import own

pytestmark = pytest.mark.slow

OWN = (*COUNT, "--monitored", "--own")


def check_own(job: RealJob) -> None:
    """What only the chief writes is in the last checkpoint as the script alone computes it; nothing was ever restored."""
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(job.directory / "model"))
    steps = int(np.load(job.directory / "count" / "own" / "steps.npy")[0])
    assert steps > 0
    for name, value in own.expected(steps).items():
        found = reader.get_tensor(name)
        wrong = np.argwhere(found != value)
        assert not len(wrong), (
            f"{name} is wrong at {wrong[:5].tolist()} of {len(wrong)}, after {steps} steps{job.tails()}"
        )
    assert reader.get_tensor(own.HERE) > 1000.0
    assert {event["generation"] for event in job.events("view_published")} == {1}
    assert len(job.events("model_live")) == 1, job.events("model_live")
    assert not [one for one in job.summary()["failures"] if one["steps_lost"]], job.summary()["failures"]


@pytest.mark.timeout(240)
def test_what_only_the_chief_has_moves_with_its_slot_and_outlives_the_chief(begin):
    job = begin("--ps", "2", "--workers", "1", "--setting", "verify_copies=true", command=OWN)
    job.wait_scalable()
    job.wait_training("chief-0", "worker-0")
    assert job.scale(workers=2).outcome == "committed"
    job.wait_training("worker-1")  # it has told its variables, which are not the chief's
    assert job.scale(ps=1).outcome == "committed"
    job.wait_training("chief-0", "worker-0", "worker-1")
    job.kill("chief-0")
    job.until(lambda: job.log("chief-0").count("--- deeprec-ext: chief-0, start") == 2, "another chief")
    job.wait_training("chief-0")
    assert {"own_visits", "own_average", "own_history"} <= {one.name for one in job.catalogue().variables}
    assert job.finish() == 0, job.output
    assert job.check_counts({"chief-0": 1}) > 100
    check_own(job)


class Course:
    """Random changes and kills, each from a moment in which every slot has its backup."""

    def __init__(self, job: RealJob, seed: int) -> None:
        self.job, self.dice = job, random.Random(seed)
        self.ps, self.workers = 2, 1
        self.losses = Losses(job, 2)
        self.chiefs = 0

    def act(self, kind: str) -> None:
        self.losses.ps = self.ps
        self.losses.wait_protected()
        getattr(self, kind.replace(" ", "_"))()
        self.losses.ps = self.ps
        self.losses.wait_protected()
        self.job.wait_training(*(name for name in self.job.running() if name.startswith(("chief", "worker"))))
        assert not self.job.events("ps_replaced", "model_broken")

    def scale_ps(self) -> None:
        self.ps = self.dice.choice([count for count in (1, 2, 3) if count != self.ps])
        assert self.job.scale(ps=self.ps).outcome == "committed"

    def scale_workers(self) -> None:
        self.workers = self.dice.choice([count for count in (0, 1, 2) if count != self.workers])
        assert self.job.scale(workers=self.workers).outcome == "committed"

    def kill_ps(self) -> None:
        """What the chief writes in the last seconds before would be forgotten, as everybody's is: so it writes nothing then."""
        self.job.put("hold-own")
        self.losses.certain()
        event = "promoted" if self.ps > 1 else "fetched"
        before = len(self.job.events(event))
        self.job.kill(self.dice.choice(self.job.roles_of("ps")))
        self.losses.wait_event(event, before + 1)
        (self.job.directory / "count" / "hold-own").unlink()

    def kill_chief(self) -> None:
        self._kill("chief-0")
        self.chiefs += 1

    def kill_worker(self) -> None:
        self._kill(self.dice.choice(self.job.roles_of("worker") or ["chief-0"]))

    def kill_aimaster(self) -> None:
        self.job.kill_aimaster()

    def kill_chief_in_change(self) -> None:
        """In any state of a change of PS, which goes on or is rolled back."""
        want = self.dice.choice([count for count in (1, 2, 3) if count != self.ps])
        scaling = self.job.ask(ps=want).scaling_id
        self.job.wait_state(scaling, self.dice.choice(["ACQUIRE", "PREPARE", "PAUSE", "COMMIT", "RELEASE"]))
        self._kill("chief-0")
        if self.job.wait_scaling(scaling).outcome == "committed":
            self.ps = want

    def kill_ps_in_change(self) -> None:
        """While a further PS is acquired or prepared: the change is rolled back, or was quicker."""
        if self.ps == 3:
            return self.kill_ps()
        self.job.put("hold-own")
        self.losses.certain()
        events = "promoted", "fetched"
        before, victim = len(self.job.events(*events)), self.dice.choice(self.job.roles_of("ps"))
        scaling = self.job.ask(ps=self.ps + 1).scaling_id
        self.job.wait_state(scaling, self.dice.choice(["ACQUIRE", "PREPARE"]))
        self.job.kill(victim)
        self.job.until(lambda: len(self.job.events(*events)) > before, "the survivors to go on")
        (self.job.directory / "count" / "hold-own").unlink()
        self.ps += self.job.wait_scaling(scaling).outcome == "committed"

    def _kill(self, role: str) -> None:
        before = self.job.kill(role)
        self.job.until(
            lambda: (one := self.job.role(role)) and one.pid not in (0, before) and one.heartbeat.training, role
        )


TWENTY = (
    ["scale ps"] * 4 + ["scale workers"] * 3 + ["kill ps"] * 3 + ["kill ps in change"] * 2 + ["kill chief"] * 2
    + ["kill worker"] * 2 + ["kill aimaster"] + ["kill chief in change"] * 3
)  # fmt: skip


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("seed", [1, 2])
def test_twenty_random_changes_and_kills_restore_nothing_and_keep_what_only_the_chief_has(begin, seed):
    often = ("--setting", "peer_backup_seconds=0.5", "--setting", "ps_heartbeat_limit_seconds=10")
    job = begin("--ps", "2", "--workers", "1", "--max-ps", "3", *often, command=OWN)
    job.wait_scalable()
    course = Course(job, seed)
    for kind in course.dice.sample(TWENTY, len(TWENTY)):
        course.act(kind)
    assert job.finish() == 0, job.output
    check_own(job)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("again", [False, True])
def test_a_model_that_has_lost_a_variable_begins_anew_by_order_and_says_what_that_costs(begin, again):
    """`again`: the chief dies of something else first, and finds the loss when it comes back."""
    from deeprec_ext.elastic.ps.migration import destroy

    job = begin("--ps", "2", "--workers", "1", command=(*OWN, "--checkpoint-steps", "40"))
    job.wait_scalable()
    job.wait_training("chief-0", "worker-0")
    job.until(
        lambda: "own_history" in {one.name for one in job.catalogue().variables if one.update}, "the whole catalogue"
    )
    job.until(lambda: list((job.directory / "model").glob("model.ckpt-*.index")), "a checkpoint")
    lost = [one for one in job.catalogue().variables if one.name == "own_history"]
    owner = next(role for role in job.status().roles if role.task >= 0 and lost[0].slot in role.slots)
    address = job.log(owner.name).split(f"serves task {owner.task} at grpc://")[1].split()[0]
    chief = job.stop("chief-0") if again else 0
    destroy(f"grpc://{address}", owner.task, address, lost)
    if again:
        job.kill("chief-0")
        job.go_on(chief)
    job.until(lambda: job.events("model_broken"), "the loss to be found")
    job.until(lambda: len(job.events("model_live")) == 2, "the model to be restored")
    job.wait_training("chief-0", "worker-0")
    assert job.finish() == 0, job.output
    assert job.events("model_broken")[0]["variables"] == ["own_history"]
    assert job.events("view_published")[-1]["generation"] == 2
    failure = next(one for one in job.summary()["failures"] if one["role"] == "ps")
    assert failure["cause"] == "lost own_history", failure
    assert failure["recovered_by"] == "checkpoint", failure
    assert failure["steps_lost"] > 0, failure
