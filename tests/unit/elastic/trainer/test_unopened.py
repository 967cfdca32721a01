"""A script that ends without a session is told what is known of it, and no more."""

from __future__ import annotations

import pytest

from deeprec_ext.elastic.trainer.calling import few_ps
from deeprec_ext.elastic.trainer.unopened import GENERAL, LOCAL, NO_SESSION, text_of_script, why_no_session
from deeprec_ext.layout import Facts

CHIEF, WORKERS = ("chief", "worker", "ps"), ("worker", "ps")


def knows(*jobs: str) -> Facts:
    return Facts(tf_config=True, jobs=frozenset(jobs))


def test_a_task_type_that_it_was_never_given_is_named_with_its_layout():
    assert why_no_session(("chief", 0), False, CHIEF, knows("master", "worker", "ps")) == (
        f"{NO_SESSION}; it made its tf.train.Server as 'chief' 0; it knows 'master', a task type that it was not given: "
        "run with --layout master"
    )
    assert "run with --layout chief" in why_no_session(None, False, WORKERS, knows("chief", "worker"))


@pytest.mark.parametrize("facts", [None, knows("chief", "master", "worker"), knows()])
def test_a_server_that_was_made_and_never_used_is_told(facts):
    assert why_no_session(("chief", 0), False, CHIEF, facts) == (
        f"{NO_SESSION}; it made its tf.train.Server as 'chief' 0 and opened none on it: if it compares task types with others "
        "than 'chief' and 'worker', which it was given, run with --layout master or --layout workers"
    )


def test_who_knows_workers_alone_is_told_their_layout():
    assert why_no_session(("chief", 0), False, CHIEF, knows("worker", "ps")).endswith("run with --layout workers")


def test_a_session_on_this_machine_is_no_eager_training():
    assert why_no_session(None, True, CHIEF, knows()) == f"{NO_SESSION}; {LOCAL}"


def test_of_whom_nothing_is_known_all_ways_are_told():
    assert why_no_session(None, False, CHIEF, None) == f"{NO_SESSION}: {GENERAL}"


def test_the_text_is_that_of_the_process(tmp_path, monkeypatch):
    script = tmp_path / "train.py"
    script.write_text("x == 'master'")
    monkeypatch.setattr("sys.argv", [str(script)])
    assert text_of_script() == Facts(jobs=frozenset({"master"}))
    monkeypatch.setattr("sys.argv", ["-c"])
    assert text_of_script() is None


def test_a_cluster_of_fewer_ps_than_slots_is_told():
    assert few_ps(8, 8) is None and few_ps(0, 8) is None
    assert few_ps(1, 8) is not None and "has 1 PS and the job 8 slots" in few_ps(1, 8)[0]
