"""What a view becomes when a PS dies."""

from __future__ import annotations

from deeprec_ext.elastic.runtime.view import ClusterView

VIEW = ClusterView(7, {0: "a:1", 1: "b:1", 4: "c:1"}, (0, 1, 4, 0, 1, 4), backup_map=(1, 4, 0, 4, 0, 1))


def lost(views: list[ClusterView]) -> list[int]:
    return [next(task for task in VIEW.ps if task not in view.ps) for view in views]


def test_the_slots_of_each_ps_go_to_those_that_hold_their_backups() -> None:
    views = VIEW.after_losses()
    assert lost(views) == [0, 1, 4]
    assert [view.slot_map for view in views] == [(1, 1, 4, 4, 1, 4), (0, 4, 4, 0, 0, 4), (0, 1, 0, 0, 1, 1)]


def test_the_loss_of_the_fullest_ps_comes_first() -> None:
    assert lost(VIEW.after_losses({0: 10, 1: 40, 2: 30, 5: 30})) == [4, 1, 0]
    assert lost(VIEW.after_losses({})) == [0, 1, 4]


def test_a_ps_whose_slots_nobody_would_have_is_left_out() -> None:
    view = ClusterView(7, {0: "a:1", 1: "b:1"}, (0, 1), backup_map=(1, -1))
    assert [found.slot_map for found in view.after_losses({1: 5})] == [(1, 1)]
