"""Every row that a step changes is marked, for each optimizer and each kind of variable."""

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.graph import Context, build_catalogue, rewrite
from deeprec_ext.graph.dirty import DirtyRows

v1 = tf.compat.v1
legacy = tf.keras.optimizers.legacy
ROWS, DIM = 4096, 4  # 64 kB: the smallest table that is tracked
ONE_PS = (0, 0, 0, 0)

BY_ROWS = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: v1.train.MomentumOptimizer(0.1, 0.9),
    "nesterov": lambda: v1.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "adagrad": lambda: v1.train.AdagradOptimizer(0.1),
    "adadelta": lambda: v1.train.AdadeltaOptimizer(0.1),
    "adagrad_da": lambda: v1.train.AdagradDAOptimizer(0.1, v1.train.get_or_create_global_step()),
    "proximal_adagrad": lambda: v1.train.ProximalAdagradOptimizer(0.1),
    "proximal_sgd": lambda: v1.train.ProximalGradientDescentOptimizer(0.1),
    "rmsprop": lambda: v1.train.RMSPropOptimizer(0.1),
    "centered_rmsprop": lambda: v1.train.RMSPropOptimizer(0.1, centered=True),
    "ftrl": lambda: v1.train.FtrlOptimizer(0.1),
    "ftrl_v2": lambda: v1.train.FtrlOptimizer(0.1, l2_shrinkage_regularization_strength=0.1),
    "keras_sgd": lambda: legacy.SGD(0.1),
    "keras_momentum": lambda: legacy.SGD(0.1, momentum=0.9),
    "keras_adagrad": lambda: legacy.Adagrad(0.1),
    "keras_adadelta": lambda: legacy.Adadelta(0.1),
    "keras_ftrl": lambda: legacy.Ftrl(0.1),
    "keras_adamax": lambda: legacy.Adamax(0.1),
}
DENSELY = {
    "adam": lambda: v1.train.AdamOptimizer(0.1),
    "keras_adam": lambda: legacy.Adam(0.1),
    "keras_rmsprop": lambda: legacy.RMSprop(0.1),
    "keras_nadam": lambda: legacy.Nadam(0.1),
}


def build(scope, make, setter, use_resource=True, ids_dtype=tf.int64):
    """One table looked up by fed ids; returns graph, step, init."""
    with tf.Graph().as_default() as graph, v1.device(setter), v1.variable_scope(scope, use_resource=use_resource):
        v1.train.get_or_create_global_step()
        table = v1.get_variable("table", [ROWS, DIM], initializer=v1.glorot_uniform_initializer(7))
        ids = v1.placeholder(ids_dtype, [None], name="ids")
        loss = tf.reduce_sum(v1.nn.embedding_lookup(table, ids) ** 2 + 1.0)
        optimizer = make()
        if isinstance(optimizer, v1.train.Optimizer):
            step = optimizer.minimize(loss)
        else:
            gradients = tf.gradients(loss, [table])
            with tf.name_scope("keras"):
                step = optimizer.apply_gradients(zip(gradients, [table]))
        init = v1.global_variables_initializer()
        v1.add_to_collection("check", step)
    return graph.as_graph_def(), step.name, init.name


def values(session, catalogue):
    """The value of every large variable, read through the private graph."""
    nodes = {(n.attr["shared_name"].s.decode() or n.name): n.name for n in session.graph.as_graph_def().node
             if n.op in ("VarHandleOp", "VariableV2", "Variable")}  # fmt: skip
    found = {}
    with session.graph.as_default():
        for variable in catalogue.variables:
            if variable.bytes < 65536:
                continue
            op = session.graph.get_operation_by_name(nodes[variable.name])
            with v1.device(op.device):
                found[variable.name] = (
                    tf.identity(op.outputs[0])
                    if variable.reference
                    else tf.raw_ops.ReadVariableOp(resource=op.outputs[0], dtype=variable.dtype)
                )
    return session.run(found)


def scope_ids(graph_def):
    return next(node.name for node in graph_def.node if node.op == "Placeholder") + ":0"


def changed_rows(before, after, name):
    return set(np.flatnonzero(np.any(before[name] != after[name], axis=1)).tolist())


def run_steps(cluster, graph_def, step, init, ids=(5, 9, 9, 2), tracked=None):
    """Initialises, clears the bitmaps, makes one step; returns catalogue, values before and after, marks."""
    catalogue = build_catalogue(graph_def, [step])
    if tracked is None:
        tracked = {v.name: v.bitmap for v in catalogue.variables if v.bitmap}
    result = rewrite(graph_def, Context(ONE_PS, tracked, dedup="off"))
    for bitmap in set(tracked.values()):
        cluster.fill(bitmap, ROWS, True)
    with cluster.open(result.definition) as session:
        session.run([init, *result.marks.get(init, [])])
        before = values(session, catalogue)
        for bitmap in set(tracked.values()):
            cluster.fill(bitmap, ROWS, False)
        wanted = [step, *result.marks.get(step, [])]
        session.run(wanted, {scope_ids(graph_def): ids})
        after = values(session, catalogue)
    marks = {name: cluster.marked(bitmap, ROWS) for name, bitmap in tracked.items()}
    return catalogue, before, after, marks


@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
@pytest.mark.parametrize("name", BY_ROWS)
def test_every_changed_row_is_marked_and_few_others(cluster, setter, name, use_resource):
    if name.startswith("keras") and not use_resource:
        pytest.skip("Keras optimizers take resource variables only")
    graph_def, step, init = build(f"by_rows_{name}_{use_resource}", BY_ROWS[name], setter, use_resource)
    catalogue, before, after, marks = run_steps(cluster, graph_def, step, init)
    large = [v for v in catalogue.variables if v.bytes >= 65536]
    assert large and all(v.bitmap for v in large), "the table and its slots are updated by rows"
    assert not catalogue.warnings
    touched = set()
    for variable in large:
        changed = changed_rows(before, after, variable.name)
        assert changed <= marks[variable.name] <= {2, 5, 9}
        touched |= changed
    assert touched == {2, 5, 9}


@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
@pytest.mark.parametrize("name", DENSELY)
def test_dense_updates_are_catalogued_as_dense_and_mark_everything_when_tracked(cluster, setter, name, use_resource):
    if name.startswith("keras") and not use_resource:
        pytest.skip("Keras optimizers take resource variables only")
    scope = f"densely_{name}_{use_resource}"
    graph_def, step, init = build(scope, DENSELY[name], setter, use_resource)
    catalogue = build_catalogue(graph_def, [step])
    dense = [v for v in catalogue.variables if v.bytes >= 65536 and not v.bitmap]
    assert dense and dense[0].name in catalogue.warnings[0] and "Adagrad" in catalogue.warnings[0]
    tracked = {v.name: v.name + "@dirty" for v in catalogue.variables if v.bytes >= 65536}
    catalogue, before, after, marks = run_steps(cluster, graph_def, step, init, tracked=tracked)
    for variable in tracked:
        assert changed_rows(before, after, variable) <= marks[variable]
    for variable in dense:
        assert len(marks[variable.name]) == ROWS


def test_one_bitmap_covers_a_table_and_its_slots(setter):
    graph_def, step, _ = build("shared_bitmap", BY_ROWS["ftrl"], setter)
    catalogue = build_catalogue(graph_def, [step])
    assert {v.bitmap for v in catalogue.variables if v.bitmap} == {"shared_bitmap/table@dirty"}
    assert sum(bool(v.bitmap) for v in catalogue.variables) == 3


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64], ids=["int32", "int64"])
@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
def test_no_ids_no_marks(cluster, setter, dtype, use_resource):
    graph_def, step, init = build(f"empty_{dtype.name}_{use_resource}", BY_ROWS["adagrad"], setter, use_resource, dtype)
    _, _, _, marks = run_steps(cluster, graph_def, step, init, ids=np.zeros([0], dtype.as_numpy_dtype))
    assert set().union(*marks.values()) == set()


@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
@pytest.mark.parametrize("write", ["assign", "assign_add", "scatter_nd", "scatter_sub"])
def test_direct_writes_are_marked(cluster, setter, write, use_resource):
    scope = f"direct_{write}_{use_resource}"
    with tf.Graph().as_default() as graph, v1.device(setter), v1.variable_scope(scope, use_resource=use_resource):
        table = v1.get_variable("table", [ROWS, DIM], initializer=v1.zeros_initializer())
        value = tf.ones([ROWS, DIM])
        updates = {
            "assign": lambda: v1.assign(table, value),
            "assign_add": lambda: v1.assign_add(table, value),
            "scatter_nd": lambda: v1.scatter_nd_update(table, [[3]], tf.ones([1, DIM])),
            "scatter_sub": lambda: v1.scatter_sub(table, [3, 4], tf.ones([2, DIM])),
        }
        updated = updates[write]()
        with tf.control_dependencies([updated]):
            after = tf.constant(1.0, name="after")
        init = v1.global_variables_initializer()
    bitmap = scope + "/table@dirty"
    result = rewrite(graph.as_graph_def(), Context(ONE_PS, {scope + "/table": bitmap}, dedup="off"))
    cluster.fill(bitmap, ROWS, False)
    with cluster.open(result.definition) as session:
        session.run([init.name])
        cluster.fill(bitmap, ROWS, False)
        session.run(after.name)
    assert cluster.marked(bitmap, ROWS) == ({3, 4} if write == "scatter_sub" else set(range(ROWS)))


def test_a_reader_of_the_reference_that_a_write_returns_waits_for_the_mark(setter):
    with tf.Graph().as_default() as graph, v1.device(setter), v1.variable_scope("ref_out", use_resource=False):
        table = v1.get_variable("table", [ROWS, DIM])
        read = tf.identity(v1.scatter_add(table, [3], tf.ones([1, DIM])), name="read")
    result = rewrite(graph.as_graph_def(), Context(ONE_PS, {"ref_out/table": "b"}, dedup="off"))
    (node,) = (n for n in result.definition.node if n.name == read.op.name)
    assert any(i.startswith("^") and i.endswith("__mark") for i in node.input)


@pytest.mark.parametrize("control_flow_v2", [True, False], ids=["functions", "frames"])
def test_writes_inside_loops_and_branches_are_marked(cluster, setter, control_flow_v2):
    scope = f"loops_{control_flow_v2}"
    (v1.enable_control_flow_v2 if control_flow_v2 else v1.disable_control_flow_v2)()
    try:
        with tf.Graph().as_default() as graph, v1.device(setter), v1.variable_scope(scope, use_resource=True):
            looped = v1.get_variable("looped", [ROWS, DIM], initializer=v1.zeros_initializer())
            branched = v1.get_variable("branched", [ROWS, DIM], initializer=v1.zeros_initializer())
            only_read = v1.get_variable("only_read", [ROWS, DIM], initializer=v1.zeros_initializer())

            def body(i):
                with tf.control_dependencies([looped.scatter_add(tf.IndexedSlices(tf.ones([1, DIM]), [i]))]):
                    return [i + 1 + tf.cast(tf.gather(only_read, i)[0], tf.int32)]

            (loop,) = tf.nest.flatten(tf.while_loop(lambda i: i < 3, body, [tf.constant(0)]))
            ones = tf.ones([ROWS, DIM])
            branch = tf.cond(loop > 0, lambda: _after(branched.assign_add(ones, read_value=False)), lambda: 0)
            total = tf.add(loop, branch, name="total")
            init = v1.global_variables_initializer()
    finally:
        v1.enable_control_flow_v2()
    names = ["looped", "branched", "only_read"]
    tracked = {f"{scope}/{n}": f"{scope}/{n}@dirty" for n in names}
    result = rewrite(graph.as_graph_def(), Context(ONE_PS, tracked, dedup="off"))
    with cluster.open(result.definition) as session:
        for bitmap in tracked.values():
            cluster.fill(bitmap, ROWS, True)
        session.run([init.name])
        for bitmap in tracked.values():
            cluster.fill(bitmap, ROWS, False)
        assert session.run(total.name) == 4
    looped_marks, branched_marks, read_marks = (cluster.marked(b, ROWS) for b in tracked.values())
    assert looped_marks == (set(range(ROWS)) if control_flow_v2 else {0, 1, 2})
    assert branched_marks == set(range(ROWS))
    assert read_marks == set()


def _after(op):
    with tf.control_dependencies([op]):
        return tf.constant(1)


def test_without_tracked_variables_no_node_is_added(setter):
    graph_def, _, _ = build("untracked", BY_ROWS["adagrad"], setter)
    result = rewrite(graph_def, Context(ONE_PS, {}, dedup="off"))
    assert DirtyRows.name not in [one.name for one in result.reports] and not result.marks
