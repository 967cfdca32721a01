"""The end of a process waits for threads that may be inside TensorFlow."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("tensorflow")

from deeprec_ext.elastic.background import politely, wait_for_threads


def test_the_end_waits_for_what_is_being_prepared_and_names_what_takes_too_long() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def prepare() -> int:
        begun.set()
        return int(go_on.wait(60))

    caller = threading.Thread(target=politely, args=(prepare,))
    caller.start()
    assert begun.wait(10)
    assert wait_for_threads({"deeprec-background": 0.01}) == ["deeprec-background"]
    go_on.set()
    assert wait_for_threads({"deeprec-background": 60.0}) == []
    caller.join(10)
