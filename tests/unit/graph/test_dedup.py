"""Looking up unique ids only changes what is sent, not what is computed."""

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.graph import Context, rewrite
from deeprec_ext.graph.dedup import pays

v1 = tf.compat.v1
ROWS, DIM, FIELDS = 50, 8, 3
IDS = np.random.default_rng(3).zipf(1.5, [40, FIELDS]).clip(1, ROWS) - 1
TWO_PS = (0, 1, 0, 1)

OPTIMIZERS = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.1),
    "adagrad": lambda: v1.train.AdagradOptimizer(0.1),
    "momentum": lambda: v1.train.MomentumOptimizer(0.1, 0.9),
    "ftrl": lambda: v1.train.FtrlOptimizer(0.1),
    "adam": lambda: v1.train.AdamOptimizer(0.1),
}


def model(scope, setter, optimizer, parts=1, use_resource=True, sparse=False, dtype=tf.int64):
    """A small FM with tables per field and one shared table, looked up twice with differently shaped ids."""
    with tf.Graph().as_default() as graph, v1.device(setter):
        ids = v1.placeholder(dtype, [None, FIELDS], name="ids")
        cut = v1.fixed_size_partitioner(parts) if parts > 1 else None
        with v1.variable_scope(scope, partitioner=cut, use_resource=use_resource):
            v1.train.get_or_create_global_step()
            start = v1.random_uniform_initializer(-1, 1, seed=5)
            shared = v1.get_variable("shared", [ROWS, DIM], initializer=start)
            found = [
                v1.nn.embedding_lookup(v1.get_variable(f"t{f}", [ROWS, DIM], initializer=start), ids[:, f])
                for f in range(FIELDS)
            ]
            found.append(tf.reduce_sum(v1.nn.embedding_lookup(shared, ids), 1))
            found.append(
                tf.reduce_sum(tf.reshape(v1.nn.embedding_lookup(shared, tf.reshape(ids, [-1])), [-1, FIELDS, DIM]), 1)
            )
            if sparse:
                sparse_ids = tf.sparse.from_dense(tf.cast(ids, tf.int64))
                found.append(v1.nn.safe_embedding_lookup_sparse(shared, sparse_ids))
        total = tf.concat(found, 1, name="found")
        loss = tf.reduce_mean(tf.reduce_sum(total, 1) ** 2, name="loss")
        step = optimizer().minimize(loss)
        init = v1.global_variables_initializer()
        with tf.control_dependencies([]):
            values = {v.op.name: v.read_value().name for v in v1.global_variables() if "step" not in v.op.name}
    return graph.as_graph_def(), init.name, step.name, values


def train(cluster, definition, init, step, values, ids=IDS, steps=3):
    with cluster.open(definition) as session:
        session.run(init)
        seen = []
        for _ in range(steps):
            seen.append(session.run(["found:0", "loss:0"], {"ids:0": ids}))
            session.run(step, {"ids:0": ids})
        return seen, session.run(values)


def report(result):
    return {r.name: r for r in result.reports}["dedup"]


@pytest.mark.parametrize("parts", [1, 3], ids=["whole", "cut"])
@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_computes_the_same(cluster, setter, name, use_resource, parts):
    scope = f"dedup_{name}_{use_resource}_{parts}"
    graph_def, init, step, values = model(scope, setter, OPTIMIZERS[name], parts, use_resource)
    results = [rewrite(graph_def, Context(TWO_PS, {}, dedup=d)) for d in ("off", "on")]
    assert report(results[1]).changed > 0
    (stock, stock_end), (ours, our_end) = (train(cluster, r.definition, init, step, values) for r in results)
    same = np.testing.assert_allclose if name == "sgd" else np.testing.assert_array_equal
    near = {"rtol": 1e-4, "atol": 1e-5} if name == "sgd" else {}
    np.testing.assert_array_equal(stock[0][0], ours[0][0])
    for before, after in zip(stock, ours):
        same(before[0], after[0], **near)
    for variable in values:
        same(stock_end[variable], our_end[variable], **near)


@pytest.mark.parametrize(
    "ids", [np.zeros([0, FIELDS]), np.zeros([1, FIELDS]), np.arange(2 * FIELDS).reshape(2, FIELDS)]
)
def test_odd_batches(cluster, setter, ids):
    graph_def, init, step, values = model(f"odd_{len(ids)}", setter, OPTIMIZERS["sgd"], dtype=tf.int32)
    results = [rewrite(graph_def, Context(TWO_PS, {}, dedup=d)) for d in ("off", "on")]
    (_, stock), (_, ours) = (train(cluster, r.definition, init, step, values, ids, 1) for r in results)
    for variable in values:
        np.testing.assert_allclose(stock[variable], ours[variable], rtol=1e-5)


def on_ps(definition, op):
    return [n.name for n in definition.node if n.op == op and n.device.startswith("/job:ps")]


def test_no_duplicate_crosses(setter):
    """What the PS gathers and applies comes from a Unique on the worker, and no merge is left on a PS."""
    for name in ("adagrad", "sgd"):
        graph_def, *_ = model("crossing", setter, OPTIMIZERS[name])
        definition = rewrite(graph_def, Context(TWO_PS, {}, dedup="on")).definition
        nodes = {n.name: n for n in definition.node}
        lookups = on_ps(definition, "ResourceGather")
        assert len(lookups) == FIELDS + 2
        assert all(nodes[nodes[n].input[1]].op == "Unique" for n in lookups)
        assert not on_ps(definition, "UnsortedSegmentSum") and not on_ps(definition, "Unique")
        updates = on_ps(definition, "ResourceSparseApplyAdagrad") + on_ps(definition, "ResourceScatterAdd")
        assert len(updates) == FIELDS + 1
        for update in updates:
            index, values = (
                (nodes[update].input[4], nodes[update].input[3]) if name == "adagrad" else nodes[update].input[1:3]
            )
            assert nodes[index].op == "Unique" and nodes[values].op == "UnsortedSegmentSum"


def test_ids_that_are_unique_already_are_left_alone(setter):
    for parts in (1, 3):
        with tf.Graph().as_default() as graph, v1.device(setter):
            with v1.variable_scope("sparse", partitioner=v1.fixed_size_partitioner(parts) if parts > 1 else None):
                table = v1.get_variable("t", [ROWS, DIM])
            found = v1.nn.safe_embedding_lookup_sparse(table, v1.sparse_placeholder(tf.int64))
            v1.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(found))
        assert report(rewrite(graph.as_graph_def(), Context(TWO_PS, {}, dedup="on"))).changed == 0


def test_rows_that_are_counted_are_unique_also_those_of_a_part(setter):
    """As where a table is saved a piece at a time."""
    with tf.Graph().as_default() as graph, v1.device(setter):
        table = v1.get_variable("counted", [ROWS, DIM], use_resource=True)
        ends = v1.placeholder(tf.int64, [2])
        counted = tf.range(ends[0], ends[1])
        for ids in (counted, tf.dynamic_partition(counted - 7, tf.cast(counted % 2, tf.int32), 2)[1]):
            v1.nn.embedding_lookup(table, ids)
        v1.nn.embedding_lookup(table, counted // 2)
    result = rewrite(graph.as_graph_def(), Context(TWO_PS, {}, dedup="on"))
    assert len(on_ps(result.definition, "ResourceGather")) == 3
    assert [node.op for node in result.definition.node].count("Unique") == 1, "of the halves, which come twice"


def test_marks_take_the_unique_ids(cluster, setter):
    for name in ("sgd", "adagrad"):
        scope = f"dedup_marks_{name}"
        graph_def, init, step, _ = model(scope, setter, OPTIMIZERS[name])
        tracked = {f"{scope}/shared": f"{scope}/shared@dirty"}
        ps = next(n.device for n in graph_def.node if n.name == f"{scope}/shared")
        result = rewrite(graph_def, Context((0, 0, 0, 0), tracked, dedup="on"))
        assert ps.startswith("/job:ps")
        with cluster.open(result.definition) as session:
            cluster.fill(f"{scope}/shared@dirty", ROWS, True)
            session.run(init)
            cluster.fill(f"{scope}/shared@dirty", ROWS, False)
            session.run([step, *result.marks.get(step, [])], {"ids:0": [[1, 2, 2], [7, 2, 1]]})
        assert cluster.marked(f"{scope}/shared@dirty", ROWS) == {1, 2, 7}
        assert not on_ps(result.definition, "Unique")


@pytest.mark.parametrize("v2", [True, False], ids=["functions", "frames"])
def test_lookups_inside_loops_still_run(cluster, setter, v2):
    (v1.enable_control_flow_v2 if v2 else v1.disable_control_flow_v2)()
    try:
        with (
            tf.Graph().as_default() as graph,
            v1.device(setter),
            v1.variable_scope(f"dedup_loop_{v2}", use_resource=True),
        ):
            table = v1.get_variable("t", [ROWS, DIM], initializer=v1.ones_initializer())
            ids = v1.placeholder(tf.int64, [None, FIELDS], name="ids")
            total = tf.while_loop(
                lambda i, s: i < 3,
                lambda i, s: (i + 1, s + tf.reduce_sum(v1.nn.embedding_lookup(table, ids + tf.cast(i, tf.int64)))),
                [0, tf.reduce_sum(v1.nn.embedding_lookup(table, ids))],
            )[1]
            init = v1.global_variables_initializer()
    finally:
        v1.enable_control_flow_v2()
    result = rewrite(graph.as_graph_def(), Context((0, 0, 0, 0), {}, dedup="on"))
    with cluster.open(result.definition) as session:
        session.run(init.name)
        assert session.run(total.name, {ids.name: [[1, 1, 2]]}) == 4 * 3 * DIM


def test_auto_wants_wide_rows_and_many_ids_or_more_ids_than_rows():
    assert pays(32, 20_000, 2048) and pays(256, 20_000, 512) and pays(32, 10, 1100)
    assert not pays(4, 20_000, 100_000) and not pays(32, 20_000, 512) and not pays(256, 20_000, 0)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize(("batch", "changed"), [(4096, True), (128, False)])
def test_auto_reads_the_number_of_ids_off_the_input(setter, batch, changed, parts):
    with tf.Graph().as_default() as graph, v1.device(setter):
        data = tf.data.Dataset.range(100).map(lambda i: tf.stack([tf.as_string(i)] * 2)).batch(batch)
        ids = tf.strings.to_hash_bucket_fast(v1.data.make_one_shot_iterator(data).get_next(), ROWS)
        with v1.variable_scope("auto", partitioner=v1.fixed_size_partitioner(parts)):
            wide, narrow = v1.get_variable("wide", [ROWS, DIM]), v1.get_variable("narrow", [ROWS, 1])
        loss = tf.reduce_sum(v1.nn.embedding_lookup(wide, ids)) + tf.reduce_sum(v1.nn.embedding_lookup(narrow, ids))
        v1.train.AdagradOptimizer(0.1).minimize(loss)
    result = report(rewrite(graph.as_graph_def(), Context(TWO_PS)))
    assert bool(result.changed) == changed, result.detail


def test_off_changes_nothing(setter):
    graph_def, *_ = model("dedup_off", setter, OPTIMIZERS["adagrad"])
    result = rewrite(graph_def, Context((0, 1, 2, 3), {}, dedup="off"))
    assert result.definition.SerializeToString(deterministic=True) == graph_def.SerializeToString(deterministic=True)


@pytest.mark.parametrize("worker", ["/job:chief/task:0", ""])
def test_ids_without_a_device_are_made_by_this_process(worker):
    with tf.Graph().as_default() as graph, v1.device(v1.train.replica_device_setter(4, worker_device="")):
        ids = v1.placeholder(tf.int64, [None])
        loss = tf.reduce_sum(v1.nn.embedding_lookup(v1.get_variable("t", [ROWS, DIM]), ids))
        v1.train.AdagradOptimizer(0.1).minimize(loss)
    result = rewrite(graph.as_graph_def(), Context(TWO_PS, dedup="on", worker_device=worker))
    assert report(result).changed == (2 if worker else 0)
