"""The catalogue knows what a checkpoint calls a variable, also the parts of a partitioned one."""

import pytest
import tensorflow as tf

from deeprec_ext.graph import build_catalogue, saved_names

v1 = tf.compat.v1


@pytest.mark.parametrize("use_resource", [True, False])
def test_names_and_slices_are_those_of_a_saver(use_resource):
    with tf.Graph().as_default() as graph, v1.device("/job:ps/task:0"):
        step = v1.train.create_global_step()
        with v1.variable_scope("a", use_resource=use_resource):
            table = v1.get_variable("t", [10, 4], partitioner=v1.fixed_size_partitioner(3))
            whole = v1.get_variable("u", [4])
            v1.get_variable("hidden", [4], collections=[v1.GraphKeys.LOCAL_VARIABLES])
        loss = tf.reduce_sum(tf.nn.embedding_lookup(table, [1, 2])) + tf.reduce_sum(whole)
        train = v1.train.AdagradOptimizer(0.1).minimize(loss, step)
    catalogue = build_catalogue(graph.as_graph_def(), [train.name], saved_names(graph))
    found = {v.name: (v.saved_name, v.slice) for v in catalogue.variables}
    assert found["a/t/part_1"] == ("a/t", "10 4 4,3:0,4")
    assert found["a/t/part_2/Adagrad"] == ("a/t/Adagrad", "10 4 7,3:0,4")
    assert found["a/u"] == ("a/u", "") and found["a/hidden"] == ("", "")
    assert catalogue.global_step == "global_step"


def test_a_global_step_of_another_name_is_found(setter):
    with tf.Graph().as_default() as graph, v1.device(setter):
        with v1.variable_scope("mine"):
            step = v1.get_variable("count", [], tf.int64, v1.zeros_initializer(), trainable=False)
        v1.add_to_collection(v1.GraphKeys.GLOBAL_STEP, step)
        train = v1.assign_add(step, 1)
    assert build_catalogue(graph.as_graph_def(), [train.op.name], saved_names(graph)).global_step == "mine/count"
