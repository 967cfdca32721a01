"""What is recorded is what is replayed."""

from __future__ import annotations

import dataclasses
import json

import pytest

from deeprec_ext.autoscaler.observe.observed import (
    Change,
    Limits,
    Loss,
    Model,
    Observed,
    Progress,
    RoleUse,
    Size,
    SlotUse,
    Window,
)  # fmt: skip
from deeprec_ext.autoscaler.policy.decision import Decision, Prediction
from deeprec_ext.errors import UsageError
from tests.unit.autoscaler.facts import fact

SIZE = Size(2, 3, 1.0, 0.5, 1 << 30, 2 << 30)
OBSERVED = fact(Observed,
    number=4, time=61.5, size=SIZE, limits=Limits(1, 4, 0, 8), objective="deadline", deadline_seconds=600.0,
    model=fact(Model, table_bytes=1 << 28), windows=(fact(Window, 10.0, 5.0, SIZE, 1234.5),),
    roles=(fact(RoleUse, "ps-1", cpu_cores=0.4),), slots=(fact(SlotUse, 3, "ps-1", 100, 0.2),),
    changes=(fact(Change, 20.0, "scale-up", "ps", 1, 2, "committed"),), losses=(fact(Loss, 30.0, "ps-1", "oom"),),
    progress=Progress(10, 100), reclaimed=("worker-1",),
)  # fmt: skip


def test_an_observation_comes_back_as_it_was():
    again = Observed.from_json(OBSERVED.to_json())
    assert again == OBSERVED
    assert again.to_json() == OBSERVED.to_json()


def test_an_observation_of_an_older_release_is_read_with_what_it_lacks_not_known():
    values = json.loads(OBSERVED.to_json())
    (window,), (role,) = values["windows"], values["roles"]
    window["disturbed"], role["oom_kills"] = False, 0
    for name in ("step_seconds_lasting", "stepless_seconds", "copies_bytes"):
        del role[name]
    del values["copies_bytes"]
    assert Observed.from_values({**values, "version": 1}) == OBSERVED


@pytest.mark.parametrize("kind", [Window, RoleUse, SlotUse, Change, Loss, Progress, Model, Observed])
def test_who_observes_says_everything(kind):
    """A value that nobody gives is an error, and none that looks like a measurement."""
    fields = {field.name for field in dataclasses.fields(kind)}
    assert set(kind.ABSENT) <= fields and not fields & set(getattr(kind, "GONE", ()))
    with pytest.raises(TypeError, match="missing"):
        kind(**dict.fromkeys(fields - set(kind.ABSENT)))


def test_a_decision_comes_back_as_it_was():
    decision = Decision(4, 61.5, "scale", SIZE, "because", prediction=Prediction(2.0, 1.0, 0.1, 5, (0.1, 0.2)))
    assert Decision.from_json(decision.to_json()) == decision


@pytest.mark.parametrize(
    "text, what",
    [
        ("", "no recorded observation"),
        ("[1]", "no recorded observation"),
        (json.dumps({**json.loads(OBSERVED.to_json()), "version": 9}), "version 9"),
        (json.dumps({**json.loads(OBSERVED.to_json()), "colour": 1}), "damaged"),
    ],
)
def test_what_is_no_observation_is_refused_by_name(text, what):
    with pytest.raises(UsageError, match=what):
        Observed.from_json(text)


def test_trainers_are_the_chief_and_the_workers():
    assert SIZE.trainers == 4
    assert SIZE.cpu == 2 * 1.0 + 4 * 0.5
