"""Lazy updates of graphs of TensorFlow 1; of Keras's optimizers in tests/unit/keras/test_lazy.py."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from deeprec_ext.graph import GraphIndex, build_catalogue, make_lazy
from deeprec_ext.proto.deeprec_ext_pb2 import Variable

v1 = tf.compat.v1
ROWS, DIM = 3000, 8


def build(make_optimizer, *, regularised=False):
    with tf.Graph().as_default() as graph, v1.device("/job:ps/task:0"), v1.variable_scope("", use_resource=True):
        table = v1.get_variable("table", [ROWS, DIM], initializer=v1.glorot_uniform_initializer(7))
        ids = v1.placeholder(tf.int64, [None], name="ids")
        loss = tf.reduce_sum(tf.sin(v1.nn.embedding_lookup(table, ids)))
        if regularised:
            loss += tf.nn.l2_loss(table)
        step = make_optimizer().minimize(loss)
        init, saver = v1.global_variables_initializer(), v1.train.Saver()
        value = table.read_value()
    del saver
    return graph, step.name, init.name, value.name


def run(definition, step, init, value, ids):
    for node in definition.node:
        node.device = ""
    with tf.Graph().as_default() as graph:
        v1.import_graph_def(definition, name="")
        with v1.Session(graph=graph) as session:
            session.run(init)
            before = session.run(value)
            for _ in range(3):
                session.run(step, {"ids:0": ids})
            return before, session.run(value)


def test_adam_of_tensorflow_1_writes_the_rows_of_the_batch():
    graph, step, init, value = build(lambda: v1.train.AdamOptimizer(0.1))
    _, expected = run(graph.as_graph_def(), step, init, value, [5, 7, 5])
    definition = graph.as_graph_def()
    index = GraphIndex(definition)
    assert make_lazy(index) == ["table", "table/Adam", "table/Adam_1"]
    assert {one.update for one in build_catalogue(index, [step]).variables if one.shape[:1] == [ROWS]} == {
        Variable.ROWS
    }
    before, after = run(definition, step, init, value, [5, 7, 5])
    np.testing.assert_allclose(after[[5, 7]], expected[[5, 7]], rtol=1e-5)
    others = np.setdiff1d(np.arange(ROWS), [5, 7])
    np.testing.assert_array_equal(after[others], before[others])


def test_what_is_by_rows_already_is_not_touched():
    graph, *_ = build(lambda: v1.train.AdagradOptimizer(0.1))
    definition = graph.as_graph_def()
    assert make_lazy(GraphIndex(definition)) == []
    assert definition == graph.as_graph_def()


def test_a_table_that_the_loss_reads_whole_is_not_touched():
    graph, *_ = build(lambda: v1.train.AdamOptimizer(0.1), regularised=True)
    definition = graph.as_graph_def()
    assert make_lazy(GraphIndex(definition)) == []
    assert definition == graph.as_graph_def()


def test_ids_that_may_be_there_twice_are_not_trusted():
    """Scatters of what was assigned would then add twice."""
    with tf.Graph().as_default() as graph, v1.device("/job:ps/task:0"):
        table = v1.get_variable("table", [ROWS, DIM], use_resource=True)
        ids = v1.placeholder(tf.int64, [None], name="ids")
        with tf.control_dependencies([table.assign_add(table * -0.1)]):
            table.scatter_add(tf.IndexedSlices(tf.ones([3, DIM]), ids))
    assert make_lazy(GraphIndex(graph.as_graph_def())) == []
