"""Work beside training, and when it is given up."""

from __future__ import annotations

import threading

import pytest

from deeprec_ext.elastic.background import GivenUpError, politely


def test_the_result_or_the_error_comes_back() -> None:
    assert politely(lambda a, b: a + b, 1, 2) == 3
    with pytest.raises(ZeroDivisionError):
        politely(lambda: 1 // 0, give_up=lambda: True)


def test_what_hangs_on_a_dead_ps_is_left_behind() -> None:
    over, dead = threading.Event(), threading.Event()
    threading.Timer(0.2, dead.set).start()
    with pytest.raises(GivenUpError):
        politely(over.wait, give_up=dead.is_set)
    left = [thread for thread in threading.enumerate() if thread.name == "deeprec-left-behind"]
    assert left
    over.set()
    for thread in left:
        thread.join(5)


def test_nobody_gives_up_while_there_is_hope() -> None:
    over = threading.Event()
    threading.Timer(0.3, over.set).start()
    assert politely(over.wait, give_up=lambda: False)
