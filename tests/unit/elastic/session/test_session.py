"""ElasticSession and migration together, in one process: no AIMaster, no agent."""

from __future__ import annotations

import socket
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from deeprec_ext.elastic.agent.background import GivenUpError  # noqa: E402
from deeprec_ext.elastic.session import pool, usergraph  # noqa: E402
from deeprec_ext.elastic.session.placed import retire  # noqa: E402
from deeprec_ext.elastic.session.runner import AbandonedError  # noqa: E402
from deeprec_ext.elastic.session.session import ElasticSession  # noqa: E402
from deeprec_ext.tf_private.sessions import OwnSession  # noqa: E402
from tests.unit.elastic.cluster import (  # noqa: E402
    FakeHost,
    LocalCluster,
    destroy_moved,
    elastic,
    move_unseen,
    movers,
    packed_in_haste,
)  # fmt: skip

v1 = tf.compat.v1
ROWS, DIM, SLOTS = 20_000, 4, 4


def build(resource: bool = True, one_shot: bool = False):
    """A graph with two tables and a dense layer on four slots; each step uses the rows of its record number."""
    setter = v1.train.replica_device_setter(SLOTS, worker_device="/job:chief/task:0")
    with v1.device(setter), v1.variable_scope("m", use_resource=resource):
        step = v1.train.get_or_create_global_step()
        dataset = tf.data.Dataset.range(10**6).map(
            lambda i: tf.random.stateless_uniform([64], [i, 3], maxval=ROWS, dtype=tf.int64)
        )
        if one_shot:
            iterator = v1.data.make_one_shot_iterator(dataset.enumerate())
        else:
            iterator = v1.data.make_initializable_iterator(dataset.enumerate())
            v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
        record, ids = iterator.get_next()
        tables = [v1.get_variable(f"table{i}", [ROWS, DIM], initializer=v1.ones_initializer()) for i in range(2)]
        looked = tf.concat([v1.nn.embedding_lookup(table, ids) for table in tables], 1)
        dense = v1.get_variable("dense", [2 * DIM, 1], initializer=v1.ones_initializer())
        loss = tf.reduce_mean((looked @ dense) ** 2)
        train = v1.train.AdagradOptimizer(0.1).minimize(loss, step)
    return train, record, loss


def values(session):
    return session.run({variable.name: variable for variable in v1.global_variables()})


@pytest.mark.parametrize("resource", [True, False])
@pytest.mark.parametrize("one_shot", [True, False])
def test_a_change_of_ps_while_another_thread_trains_loses_no_update_and_no_record(resource, one_shot):
    cluster = LocalCluster(2)
    one, two = cluster.view(0, 0, 0, 0), cluster.view(0, 1, 0, 1, epoch=2)
    with tf.Graph().as_default() as graph:
        train, record, _ = build(resource, one_shot)
        host = FakeHost(cluster, one)
        session = elastic(host, graph)
        records = [session.run([train, record])[1] for _ in range(5)]
        stop = threading.Event()

        def loop():
            while not stop.is_set():
                records.append(session.run([train, record])[1])

        for old, new in [(one, two), (two, one), (one, two)]:
            catalogue = session.catalogue()
            moved = {s for s in range(SLOTS) if old.slot_map[s] != new.slot_map[s]}
            tracked = {v.name: v.bitmap for v in catalogue.variables if v.bitmap and v.slot in moved}
            assert tracked
            copies = movers(cluster, catalogue, old, new)
            marking = host.make(old, tracked)
            session.pool.prepare(marking)
            host.set(old, tracked)
            session.pool.exchange(marking)
            assert host.gate.wait_past(10)
            stop.clear()
            thread = threading.Thread(target=loop)
            thread.start()
            for mover in copies.values():
                mover.first()
                mover.dirty()
            session.pool.prepare(host.make(new, {}))
            host.gate.close(30)
            assert host.gate.wait_idle(10)
            for mover in copies.values():
                mover.final()
                assert mover.verify() > 0
            destroy_moved(cluster, catalogue, old, new)
            session.pool.exchange(host.set(new))
            host.gate.open()
            stop.set()
            thread.join(20)
            assert not thread.is_alive()
        assert not host.failures
        assert records == list(range(len(records)))
        assert session.run(v1.train.get_global_step()) == len(records)
        got = values(session)
        session.close()
    expected = replay(len(records), resource)
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=2e-5, atol=1e-6, err_msg=name)


def replay(steps, resource):
    """The same steps on one unmoving PS."""
    cluster = LocalCluster(1)
    with tf.Graph().as_default() as graph:
        train, record, _ = build(resource)
        session = elastic(FakeHost(cluster, cluster.view(0, 0, 0, 0)), graph)
        for _ in range(steps):
            session.run([train, record])
        result = values(session)
        session.close()
    return result


@pytest.mark.parametrize("what", ["step", "input"])
def test_a_session_that_is_opened_while_a_ps_dies_is_given_up_whatever_is_run_in_it_first(what, monkeypatch):
    """TensorFlow waits for that PS for ever: where a one-shot iterator was begun, or a run reached no PS, so did the script."""
    cluster = LocalCluster(1)
    with tf.Graph().as_default() as graph:
        train, record, _ = build(one_shot=True)
        host = FakeHost(cluster, cluster.view(0, 0, 0, 0))
        first = elastic(host, graph)
        first.run(train)
        first.close()
        opening, go_on, extend = threading.Event(), threading.Event(), OwnSession._extend_graph

        def slow(session):
            if not opening.is_set():
                opening.set()
                assert go_on.wait(60)
            extend(session)

        monkeypatch.setattr(OwnSession, "_extend_graph", slow)
        host.next_view = lambda error, failed: host.failures.append(error) or True
        session, results = ElasticSession("grpc://x", graph, None, host), []
        run = threading.Thread(
            target=lambda: results.append(session.run({"step": [train, record], "input": record}[what])), daemon=True
        )
        run.start()
        try:
            assert opening.wait(30)
            assert host.runner.abandon("a PS was lost") == 1
            run.join(30)
            assert not run.is_alive(), "the script waits for a PS that is gone"
        finally:
            go_on.set()
        assert [type(error) for error in host.failures] == [AbandonedError]
        assert len(results) == 1 and host.gate.wait_idle(10)
        session.close()


def test_a_full_queue_and_its_runners_outlive_a_change():
    """As `numpy_input_fn` and `string_input_producer` feed: threads that are held up in the session that is exchanged."""
    cluster = LocalCluster(2)
    one, two = cluster.view(0, 0), cluster.view(0, 1, epoch=2)
    with tf.Graph().as_default() as graph:
        setter = v1.train.replica_device_setter(2, worker_device="/job:chief/task:0")
        with v1.device(setter):
            step = v1.train.get_or_create_global_step()
            weights = v1.get_variable("weights", [4], initializer=v1.ones_initializer())
        with v1.device("/job:chief/task:0"):
            queue = v1.RandomShuffleQueue(100, 20, [tf.float32], [[4]])
            feed = v1.placeholder(tf.float32, [None, 4])
            put, batch, size = queue.enqueue_many([feed]), queue.dequeue_many(8), queue.size()
            closing = queue.close(cancel_pending_enqueues=True)
        with v1.device(setter):
            train = v1.train.GradientDescentOptimizer(0.01).minimize(tf.reduce_sum(batch * weights), step)
        host = FakeHost(cluster, one)
        session = elastic(host, graph)
        ended = []

        def fill():
            try:
                while True:
                    session.run(put, {feed: np.ones([16, 4], np.float32)})
            except tf.errors.CancelledError:
                ended.append("cancelled")

        runners = [threading.Thread(target=fill) for _ in range(2)]
        for runner in runners:
            runner.start()
        for old, new in [(one, two), (two, one)]:
            while session.run(size) < 100:  # then both are held up
                time.sleep(0.01)
            catalogue = session.catalogue()
            session.pool.prepare(host.make(new))
            host.gate.close(30)
            assert host.gate.wait_idle(10)
            for mover in movers(cluster, catalogue, old, new).values():
                mover.first()
                mover.final()
            destroy_moved(cluster, catalogue, old, new)
            session.pool.exchange(host.set(new))
            host.gate.open()
            assert session.run(size) == 100
            steps = threading.Thread(target=lambda: [session.run(train) for _ in range(40)], daemon=True)
            steps.start()
            steps.join(30)
            assert not steps.is_alive(), "the steps wait at an empty queue"
        session.run(closing)
        for runner in runners:
            runner.join(10)
        assert ended == ["cancelled"] * 2
        assert session.run(step) == 80
        session.close()


def test_a_stale_session_gets_an_error_and_is_run_again_on_the_next_view():
    cluster = LocalCluster(2)
    one, two = cluster.view(0, 0, 0, 0), cluster.view(1, 1, 1, 1, epoch=2)
    with tf.Graph().as_default() as graph:
        train, record, _ = build()
        host = FakeHost(cluster, one)
        session = elastic(host, graph)
        for _ in range(3):
            session.run([train, record])
        move_unseen(cluster, host, session, one, two)
        step = session.run([train, v1.train.get_global_step()])[1]
        assert len(host.failures) == 1
        assert step >= 3
        session.close()


def test_a_run_that_stays_on_the_trainer_finds_the_new_session_when_the_old_one_is_closed(monkeypatch):
    """It does not pass the gate, so nothing keeps the exchange from coming between its look at the session and its run."""
    cluster = LocalCluster(1)
    with tf.Graph().as_default() as graph:
        with v1.device("/job:ps/task:0"):
            v1.get_variable("dense", [2])
        with v1.device("/job:chief/task:0"):
            local = tf.constant(3.0) * 2.0
        host = FakeHost(cluster, cluster.view(0, 0, 0, 0))
        session = ElasticSession("grpc://x", graph, None, host)
        session.run(v1.global_variables_initializer())
        old = session.pool.present
        look, looked = session.pool.current, []

        def current():
            found = look()
            if not looked:
                looked.append(found)
                wanted = host.set(cluster.view(0, 0, 0, 0, epoch=2), {"nothing": "nothing@dirty"})
                session.pool.prepare(wanted)
                retire(session.pool.exchange(wanted))
            return found

        monkeypatch.setattr(session.pool, "current", current)
        assert session.run(local) == 6.0
        assert looked == [old] and old.closed and session.pool.present is not old
        session.close()
        with pytest.raises((tf.errors.CancelledError, RuntimeError)):
            session.run(local)


def test_a_large_graph_goes_over_in_a_session_made_in_haste_which_an_optimised_one_follows(monkeypatch):
    cluster = LocalCluster(1)
    one, two = cluster.view(0, 0, 0, 0), cluster.view(0, 0, 0, 0, epoch=2)
    with tf.Graph().as_default() as graph:
        train, record, loss = build()
        host = FakeHost(cluster, one)
        host.pack = host.optimise = "off"
        host.set(one)
        session = elastic(host, graph)
        for _ in range(3):
            session.run([train, record])
        session.run([train, record, loss])  # as with summaries: so far only once
        monkeypatch.setattr(pool, "DEAR_NODES", 0)
        done = threading.Event()
        assert session.pool.improve(done.set) is None and not session.pool.present.quick
        wanted = host.make(two, {"nothing": "nothing@dirty"})
        session.pool.prepare(wanted)
        host.set(two, {"nothing": "nothing@dirty"})
        session.pool.exchange(host.wanted())
        hasty = session.pool.present
        assert hasty.quick and compiled(hasty) == {2, 3}
        assert session.run([train, record])[1] == 4
        assert session.run([train, record, loss])[1] == 5
        assert hasty.late == 0
        pieces = 0
        while session.pool.present is hasty:
            done.clear()
            retire(session.pool.improve(done.set))
            pieces += 1
            assert session.pool.present is not hasty or done.wait(30)
        better = session.pool.present
        assert pieces == 3 and not better.quick and compiled(better) == {2, 3} and hasty.closed
        assert session.pool.improve(done.set) is None
        assert session.run([train, record])[1] == 6
        session.close()


def test_nobody_waits_for_an_optimised_session_and_it_is_dropped_where_the_view_changes_meanwhile(monkeypatch):
    cluster = LocalCluster(1)
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()
    with tf.Graph().as_default() as graph:
        train, record, _ = build()
        host = FakeHost(cluster, cluster.view(0, 0, 0, 0))
        host.pack = host.optimise = "off"
        host.set(cluster.view(0, 0, 0, 0))
        session = elastic(host, graph)
        for _ in range(3):
            session.run([train, record])
        monkeypatch.setattr(pool, "DEAR_NODES", 0)
        for epoch in (2, 3):
            tracked = {"nothing": f"nothing@{epoch}"}
            session.pool.prepare(host.make(cluster.view(0, 0, 0, 0, epoch=epoch), tracked))
            retire(session.pool.exchange(host.set(cluster.view(0, 0, 0, 0, epoch=epoch), tracked)))
            if epoch == 2:
                packed_in_haste(session)

                def held(*arguments, compiling=session.pool._compiling):
                    work = compiling(*arguments)
                    return lambda: (begun.set(), go_on.wait(30), work())

                with monkeypatch.context() as slow:
                    slow.setattr(session.pool, "_compiling", held)
                    assert session.pool.improve(done.set) == []
                assert begun.wait(30) and session.pool.improve(done.set) is None, "it is still being compiled"
        better = session.pool._better.placed
        assert session.pool.improve(done.set) is None, "not to be closed either"
        go_on.set()
        assert done.wait(30)
        done.clear()
        assert session.pool.improve(done.set) == [better]
        while session.pool.present.quick:
            assert done.wait(30)
            done.clear()
            unneeded = session.pool.improve(done.set)
        [hasty] = unneeded
        assert hasty.quick and not session.pool.present.quick and session.run([train, record])[1] == 3
        retire([better, hasty])
        session.close()


def test_an_optimised_session_of_a_ps_that_is_gone_is_left_behind():
    """Compiling it may never end, and the next one would not be begun."""
    cluster = LocalCluster(1)
    with tf.Graph().as_default() as graph:
        train, record, _ = build()
        host = FakeHost(cluster, cluster.view(0, 0, 0, 0))
        session = elastic(host, graph)
        session.run([train, record])
        hanging = session.pool._build(host.wanted(), session._user.exported())
        session.pool._better = pool._Better(hanging, host.wanted(), SimpleNamespace(ended=False))
        assert session.pool.improve(lambda: None) is None and not hanging.closed
        host.gone = True
        assert session.pool.improve(lambda: None) is None and hanging.closed and session.pool._better is None
        host.gone = False
        session.close()


def test_a_standby_session_is_usable_with_the_runs_of_every_step_and_completed_one_by_one(monkeypatch):
    monkeypatch.setattr(usergraph, "OFTEN", 2)
    cluster = LocalCluster(1)
    with tf.Graph().as_default() as graph:
        train, record, loss = build()
        host = FakeHost(cluster, cluster.view(0, 0, 0, 0))
        session = elastic(host, graph)
        session.run([train, record, loss])
        for _ in range(3):
            session.run([train, record])
        wanted = host.make(cluster.view(0, 0, 0, 0, epoch=2), {"nothing": "nothing@dirty"})
        assert not session.pool.complete(wanted)
        session.pool.prepare(wanted, standby=True)
        assert session.pool.has_standby(wanted)
        [standby] = session.pool._standby.values()
        assert compiled(standby) == {2}
        assert session.pool.complete(wanted) and compiled(standby) == {2, 3} and not standby.opened
        assert session.pool.complete(wanted) and standby.opened, "iterators begin and end there"
        assert not session.pool.complete(wanted)
        later = host.make(cluster.view(0, 0, 0, 0, epoch=3), {"nothing": "nothing@other"})
        session.pool.prepare(later, hurry=True)  # as after a loss
        host.set(cluster.view(0, 0, 0, 0, epoch=3), {"nothing": "nothing@other"})
        session.pool.exchange(host.wanted())
        assert compiled(session.pool.present) == {2}
        session.close()


@pytest.fixture
def held(monkeypatch):
    """What is compiled beside training waits for a word: (it has begun, the word)."""
    begun, go_on = threading.Event(), threading.Event()
    politely = pool.politely

    def held(work, give_up):
        begun.set()
        assert go_on.wait(30)
        return politely(work, give_up=give_up)

    monkeypatch.setattr(pool, "politely", held)
    return begun, go_on


@pytest.mark.parametrize("standby", [True, False])
def test_a_run_waits_for_the_session_that_is_being_prepared_instead_of_making_another(monkeypatch, held, standby):
    monkeypatch.setattr(usergraph, "OFTEN", 2)
    begun, go_on = held
    cluster = LocalCluster(1)
    with tf.Graph().as_default() as graph:
        train, record, loss = build()
        host = FakeHost(cluster, cluster.view(0, 0, 0, 0))
        session = elastic(host, graph)
        session.run([train, record, loss])
        for _ in range(3):
            session.run([train, record])
        builds, hurried = [], threading.Event()
        build_one = session.pool._build
        monkeypatch.setattr(session.pool, "_build", lambda *a, **k: builds.append(a) or build_one(*a, **k))
        monkeypatch.setattr(pool, "hasten", lambda: hurried.set())
        wanted = host.make(cluster.view(0, 0, 0, 0, epoch=2), {"nothing": "nothing@dirty"})
        preparing = threading.Thread(target=session.pool.prepare, args=(wanted,), kwargs={"standby": standby})
        preparing.start()
        assert begun.wait(30)
        host.set(cluster.view(0, 0, 0, 0, epoch=2), {"nothing": "nothing@dirty"})
        assert session.pool.exchange(host.wanted()) == []
        records = []
        running = threading.Thread(target=lambda: records.append(session.run([train, record])[1]))
        running.start()
        assert hurried.wait(30)
        go_on.set()
        running.join(30)
        preparing.join(30)
        assert records == [4] and len(builds) == 1
        assert compiled(session.pool.present) == {2}, "no more than the run that is waited for"
        assert not session.pool._prepared and not session.pool._standby and not session.pool._under_way
        session.close()


def test_a_session_whose_rare_runs_are_being_compiled_is_used_at_once(monkeypatch, held):
    monkeypatch.setattr(usergraph, "OFTEN", 2)
    begun, go_on = held
    cluster = LocalCluster(1)
    with tf.Graph().as_default() as graph:
        train, record, loss = build()
        host = FakeHost(cluster, cluster.view(0, 0, 0, 0))
        session = elastic(host, graph)
        session.run([train, record, loss])
        for _ in range(3):
            session.run([train, record])
        wanted = host.make(cluster.view(0, 0, 0, 0, epoch=2), {"nothing": "nothing@dirty"})
        go_on.set()
        session.pool.prepare(wanted, standby=True)
        begun.clear()
        go_on.clear()
        completing = threading.Thread(target=session.pool.complete, args=(wanted,))
        completing.start()
        assert begun.wait(30)
        host.set(cluster.view(0, 0, 0, 0, epoch=2), {"nothing": "nothing@dirty"})  # and nobody has exchanged it yet
        assert session.run([train, record])[1] == 4
        go_on.set()
        completing.join(30)
        session.close()


def test_a_session_in_use_is_not_left_behind_when_one_of_its_rare_runs_cannot_be_compiled(monkeypatch):
    monkeypatch.setattr(usergraph, "OFTEN", 2)
    cluster = LocalCluster(1)
    with tf.Graph().as_default() as graph:
        train, record, loss = build()
        host = FakeHost(cluster, cluster.view(0, 0, 0, 0))
        session = elastic(host, graph)
        session.run([train, record, loss])
        for _ in range(3):
            session.run([train, record])
        two = cluster.view(0, 0, 0, 0, epoch=2), {"nothing": "nothing@dirty"}
        session.pool.prepare(host.make(*two), standby=True)

        def fail(work, give_up):
            retire(session.pool.exchange(host.set(*two)))
            raise RuntimeError("no")

        monkeypatch.setattr(pool, "politely", fail)
        with pytest.raises(RuntimeError):
            session.pool.complete(host.make(*two))
        assert session.run([train, record])[1] == 4
        session.close()


def test_a_session_that_is_given_up_is_not_waited_for(monkeypatch, held):
    begun, go_on = held
    cluster = LocalCluster(1)
    with tf.Graph().as_default() as graph:
        train, record, _ = build()
        host = FakeHost(cluster, cluster.view(0, 0, 0, 0))
        session = elastic(host, graph)
        for _ in range(3):
            session.run([train, record])
        wanted = host.make(cluster.view(0, 0, 0, 0, epoch=2), {"nothing": "nothing@dirty"})
        hurried, failed = threading.Event(), []
        monkeypatch.setattr(pool, "hasten", lambda: hurried.set())
        one = Raised(RuntimeError("gone"), go_on, begun)
        monkeypatch.setattr(pool, "politely", one)

        def prepare():
            try:
                session.pool.prepare(wanted, standby=True)
            except RuntimeError as error:
                failed.append(str(error))

        preparing = threading.Thread(target=prepare)
        preparing.start()
        assert begun.wait(30)
        host.set(cluster.view(0, 0, 0, 0, epoch=2), {"nothing": "nothing@dirty"})
        records = []
        running = threading.Thread(target=lambda: records.append(session.run([train, record])[1]))
        running.start()
        assert hurried.wait(30)
        go_on.set()
        running.join(30)
        preparing.join(30)
        assert failed == ["gone"] and records == [3]
        session.close()


class Raised:
    def __init__(self, error, go_on, begun):
        self.error, self.go_on, self.begun = error, go_on, begun

    def __call__(self, work, give_up):
        self.begun.set()
        assert self.go_on.wait(30)
        raise self.error


def test_a_standby_session_serves_a_change_to_the_view_it_was_made_for(monkeypatch):
    monkeypatch.setattr(usergraph, "OFTEN", 2)
    cluster = LocalCluster(1)
    with tf.Graph().as_default() as graph:
        train, record, loss = build()
        host = FakeHost(cluster, cluster.view(0, 0, 0, 0))
        session = elastic(host, graph)
        session.run([train, record, loss])
        for _ in range(3):
            session.run([train, record])
        two = cluster.view(0, 0, 0, 0, epoch=2), {"nothing": "nothing@dirty"}
        session.pool.prepare(host.make(*two), standby=True)
        [standby] = session.pool._standby.values()
        session.pool.prepare(host.make(*two))
        assert compiled(standby) == {2, 3}
        host.set(*two)
        retire(session.pool.exchange(host.wanted()))
        assert session.pool.present is standby and not session.pool.drop_prepared()
        assert session.run([train, record])[1] == 4
        session.close()


def compiled(placed):
    """How many results the runs of that session have that are compiled (an operation counts as one)."""
    return {len(signature.fetches) + len(signature.targets) for signature in placed._callables}


def test_a_session_for_a_change_that_is_rolled_back_is_given_up():
    """The new PS dies while sessions are opened on it: nobody answers, and what is to be prepared later would wait."""
    cluster = LocalCluster(1)
    with socket.create_server(("127.0.0.1", 0)) as silent, tf.Graph().as_default() as graph:
        cluster.ps[7] = f"127.0.0.1:{silent.getsockname()[1]}"
        train, record, _ = build()
        host = FakeHost(cluster, cluster.view(0, 0, 0, 0))
        session = elastic(host, graph)
        session.run([train, record])
        session.run([train, record])
        threading.Timer(1.0, lambda: setattr(host, "gone", True)).start()
        began = time.monotonic()
        with pytest.raises(GivenUpError):
            session.pool.prepare(host.make(cluster.view(0, 7, 0, 7, epoch=2)))
        assert time.monotonic() - began >= 1.0
        host.gone = False
        assert session.run([train, record])[1] == 2
        session.close()


def test_a_graph_with_a_queue_on_a_ps_is_refused_by_name():
    cluster = LocalCluster(1)
    with tf.Graph().as_default() as graph:
        with v1.device("/job:ps/task:0"):
            queue = v1.FIFOQueue(10, tf.int64)
            put = queue.enqueue(1)
        host = FakeHost(cluster, cluster.view(0))
        session = ElasticSession("grpc://x", graph, None, host)
        with pytest.raises(Exception, match=r"(?i)queue"):
            session.run(put)
        assert host.refusals
        session.close()


def test_the_results_of_a_run_are_told_before_the_gate_says_that_it_is_over():
    cluster = LocalCluster(1)
    with tf.Graph().as_default() as graph:
        train, _, loss = build()
        step = graph.as_graph_element(v1.train.get_global_step())
        host = FakeHost(cluster, cluster.view(0, 0, 0, 0))
        session = elastic(host, graph)
        for _ in range(2):
            _, number, _ = session.run([train, step, loss])
            fetches, results, idle = host.runs[-1]
            assert results[fetches.index(step.name)] == number and not idle
        session.close()


def test_a_session_that_is_dropped_starts_and_waits_for_nothing_and_its_process_closes_it_later(monkeypatch):
    cluster = LocalCluster(1)
    host = FakeHost(cluster, cluster.view(0))
    with tf.Graph().as_default() as graph:
        with tf.device("/job:ps/task:0"):
            value = v1.get_variable("value", [], initializer=v1.zeros_initializer())
        bump = v1.assign_add(value, 1.0)
        session = elastic(host, graph)
    assert session.run(bump) == 1.0
    placed = session.pool.present
    host.sessions.clear()
    with monkeypatch.context() as late:  # as while the interpreter ends, where that waits for ever
        late.setattr(threading.Thread, "start", lambda thread: pytest.fail("a finaliser has started a thread"))
        del session
    [close] = host.forgotten
    assert not placed.closed
    close()
    assert placed.closed
