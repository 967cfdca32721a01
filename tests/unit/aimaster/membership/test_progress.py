"""How many steps lie between a moment and now."""

from __future__ import annotations

from deeprec_ext.aimaster.membership.progress import POINTS_MAX, Progress


def test_steps_are_counted_from_what_was_known_at_the_moment() -> None:
    progress = Progress()
    assert progress.since(5.0, 100) == 0
    for second in range(10):
        progress.note(float(second), 10 * second)
    assert progress.since(5.5, 90) == 40
    assert progress.since(5.0, 95) == 45
    assert progress.since(-1.0, 90) == 90  # older than all that is remembered: at least so many
    assert progress.since(20.0, 90) == 0


def test_points_that_come_close_together_are_one_and_the_oldest_go() -> None:
    progress = Progress()
    for number in range(20 * POINTS_MAX):
        progress.note(number / 10, number)
    assert progress.since(0.0, 20 * POINTS_MAX) <= 2 * POINTS_MAX
    progress.restored()
    progress.note(1e6, 3)
    progress.note(1e6 + 0.01, 4)
    assert progress.since(1e6 + 1, 9) == 6
