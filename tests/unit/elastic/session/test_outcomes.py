"""What a run of an ElasticSession fails with: of the view, and then it is made again, or the script's own."""

from __future__ import annotations

import gc
import weakref

import pytest

tf = pytest.importorskip("tensorflow")

from deeprec_ext.elastic.session.runner import AbandonedError  # noqa: E402
from deeprec_ext.elastic.session.session import LOST, STALE, TWICE, TWICE_MAX  # noqa: E402
from tests.unit.elastic.cluster import FakeHost, LocalCluster, elastic  # noqa: E402

v1 = tf.compat.v1
OF_TENSORFLOW = [kind for kind in (*LOST, *STALE) if kind is not AbandonedError]


@pytest.fixture
def scene():
    """A session in a cluster that always has another view to offer, a run that reads records on a PS, and one that does not."""
    cluster = LocalCluster(1)
    with tf.Graph().as_default() as graph:
        with v1.device("/job:ps/task:0"):
            total = v1.get_variable("total", [], tf.int64, initializer=v1.zeros_initializer())
        with v1.device("/job:chief/task:0"):
            iterator = v1.data.make_initializable_iterator(tf.data.Dataset.range(20))
            v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
            record, local = iterator.get_next(), tf.constant(3.0) * 2.0
        train = v1.assign_add(total, record)
        host = FakeHost(cluster, cluster.view(0))
        host.next_view = lambda error, failed: host.failures.append(error) or True
        session = elastic(host, graph)
        yield session, host, train, local
        session.close()


def error_of(kind, text="odd"):
    return kind(text) if kind is AbandonedError else kind(None, None, text)


def once(function, error):
    """Fails the first time."""
    errors = [error]

    def fails(*arguments, **named):
        if errors:
            raise errors.pop()
        return function(*arguments, **named)

    return fails


@pytest.mark.parametrize("kind", [*LOST, *STALE])
def test_a_run_that_fails_on_a_ps_is_made_again_in_the_next_view(scene, kind, monkeypatch):
    session, host, train, _ = scene
    error = error_of(kind)
    monkeypatch.setattr(session, "_execute", once(session._execute, error))
    assert session.run(train) == 0 and host.failures == [error]


@pytest.mark.parametrize("kind", OF_TENSORFLOW)
def test_what_starting_the_input_again_fails_with_is_the_scripts(scene, kind, monkeypatch):
    session, host, train, _ = scene
    monkeypatch.setattr(session, "_execute", once(session._execute, error_of(tf.errors.OutOfRangeError)))
    monkeypatch.setattr(session._iterators, "interrupted", lambda *_: True)
    monkeypatch.setattr(session._iterators, "start_again", once(lambda *_: None, error_of(kind, "its file is gone")))
    with pytest.raises(kind, match="its file is gone"):
        session.run(train)
    assert host.failures == [] and session.run(train) == 0


@pytest.mark.parametrize("kind", OF_TENSORFLOW)
@pytest.mark.parametrize("on_ps", [True, False])
def test_what_the_gate_fails_with_is_the_scripts(scene, kind, on_ps, monkeypatch):
    session, host, train, local = scene
    session.pool.present.opened = on_ps  # a run that reaches no PS passes the gate where its session is not open yet
    monkeypatch.setattr(host.gate, "passing", once(host.gate.passing, error_of(kind)))
    with pytest.raises(kind, match="odd"):
        session.run(train if on_ps else local)
    assert host.failures == [] and session.run(local) == 6.0


@pytest.mark.parametrize("kind", OF_TENSORFLOW)
def test_what_a_run_that_reaches_no_ps_fails_with_is_the_scripts(scene, kind, monkeypatch):
    session, host, _, local = scene
    monkeypatch.setattr(session, "_execute", once(session._execute, error_of(kind)))
    with pytest.raises(kind, match="odd"):
        session.run(local)
    assert host.failures == []


@pytest.mark.parametrize("kind", LOST)
def test_where_its_session_cannot_be_opened_it_is_made_again_in_the_next_view(scene, kind, monkeypatch):
    session, host, _, local = scene
    session.pool.present.opened, error = False, error_of(kind)
    monkeypatch.setattr(session, "_open", once(session._open, error))
    assert session.run(local) == 6.0 and host.failures == [error]


def test_a_step_that_is_refused_by_number_is_run_again_but_not_for_ever(scene, monkeypatch):
    session, host, train, _ = scene
    host.next_view = lambda error, failed: bool(host.failures.append(error))
    tries = []

    def refused(*_):
        tries.append(1)
        raise tf.errors.AbortedError(None, None, TWICE)

    monkeypatch.setattr(session, "_execute", refused)
    with pytest.raises(tf.errors.AbortedError, match=TWICE):
        session.run(train)
    assert len(tries) == TWICE_MAX + 1 and len(host.failures) == 1


def test_an_error_that_reaches_the_script_keeps_nothing_alive(scene):
    session, _, train, _ = scene
    for _ in range(20):
        session.run(train)
    gc.collect()
    gc.disable()
    try:
        kept = []
        try:
            session.run(train)
        except tf.errors.OutOfRangeError as error:
            kept.append(weakref.ref(error))
        assert kept and kept[0]() is None
    finally:
        gc.enable()
