"""For what sessions are made, and who waits for it to change."""

from __future__ import annotations

import dataclasses
import threading

import pytest

tf = pytest.importorskip("tensorflow")

from deeprec_ext.elastic.runtime.view import ClusterView  # noqa: E402
from deeprec_ext.elastic.session import situation as module  # noqa: E402
from deeprec_ext.elastic.session.situation import Situation  # noqa: E402

SECONDS = 10.0


def view(epoch: int, *tasks: int, generation: int = 0, served: bool = True) -> ClusterView:
    return ClusterView(epoch, {task: f"127.0.0.1:{4000 + task}" for task in tasks if served}, tasks, True, generation)


@pytest.fixture
def situation() -> Situation:
    made = Situation(("worker", 1), "127.0.0.1:1", "grpc://127.0.0.1:1", lambda: None)
    made.set(view(5, 0, 1))
    return made


def soon(function, *arguments) -> None:
    threading.Timer(0.1, function, arguments).start()


def test_a_failed_run_goes_on_in_the_view_that_comes(situation: Situation) -> None:
    failed = situation.wanted()
    soon(situation.set, view(6, 0, 2))
    assert situation.wait_other(failed, lost=True)
    assert situation.wanted().key != failed.key
    assert situation.wait_other(failed, lost=False), "it is there already"


def test_a_view_that_nobody_serves_yet_is_waited_out(situation: Situation) -> None:
    failed = situation.wanted()
    situation.lost_until = module.time.monotonic() + SECONDS
    situation.set(view(6, 0, 2, served=False))
    soon(situation.set, view(7, 0, 3))
    assert situation.wait_other(failed, lost=True)


def test_without_a_loss_or_an_old_view_the_error_is_the_users(situation: Situation, monkeypatch) -> None:
    assert not situation.wait_other(situation.wanted(), lost=False)
    monkeypatch.setattr(module, "LOST_LIMIT_SECONDS", 0.2)
    assert not situation.wait_other(situation.wanted(), lost=True), "nobody has said that a PS was lost"
    situation.lapsed = True
    soon(situation.set, view(6, 1, 1))
    assert situation.wait_other(situation.wanted(), lost=False)


def test_when_variables_were_lost_the_session_has_to_be_recovered(situation: Situation) -> None:
    soon(situation.set, view(6, 0, 2, generation=1))
    with pytest.raises(tf.errors.AbortedError, match="variables were lost"):
        situation.wait_other(situation.wanted(), lost=True)


def test_an_older_view_is_not_taken_and_lost_variables_have_no_marks(situation: Situation) -> None:
    situation.registered({"table": "table@dirty"}, frozenset({1}))
    assert situation.wanted().context.tracked == {"table": "table@dirty"}
    assert situation.set(view(4, 0, 0)) == (False, view(5, 0, 1))
    assert situation.epoch == 5 and situation.marked == {1}
    situation.set(view(6, 0, 2, generation=1))
    assert not situation.tracked and not situation.marked and not situation.wanted().context.tracked


def test_who_waits_for_the_first_view_gets_the_reason_why_there_is_none() -> None:
    made = Situation(("worker", 1), "127.0.0.1:1", "grpc://127.0.0.1:1", lambda: None)
    soon(made.fail, ValueError("refused"))
    with pytest.raises(ValueError, match="refused"):
        made.wanted()


def test_while_sessions_for_other_ps_are_asked_for_the_present_ones_are_not_needed_for_long(
    situation: Situation,
) -> None:
    assert not situation.moving
    situation.coming = frozenset((0, 1, 2))
    assert situation.moving
    situation.set(view(6, 0, 1, 2))
    assert not situation.moving, "it has come"
    situation.coming = frozenset()
    assert not situation.moving, "rolled back"


def test_guards_are_waited_for_while_writes_are_marked_and_nobody_is_named_yet(
    situation: Situation, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    assert not situation.guards_expected_seconds(), "without marks there are no backups"
    situation.track({"table": "table@dirty"}, situation.wanted())
    assert situation.guards_expected_seconds() == module.GUARDS_LIMIT_SECONDS
    now[0] += 20.0
    assert situation.guards_expected_seconds() == module.GUARDS_LIMIT_SECONDS - 20.0
    now[0] += module.GUARDS_LIMIT_SECONDS
    assert not situation.guards_expected_seconds(), "marks are for something else"
    situation.set(view(6, 0, 2))
    assert situation.guards_expected_seconds() == module.GUARDS_LIMIT_SECONDS
    situation.set(dataclasses.replace(view(7, 0, 2), backup_map=(2, 0)))
    assert not situation.guards_expected_seconds()
    situation.set(view(8, 0, 0))
    assert not situation.guards_expected_seconds(), "one PS alone has no peer"


def test_training_stands_still_from_the_word_of_a_loss_as_long_as_its_lease(
    situation: Situation, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    assert not situation.halted
    situation.lost_until = 1003.0
    assert situation.halted
    now[0] = 1004.0
    assert not situation.halted
