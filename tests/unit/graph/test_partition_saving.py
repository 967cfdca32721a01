"""Who writes what of a table that is cut, and what is on the disk when not all of it was written."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.graph import Context, GraphIndex, Partitioning, partition, rewrite
from deeprec_ext.graph.index import op_name, task_of
from deeprec_ext.graph.partitioning import saving
from tests.unit.graph.test_partition_savers import build as model_of
from tests.unit.graph.test_partition_savers import equal, restore, save
from tests.unit.graph.test_partition_savers import trained as values_of

ROW_BYTES = 7 * 4
PART_BYTES = 2_500 * ROW_BYTES


def shards(model):
    """Of each SaveV2 of the savers by name: (its device, [device of each tensor it takes])."""
    index = GraphIndex(model.definition)
    return {
        node.name: (node.device, [index.nodes[op_name(one)].device for one in index.inputs(node.name)[3:] if one[0] != "^"])
        for node in model.definition.node if node.op == "SaveV2"
    }  # fmt: skip


def upstream_of_save(model, kind):
    return GraphIndex(model.definition).upstream([model.savers[kind].as_saver_def().save_tensor_name])


def test_each_ps_writes_its_own_parts_and_gets_no_others(setter):
    model = model_of(setter, "own_parts")
    reached = upstream_of_save(model, "sharded")
    found = {name: where for name, where in shards(model).items() if name in reached}
    assert len(found) == 4, "one shard for each slot"
    for device, tensors in found.values():
        assert len(tensors) == 2, "a part of the table and of its accumulator"
        assert {task_of(one) for one in tensors} == {task_of(device)}


def test_several_tables_share_the_shard_of_a_slot(setter):
    """Each has had a shard of its own, on the slot that the setter gave it."""
    with tf.Graph().as_default() as graph, tf.compat.v1.device(setter):
        for name in ("one", "two", "three"):
            with tf.compat.v1.variable_scope("shared", use_resource=True):
                tf.compat.v1.get_variable(name, [10_000, 7])
        tf.compat.v1.train.Saver(sharded=True)
    definition = graph.as_graph_def()
    partition(GraphIndex(definition), Partitioning(4, "on"))
    index = GraphIndex(definition)
    saves = [node for node in definition.node if node.op == "SaveV2"]
    assert sorted(task_of(node.device) for node in saves) == [0, 1, 2, 3]
    assert all(len(node.attr["dtypes"].list.type) == 3 for node in saves)
    (merge,) = [node for node in definition.node if node.op == "MergeV2Checkpoints"]
    assert index.nodes[op_name(merge.input[0])].attr["N"].i == 4
    assert {node.name for node in saves} <= index.upstream([merge.name])


def test_a_saver_of_one_place_has_one_shard_on_its_way_at_a_time(cluster, setter, tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "SHARD_BYTES", 3 * PART_BYTES)
    model = model_of(setter, "in_turn")
    reached = upstream_of_save(model, "whole")
    index = GraphIndex(model.definition)
    found = [name for name in shards(model) if name in reached]
    assert [len(index.nodes[name].attr["dtypes"].list.type) for name in found] == [3, 3, 2]
    assert len({index.nodes[name].device for name in found}) == 1
    for before, name in zip(found, found[1:]):
        for tensor in index.inputs(name)[3:]:
            sent = index.nodes[op_name(tensor)]
            assert f"^{before}" in sent.input and sent.device.startswith("/job:ps"), "it is held back where it is"
    with cluster.open(model.definition) as session:
        values = values_of(session, model)
        save(session, model, "whole", tmp_path / "model")
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            "model.data-00000-of-00003", "model.data-00001-of-00003", "model.data-00002-of-00003", "model.index",
        ]  # fmt: skip
        session.run(model.init)
        restore(session, model, "whole", tmp_path / "model")
        equal(session.run(model.values), values)
    tf.compat.v1.train.remove_checkpoint(str(tmp_path / "model"))
    assert not list(tmp_path.iterdir()), "max_to_keep finds them all"


def test_a_reader_of_one_place_asks_for_a_part_when_the_one_before_is_placed(setter):
    model = model_of(setter, "read_in_turn")
    index = GraphIndex(model.definition)
    reached = index.upstream([model.savers["whole"].as_saver_def().restore_op_name])
    assigned = sorted(name for name in reached if index.nodes[name].op == "AssignVariableOp")
    assert len(assigned) == 8
    waits = [
        sum(one[0] == "^" and index.nodes[one[1:]].op == "AssignVariableOp" for one in index.inputs(op_name(value)))
        for value in (index.inputs(name)[1] for name in assigned)
    ]
    assert sorted(waits) == [0, 0, *[1] * 6], "but for the first part of each of two"


@pytest.mark.parametrize("kind", ["whole", "sharded"])
def test_a_shard_that_is_not_written_leaves_no_checkpoint(cluster, setter, tmp_path, monkeypatch, kind):
    """As of a PS that dies while it writes: what the others wrote is no checkpoint, and the one before is still there."""
    monkeypatch.setattr(saving, "SHARD_BYTES", 3 * PART_BYTES)
    model = model_of(setter, f"half_{kind}")
    with cluster.open(model.definition) as session:
        values = values_of(session, model)
        save(session, model, kind, tmp_path / "first")
        before = sorted(path.name for path in tmp_path.iterdir())
        blocked = "part-00001-of-00003" if kind == "whole" else "part-00000-of-00001-slot-00002"
        (tmp_path / "second_temp" / f"{blocked}.data-00000-of-00001" / "occupied").mkdir(parents=True)
        with pytest.raises(tf.errors.OpError):
            save(session, model, kind, tmp_path / "second")
        assert sorted(path.name for path in tmp_path.iterdir()) == [*before, "second_temp"]
        restore(session, model, kind, tmp_path / "first")
        equal(session.run(model.values), values)


@pytest.mark.parametrize("kind", ["whole", "sharded"])
def test_what_some_ps_wrote_others_read(cluster, setter, tmp_path, monkeypatch, kind):
    """Slots lie on other PS than when it was saved; the graph is another one, too."""
    monkeypatch.setattr(saving, "SHARD_BYTES", 3 * PART_BYTES)
    model = model_of(setter, f"moved_{kind}")
    with cluster.open(model.definition) as session:
        values = values_of(session, model)
        save(session, model, kind, tmp_path / "model")
    saver = model.savers[kind].as_saver_def()
    for slots in ((0, 0, 0, 0), (1, 0, 0, 1)):
        definition = model.graph.as_graph_def()
        partition(GraphIndex(definition), Partitioning(4, "on"))
        with cluster.open(rewrite(definition, Context(slots, dedup="off")).definition) as session:
            session.run(saver.restore_op_name, {saver.filename_tensor_name: str(tmp_path / "model")})
            for one, other in zip(session.run(model.values), values, strict=True):
                np.testing.assert_array_equal(one, other)
