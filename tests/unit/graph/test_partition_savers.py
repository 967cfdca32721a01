"""What a user can name is there as if nothing were cut: values to fetch, and checkpoints of savers of every kind, both ways."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.graph import Context, GraphIndex, Partitioning, divided_of, partition, rewrite, saved_names

v1 = tf.compat.v1
ROWS, DIM = 10_000, 7
SLOTS = (0, 1, 1, 0)
THREE = v1.fixed_size_partitioner(3)


@dataclass
class Model:
    """A table, looked up, with an optimizer that has a slot; `savers` are the script's."""

    graph: tf.Graph
    definition: Any
    step: str
    init: str
    values: list[str]
    savers: dict[str, v1.train.Saver] = field(default_factory=dict)


def build(setter, scope, partitioning=True, partitioner=None, called="table"):
    """`called`: what the savers call the table. Every model has shared names of its own, so that none sees another's."""
    with tf.Graph().as_default() as graph, v1.device(setter), v1.variable_scope(scope, use_resource=True):
        table = v1.get_variable(
            "table", [ROWS, DIM], partitioner=partitioner, initializer=v1.glorot_uniform_initializer(5)
        )
        whole = tf.convert_to_tensor(table)
        ids = v1.placeholder(tf.int64, [None], name="ids")
        loss = tf.reduce_sum(v1.nn.embedding_lookup(table, ids, partition_strategy="div") ** 2)
        step = v1.train.AdagradOptimizer(0.1).minimize(loss).name
        slots = [one for one in v1.global_variables() if "Adagrad" in one.op.name]
        init = v1.global_variables_initializer().name
        slot = tf.concat([one.read_value() for one in slots], 0)
        saved = {called: table, f"{called}/Adagrad": slots[0] if len(slots) == 1 else _whole(slots, called)}
        savers = {
            "whole": v1.train.Saver(saved), "sharded": v1.train.Saver(saved, sharded=True),
            "reshaping": v1.train.Saver(saved, reshape=True), "keeping": v1.train.Saver(saved, max_to_keep=1),
        } if len(slots) == 1 else {"whole": v1.train.Saver(saved), "sharded": v1.train.Saver(saved, sharded=True)}  # fmt: skip
    definition = graph.as_graph_def()
    if partitioning:
        cuts = partition(GraphIndex(definition), Partitioning(4, "on", divided=divided_of(saved_names(graph).names)))
        assert len(cuts.variables) == 2, cuts.reports
    placed = rewrite(definition, Context(SLOTS, dedup="off")).definition
    return Model(graph, placed, step, init, [whole.name, slot.name], savers)


def _whole(slots, called):
    """The slots of parts, as a partitioned variable: what `Saver()` makes of their slice infos."""
    for one in slots:
        one._get_save_slice_info().full_name = f"{called}/Adagrad"
    return slots


def save(session, model, kind, path):
    named = model.savers[kind].as_saver_def()
    session.run(named.save_tensor_name, {named.filename_tensor_name: str(path)})


def restore(session, model, kind, path):
    named = model.savers[kind].as_saver_def()
    session.run(named.restore_op_name, {named.filename_tensor_name: str(path)})


def trained(session, model):
    session.run(model.init)
    fed = next(node.name for node in model.definition.node if node.op == "Placeholder") + ":0"
    for ids in ([5, 9999, 2500, 5], [2499, 0, 5001]):
        session.run(model.step, {fed: ids})
    return session.run(model.values)


def equal(ours, others):
    for one, other in zip(ours, others, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", ["whole", "sharded", "reshaping", "keeping"])
def test_a_saver_of_the_users_own_writes_and_reads_as_if_uncut(cluster, setter, tmp_path, kind):
    ours = build(setter, f"own_{kind}", called="renamed/table")
    stock = build(setter, f"own_stock_{kind}", partitioning=False, called="renamed/table")
    with cluster.open(ours.definition) as session:
        values = trained(session, ours)
        save(session, ours, kind, tmp_path / "ours")
    reader = tf.train.load_checkpoint(str(tmp_path / "ours"))
    assert reader.get_variable_to_shape_map() == {"renamed/table": [ROWS, DIM], "renamed/table/Adagrad": [ROWS, DIM]}
    equal([reader.get_tensor("renamed/table"), reader.get_tensor("renamed/table/Adagrad")], values)
    with cluster.open(stock.definition) as session:
        restore(session, stock, kind, tmp_path / "ours")
        equal(session.run(stock.values), values)
        values = trained(session, stock)
        save(session, stock, kind, tmp_path / "stock")
    with cluster.open(ours.definition) as session:
        session.run(ours.init)
        restore(session, ours, kind, tmp_path / "stock")
        equal(session.run(ours.values), values)


@pytest.mark.parametrize("kind", ["whole", "sharded"])
def test_a_checkpoint_of_a_partitioned_table_is_read_and_one_of_ours_is_read_by_it(cluster, setter, tmp_path, kind):
    ours = build(setter, f"parts_{kind}")
    stock = build(setter, f"parts_stock_{kind}", partitioning=False, partitioner=THREE)
    with cluster.open(stock.definition) as session:
        values = trained(session, stock)
        save(session, stock, kind, tmp_path / "stock")
    with cluster.open(ours.definition) as session:
        restore(session, ours, kind, tmp_path / "stock")
        equal(session.run(ours.values), values)
        values = trained(session, ours)
        save(session, ours, kind, tmp_path / "ours")
    with cluster.open(stock.definition) as session:
        session.run(stock.init)
        restore(session, stock, kind, tmp_path / "ours")
        equal(session.run(stock.values), values)


def test_values_are_fetched_under_the_names_that_the_user_knows(cluster, setter):
    ours, stock = build(setter, "named"), build(setter, "named_stock", partitioning=False)
    with cluster.open(ours.definition) as session, cluster.open(stock.definition) as other:
        equal(trained(session, ours), trained(other, stock))
        for name in ("table/Read/ReadVariableOp:0", "named/table/Adagrad/Read/ReadVariableOp:0"):
            theirs = name.replace("named", "named_stock")
            np.testing.assert_array_equal(session.run(f"named/{name}"), other.run(f"named_stock/{theirs}"))
        initialized = "table/IsInitialized/VarIsInitializedOp:0"
        assert session.run(f"named/{initialized}") and other.run(f"named_stock/{initialized}")
        handles = session.run("named/table:0"), other.run("named_stock/table:0")
        assert type(handles[0]) is type(handles[1]), "a handle is of no use to anybody, but fetching it is no error"
