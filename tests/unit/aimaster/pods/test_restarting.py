from __future__ import annotations

import dataclasses

import pytest

from deeprec_ext.aimaster.pods.restarting import Action, Ended, backoff_seconds, decide, describe_exit

KILLED = Ended(
    "worker",
    137,
    by_signal=True,
    deleted=False,
    trained=True,
    served=True,
    restarts=0,
    error_restarts=0,
    restarts_max=10,
)


def ended(**changes) -> Ended:
    return dataclasses.replace(KILLED, **changes)


FAILED = {"exit_code": 1, "by_signal": False}


@pytest.mark.parametrize("role", ["ps", "chief", "worker", "evaluator", "aimaster"])
def test_a_killed_role_is_started_again_at_once(role):
    verdict = decide(ended(role=role))
    assert (verdict.action, verdict.delay_seconds) == (Action.RESTART, 0.0)


def test_a_role_that_is_killed_again_and_again_waits_longer_and_is_given_up_at_last():
    delays = [decide(ended(restarts=count)).delay_seconds for count in range(10)]
    assert delays == sorted(delays)
    assert max(delays) <= 5.0
    assert decide(ended(restarts=10)).action is Action.GIVE_UP
    assert decide(ended(role="chief", restarts=10)).action is Action.FAIL_JOB
    assert decide(ended(role="aimaster", restarts=10)).action is Action.FAIL_JOB


@pytest.mark.parametrize("role", ["chief", "worker", "evaluator"])
def test_a_script_that_fails_before_its_first_step_fails_the_job(role):
    verdict = decide(ended(role=role, trained=False, **FAILED))
    assert verdict.action is Action.FAIL_JOB
    assert verdict.reason == "exited with code 1 before its first training step"


def test_a_script_that_fails_after_progress_gets_three_more_chances():
    for count in range(3):
        assert decide(ended(restarts=count, error_restarts=count, **FAILED)).action is Action.RESTART
    assert decide(ended(restarts=3, error_restarts=3, **FAILED)).action is Action.GIVE_UP
    assert decide(ended(role="chief", restarts=3, error_restarts=3, **FAILED)).action is Action.FAIL_JOB


def test_kills_do_not_use_up_the_chances_of_errors():
    assert decide(ended(restarts=5, error_restarts=0, **FAILED)).action is Action.RESTART


def test_a_ps_that_never_comes_up_fails_a_job_that_has_not_trained_but_not_one_that_has():
    assert decide(ended(role="ps", trained=False, **FAILED)).action is Action.RESTART
    assert decide(ended(role="ps", trained=False, restarts=3, error_restarts=3, **FAILED)).action is Action.FAIL_JOB
    assert decide(ended(role="ps", restarts=3, error_restarts=3, **FAILED)).action is Action.GIVE_UP


@pytest.mark.parametrize("role", ["ps", "chief", "worker", "evaluator"])
def test_exit_0_is_done(role):
    assert decide(ended(role=role, exit_code=0, by_signal=False)).action is Action.DONE


@pytest.mark.parametrize("role", ["ps", "chief", "worker", "evaluator", "aimaster"])
def test_nothing_is_restarted_after_it_was_deleted(role):
    assert decide(ended(role=role, deleted=True)).action is Action.DONE


def test_an_aimaster_that_cannot_start_fails_the_job_and_one_that_served_comes_back():
    assert decide(ended(role="aimaster", served=False, **FAILED)).action is Action.FAIL_JOB
    assert decide(ended(role="aimaster", **FAILED)).action is Action.RESTART
    assert decide(ended(role="aimaster", exit_code=0, by_signal=False)).action is Action.RESTART


def test_exits_are_described_for_people():
    assert describe_exit(137) == "was killed by SIGKILL"
    assert describe_exit(2) == "exited with code 2"
    assert describe_exit(255) == "exited with code 255"
    assert backoff_seconds(0) == 0.0


def test_a_script_that_fails_while_nothing_can_be_written_is_started_again_and_uses_up_no_chance():
    """Its checkpoint found the disk full: it may do so as often as the disk is."""
    for count in (0, 3, 50):
        verdict = decide(ended(role="chief", restarts=count, error_restarts=3, unwritten=True, **FAILED))
        assert (verdict.action, verdict.counts) == (Action.RESTART, False) and verdict.delay_seconds > 0
    assert decide(ended(role="chief", unwritten=True, trained=False, **FAILED)).action is Action.FAIL_JOB
    assert decide(ended(role="chief", unwritten=True)).counts, "a kill is one, whatever the disk does"
    assert decide(ended(role="chief", error_restarts=3, **FAILED)).action is Action.FAIL_JOB


MINE = "ValueError at /home/me/train.py:31"


@pytest.mark.parametrize(
    ("changes", "action"),
    [
        ({"raised_at": MINE, "raised_before": MINE}, Action.FAIL_JOB),
        ({"raised_at": MINE, "raised_before": MINE, "trained_seconds": 59.0}, Action.FAIL_JOB),
        ({"raised_at": MINE, "raised_before": MINE, "trained_seconds": 3600.0}, Action.RESTART),
        ({"raised_at": MINE, "raised_before": "ValueError at /home/me/train.py:77"}, Action.RESTART),
        ({"raised_at": MINE}, Action.RESTART),
        ({}, Action.RESTART),
        ({"raised_at": MINE, "raised_before": MINE, "role": "worker"}, Action.RESTART),
        ({"raised_at": MINE, "raised_before": MINE, "unwritten": True}, Action.RESTART),
        ({"raised_at": MINE, "raised_before": MINE, "by_signal": True, "exit_code": 137}, Action.RESTART),
    ],
    ids=[
        "twice",
        "nearly at once",
        "after an hour",
        "elsewhere",
        "first",
        "not known",
        "worker",
        "full disk",
        "killed",
    ],
)
def test_a_chief_whose_script_fails_twice_at_the_same_line_is_not_started_a_third_time(changes, action):
    verdict = decide(ended(**{"role": "chief", "restarts": 1, "error_restarts": 1, **FAILED, **changes}))
    assert verdict.action is action
    if action is Action.FAIL_JOB:
        assert verdict.reason == "exited with code 1 twice, at the same line of its script"
