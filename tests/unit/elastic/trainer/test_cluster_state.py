"""For what sessions are made, and who waits for it to change."""

from __future__ import annotations

import dataclasses
import threading

import pytest

tf = pytest.importorskip("tensorflow")

from deeprec_ext.elastic.runtime.view import ClusterView  # noqa: E402
from deeprec_ext.elastic.trainer import cluster_state as module  # noqa: E402
from deeprec_ext.elastic.trainer.cluster_state import ClusterState  # noqa: E402

SECONDS = 10.0


def view(epoch: int, *tasks: int, generation: int = 0, served: bool = True) -> ClusterView:
    return ClusterView(epoch, {task: f"127.0.0.1:{4000 + task}" for task in tasks if served}, tasks, True, generation)


@pytest.fixture
def cluster() -> ClusterState:
    made = ClusterState(("worker", 1), "127.0.0.1:1", "grpc://127.0.0.1:1", lambda: None)
    made.set(view(5, 0, 1))
    return made


def soon(function, *arguments) -> None:
    threading.Timer(0.1, function, arguments).start()


def test_a_failed_run_goes_on_in_the_view_that_comes(cluster: ClusterState) -> None:
    failed = cluster.wanted()
    soon(cluster.set, view(6, 0, 2))
    assert cluster.wait_other(failed, lost=True)
    assert cluster.wanted().key != failed.key
    assert cluster.wait_other(failed, lost=False), "it is there already"


def test_a_view_that_nobody_serves_yet_is_waited_out(cluster: ClusterState) -> None:
    failed = cluster.wanted()
    cluster.lost_until = module.time.monotonic() + SECONDS
    cluster.set(view(6, 0, 2, served=False))
    soon(cluster.set, view(7, 0, 3))
    assert cluster.wait_other(failed, lost=True)


def test_without_a_loss_or_an_old_view_the_error_is_the_users(cluster: ClusterState, monkeypatch) -> None:
    assert not cluster.wait_other(cluster.wanted(), lost=False)
    monkeypatch.setattr(module, "LOST_LIMIT_SECONDS", 0.2)
    assert not cluster.wait_other(cluster.wanted(), lost=True), "nobody has said that a PS was lost"
    cluster.lapsed = True
    soon(cluster.set, view(6, 1, 1))
    assert cluster.wait_other(cluster.wanted(), lost=False)


def test_when_variables_were_lost_the_session_has_to_be_recovered(cluster: ClusterState) -> None:
    soon(cluster.set, view(6, 0, 2, generation=1))
    with pytest.raises(tf.errors.AbortedError, match="variables were lost"):
        cluster.wait_other(cluster.wanted(), lost=True)


def test_an_older_view_is_not_taken_and_lost_variables_have_no_marks(cluster: ClusterState) -> None:
    cluster.registered({"table": "table@dirty"}, frozenset({1}))
    assert cluster.wanted().context.tracked == {"table": "table@dirty"}
    assert cluster.set(view(4, 0, 0)) == (False, view(5, 0, 1))
    assert cluster.epoch == 5 and cluster.marked == {1}
    cluster.set(view(6, 0, 2, generation=1))
    assert not cluster.tracked and not cluster.marked and not cluster.wanted().context.tracked


def test_who_waits_for_the_first_view_gets_the_reason_why_there_is_none() -> None:
    made = ClusterState(("worker", 1), "127.0.0.1:1", "grpc://127.0.0.1:1", lambda: None)
    soon(made.fail, ValueError("refused"))
    with pytest.raises(ValueError, match="refused"):
        made.wanted()


def test_while_sessions_for_other_ps_are_asked_for_the_present_ones_are_not_needed_for_long(
    cluster: ClusterState,
) -> None:
    assert not cluster.moving
    cluster.coming = frozenset((0, 1, 2))
    assert cluster.moving
    cluster.set(view(6, 0, 1, 2))
    assert not cluster.moving, "it has come"
    cluster.coming = frozenset()
    assert not cluster.moving, "rolled back"


def test_guards_are_waited_for_while_writes_are_marked_and_nobody_is_named_yet(
    cluster: ClusterState, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    assert not cluster.guards_expected_seconds(), "without marks there are no backups"
    cluster.track({"table": "table@dirty"}, cluster.wanted())
    assert cluster.guards_expected_seconds() == module.GUARDS_LIMIT_SECONDS
    now[0] += 20.0
    assert cluster.guards_expected_seconds() == module.GUARDS_LIMIT_SECONDS - 20.0
    now[0] += module.GUARDS_LIMIT_SECONDS
    assert not cluster.guards_expected_seconds(), "marks are for something else"
    cluster.set(view(6, 0, 2))
    assert cluster.guards_expected_seconds() == module.GUARDS_LIMIT_SECONDS
    cluster.set(dataclasses.replace(view(7, 0, 2), backup_map=(2, 0)))
    assert not cluster.guards_expected_seconds()
    cluster.set(view(8, 0, 0))
    assert not cluster.guards_expected_seconds(), "one PS alone has no peer"


def test_training_stands_still_from_the_word_of_a_loss_as_long_as_its_lease(
    cluster: ClusterState, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    assert not cluster.halted
    cluster.lost_until = 1003.0
    assert cluster.halted
    now[0] = 1004.0
    assert not cluster.halted
