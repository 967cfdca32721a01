"""Gaps between steps are told by what the training thread did in them."""

from __future__ import annotations

import threading

import pytest

from deeprec_ext.elastic.agent.causes import COMPILING, GATE, OUTSIDE, SCRIPT, STEP, Causes, told


class Rig:
    """A thread whose time passes by hand."""

    def __init__(self) -> None:
        self.now, self.work = 100.0, 10.0
        self.causes = Causes(lambda: self.now, lambda: self.work)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def toil(self, seconds: float) -> None:
        self.now += seconds
        self.work += seconds


def test_the_inner_of_two_counts_alone() -> None:
    rig = Rig()
    with rig.causes.during(STEP):
        rig.sleep(1.0)
        with rig.causes.during(COMPILING):
            rig.toil(4.0)
        rig.sleep(2.0)
    assert rig.causes.take() == pytest.approx({STEP: 3.0, COMPILING: 4.0})
    assert rig.causes.take() == {}


def test_outside_of_sessions_work_is_the_scripts_and_the_rest_is_waiting() -> None:
    rig = Rig()
    with rig.causes.during(STEP):
        rig.toil(1.0)  # in TensorFlow: not the script's
    rig.toil(0.5)
    rig.sleep(0.25)
    with rig.causes.during(GATE):
        rig.sleep(2.0)
    rig.toil(0.125)
    assert rig.causes.take() == pytest.approx({STEP: 1.0, SCRIPT: 0.625, OUTSIDE: 0.25, GATE: 2.0})


def test_what_goes_on_while_it_is_taken_counts_from_then_on() -> None:
    rig = Rig()
    with rig.causes.during(STEP):
        rig.sleep(1.0)
        assert rig.causes.take() == pytest.approx({STEP: 1.0})
        rig.sleep(0.5)
    assert rig.causes.take() == pytest.approx({STEP: 0.5})


def test_an_error_ends_it_and_other_threads_do_not_count() -> None:
    causes = Causes(lambda: 0.0, lambda: 0.0)
    with pytest.raises(ValueError, match="x"), causes.during(STEP):
        raise ValueError("x")
    seen: list[list[str]] = []
    with causes.during(STEP):
        thread = threading.Thread(target=lambda: seen.append(list(causes._doing)))
        thread.start()
        thread.join()
    assert seen == [[]] and causes._doing == []


def test_a_gap_is_told_without_what_a_step_takes_anyway_and_without_trifles() -> None:
    assert told({STEP: 0.2, COMPILING: 0.81, GATE: 0.12, SCRIPT: 0.01}, 0.19) == (
        "compiling a run 0.81 s, held at the gate 0.12 s"
    )
    assert told({STEP: 0.1}, 0.2) == "" and told({}) == ""
