"""Iterators outlive the session that made them: no batch is repeated or lost when the session is exchanged."""

import threading

import pytest
import tensorflow as tf

from deeprec_ext.graph import Context, rewrite

v1 = tf.compat.v1
WORKER = "/job:worker/task:0"


def pipeline(name, one_shot):
    """A graph whose `next` is the next batch; returns (graph_def, name of the batch, names of its own initialisers)."""
    with tf.Graph().as_default() as graph, v1.device(WORKER):
        data = tf.data.Dataset.range(1000).map(lambda i: i * 2).batch(2).prefetch(2)
        make = v1.data.make_one_shot_iterator if one_shot else v1.data.make_initializable_iterator
        with tf.name_scope(name):
            iterator = make(data)
            batch = tf.identity(iterator.get_next(), name="next")
        own = [] if one_shot else [iterator.initializer.name]
    return graph.as_graph_def(), batch.name, own


@pytest.mark.parametrize("one_shot", [True, False], ids=["one-shot", "initializable"])
def test_the_next_session_goes_on_where_the_last_one_stopped(cluster, one_shot):
    graph_def, batch, own = pipeline(f"swap_{one_shot}", one_shot)
    placed = [rewrite(graph_def, Context((0, 0), {}, swaps=swaps, worker_device=WORKER)) for swaps in (0, 1)]
    assert bool(placed[0].initializers) == one_shot
    assert placed[0].initializers == placed[1].initializers and placed[0].drops == placed[1].drops
    first, second = (cluster.open(result.definition) for result in placed)
    first.run([*own, *placed[0].initializers])
    seen = [first.run(batch).tolist() for _ in range(3)]
    seen += [second.run(batch).tolist() for _ in range(3)]
    assert seen == [[4 * i, 4 * i + 2] for i in range(6)]
    first.run(placed[0].drops)
    with pytest.raises(tf.errors.NotFoundError):
        second.run(batch)
    second.close()
    first.close()


def test_a_one_shot_iterator_with_a_stateful_dataset_runs(cluster):
    with tf.Graph().as_default() as graph, v1.device(WORKER):
        data = tf.data.Dataset.range(10).shuffle(10, seed=3)
        data = data.map(lambda i: tf.random.uniform([]) + tf.cast(i, tf.float32))
        batch = v1.data.make_one_shot_iterator(data.batch(10)).get_next()
    result = rewrite(graph.as_graph_def(), Context((0,)))
    with cluster.open(result.definition) as session:
        session.run(result.initializers)
        assert sorted(int(v) for v in session.run(batch.name)) == list(range(10))
        session.run(result.drops)


def test_the_shared_name_given_by_the_user_is_kept():
    with tf.Graph().as_default() as graph:
        v1.data.make_initializable_iterator(tf.data.Dataset.range(3), shared_name="mine")
    (node,) = (n for n in rewrite(graph.as_graph_def(), Context((0,))).definition.node if n.op == "IteratorV2")
    assert node.attr["shared_name"].s == b"mine"


def test_a_session_on_the_spot_keeps_its_iterators_and_loses_every_job():
    graph_def, batch, _ = pipeline("on_the_spot", one_shot=True)
    result = rewrite(graph_def, Context(None))
    assert not result.drops and not result.initializers
    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(result.definition, name="")
    with v1.Session(graph=graph) as session:
        assert session.run(batch).tolist() == [0, 2]


def test_two_graphs_of_one_process_are_told_apart(cluster):
    graph_def, batch, own = pipeline("apart", one_shot=False)
    one, two = (rewrite(graph_def, Context((0, 0), resource_scope=scope)) for scope in ("train/", "other/"))
    with cluster.open(one.definition) as first, cluster.open(two.definition) as second:
        first.run(own)
        second.run(own)
        assert first.run(batch).tolist() == second.run(batch).tolist() == [0, 2]
        first.run(one.drops)
        second.run(two.drops)


def test_an_iterator_that_is_dropped_has_no_threads_while_sessions_still_hold_it(cluster):
    """They use devices of the session that read it first, which may be closed before the one that started it."""
    ended = threading.Event()

    def records():
        try:
            yield from range(10**6)
        finally:
            ended.set()

    with tf.Graph().as_default() as graph, v1.device(WORKER):
        data = tf.data.Dataset.from_generator(records, tf.int64, [])
        data = data.map(lambda i: (i, tf.strings.as_string(i), tf.fill([i % 3], 1.0))).prefetch(2)
        iterator = v1.data.make_initializable_iterator(data)
        first_of_three = iterator.get_next()[0].name
    result = rewrite(graph.as_graph_def(), Context((0, 0), worker_device=WORKER, pack="auto"))
    with cluster.open(result.definition) as starter, cluster.open(result.definition) as reader:
        starter.run(iterator.initializer.name)
        assert [reader.run(first_of_three) for _ in range(3)] == [0, 1, 2]
        assert not ended.is_set()
        reader.run(result.drops)
        assert ended.wait(20)
