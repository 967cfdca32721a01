"""What a run trains, and whether that is on a PS: graphs of many kinds."""

from __future__ import annotations

import pytest
import tensorflow as tf

from deeprec_ext.elastic.trainer.noticing import trainable_in
from deeprec_ext.graph import GraphIndex, training

v1 = tf.compat.v1
SETTER = v1.train.replica_device_setter(ps_tasks=2, worker_device="/job:worker/task:0")


def model(graph, *, setter=SETTER, resource=True, optimizer=None, beside=False):
    """A table and a layer; returns the training op."""
    with graph.as_default(), v1.variable_scope("", use_resource=resource):
        with v1.device(setter):
            table = v1.get_variable("table", [100, 4])
            step = v1.train.get_or_create_global_step()
        with v1.device(None if beside else setter):
            weights = v1.get_variable("weights", [4, 1])
        with v1.device(setter):
            rows = tf.nn.embedding_lookup(table, tf.constant([1, 2, 3]))
            loss = tf.reduce_sum(tf.matmul(rows, weights))
            return (optimizer or v1.train.GradientDescentOptimizer(0.1)).minimize(loss, global_step=step)


def found(graph, *runs):
    return training(GraphIndex(graph.as_graph_def()), [run.name for run in runs], trainable_in(graph))


@pytest.mark.parametrize("resource", [True, False], ids=["resource", "reference"])
@pytest.mark.parametrize(
    "optimizer",
    [v1.train.GradientDescentOptimizer(0.1), v1.train.AdamOptimizer(), v1.train.AdagradOptimizer(0.1)],
    ids=["sgd", "adam", "adagrad"],
)
def test_with_a_device_setter_all_is_on_ps_without_one_nothing(resource, optimizer):
    graph = tf.Graph()
    assert found(graph, model(graph, resource=resource, optimizer=optimizer)) == training_of(("table", "weights"), ())
    graph = tf.Graph()
    assert found(graph, model(graph, setter=None, resource=resource, optimizer=optimizer)) == training_of(
        (), ("table", "weights")
    )


def training_of(on_ps, beside):
    from deeprec_ext.graph import Training

    return Training(on_ps, beside)


def test_a_part_of_the_model_that_was_left_out():
    graph = tf.Graph()
    assert found(graph, model(graph, beside=True)) == training_of(("table",), ("weights",))


def test_local_variables_statistics_and_metrics_are_not_trained():
    graph = tf.Graph()
    train = model(graph)
    with graph.as_default():
        count = v1.get_local_variable("count", [], initializer=v1.zeros_initializer())
        moving = v1.get_variable("moving", [4], trainable=False)
        _, mean = v1.metrics.mean(tf.constant(1.0))
        more = tf.group(v1.assign_add(count, 1.0), v1.assign_sub(moving, tf.ones([4])), mean)
    assert found(graph, train, more).beside == ()


def test_initialisers_restores_and_loaded_arrays_train_nothing(tmp_path):
    graph = tf.Graph()
    model(graph, setter=None)
    with graph.as_default():
        initialise = v1.global_variables_initializer()
        saver = v1.train.Saver()
        restore = graph.get_operation_by_name(saver.saver_def.restore_op_name)
        weights = v1.trainable_variables()[1]
        load = v1.assign(weights, v1.placeholder(tf.float32, [4, 1]))
    assert found(graph, initialise, restore, load.op) == training_of((), ())


@pytest.mark.parametrize("resource", [True, False], ids=["resource", "reference"])
def test_an_assignment_by_hand_trains(resource):
    graph = tf.Graph()
    with graph.as_default():
        weights = v1.get_variable("weights", [3], use_resource=resource)
        step = v1.assign(weights, weights - 0.1 * tf.ones([3]))
    assert found(graph, step.op) == training_of((), ("weights",))


def test_only_what_is_run_counts():
    graph = tf.Graph()
    model(graph, setter=None)
    assert found(graph, graph.get_operation_by_name("table/Initializer/random_uniform")) == training_of((), ())


def test_a_keras_model_in_a_graph():
    graph = tf.Graph()
    with graph.as_default():
        layer = tf.keras.layers.Dense(1)
        loss = tf.reduce_sum(layer(tf.ones([2, 3])))
        optimizer = tf.keras.optimizers.legacy.Adam()
        train = tf.group(optimizer.get_updates(loss, layer.trainable_variables))
    assert found(graph, train) == training_of((), ("dense/bias", "dense/kernel"))


def test_a_partitioned_table():
    graph = tf.Graph()
    with graph.as_default(), v1.device(SETTER):
        table = v1.get_variable("table", [100, 4], partitioner=v1.fixed_size_partitioner(4))
        loss = tf.reduce_sum(tf.nn.embedding_lookup(table, tf.constant([1, 2, 3])))
        train = v1.train.AdagradOptimizer(0.1).minimize(loss)
    assert found(graph, train) == training_of(tuple(f"table/part_{i}" for i in range(4)), ())


def test_an_update_inside_a_function():
    graph = tf.Graph()
    with graph.as_default():
        weights = v1.get_variable("weights", [3], use_resource=True)

        @tf.function
        def step():
            weights.assign_sub(tf.ones([3]))
            return weights.read_value()

        out = step()
    assert found(graph, out.op) == training_of((), ("weights",))


def test_a_local_copy_that_each_process_trains_is_none_of_the_model():
    graph = tf.Graph()
    with graph.as_default():
        copy = v1.get_variable(
            "copy", [3], collections=[v1.GraphKeys.LOCAL_VARIABLES, v1.GraphKeys.TRAINABLE_VARIABLES]
        )
        step = v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(copy))
    assert found(graph, step) == training_of((), ())
