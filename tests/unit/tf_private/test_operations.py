"""FLOP of a graph's nodes, as TensorFlow's profiler counts them."""

from __future__ import annotations

import tensorflow as tf

from deeprec_ext.tf_private.operations import flops

v1 = tf.compat.v1


def test_a_product_is_counted_with_the_size_of_the_batch():
    with tf.Graph().as_default() as graph:
        tf.matmul(v1.placeholder(tf.float32, [None, 8]), tf.ones((8, 3)))
    assert flops(graph, graph.as_graph_def().node, 4) == 2 * 4 * 8 * 3


def test_a_sum_whose_shape_is_not_told_takes_nothing_from_the_others():
    with tf.Graph().as_default() as graph:
        axes = v1.placeholder(tf.int32, [1])
        total = tf.raw_ops.Sum(input=v1.placeholder(tf.float32, [None, 1]), axis=axes, keep_dims=True)
        tf.matmul(v1.placeholder(tf.float32, [None, 8]), tf.ones((8, 3)))
    assert total.shape.as_list() == [None, None]
    assert flops(graph, graph.as_graph_def().node, 4) == 2 * 4 * 8 * 3
