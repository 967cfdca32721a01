"""Packed runs where something goes wrong: the script must not notice."""

from __future__ import annotations

import contextlib
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from deeprec_ext import graph as passes  # noqa: E402
from deeprec_ext.elastic.session import packed, pool  # noqa: E402
from deeprec_ext.elastic.session.making import Own  # noqa: E402
from deeprec_ext.elastic.session.placed import retire  # noqa: E402
from deeprec_ext.graph import Report, Run  # noqa: E402
from tests.unit.elastic.cluster import FakeHost, LocalCluster, elastic, improved, packed_in_haste  # noqa: E402

v1 = tf.compat.v1
ROWS, DIM, TABLES = 200, 4, 8


@pytest.fixture(autouse=True)
def _as_in_training(monkeypatch):
    """Here a run that is not packed is what is tested."""
    monkeypatch.delenv("DEEPREC_EXT_TEST_PACK", raising=False)


def step(ids, by_hand=False):
    """Of the ids of a batch, one column for each table; made under a setter: (op, loss).

    `by_hand`: not by TensorFlow's gradients, which believe what is said of shapes.
    """
    start = v1.random_uniform_initializer(-1, 1, seed=3)
    with v1.variable_scope("m", use_resource=True):
        tables = [v1.get_variable(f"t{number}", [ROWS, DIM], initializer=start) for number in range(TABLES)]
        rows = [v1.nn.embedding_lookup(table, ids(number)) for number, table in enumerate(tables)]
        loss = tf.reduce_mean(tf.add_n([tf.reduce_sum(one, -1) for one in rows]) ** 2)
        if not by_hand:
            return v1.train.AdagradOptimizer(0.1).minimize(loss, v1.train.get_or_create_global_step()), loss
        changes = [tf.IndexedSlices(0.1 * one, ids(number)) for number, one in enumerate(rows)]
        return tf.group(*(table.scatter_sub(change) for table, change in zip(tables, changes))), loss


def setter():
    return v1.device(v1.train.replica_device_setter(4, worker_device="/job:chief/task:0"))


def hasty_of(session, train):
    placed = session.pool.present
    return [placed._own.has(placed.run_of(one), hasty=True) for one in placed._callables if train.name in one.targets]


def packed_of(session, train):
    placed = session.pool.present
    return [placed.is_packed(one) for one in placed._callables if train.name in one.targets]


def test_what_a_script_says_wrongly_of_a_tensor_costs_it_the_packing_and_no_step():
    """Ids that have a dimension more than it says: stock TensorFlow never looks."""
    losses = {}
    for mode, optimise in (("off", "off"), ("on", "off")):
        cluster = LocalCluster(2)
        with tf.Graph().as_default() as graph:
            with setter():
                fed = v1.placeholder(tf.int64, [None, TABLES, 1])

                def ids(number, fed=fed):
                    one = tf.identity(fed[:, number])
                    one.set_shape(None)
                    flat = tf.identity(v1.placeholder_with_default(one, None))
                    flat.set_shape([None])
                    return flat

                train, loss = step(ids, by_hand=True)
            host = FakeHost(cluster, cluster.view(0, 1, 0, 1))
            host.pack, host.optimise = mode, optimise
            host.set(cluster.view(0, 1, 0, 1))
            session = elastic(host, graph)
            given = {fed: np.arange(5 * TABLES).reshape(5, TABLES, 1)}
            losses[mode, optimise] = [session.run([train, loss], given)[1] for _ in range(3)]
            if (mode, optimise) == ("on", "off"):
                assert packed_of(session, train) == [False]
                assert session.pool.present._own._refused, "it was packed first"
            session.close()
    plain = losses.pop(("off", "off"))
    for found in losses.values():
        np.testing.assert_array_equal(plain, found)
    assert len({one.tobytes() for one in plain}) == 3, "it trains"


@pytest.mark.parametrize("text, ours", [
    ("{{function_node x}}ConcatOp : Ranks [[{{node a/b__packed}}]]\n\t [[c/_7]]", True),
    ("no shape [[{{node a/b-unpacked_1}}]] [[{{node c__flat}}]]", True),
    ("indices[0] = 7 is not in [0, 5) [[{{node a/b}}]] [[a/b__packed_S1]]", False),
    ("2 root errors [[{{node a/b__packed}}]] [[{{node a/b}}]]", False),
    ("nothing is said", False),
])  # fmt: skip
def test_whose_failure_it_is(text, ours):
    assert packed.is_ours(tf.errors.InvalidArgumentError(None, None, text)) == ours
    assert not packed.is_ours(tf.errors.UnavailableError(None, None, text)), "a PS is gone"


def own_runs(settled):
    return packed.OwnRuns(v1.GraphDef, "", v1.ConfigProto(), v1.ConfigProto(), SimpleNamespace(settled=settled))


def test_the_end_of_a_session_waits_for_nobody_who_packs():
    begun, go_on = threading.Event(), threading.Event()

    def settled(definition, run):
        begun.set()
        assert go_on.wait(60)
        return Own(v1.GraphDef(), Report("packing", 9, "", 0.0))

    runs = own_runs(settled)
    made = []
    thread = threading.Thread(target=lambda: made.append(runs.session(Run((), (), ("op",)), hasty=False)), daemon=True)
    thread.start()
    assert begun.wait(60)
    began = time.monotonic()
    runs.leave_behind()
    assert time.monotonic() - began < 5 and thread.is_alive()
    go_on.set()
    thread.join(60)
    assert made == [None] and not runs._sessions


def test_a_graph_that_tensorflow_does_not_take_is_no_end(monkeypatch):
    """Whatever it says of it."""

    def fails(*_):
        raise ValueError("no such graph")

    monkeypatch.setattr(packed, "import_definition", fails)
    runs = own_runs(lambda definition, run: Own(v1.GraphDef(), Report("packing", 9, "", 0.0)))
    assert runs.session(Run((), (), ("op",)), hasty=False) is None


def test_a_run_that_trains_nothing_is_not_looked_at(monkeypatch):
    """To read the graph of a large model once more for each of its runs takes seconds."""
    asked = []
    original = passes.pack
    monkeypatch.setattr(passes, "pack", lambda *given: asked.append(given[1].targets) or original(*given))
    cluster = LocalCluster(2)
    with tf.Graph().as_default() as graph:
        with setter():
            fed = v1.placeholder(tf.int64, [None, TABLES])
            train, loss = step(lambda number: fed[:, number])
            saver = v1.train.Saver()
        host = FakeHost(cluster, cluster.view(0, 1, 0, 1))
        host.pack = "auto"
        host.set(cluster.view(0, 1, 0, 1))
        session = elastic(host, graph)
        given = {fed: np.ones([4, TABLES], np.int64)}
        for _ in range(4):
            session.run(loss, given)
            session.run(list(v1.global_variables()))
        improved(session)
        assert saver is not None and asked == []
        for _ in range(4):
            session.run(train, given)
        improved(session)
        assert len(asked) == 1 and train.name in asked[0]
        session.close()


@contextlib.contextmanager
def dear(monkeypatch, pack="on"):
    """Session and train op of a graph that counts as dear to compile, what makes a step, and what changes its view; each of its
    sessions is optimised by itself."""
    cluster = LocalCluster(2)
    with tf.Graph().as_default() as graph:
        with setter():
            fed = v1.placeholder(tf.int64, [None, TABLES])
            train, loss = step(lambda number: fed[:, number])
        host = FakeHost(cluster, cluster.view(0, 1, 0, 1))
        host.pack, host.optimise = pack, "off"
        host.set(cluster.view(0, 1, 0, 1))
        session = elastic(host, graph)

        def make():
            session.run(train, {fed: np.ones([4, TABLES], np.int64)})
            if pack == "auto":
                session.run(loss, {fed: np.ones([4, TABLES], np.int64)})

        def change(epoch, *, standby=True):
            marked = cluster.view(0, 1, 0, 1, epoch=epoch), {"nothing": f"nothing@{epoch}"}
            session.pool.prepare(host.make(*marked), standby=standby)
            retire(session.pool.exchange(host.set(*marked)))
            make()

        for _ in range(4):
            make()
        monkeypatch.setattr(pool, "DEAR_NODES", 100)
        yield session, train, make, change
        session.close()


def until_optimised(session, train, make):
    """Whether the step was packed after each piece of work on a better session, until that is in use."""
    hasty, done, found = session.pool.present, threading.Event(), []
    packed_in_haste(session)
    while session.pool.present is hasty:
        done.clear()
        retire(session.pool.improve(done.set) or [])
        assert session.pool.present is not hasty or done.wait(60)
        if session.pool.present is hasty:
            make()
            found += packed_of(session, train)
    return found


@pytest.mark.parametrize("standby", [False, True])
def test_a_graph_that_is_dear_to_compile_is_made_in_haste_and_then_packed(monkeypatch, standby):
    """That takes the optimiser the time it takes, so nothing is left to be improved."""
    with dear(monkeypatch) as (session, train, make, change):
        change(2, standby=standby)
        assert session.pool.present.quick and packed_of(session, train) == [False]
        done = threading.Event()
        session.pool.pack_present(done.set)
        assert done.wait(60) and packed_of(session, train) == [True]
        done.clear()
        session.pool.pack_present(done.set)
        assert session.pool._better is None and not done.is_set(), "there is nothing else to be packed"
        make()
        assert session.pool.improve(done.set) is None
        make()


def test_a_run_that_the_optimiser_has_not_seen_has_the_whole_session_exchanged(monkeypatch):
    """It trains nothing, so it is not packed."""
    with dear(monkeypatch, "auto") as (session, train, make, change):
        change(2)
        found = until_optimised(session, train, make)
        assert found and all(found)
        assert not session.pool.present.quick and packed_of(session, train) == [True]
        make()


def test_a_step_with_options_is_made_beside_packed_ones():
    """A profiler's: it goes through the session that is not packed, on the same variables."""
    cluster = LocalCluster(2)
    with tf.Graph().as_default() as graph:
        with setter():
            fed = v1.placeholder(tf.int64, [None, TABLES])
            train, loss = step(lambda number: fed[:, number])
        session = elastic(FakeHost(cluster, cluster.view(0, 1, 0, 1)), graph)
        given = {fed: np.ones([4, TABLES], np.int64)}
        losses = [session.run([train, loss], given)[1]]
        metadata = v1.RunMetadata()
        options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
        losses.append(session.run([train, loss], given, options, metadata)[1])
        losses.append(session.run([train, loss], given)[1])
        assert len(metadata.step_stats.dev_stats) >= 3 and packed_of(session, train) == [True]
        assert losses == sorted(losses, reverse=True) and len(set(losses)) == 3
        assert session.run(v1.train.get_global_step()) == 3
        session.close()


def test_closing_ends_a_packed_step_that_waits_for_its_input():
    cluster = LocalCluster(2)
    with tf.Graph().as_default() as graph:
        with setter():
            with v1.device("/job:chief/task:0"):
                queue = v1.FIFOQueue(4, [tf.int64], [[4, TABLES]], name="input")
                put = queue.enqueue([tf.ones([4, TABLES], tf.int64)])
                batch = queue.dequeue()
            train, _ = step(lambda number: batch[:, number])
        session = elastic(FakeHost(cluster, cluster.view(0, 1, 0, 1)), graph)
        session.run(put)
        session.run(train)
        assert packed_of(session, train) == [True]
        ended = []

        def wait():
            try:
                session.run(train)
            except Exception as error:
                ended.append(error)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        deadline = time.monotonic() + 30
        while session.pool.present._running == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        session.close()
        thread.join(30)
        assert not thread.is_alive()
        # The last: the step had not come as far as TensorFlow, which refuses it in a session that is closed.
        kinds = tf.errors.CancelledError, tf.errors.AbortedError, tf.errors.FailedPreconditionError
        assert isinstance(ended[0], kinds), ended


def test_a_step_after_a_loss_opens_nothing_that_it_does_not_need(monkeypatch):
    """What opens a session on PS is called by the runner, which can give it up, and of what was optimised before nothing else
    is imported; a step that is profiled needs the whole graph."""
    with dear(monkeypatch) as (session, train, make, _):
        host = session.pool._host
        host.pack, host.optimise = "auto", "auto"
        monkeypatch.setattr(pool, "DEAR_NODES", 10**6)  # else it is optimised beside training alone
        view = host.cluster.view(0, 1, 0, 1, epoch=7)
        session.pool.prepare(host.make(view, {"nothing": "nothing@7"}))
        assert session.pool._prepared
        for placed in session.pool.drop_prepared():
            placed.close()
        calls = []
        original = host.runner.call

        def noting(function, *given, **words):
            calls.append(function.__name__)
            return original(function, *given, **words)

        monkeypatch.setattr(host.runner, "call", noting)
        host.set(view, {"nothing": "nothing@7"})
        make()
        placed = session.pool.present
        assert calls == ["open", "run"] and not placed.opened
        assert hasty_of(session, train) == [True] and placed.late == 0
        fed = next(one for one in session.graph.get_operations() if one.type == "Placeholder").outputs[0]
        metadata = v1.RunMetadata()
        session.run(
            train, {fed: np.ones([4, TABLES], np.int64)}, v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), metadata
        )
        assert calls[2:] == ["open", "traced"] and placed.opened and metadata.step_stats.dev_stats


KINDS = {
    "sparse": lambda n: tf.sparse.from_dense(tf.fill([4, TABLES], n % ROWS)),
    "ragged": lambda n: tf.RaggedTensor.from_tensor(tf.fill([4, TABLES], n % ROWS)),
    "dense": lambda n: tf.fill([4, TABLES], n % ROWS),
}


@pytest.mark.parametrize("kind", KINDS)
def test_input_with_threads_ends_before_the_session_that_read_it(kind):
    """Prefetched, and made in parallel, while its session is closed: a thread that is left would use what is gone."""
    cluster = LocalCluster(2)
    for _ in range(6):
        with tf.Graph().as_default() as graph:
            with setter():
                made = tf.data.Dataset.range(10**6).map(KINDS[kind], num_parallel_calls=2).prefetch(4)
                iterator = v1.data.make_initializable_iterator(made)
                v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
                batch = iterator.get_next()
                dense = (
                    batch if kind == "dense" else batch.to_tensor() if kind == "ragged" else tf.sparse.to_dense(batch)
                )
                train, _ = step(lambda number, dense=dense: tf.reshape(dense, [4, TABLES])[:, number])
            session = elastic(FakeHost(cluster, cluster.view(0, 1, 0, 1)), graph)
            for _ in range(3):
                session.run(train)
            assert packed_of(session, train) == [True]
            session.close()
    time.sleep(0.2)


@pytest.mark.parametrize("pack", ["on", "off"])
@pytest.mark.parametrize("again", [False, True], ids=["once", "again"])
def test_input_is_read_on_after_changes_before_and_between_its_reads(again, pack):
    """Who first reads it, and where it begins again, may be in a session that is closed long before it ends."""
    cluster = LocalCluster(2)
    one, two = cluster.view(0, 1, 0, 1), cluster.view(0, 1, 0, 1, epoch=2)
    with tf.Graph().as_default() as graph:
        with setter():
            made = tf.data.Dataset.range(6 if again else 10**6).map(lambda n: n, num_parallel_calls=2).prefetch(2)
            iterator = v1.data.make_initializable_iterator(made.repeat() if again else made)
            v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
            record = iterator.get_next()
            train, _ = step(lambda number: tf.fill([4], record % ROWS))
        host = FakeHost(cluster, one)
        host.pack = pack
        host.set(one)
        session = elastic(host, graph)
        seen = []
        for number in range(6):
            host._wanted = host.make(two if number % 2 else one, {"none": f"none{number}"})  # another session each time
            if pack == "off" and number:
                session.pool.prepare(host._wanted)  # the step has a session of its own, optimised before
            seen += [session.run([train, record])[1] for _ in range(4)]
            assert packed_of(session, train) == [pack == "on"]
            assert hasty_of(session, train) == [pack == "off" and number > 0]
            for placed in host.retired:
                placed.close()
            host.retired.clear()
        assert seen == [n % 6 if again else n for n in range(24)]
        session.close()
    time.sleep(0.2)


def test_a_session_in_which_a_run_is_being_packed_is_closed_only_afterwards(monkeypatch):
    """Its place is taken meanwhile."""
    begun, may = threading.Event(), threading.Event()
    original = passes.pack

    def slow(*given):
        if not begun.is_set():
            begun.set()
            assert may.wait(60)
        return original(*given)

    monkeypatch.setattr(passes, "pack", slow)
    cluster = LocalCluster(2)
    one, two = cluster.view(0, 0, 0, 0), cluster.view(0, 0, 0, 0, epoch=2)
    with tf.Graph().as_default() as graph:
        with setter():
            ids = tf.constant(np.arange(16 * TABLES).reshape(16, TABLES) % ROWS)
            train, loss = step(lambda number: ids[:, number])
        host = FakeHost(cluster, one)
        host.pack = "auto"
        host.set(one)
        session = elastic(host, graph)
        before = [session.run([train, loss])[1] for _ in range(4)]
        ended = threading.Event()
        session.pool.pack_present(ended.set)
        assert begun.wait(60)
        old = session.pool.present
        wanted = host.make(two, {"nothing": "nothing@dirty"})  # with marks: another session on the same PS
        session.pool.prepare(wanted)
        assert session.pool.exchange(host.set(two, {"nothing": "nothing@dirty"})) == [], "it is still being packed"
        before.append(session.run([train, loss])[1])
        assert session.pool.present is not old and not old.closed
        assert session.pool.replaced() == []
        may.set()
        assert ended.wait(60)
        assert session.pool.replaced() == [old] and session.pool.replaced() == [], "now it can be closed"
        assert improved(session) == []
        before.append(session.run([train, loss])[1])
        assert len(set(before)) == len(before) and packed_of(session, train) == [True]
        session.close()


def test_closing_does_not_wait_for_a_run_that_is_being_packed(monkeypatch):
    begun, may = threading.Event(), threading.Event()
    monkeypatch.setattr(passes, "pack", lambda *given: begun.set() or may.wait(60))
    cluster = LocalCluster(1)
    with tf.Graph().as_default() as graph:
        with setter():
            ids = tf.constant(np.arange(16 * TABLES).reshape(16, TABLES) % ROWS)
            train, loss = step(lambda number: ids[:, number])
        host = FakeHost(cluster, cluster.view(0, 0, 0, 0))
        host.pack = "auto"
        host.set(cluster.view(0, 0, 0, 0))
        session = elastic(host, graph)
        for _ in range(4):
            session.run([train, loss])
        ended = threading.Event()
        session.pool.pack_present(ended.set)
        assert begun.wait(60)
        began = time.monotonic()
        session.close()
        assert not ended.is_set() and time.monotonic() - began < 30
        may.set()
        assert ended.wait(60)


def test_a_session_that_is_optimised_for_a_view_that_is_over_holds_up_no_packing(monkeypatch):
    begun, go_on = threading.Event(), threading.Event()
    with dear(monkeypatch, "auto") as (session, train, make, change):

        def held(*arguments, compiling=session.pool._compiling):
            work = compiling(*arguments)
            return lambda: (begun.set(), go_on.wait(60), work())

        change(2)
        packed_in_haste(session)
        with monkeypatch.context() as slow:
            slow.setattr(session.pool, "_compiling", held)
            assert session.pool.improve(begun.set) == [] and begun.wait(60)
        outdated = session.pool._better
        change(3)
        assert session.pool.replaced() == []
        packed_in_haste(session)
        assert packed_of(session, train) == [True] and session.pool.replaced() == []
        go_on.set()
        outdated.work.wait(60)
        assert session.pool.replaced() == [outdated.placed] and session.pool.replaced() == []
        retire([outdated.placed])
        make()


def test_a_session_whose_ps_dies_while_it_is_packed_is_left_behind_and_the_next_one_is_packed(monkeypatch):
    begun, go_on = threading.Event(), threading.Event()
    with dear(monkeypatch) as (session, train, make, change):
        change(2)
        host, lost = session.pool._host, session.pool.present
        lost_for = host.wanted()
        packed = lost.pack
        monkeypatch.setattr(lost, "pack", lambda run: (begun.set(), go_on.wait(60), packed(run)))
        session.pool.pack_present(lambda: None)
        assert begun.wait(60)
        with monkeypatch.context() as gone:
            gone.setattr(host, "dead", lambda wanted: True)
            for _ in range(2):  # the view comes later
                session.pool.pack_present(lambda: None)
                assert session.pool.replaced() == [] and not lost.closed
        change(3)
        monkeypatch.setattr(host, "dead", lambda wanted: wanted is lost_for)
        assert session.pool.replaced() == [] and lost.closed
        packed_in_haste(session)
        assert packed_of(session, train) == [True]
        go_on.set()
        make()


def test_a_change_is_not_held_up_by_a_run_that_cannot_be_optimised(monkeypatch):
    with dear(monkeypatch) as (session, train, _, change):

        def fails(placed, run):
            raise RuntimeError("a mistake of ours")

        with monkeypatch.context() as wrong:
            wrong.setattr(pool.PlacedSession, "learn", fails)
            change(2, standby=False)
        assert session.pool.present.quick and packed_of(session, train) == [False]
