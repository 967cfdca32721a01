"""The global step: whose words move it, and whose are doubted."""

from __future__ import annotations

from deeprec_ext.aimaster.membership.globalstep import AGREED_SECONDS, GlobalStep

FAR = 2**53


def trained(seconds: int) -> GlobalStep:
    """A chief and a worker that have made ten steps a second."""
    step = GlobalStep(0)
    step.restored(0, 0.0)
    for now in range(1, seconds + 1):
        for name in ("chief-0", "worker-0"):
            assert step.hear(name, 10 * now, float(now), chief=name == "chief-0") == (True, [])
    return step


def test_a_chief_that_lies_moves_nothing_and_is_doubted_once_others_train_on() -> None:
    step = trained(5)
    believed, doubts = step.hear("chief-0", FAR, 5.1, chief=True)
    assert not believed and not doubts, "perhaps another has seen it too, and tells it in a moment"
    assert step.value == step.highest == 50
    assert step.hear("worker-0", 60, 6.0, chief=False) == (True, [])
    believed, doubts = step.hear("worker-0", 300, 6.0 + AGREED_SECONDS, chief=False)
    assert believed and [name for name, _ in doubts] == ["chief-0"]
    assert step.value == step.highest == 300
    assert step.hear("chief-0", 310, 7.0 + AGREED_SECONDS, chief=True) == (True, [])


def test_a_step_that_a_script_sets_is_believed_when_another_trainer_tells_it_too() -> None:
    step = trained(5)
    assert not step.hear("chief-0", 10**9, 5.5, chief=True)[0]
    assert step.hear("worker-0", 10**9 + 3, 5.9, chief=False) == (True, [])
    assert step.value == step.highest == 10**9 + 3


def test_a_worker_that_tells_too_much_is_doubted_at_once() -> None:
    step = trained(5)
    believed, doubts = step.hear("worker-0", FAR, 5.1, chief=False)
    assert not believed and [name for name, _ in doubts] == ["worker-0"] and step.value == 50


def test_a_chief_alone_is_believed_until_another_makes_steps_elsewhere() -> None:
    step = GlobalStep(7)
    step.restored(FAR, 0.0)
    assert step.hear("chief-0", FAR, 1.0, chief=True) == (True, []) and step.value == FAR
    assert step.hear("worker-0", 100, 2.0, chief=False) == (True, []), "its first word may be of long ago"
    assert step.value == FAR
    believed, doubts = step.hear("worker-0", 110, 3.0, chief=False)
    assert believed and [name for name, _ in doubts] == ["chief-0"]
    assert step.value == step.highest == 110


def test_a_checkpoint_of_long_ago_is_where_its_chief_says_and_others_see_it_too() -> None:
    step = GlobalStep(0)
    step.restored(10**9, 0.0)
    assert step.hear("chief-0", 10**9 + 5, 1.0, chief=True) == (True, [])
    assert step.hear("worker-0", 10**9 + 4, 1.1, chief=False) == (True, [])
    assert step.hear("worker-0", 10**9 + 14, 2.1, chief=False) == (True, [])
    assert step.value == step.highest == 10**9 + 14


def test_after_a_restore_a_worker_that_still_tells_the_old_step_is_no_liar() -> None:
    step = trained(100)
    step.restored(300, 101.0)
    assert step.hear("worker-0", 1000, 101.5, chief=False) == (True, []) and step.value == 300
    assert step.hear("chief-0", 301, 101.6, chief=True) == (True, []) and step.value == 301
    assert step.hear("worker-0", 302, 102.5, chief=False) == (True, []) and step.value == 302
    assert step.hear("worker-0", 1000, 150.0, chief=False) == (True, []) and step.value == 1000, "trained again"


def test_after_a_restore_of_long_before_nobody_is_doubted_for_the_old_step_and_nobody_shows_it() -> None:
    step = GlobalStep(0)
    step.restored(10**6, 0.0)
    names = ("chief-0", "worker-0", "worker-1")
    for name in names:
        assert step.hear(name, 10**6 + 5, 1.0, chief=name == "chief-0") == (True, [])
    step.restored(9 * 10**5, 10.0)
    for now in (10.4, 10.9):
        for name in names:
            assert step.hear(name, 10**6 + 5, now, chief=name == "chief-0") == (True, [])
    assert step.value == 9 * 10**5 and step.highest == 10**6 + 5
    for more in range(1, 30):
        for name in names:
            assert step.hear(name, 9 * 10**5 + more, 11.0 + more, chief=name == "chief-0") == (True, [])
    assert step.value == 9 * 10**5 + 29


def test_a_chief_that_jumps_when_the_others_have_left_is_believed_after_a_while() -> None:
    step = trained(5)
    assert not step.hear("chief-0", 10**8, 6.0, chief=True)[0]
    assert step.hear("chief-0", 10**8 + 200, 7.0 + AGREED_SECONDS, chief=True) == (True, [])
    assert step.value == 10**8 + 200
    assert step.hear("worker-0", 60, 20.0, chief=False)[1], "it makes steps after all"
    assert step.value == step.highest == 60
