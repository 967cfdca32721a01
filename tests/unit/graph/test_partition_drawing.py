"""Of random first values each PS draws those of its own parts: the same numbers as of the whole, which nobody draws."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.graph import GraphIndex, partition
from tests.unit.graph.test_partitioning import ON

v1 = tf.compat.v1
ROWS = 10_001
"""Parts of 2 501: of 7 numbers each, they begin within a group of the generator."""
SEED = [3, 7]
DRAWS = ("StatelessRandomUniformV2", "StatelessRandomNormalV2", "StatelessTruncatedNormalV2")


def uniform(shape, dtype):
    return tf.random.stateless_uniform(shape, SEED, -0.05, 0.05, dtype)


def normal(shape, dtype):
    return tf.random.stateless_normal(shape, SEED, 0.5, 2.0, dtype)


def truncated(shape, dtype):
    return tf.random.stateless_truncated_normal(shape, SEED, 0.0, 0.1, dtype)


def halved(shape, dtype):
    return tf.identity(-tf.random.stateless_normal(shape, SEED, dtype=dtype) / 2.0)


def by_columns(shape, dtype):
    return tf.random.stateless_normal(shape, SEED, dtype=dtype) * tf.cast(tf.range(shape[1]), dtype)


class Graph:
    """A table that begins with random values, cut."""

    def __init__(self, draw, row, dtype):
        with tf.Graph().as_default() as graph:
            with v1.device("/job:ps/task:1"):
                table = v1.get_variable("drawn", initializer=draw([ROWS, row], dtype), use_resource=True)
            self.init, self.value = table.initializer.name, table.read_value().name
        self.definition = graph.as_graph_def()
        self.index = GraphIndex(self.definition)
        assert partition(self.index, ON).variables["drawn"].count == 4

    def draws(self):
        """(device, numbers) of each that initialising it needs."""
        needed = [self.index.nodes[name] for name in self.index.upstream([self.init])]
        draws = [node for node in needed if node.op in DRAWS]
        sizes = [self.index.nodes[self.index.inputs(node.name)[0]].attr["value"].tensor for node in draws]
        return sorted((node.device, int(np.prod(tf.make_ndarray(size)))) for node, size in zip(draws, sizes))

    def values(self):
        """As one process computes them."""
        for node in self.definition.node:
            node.device = ""
        with tf.Graph().as_default(), v1.Session() as session:
            tf.graph_util.import_graph_def(self.definition, name="")
            session.run(self.init)
            return session.run(self.value)


@pytest.mark.parametrize("row", [8, 7])
@pytest.mark.parametrize("dtype", [tf.float32, tf.float64, tf.float16], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("draw", [uniform, normal, truncated, halved])
def test_each_ps_draws_its_parts_and_they_are_those_of_the_whole(draw, dtype, row):
    graph = Graph(draw, row, dtype)
    draws = graph.draws()
    assert [device for device, _ in draws] == [f"/job:ps/task:{slot}" for slot in range(4)]
    assert max(count for _, count in draws) < 2502 * row
    np.testing.assert_array_equal(graph.values(), draw([ROWS, row], dtype).numpy())


def test_what_is_made_of_more_than_a_draw_is_drawn_whole_and_sent():
    graph = Graph(by_columns, 8, tf.float32)
    assert graph.draws() == [("/job:ps/task:1", ROWS * 8)]
    np.testing.assert_array_equal(graph.values(), by_columns([ROWS, 8], tf.float32).numpy())


def test_a_counter_of_which_nobody_knows_where_it_begins_is_left_alone():
    def given(shape, dtype):
        key, counter = tf.constant([5], tf.uint64), tf.constant([2**64 - 1, 0], tf.uint64)
        return tf.raw_ops.StatelessRandomUniformV2(shape=shape, key=key, counter=counter, alg=1, dtype=dtype)

    graph = Graph(given, 8, tf.float32)
    assert [count for _, count in graph.draws()] == [ROWS * 8]
    np.testing.assert_array_equal(graph.values(), given([ROWS, 8], tf.float32).numpy())
