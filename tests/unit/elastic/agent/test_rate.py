"""Learning rates of trainers that make their updates by themselves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from deeprec_ext.elastic.agent.rate import RateOfTrainer
from deeprec_ext.options import rate_factor


def settings(kind: str, steps: int = 4, base: int = 1) -> Any:
    return SimpleNamespace(rate_scaling=kind, rate_warmup_steps=steps, rate_base=base)


@pytest.mark.parametrize(
    ("kind", "of_four", "of_base_eight"),
    [("none", 1, 1), ("", 1, 1), ("linear", 4, 0.5), ("root", 2, 0.5**0.5), ("inverse", 0.25, 2),
     ("inverse_root", 0.5, 2**0.5)],
)  # fmt: skip
def test_the_factor_follows_from_the_numbers(kind, of_four, of_base_eight):
    assert rate_factor(kind, 4, 1) == of_four
    assert rate_factor(kind, 4, 8) == pytest.approx(of_base_eight)
    assert rate_factor(kind, 0, 0) == 1, "before anybody has said a number"


def test_together_trainers_with_ps_move_the_model_as_far_as_one_step_without():
    """n updates of g / n batches each, against one of the mean."""
    for n in (1, 2, 5, 16):
        assert n * rate_factor("none", n, 1) == rate_factor("linear", n, 1)
        assert n * rate_factor("inverse_root", n, 1) == pytest.approx(rate_factor("root", n, 1))
        assert n * rate_factor("inverse", n, 1) == pytest.approx(rate_factor("none", n, 1))


def test_more_trainers_make_it_less_at_once_and_fewer_more_by_and_by(caplog):
    caplog.set_level("INFO", logger="deeprec_ext")
    trainers = [1]
    rate = RateOfTrainer(lambda: trainers[0])
    said = settings("inverse")
    assert [rate.next(said) for _ in range(2)] == [1.0, 1.0]
    trainers[0] = 4
    assert rate.next(said) == 0.25
    trainers[0] = 2
    assert [rate.next(said) for _ in range(4)] == [0.375, 0.5, 0.5, 0.5]
    lines = [one.getMessage() for one in caplog.records]
    assert lines == [
        "the learning rate is multiplied by 0.25 from now on: inverse of 4 trainers",
        "the learning rate is multiplied by 0.5 from now on, by and by in 4 steps: inverse of 2 trainers",
    ]


def test_a_rate_that_is_meant_for_more_trainers_rises_from_the_script_s_own():
    rate = RateOfTrainer(lambda: 1)
    assert [rate.next(settings("inverse", 4, base=2)) for _ in range(3)] == [1.5, 2.0, 2.0]


def test_before_there_is_a_view_it_is_that_of_one():
    assert RateOfTrainer(lambda: 0).next(settings("inverse")) == 1.0
