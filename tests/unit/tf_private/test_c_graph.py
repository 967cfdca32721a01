"""Importing a GraphDef in pieces gives the graph that importing it at once gives."""

from __future__ import annotations

import pytest

tf = pytest.importorskip("tensorflow")

from deeprec_ext.tf_private.c_graph import import_definition  # noqa: E402

v1 = tf.compat.v1


def chain() -> v1.GraphDef:
    """Data and control edges, several outputs, names inside names, a function and a TF1 loop."""
    with tf.Graph().as_default() as graph:
        value = v1.placeholder(tf.float32, [4], name="x")
        for number in range(30):
            with v1.control_dependencies([value.op]):
                low, high = tf.split(value + number, 2, name=f"cut{number}")
            value = tf.concat([high, tf.identity(low, name=f"cut{number}/inside")], 0)
        v1.disable_control_flow_v2()
        try:
            looped = v1.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 2), [0, value])[1]
        finally:
            v1.enable_control_flow_v2()
        mapped = tf.map_fn(lambda v: v + 1, looped)
        tf.identity(mapped, name="y")
        return graph.as_graph_def()


@pytest.mark.parametrize("piece_nodes", [1, 7, 50, 10**6])
def test_a_graph_imported_in_pieces_computes_the_same(piece_nodes):
    definition, fed = chain(), [1.0, 2.0, 3.0, 4.0]
    with tf.Graph().as_default() as expected:
        tf.graph_util.import_graph_def(definition, name="")
        with v1.Session(graph=expected) as session:
            wanted = session.run("y:0", {"x:0": fed})
    graph = tf.Graph()
    import_definition(graph, definition, piece_nodes)
    graph._add_new_tf_operations(compute_devices=False)
    assert {op.name for op in graph.get_operations()} == {node.name for node in definition.node}
    with v1.Session(graph=graph) as session:
        assert session.run("y:0", {"x:0": fed}).tolist() == wanted.tolist()
