"""Sessions that are left behind while a thread still uses them."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

tf = pytest.importorskip("tensorflow")

from deeprec_ext.elastic.placed import ExchangedError, Placed, Signature, retire  # noqa: E402
from deeprec_ext.graph import Rewritten  # noqa: E402

v1 = tf.compat.v1

LATE = """
import threading
import tensorflow as tf
from deeprec_ext.elastic.placed import Placed, Signature
from deeprec_ext.graph import Rewritten

v1 = tf.compat.v1
with tf.Graph().as_default() as graph:
    tf.constant(2.0, name="two")
placed = Placed("key", Rewritten(graph.as_graph_def(), [], [], {}, []), "", v1.ConfigProto(), threading.Event())
compiling, left = threading.Event(), threading.Event()
compiled = placed.callable

def slowly(signature):
    made = compiled(signature)
    placed._callables.clear()  # as long as it compiles it is not there
    compiling.set()
    assert left.wait(60)
    return made

placed.callable = slowly
results = []
thread = threading.Thread(target=lambda: results.extend(placed.run(Signature((), ("two:0",), ()), ())))
thread.start()
assert compiling.wait(60)
placed.leak()
left.set()
thread.join()
assert results == [2.0], results
del placed, slowly, compiled
print("alive")
"""


def test_a_run_that_comes_back_from_compiling_after_its_session_was_left_behind_does_not_crash():
    """It does in a job: a worker that leaves gives up after two seconds what destroys its iterators."""
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr[-3000:])
    assert "alive" in done.stdout


def placed_two() -> tuple[Placed, Signature]:
    with tf.Graph().as_default() as graph:
        tf.constant(2.0, name="two")
    made = Placed("key", Rewritten(graph.as_graph_def(), [], [], {}, []), "", v1.ConfigProto(), threading.Event())
    return made, Signature((), ("two:0",), ())


def test_a_session_is_not_closed_under_a_run_that_is_still_being_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the first run of a session was in a worker whose marks were turned on: it ended with "Session has been closed"."""
    placed, signature = placed_two()
    compiling, may = threading.Event(), threading.Event()
    compiled = placed.callable

    def slowly(which: Signature):
        compiling.set()
        assert may.wait(30)
        return compiled(which)

    monkeypatch.setattr(placed, "callable", slowly)
    results: list[float] = []
    run = threading.Thread(target=lambda: results.extend(placed.run(signature, ())))
    run.start()
    assert compiling.wait(30)
    closing = threading.Thread(target=retire, args=([placed],))
    closing.start()
    closing.join(0.2)
    assert not placed.closed
    may.set()
    run.join(30)
    closing.join(30)
    assert results == [2.0] and placed.closed


def test_a_run_that_comes_after_the_exchange_runs_nothing() -> None:
    placed, signature = placed_two()
    assert placed.run(signature, ()) == [2.0]
    retire([placed])
    with pytest.raises(ExchangedError):
        placed.run(signature, ())
