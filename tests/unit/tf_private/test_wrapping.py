"""What is exchanged while a thread is within is exchanged for that thread, and for nobody when all have left."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from deeprec_ext.tf_private.wrapping import wrap_within


class Owner:
    def text(self):
        return "plain"


def around(word):
    return lambda original, *args: f"{word}({original(*args)})"


def test_the_last_is_the_outermost_and_all_is_undone():
    before = Owner.text
    with ExitStack() as first, ExitStack() as second:
        wrap_within(first, Owner, "text", around("a"))
        wrap_within(second, Owner, "text", around("b"))
        assert Owner().text() == "b(a(plain))"
        first.close()
        assert Owner().text() == "b(plain)"
    assert Owner.text is before and Owner().text() == "plain"


def test_another_thread_has_its_own_and_leaves_when_it_likes():
    before, entered, left = Owner.text, threading.Event(), threading.Event()

    def other():
        with ExitStack() as undo:
            wrap_within(undo, Owner, "text", around("other"))
            found = Owner().text()
            entered.set()
            assert left.wait(60)
        return found, Owner().text()

    with ThreadPoolExecutor() as pool, ExitStack() as undo:
        wrap_within(undo, Owner, "text", around("mine"))
        found = pool.submit(other)
        assert entered.wait(60) and Owner().text() == "mine(plain)"
        undo.close()
        assert Owner().text() == "plain" and Owner.text is not before, "the other is still within"
        left.set()
        assert found.result() == ("other(plain)", "plain")
    assert Owner.text is before
