"""Each part of a cut table has a bitmap of its own, in which the rows of that part are marked; unique look-ups go on."""

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.graph import Context, GraphIndex, Partitioning, build_catalogue, partition, rewrite, saved_names

v1 = tf.compat.v1
legacy = tf.keras.optimizers.legacy
ROWS, DIM, PARTS = 10_000, 7, 4
BLOCK = ROWS // PARTS
SLOTS = (0, 1, 1, 0)
IDS = [5, 9999, 2500, 5, 2499, 7600, 5]

BY_ROWS = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: v1.train.MomentumOptimizer(0.1, 0.9),
    "adagrad": lambda: v1.train.AdagradOptimizer(0.1),
    "adadelta": lambda: v1.train.AdadeltaOptimizer(0.1),
    "ftrl": lambda: v1.train.FtrlOptimizer(0.1),
    "rmsprop": lambda: v1.train.RMSPropOptimizer(0.1),
    "proximal_adagrad": lambda: v1.train.ProximalAdagradOptimizer(0.1),
    "keras_sgd": lambda: legacy.SGD(0.1),
    "keras_adagrad": lambda: legacy.Adagrad(0.1),
    "keras_ftrl": lambda: legacy.Ftrl(0.1),
    "keras_adamax": lambda: legacy.Adamax(0.1),
}
DENSELY = {"adam": lambda: v1.train.AdamOptimizer(0.1), "keras_adam": lambda: legacy.Adam(0.1)}


def build(scope, make, setter):
    """The graph after partitioning: definition, step, init, catalogue."""
    with tf.Graph().as_default() as graph, v1.device(setter), v1.variable_scope(scope, use_resource=True):
        table = v1.get_variable("table", [ROWS, DIM], initializer=v1.glorot_uniform_initializer(7))
        ids = v1.placeholder(tf.int64, [None], name="ids")
        rows = tf.identity(v1.nn.embedding_lookup(table, ids), name="rows")
        loss = tf.reduce_sum(tf.sin(rows) ** 2 + 1.0)
        optimizer = make()
        if isinstance(optimizer, v1.train.Optimizer):
            step = optimizer.minimize(loss)
        else:
            with tf.name_scope("keras"):
                step = optimizer.apply_gradients(zip(tf.gradients(loss, [table]), [table]))
        init = v1.global_variables_initializer()
        value = table.read_value().name
    definition = graph.as_graph_def()
    cuts = partition(GraphIndex(definition), Partitioning(PARTS, "on"))
    assert cuts.variables, cuts.reports
    saved = saved_names(graph)
    catalogue = build_catalogue(definition, [step.name], type(saved)(cuts.saved(saved.names)))
    return definition, step.name, init.name, ids.name, rows.name, value, catalogue


def parts_of(catalogue):
    return {one.name: one for one in catalogue.variables if "/part_" in one.name}


@pytest.mark.parametrize("name", BY_ROWS)
def test_the_rows_of_each_part_are_marked_in_its_own_bitmap_and_no_others(cluster, setter, name):
    definition, step, init, ids, _, _, catalogue = build(f"cut_marks_{name}", BY_ROWS[name], setter)
    parts = parts_of(catalogue)
    assert len(parts) >= PARTS and all(one.bitmap for one in parts.values()), parts
    assert not catalogue.warnings
    tracked = {one.name: one.bitmap for one in parts.values()}
    result = rewrite(definition, Context(SLOTS, tracked, dedup="off"))
    with cluster.open(result.definition) as session:
        session.run([init, *result.marks.get(init, [])])
        for one in parts.values():
            cluster.fill(one.bitmap, BLOCK, False, SLOTS[one.slot])
        session.run([step, *result.marks.get(step, [])], {ids: IDS})
    for one in parts.values():
        part = int(one.name.rpartition("part_")[2].partition("@")[0])
        expected = {row - part * BLOCK for row in IDS if row // BLOCK == part}
        assert cluster.marked(one.bitmap, BLOCK, SLOTS[one.slot]) == expected, one.name


@pytest.mark.parametrize("name", DENSELY)
def test_who_writes_every_row_marks_every_row_of_every_part(cluster, setter, name):
    definition, step, init, ids, _, _, catalogue = build(f"cut_dense_{name}", DENSELY[name], setter)
    parts = parts_of(catalogue)
    assert catalogue.warnings, "that every row is written in each step is said"
    tracked = {one: f"{one}@dirty" for one in parts}
    result = rewrite(definition, Context(SLOTS, tracked, dedup="off"))
    with cluster.open(result.definition) as session:
        session.run([init, *result.marks.get(init, [])])
        for name, one in parts.items():
            cluster.fill(tracked[name], BLOCK, False, SLOTS[one.slot])
        session.run([step, *result.marks.get(step, [])], {ids: IDS})
    for name, one in parts.items():
        marked = cluster.marked(tracked[name], BLOCK, SLOTS[one.slot])
        assert marked == set(range(BLOCK)), name


@pytest.mark.parametrize("name", ["adagrad", "momentum", "keras_adagrad"])
def test_unique_look_ups_of_parts_compute_the_same(cluster, setter, name):
    definition, step, init, ids, rows, value, _ = build(f"cut_unique_{name}", BY_ROWS[name], setter)
    seen = []
    for dedup in ("off", "on"):
        result = rewrite(definition, Context(SLOTS, dedup=dedup))
        changed = {report.name: report.changed for report in result.reports}.get("dedup", 0)
        assert (changed > 0) == (dedup == "on")
        with cluster.open(result.definition) as session:
            session.run(init)
            looked_up = [session.run([rows, step], {ids: IDS})[0] for _ in range(3)]
            seen.append((looked_up, session.run(value)))
    np.testing.assert_array_equal(seen[0][0][0], seen[1][0][0])
    np.testing.assert_allclose(seen[0][0], seen[1][0], rtol=1e-5)
    np.testing.assert_allclose(seen[0][1], seen[1][1], rtol=1e-5)
