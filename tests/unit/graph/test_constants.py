"""Initial values that are one number are made when they are needed, with the same result."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.graph import Context, rewrite
from deeprec_ext.graph.constants import VALUES_MIN

v1 = tf.compat.v1
ROWS = VALUES_MIN // 8
PS = "/job:ps/task:0"


def graph(optimizer, resource):
    """A large and a small table on PS 0 and 1, with what the optimizer adds."""
    with tf.Graph().as_default() as made:
        tables = []
        for slot, (name, rows) in enumerate((("large", ROWS), ("small", 4))):
            with v1.device(f"/job:ps/task:{slot}"):
                tables.append(v1.get_variable(name, [rows, 8], use_resource=resource))
        with v1.device("/job:worker/task:0"):
            loss = tf.add_n([tf.reduce_sum(v1.nn.embedding_lookup(table, [1, 2]) ** 2) for table in tables])
            step = v1.train.get_or_create_global_step()
            optimizer.minimize(loss, step, name="train")
            v1.variables_initializer(v1.global_variables(), name="init")
            names = {variable.name: variable for variable in v1.global_variables()}
    return made.as_graph_def(), sorted(names)


@pytest.mark.parametrize("resource", [True, False])
@pytest.mark.parametrize("optimizer, made", [
    (lambda: v1.train.AdagradOptimizer(0.1, initial_accumulator_value=0.25), 1),
    (lambda: v1.train.AdamOptimizer(0.1), 2),
    (lambda: v1.train.FtrlOptimizer(0.1, initial_accumulator_value=0.5), 2),
])  # fmt: skip
def test_accumulators_begin_with_their_number_and_train_the_same(cluster, optimizer, made, resource):
    tf.compat.v1.set_random_seed(3)
    definition, names = graph(optimizer(), resource)
    result = rewrite(definition, Context((0, 1), dedup="off"))
    (report,) = [one for one in result.reports if one.name == "constants"]
    assert report.changed == made, "those of the large table, and nothing of the small one"
    by_name = {node.name: node for node in result.definition.node}
    copies = [node for node in result.definition.node if node.op == "DeepCopy"]
    assert len(copies) == made and {node.device for node in copies} == {PS}
    fills = [node for node in by_name.values() if node.op == "Fill" and node.input[0] in {c.name for c in copies}]
    assert len(fills) == made and all("Adagrad" in n.name or "Adam" in n.name or "Ftrl" in n.name for n in fills)
    with cluster.open(result.definition) as session:
        session.run("init")
        slots = [name for name in names if name.startswith("large/")]
        expected = {"Adagrad": 0.25, "Adam": 0.0, "Adam_1": 0.0, "Ftrl": 0.5, "Ftrl_1": 0.0}
        for name in slots:
            read = name if not resource else name.replace(":0", "/Read/ReadVariableOp:0")
            value = session.run(read)
            assert value.shape == (ROWS, 8) and np.all(value == expected[name.split("/")[1].split(":")[0]])
        session.run("train")


def test_a_constant_that_training_uses_stays_one():
    with tf.Graph().as_default() as made, v1.device(PS):
        variable = v1.get_variable("v", [ROWS, 8], initializer=v1.zeros_initializer())
        tf.add(variable, tf.fill([ROWS, 8], 2.0), name="used")
    result = rewrite(made.as_graph_def(), Context((0, 1), dedup="off"))
    (report,) = [one for one in result.reports if one.name == "constants"]
    assert report.changed == 1


def test_what_is_not_on_a_ps_stays():
    with tf.Graph().as_default() as made, v1.device("/job:worker/task:0"):
        v1.get_local_variable("v", [ROWS, 8], initializer=v1.zeros_initializer())
    result = rewrite(made.as_graph_def(), Context((0, 1), dedup="off"))
    assert not [node for node in result.definition.node if node.op == "DeepCopy"]
