"""A graph by the script's names becomes one by the cluster's."""

from __future__ import annotations

import pytest

tf = pytest.importorskip("tensorflow")

from deeprec_ext.errors import RefusedError  # noqa: E402
from deeprec_ext.graph import name_devices  # noqa: E402
from deeprec_ext.layout import Names  # noqa: E402

v1 = tf.compat.v1
NAMES = Names("/job:chief/task:0", (("worker", 0),), slots={("ps", 0): 1}, ps=1)


def test_devices_are_exchanged_also_inside_functions():
    with tf.Graph().as_default() as graph:

        @tf.function
        def inner(x):
            with v1.device("/job:worker/task:0"):
                return x + 1.0

        with v1.device("/job:ps/task:0"):
            table = v1.get_variable("table", [2], use_resource=True)
        with v1.device("/job:worker"):
            inner(tf.identity(table, name="out"))
    definition = graph.as_graph_def()
    assert name_devices(definition, NAMES) > 0
    nodes = {node.name: node.device for node in definition.node}
    assert nodes["table"] == "/job:ps/task:1" and nodes["out"] == "/job:chief/task:0"
    inside = {node.device for function in definition.library.function for node in function.node_def}
    assert "/job:chief/task:0" in inside and not any("worker" in device for device in inside)
    assert name_devices(definition, Names("/job:chief/task:0", (("chief", 0),))) == 0, "these are its own names"


def test_the_op_on_another_trainer_is_named():
    with tf.Graph().as_default() as graph, v1.device("/job:worker/task:3"):
        tf.constant(1.0, name="far_away")
    with pytest.raises(RefusedError, match="'far_away' \\(Const\\): /job:worker/task:3"):
        name_devices(graph.as_graph_def(), NAMES)
