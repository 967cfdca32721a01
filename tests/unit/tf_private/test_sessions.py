"""A run of what has been run before goes past TensorFlow's flattening, and nobody sees a difference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from deeprec_ext.tf_private.sessions import DivertedSession  # noqa: E402

v1 = tf.compat.v1


class Real(DivertedSession):
    """Runs in a session of its own what it is told by names."""

    def __init__(self, graph: Any) -> None:
        super().__init__("", graph)
        self.real, self.asked, self.flattened = v1.Session(graph=graph), [], 0

    def _run(self, *arguments: Any) -> Any:
        self.flattened += 1
        return super()._run(*arguments)

    def run_names(self, feeds: Any, targets: Any, fetches: Any, options: Any, metadata: Any) -> Any:
        self.asked.append((tuple(feeds), targets, fetches))
        results = self.real.run([*fetches, *targets], feeds)
        return results[: len(fetches)]


@pytest.fixture
def session():
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, 2], name="x")
        v1.placeholder(tf.int64, [], name="n")
        words = v1.placeholder(tf.string, name="words")
        tf.identity(x * 2, name="twice")
        tf.reduce_sum(x, name="sum")
        tf.strings.length(words, name="lengths")
        tf.no_op("nothing")
        with Real(graph) as one:
            yield one


def get(session: Real, *names: str) -> list[Any]:
    return [session.graph.as_graph_element(name) for name in names]


def test_a_run_that_is_repeated_is_asked_for_in_the_same_words_and_packed_as_it_was(session):
    x, n, twice, total, nothing = get(session, "x:0", "n:0", "twice:0", "sum:0", "nothing")
    hook = object()
    feeds = {n: np.int64(3), x: np.ones([3, 2], np.float32)}
    fetches = {"caller": [twice, nothing, (total, total)], hook: {"a": twice}, "none": []}
    first, again = (session.run(fetches, dict(feeds)) for _ in range(2))
    assert session.flattened == 1 and session.asked[-1] == session.asked[-2]
    for one in (first, again):
        assert list(one) == ["caller", hook, "none"] and one["none"] == []
        np.testing.assert_array_equal(one["caller"][0], np.full([3, 2], 2.0))
        np.testing.assert_array_equal(one[hook]["a"], np.full([3, 2], 2.0))
        assert one["caller"][1:] == [None, (6.0, 6.0)]
    for _ in range(2):
        assert session.run([n, total], dict(feeds)) == [3, 6], "what is fed is fetched as it is"
    assert session.run(nothing) is None and session.run(total, {x: np.zeros([1, 2], np.float32)}) == 0


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (np.ones([3, 3], np.float32), "Cannot feed value of shape"),
        (np.ones([2], np.float32), "Cannot feed value of shape"),
        (np.array([["a", "b"]]), "could not convert string"),
    ],
    ids=["columns", "rank", "text"],
)
def test_what_does_not_fit_is_tensorflows_error(session, value, error):
    x, total = get(session, "x:0", "sum:0")
    assert session.run(total, {x: np.ones([3, 2], np.float32)}) == 6
    with pytest.raises(ValueError, match=error):
        session.run(total, {x: value})


def test_what_is_no_plain_array_goes_through_tensorflow(session):
    x, total, words, lengths = get(session, "x:0", "sum:0", "words:0", "lengths:0")
    for value in ([[1, 2]], np.array([[1, 2]]), np.array([[1.0, 2.0]])):
        assert session.run(total, {x: value}) == 3
        assert session.run("sum:0", {"x:0": value}) == 3
    assert session.flattened == 6
    for texts in (np.array(["a", "bcd"]), np.array([b"a", b"bcd"], object)) * 2:
        assert session.run(lengths, {words: texts}).tolist() == [1, 3]
    assert session.flattened == 8, "arrays of objects are what TensorFlow makes of text"


def test_a_session_that_is_closed_runs_nothing(session):
    total, x = get(session, "sum:0", "x:0")
    feeds = {x: np.ones([3, 2], np.float32)}
    session.run(total, feeds)
    session.close()
    with pytest.raises(RuntimeError, match="closed"):
        session.run(total, feeds)


def test_elements_that_are_new_for_ever_are_forgotten(session, monkeypatch):
    monkeypatch.setattr("deeprec_ext.tf_private.sessions.MET_MAX", 5)
    with session.graph.as_default():
        for number in range(20):
            assert session.run(tf.constant(number)) == number
    assert len(session.known._met) <= 7
