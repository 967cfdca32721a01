"""What a step does with whole tables is done with the rows that it wants, and gives the same."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.graph import GraphIndex
from deeprec_ext.keras.captured import capture
from deeprec_ext.keras.rewriting.wholes import done_by_rows
from tests.unit.keras.imported import Imported

v1 = tf.compat.v1
ROWS, DIM = 50, 3
IDS = np.array([7, 3, 7], np.int64)


class Traced:
    """A step of ids, as it was traced (`changed` false) or with all changes made."""

    def __init__(self, step, changed=True):
        captured = capture(step, tf.TensorSpec([None], tf.int64), list)
        self.index = GraphIndex(captured.definition)
        self.captured = captured
        shapes = {inside: tuple(one.shape) for inside, one in captured.variables.items()}
        if changed:
            [(feed, _, _)] = captured.feeds
            wanted = (*captured.outputs, *captured.targets, feed, *captured.constants)
            self.index = done_by_rows(captured.definition, shapes, wanted)

    def needed(self):
        """Kinds of ops that a run needs."""
        wanted = self.index.upstream([*self.captured.outputs, *self.captured.targets])
        return [self.index.nodes[name].op for name in wanted]

    def run(self, ids=IDS, times=2):
        """Its outputs the last time, and all variables after it, by their names."""
        imported = Imported(self.captured, self.index)
        fetches, given = imported.add(self.index.definition)
        with v1.Session(graph=imported.graph) as session:
            imported.initialise(session)
            for _ in range(times):
                outputs = session.run(fetches, {given: ids})
            return outputs[: len(self.captured.outputs)], imported.values(session)


def same(step, **words):
    """Both give the same, to the last bit; the changed one."""
    plain, changed = Traced(step, changed=False), Traced(step)
    (expected, before), (found, after) = plain.run(**words), changed.run(**words)
    for one, other in zip(expected, found):
        np.testing.assert_array_equal(one, other)
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value, err_msg=name)
    return changed


@pytest.fixture
def table():
    return tf.Variable(np.random.default_rng(0).normal(size=(ROWS, DIM)).astype("float32"), name="table")


@pytest.fixture
def accumulator():
    return tf.Variable(tf.fill([ROWS, DIM], 0.1), name="accumulator")


def test_rows_of_a_table_that_was_read_are_looked_up_where_it_is(table):
    ops = same(lambda ids: tf.gather(tf.convert_to_tensor(table), ids)).needed()
    assert ops.count("ResourceGather") == 1 and "ReadVariableOp" not in ops and "GatherV2" not in ops


def test_so_are_those_of_what_is_computed_from_it_value_by_value(table, accumulator):
    def step(ids):
        return tf.gather(tf.convert_to_tensor(table) + tf.sqrt(accumulator + 1e-7), ids)

    ops = same(step).needed()
    assert ops.count("ResourceGather") == 2 and "ReadVariableOp" not in ops


def test_a_look_up_comes_before_a_write_that_the_read_came_before(table):
    def step(ids):
        rows = tf.gather(tf.convert_to_tensor(table), ids)
        table.scatter_sub(tf.IndexedSlices(rows * 0.5, ids))
        return rows

    changed = same(step)
    [gather] = [node for node in changed.index.nodes.values() if node.op == "ResourceGather"]
    [write] = [node for node in changed.index.nodes.values() if node.op == "ResourceScatterSub"]
    assert gather.name in changed.index.upstream([write.name])


def test_a_read_that_something_else_takes_as_well_stays(table):
    def step(ids):
        whole = tf.convert_to_tensor(table)
        return tf.gather(whole, ids), tf.reduce_sum(whole)

    ops = same(step).needed()
    assert ops.count("ResourceGather") == 1 and ops.count("ReadVariableOp") == 1


def test_ids_that_follow_from_a_write_after_the_read_leave_it_as_it_is(table):
    """The look-up would come after the write, which the read did not."""

    def step(ids):
        whole = tf.convert_to_tensor(table)
        table.assign_add(tf.ones([ROWS, DIM]))
        with tf.control_dependencies([table.read_value()]):
            return tf.gather(whole, tf.identity(ids))

    assert "GatherV2" in same(step).needed()


@pytest.mark.parametrize("what", ["other rows", "columns", "not value by value"])
def test_what_is_not_made_of_rows_of_tables_stays_as_it_is(table, what):
    row = tf.Variable([1.0, 2.0, 3.0])

    def step(ids):
        if what == "other rows":
            return tf.gather(tf.convert_to_tensor(table) * row, ids)
        if what == "columns":
            return tf.gather(tf.convert_to_tensor(table), ids % DIM, axis=1)
        return tf.gather(tf.cumsum(tf.convert_to_tensor(table)), ids)

    assert "GatherV2" in same(step).needed()


def divided(rows, ids, whole):
    """As Keras 3 divides rows by a whole table."""
    wrong = tf.reduce_any(tf.logical_or(tf.equal(whole, 0), tf.math.is_nan(whole)), axis=(1,))

    def of_all():
        more = tf.squeeze(tf.where(wrong), axis=-1)
        return tf.concat([rows / tf.gather(whole, ids), 0 / tf.gather(whole, more)], 0), tf.concat([ids, more], 0)

    return tf.cond(tf.reduce_any(wrong), of_all, lambda: (rows / tf.gather(whole, ids), ids))


def test_nobody_looks_for_zeros_in_a_whole_table_by_which_rows_are_divided(table, accumulator):
    def step(ids):
        rows = tf.gather(tf.convert_to_tensor(table), ids)
        accumulator.scatter_add(tf.IndexedSlices(tf.square(rows), ids))
        values, where = divided(0.1 * rows, ids, tf.sqrt(accumulator + 1e-7))
        table.scatter_sub(tf.IndexedSlices(values, where))
        return rows

    ops = same(step).needed()
    assert not {"Any", "IsNan", "Where", "Switch", "Merge", "ReadVariableOp", "GatherV2"} & set(ops)


def test_conditions_of_other_kinds_stay(table):
    def step(ids):
        rows = tf.gather(tf.convert_to_tensor(table), ids)
        return tf.cond(tf.reduce_any(tf.math.is_nan(rows)), lambda: rows * 0, lambda: rows)

    assert "Switch" in same(step).needed()


def test_a_count_is_added_to_in_one_op():
    count, other = tf.Variable(3, name="count"), tf.Variable(2, name="other")

    def step(ids):
        count.assign(count + 1)
        other.assign(other - count)
        return tf.size(ids)

    ops = same(step).needed()
    assert ops.count("AssignAddVariableOp") == 1 and ops.count("AssignSubVariableOp") == 1
    assert "AssignVariableOp" not in ops


def test_a_number_that_is_set_to_something_else_stays():
    count = tf.Variable(3, name="count")

    def step(ids):
        count.assign(2 * count + 1)
        return tf.size(ids)

    assert "AssignVariableOp" in same(step).needed()


def test_a_number_that_is_written_twice_stays():
    """Between the read and the sum another write may be."""
    count = tf.Variable(3, name="count")

    def step(ids):
        before = count.read_value()
        count.assign(10)
        count.assign(before + 1)
        return tf.size(ids)

    assert Traced(step).needed().count("AssignVariableOp") == 2
    same(step)
