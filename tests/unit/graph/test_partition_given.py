"""Rows of a file reach the PS a piece at a time: one is on its PS before the next is read."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.graph import GraphIndex, partition
from deeprec_ext.graph.marks import ROWS as NAME
from deeprec_ext.graph.marks import ROWS_BY_PART
from deeprec_ext.graph.partitioning import restoring
from tests.unit.graph.test_partitioning import ON

v1 = tf.compat.v1
ROWS, DIM = 10_001, 8
"""Parts of 2 501 rows, the last of 2 498."""


class Table:
    """A variable that begins with rows of a file, cut and initialised in one process."""

    def __init__(self, name):
        self.whole = np.arange(ROWS * DIM, dtype="float32").reshape(ROWS, DIM)
        self.read: list[tuple[int, int]] = []
        with tf.Graph().as_default() as graph, v1.device("/job:worker"):
            ends = [tf.constant(row, tf.int64) for row in (0, ROWS)]
            given = tf.numpy_function(self.between, ends, tf.float32, name=f"table/Begin/{name}")
            given.set_shape([ROWS, DIM])
            with v1.device("/job:ps/task:2"):
                table = v1.get_variable("given", initializer=given, use_resource=True)
            init, value, definition = table.initializer.name, table.read_value().name, graph.as_graph_def()
            self.index = GraphIndex(definition)
            assert partition(self.index, ON).variables["given"].count == 4
            self.joined = [node.device for node in definition.node if node.op == "ConcatV2" and "__given" in node.name]
            self.ordered = self._ordered(init)
            for node in definition.node:
                node.device = ""
            with tf.Graph().as_default(), v1.Session() as session:
                tf.graph_util.import_graph_def(definition, name="")
                session.run(init)
                self.value = session.run(value)

    def between(self, begin, end):
        self.read.append((int(begin), int(end)))
        return self.whole[begin:end]

    def _ordered(self, init):
        """Whether each read, but for the first, waits for something on a PS."""
        nodes = self.index.nodes
        reads = [nodes[name] for name in self.index.upstream([init]) if nodes[name].op == "PyFunc"]
        waiting = [any("/job:ps" in nodes[one[1:]].device for one in node.input if one[0] == "^") for node in reads]
        return waiting.count(False) == 1


def test_what_it_begins_with_is_read_in_pieces(monkeypatch):
    monkeypatch.setattr(restoring, "PIECE_BYTES", 1000 * DIM * 4)
    monkeypatch.setattr(restoring, "LEAST_PIECE_BYTES", 1000)
    table = Table(NAME)
    np.testing.assert_array_equal(table.value, table.whole)
    assert table.read == [
        (0, 1000), (1000, 2000), (2000, 2501), (2501, 3501), (3501, 4501), (4501, 5002), (5002, 6002), (6002, 7002),
        (7002, 7503), (7503, 8503), (8503, 9503), (9503, 10001),
    ]  # fmt: skip
    assert table.ordered and table.joined == [f"/job:ps/task:{slot}" for slot in (2, 3, 0, 1)]


def test_what_it_is_assigned_later_is_read_by_parts():
    table = Table(ROWS_BY_PART)
    np.testing.assert_array_equal(table.value, table.whole)
    assert table.read == [(0, 2501), (2501, 5002), (5002, 7503), (7503, 10001)]
    assert table.ordered


@pytest.mark.parametrize("name", ["PyFunc", "other_rows"])
def test_what_others_compute_in_python_is_asked_for_once(name):
    table = Table(name)
    assert table.read == [(0, ROWS)]
