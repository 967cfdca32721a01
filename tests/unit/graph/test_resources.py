"""Queues, tables and readers of the trainer outlive the session that made them: the next one finds them as they are."""

import pytest
import tensorflow as tf

from deeprec_ext.graph import Context, rewrite

v1 = tf.compat.v1
WORKER = "/job:worker/task:0"


def placed(build, *scopes):
    """What `build` returned, and the same graph for a session of each scope (one elastic session has one)."""
    with tf.Graph().as_default() as graph, v1.device(WORKER):
        made = build()
    definition = graph.as_graph_def()
    return made, [rewrite(definition, Context((0,), worker_device=WORKER, resource_scope=one)) for one in scopes]


def queue():
    one = v1.FIFOQueue(10, [tf.int64], [[]])
    return one.enqueue(tf.constant(7, tf.int64)).name, one.dequeue().name, one.size().name


def shuffling():
    one = v1.RandomShuffleQueue(10, 0, [tf.int64], [[]])
    return one.enqueue(tf.constant(7, tf.int64)).name, one.dequeue().name, one.size().name


def table():
    one = tf.raw_ops.MutableHashTableV2(key_dtype=tf.int64, value_dtype=tf.int64)
    key, value = tf.constant([3], tf.int64), tf.constant([7], tf.int64)
    put = tf.raw_ops.LookupTableInsertV2(table_handle=one, keys=key, values=value)
    got = tf.raw_ops.LookupTableFindV2(table_handle=one, keys=key, default_value=tf.constant(0, tf.int64))
    return put.name, got[0].name, tf.raw_ops.LookupTableSizeV2(table_handle=one).name


@pytest.mark.parametrize("build", [queue, shuffling, table])
def test_the_next_session_finds_what_the_last_one_has_put_in(cluster, build):
    (put, got, size), graphs = placed(build, f"{build.__name__}/", f"{build.__name__}/")
    first, second = (cluster.open(one.definition) for one in graphs)
    first.run([put])
    assert second.run(size) == 1
    assert second.run(got) == 7
    second.close()
    first.close()


def test_two_sessions_of_the_user_do_not_share_them(cluster):
    (put, _, size), (first, other) = placed(queue, "mine/", "yours/")
    with cluster.open(first.definition) as one, cluster.open(other.definition) as two:
        one.run([put])
        assert two.run(size) == 0


def test_names_that_the_script_gave_stay_and_variables_are_left_alone():
    def named():
        v1.FIFOQueue(3, [tf.int64], shared_name="mine")
        v1.get_variable("v", [2], use_resource=True)
        v1.get_variable("w", [2], use_resource=False)

    with tf.Graph().as_default() as graph:
        named()
    before = graph.as_graph_def()
    result = rewrite(before, Context((0,), resource_scope="x/"))
    names = {node.name: node.attr["shared_name"].s for node in result.definition.node if "shared_name" in node.attr}
    assert names == {node.name: node.attr["shared_name"].s for node in before.node if "shared_name" in node.attr}
    (report,) = (one for one in result.reports if one.name == "resources")
    assert (report.changed, report.detail) == (0, "none")


def test_without_a_cluster_nothing_is_named():
    with tf.Graph().as_default() as graph:
        queue()
    (node,) = (one for one in rewrite(graph.as_graph_def(), Context(None)).definition.node if one.op == "FIFOQueueV2")
    assert not node.attr["shared_name"].s
