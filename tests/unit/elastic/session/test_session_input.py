"""What becomes of the input of an ElasticSession when runs fail, and when it is closed."""

from __future__ import annotations

import threading

import pytest

tf = pytest.importorskip("tensorflow")

from deeprec_ext.elastic.session import iterators, pool  # noqa: E402
from tests.unit.elastic.cluster import FakeHost, LocalCluster, elastic, move_unseen, slowly  # noqa: E402

v1 = tf.compat.v1
SLOTS = 4


PIPELINES = {
    "map": lambda dataset, work: dataset.map(work),
    "parallel map": lambda dataset, work: dataset.map(work, num_parallel_calls=1),
    "map and batch": lambda dataset, work: dataset.map(work).batch(2).map(lambda batch: batch[0]),
    "prefetch": lambda dataset, work: dataset.map(work).prefetch(2),
}


def train_on(dataset, one_shot=False):
    """In the graph at hand: a training operation that adds the records of the dataset up, and the record."""
    with v1.device(v1.train.replica_device_setter(SLOTS, worker_device="/job:chief/task:0")):
        step = v1.train.get_or_create_global_step()
        if one_shot:
            iterator = v1.data.make_one_shot_iterator(dataset)
        else:
            iterator = v1.data.make_initializable_iterator(dataset)
            v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
        record = iterator.get_next()
        total = v1.get_variable("total", [], tf.int64, initializer=v1.zeros_initializer())
        return tf.group(v1.assign_add(total, record), v1.assign_add(step, 1)), record


@pytest.mark.parametrize("dead", [False, True])
def test_closing_waits_for_an_iterator_on_a_busy_machine_and_not_where_a_ps_is_dead(dead, monkeypatch):
    """An iterator that outlives its session crashes the process; on a dead PS nobody can wait for it."""
    monkeypatch.setattr(pool, "DROP_SECONDS", 0.1)
    cluster, slow = LocalCluster(1), threading.Event()
    with tf.Graph().as_default() as graph:
        train, record = train_on(tf.data.Dataset.range(10**6))
        host = FakeHost(cluster, cluster.view(0, 0, 0, 0))
        session = elastic(host, graph)
        session.run([train, record])
        monkeypatch.setattr(host, "dead", lambda wanted: dead)
        placed, dropped = session.pool.present, []
        assert placed.drops
        run = placed.run

        def late(signature, *arguments):
            assert slow.wait(30)
            dropped.append(signature.targets)
            return None if dead else run(signature, *arguments)

        monkeypatch.setattr(placed, "run", late)
        if dead:
            session.close()
            assert not dropped and session.pool._left_behind.is_set()
            slow.set()
        else:
            threading.Timer(1.0, slow.set).start()
            session.close()
            assert [(drop,) for drop in placed.drops] == dropped and not session.pool._left_behind.is_set()


@pytest.mark.parametrize("after_a_loss", [True, False])
def test_input_that_ends_when_what_was_prefetched_before_a_loss_is_used_up_begins_again(after_a_loss, monkeypatch):
    """What TensorFlow says of an iterator that it has cancelled, some batches late."""
    cluster = LocalCluster(2)
    views = [cluster.view(*[epoch % 2] * 4, epoch=epoch) for epoch in range(2, 10)]
    with tf.Graph().as_default() as graph:
        train, record = train_on(tf.data.Dataset.range(10**6))
        host = FakeHost(cluster, views[0])
        session = elastic(host, graph)
        for one, two in zip(views, views[1:]):
            for _ in range(3):
                session.run([train, record])
            if not after_a_loss:
                break
            move_unseen(cluster, host, session, one, two)
            if all(session.run([train, record])[1] >= 3 for _ in range(4)):
                break  # else the failed run was just reading: the input was cancelled, and has begun again
        else:
            raise AssertionError("every loss cancelled the input")
        execute, broken = session._execute, [f"End of sequence\n\t [[{{{{node {record.op.name}}}}}]]"]

        def executed(*arguments):
            if broken:
                raise tf.errors.OutOfRangeError(None, None, broken.pop())
            return execute(*arguments)

        monkeypatch.setattr(session, "_execute", executed)
        if after_a_loss:
            assert session.run([train, record])[1] == 0
        else:
            with pytest.raises(tf.errors.OutOfRangeError):
                session.run([train, record])
        session.close()


def test_the_end_of_the_data_long_after_a_failed_run_is_the_end():
    cluster = LocalCluster(2)
    one, two = cluster.view(0, 0, 0, 0), cluster.view(1, 1, 1, 1, epoch=2)
    with tf.Graph().as_default() as graph:
        train, record = train_on(tf.data.Dataset.range(iterators.SUSPECT_RUNS + 20))
        host = FakeHost(cluster, one)
        session = elastic(host, graph)
        for _ in range(3):
            session.run([train, record])
        move_unseen(cluster, host, session, one, two)
        runs = 0
        with pytest.raises(tf.errors.OutOfRangeError):
            while runs < 10 * iterators.SUSPECT_RUNS:
                session.run([train, record])
                runs += 1
        assert iterators.SUSPECT_RUNS < runs <= 2 * iterators.SUSPECT_RUNS + 20
        session.close()


@pytest.mark.parametrize("one_shot", [False, True])
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_input_that_was_being_read_when_a_ps_was_lost_does_not_end(pipeline, one_shot):
    """TensorFlow cancels the iterator with the run, for good: it then gives "end of sequence" and training would end."""
    cluster = LocalCluster(2)
    one, two = cluster.view(0, 0, 0, 0), cluster.view(1, 1, 1, 1, epoch=2)
    with tf.Graph().as_default() as graph:

        def work(number):
            if not one_shot:
                return tf.reshape(tf.py_function(slowly, [number], tf.int64), [])
            product = tf.linalg.matmul(tf.ones([700, 700]), tf.ones([700, 700]))
            for _ in range(6):  # a dataset that captures nothing, as one-shot iterators demand
                product = tf.linalg.matmul(product, product) / 1e6
            return number + 0 * tf.cast(product[0, 0] > 0, tf.int64)

        train, record = train_on(PIPELINES[pipeline](tf.data.Dataset.range(10**6), work), one_shot)
        host = FakeHost(cluster, one)
        session = elastic(host, graph)
        for _ in range(3):
            session.run([train, record])
        move_unseen(cluster, host, session, one, two)
        records = [session.run([train, record])[1] for _ in range(4)]
        stride = 2 if pipeline == "map and batch" else 1
        strides = [later - earlier for earlier, later in zip(records, records[1:])]
        again = [later for later, difference in zip(records[1:], strides) if difference != stride]
        assert again in ([], [0])  # it begins again at once, or when what was prefetched is used up
        session.close()
