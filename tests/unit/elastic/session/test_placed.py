"""Sessions that are left behind while a thread still uses them."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading

import pytest

tf = pytest.importorskip("tensorflow")

from deeprec_ext.elastic.session.placed import ExchangedError, PlacedSession, Signature, retire  # noqa: E402
from deeprec_ext.graph import Rewritten  # noqa: E402

v1 = tf.compat.v1

LATE = """
import threading
import tensorflow as tf
from deeprec_ext.elastic.session.placed import PlacedSession, Signature
from deeprec_ext.graph import Rewritten

v1 = tf.compat.v1
with tf.Graph().as_default() as graph:
    tf.constant(2.0, name="two")
placed = PlacedSession("key", Rewritten(graph.as_graph_def(), [], [], {}, []), "", v1.ConfigProto(), threading.Event())
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


def placed_two() -> tuple[PlacedSession, Signature]:
    with tf.Graph().as_default() as graph:
        tf.constant(2.0, name="two")
    made = PlacedSession(
        "key", Rewritten(graph.as_graph_def(), [], [], {}, []), "", v1.ConfigProto(), threading.Event()
    )
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


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Handles of the compiled runs that TensorFlow was told to release."""
    from tensorflow.python.client import session

    handles: list[int] = []
    release = session.tf_session.TF_SessionReleaseCallable

    def noted(of: object, handle: int) -> None:
        handles.append(handle)
        release(of, handle)

    monkeypatch.setattr(session.tf_session, "TF_SessionReleaseCallable", noted)
    return handles


def test_the_garbage_collector_never_calls_tensorflow_for_a_compiled_run(released: list[int]) -> None:
    """Seen in a job: the error of a run that lost its PS held the run in a circle, the collector ended it in the training
    thread between two steps, and releasing it waited for the PS for ever."""
    placed, signature = placed_two()
    circle: list[object] = [placed.callable(signature)]
    circle.append(circle)
    placed._callables.clear()
    del circle
    gc.collect()
    assert not released
    assert placed.run(signature, ()) == [2.0] and placed.close()


def test_of_too_many_compiled_runs_the_least_used_is_released(
    monkeypatch: pytest.MonkeyPatch, released: list[int]
) -> None:
    monkeypatch.setattr("deeprec_ext.elastic.session.placed.CALLABLES_MAX", 2)
    placed, one = placed_two()
    others = [Signature((), ("two:0",) * times, ()) for times in (2, 3)]
    first = placed.callable(one)._handle
    placed.callable(others[0])
    assert not released
    placed.callable(others[1])
    assert released == [first] and not placed.is_compiled(one)
    assert placed.run(one, ()) == [2.0] and placed.close()
