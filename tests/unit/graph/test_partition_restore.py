"""Checkpoints of cut variables by a saver of either kind: stock reads ours, we read stock's, and who reads stays the same."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.unit.graph.test_partitioning import ON, OPTIMIZERS, Model, destroy

WAYS = {"cut to cut": (ON, ON), "cut to whole": (ON, None), "whole to cut": (None, ON)}


@pytest.mark.parametrize("sharded", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_a_checkpoint_has_the_whole_and_is_read_where_the_script_reads_it(cluster, setter, tmp_path, sharded, way):
    model = Model(f"restored{sharded}{way.replace(' ', '')}", OPTIMIZERS["adagrad"], setter)
    with model.graph.as_default():
        saver = tf.compat.v1.train.Saver(sharded=sharded).saver_def
    before, after = WAYS[way]
    feeds = {saver.filename_tensor_name: str(tmp_path / "model.ckpt")}
    with cluster.open(model.placed(before)[0]) as session:
        session.run(model.init.name)
        session.run(model.step.name, {model.ids.name: [[5, 4999], [1, 2]]})
        session.run(saver.save_tensor_name, feeds)
        saved = session.run([value.name for value in model.values])
        destroy(session)
    definition = model.placed(after)[0]
    with cluster.open(definition) as session:
        session.run(saver.restore_op_name, feeds)
        restored = session.run([value.name for value in model.values])
        destroy(session)
    for one, other in zip(saved, restored):
        np.testing.assert_array_equal(one, other)
    ours = [node for node in definition.node if node.op == "RestoreV2" and node.name.startswith("save/")]
    on_ps = {node.device.startswith("/job:ps") for node in ours}
    assert on_ps == ({True} if sharded else {False})
