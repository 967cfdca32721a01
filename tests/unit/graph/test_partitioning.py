"""Cut variables compute what whole ones do, for each optimizer, type and way of updating."""

from __future__ import annotations

import time

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.graph import Context, GraphIndex, Partitioning, partition, rewrite

v1 = tf.compat.v1
legacy = tf.keras.optimizers.legacy
ROWS, DIM = 10_000, 7  # parts of 2 500 rows
SLOTS = (0, 1, 1, 0)
ON = Partitioning(4, "on")

OPTIMIZERS = {
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
    "adam": lambda: v1.train.AdamOptimizer(0.1),
    "keras_sgd": lambda: legacy.SGD(0.1),
    "keras_momentum": lambda: legacy.SGD(0.1, momentum=0.9),
    "keras_adagrad": lambda: legacy.Adagrad(0.1),
    "keras_adadelta": lambda: legacy.Adadelta(0.1),
    "keras_ftrl": lambda: legacy.Ftrl(0.1),
    "keras_adam": lambda: legacy.Adam(0.1),
    "keras_amsgrad": lambda: legacy.Adam(0.1, amsgrad=True),
    "keras_adamax": lambda: legacy.Adamax(0.1),
    "keras_rmsprop": lambda: legacy.RMSprop(0.1),
    "keras_centered": lambda: legacy.RMSprop(0.1, centered=True, momentum=0.5),
    "keras_nadam": lambda: legacy.Nadam(0.1),
}
IDS = [[5, 9999, 2500, 5], [2499, 2500, 0, 5001]]


class Model:
    """A table that is looked up (sparse) or multiplied (dense), trained on fed ids."""

    def __init__(self, scope, make, setter, dense=False, dtype=tf.float32, ids=tf.int64) -> None:
        with tf.Graph().as_default() as self.graph, v1.device(setter), v1.variable_scope(scope, use_resource=True):
            step = v1.train.get_or_create_global_step()
            initial = v1.glorot_uniform_initializer(7, dtype)
            self.table = v1.get_variable("table", [ROWS, DIM], dtype, initializer=initial)
            self.ids = v1.placeholder(ids, [None, None], name="ids")
            if dense:
                rows = tf.matmul(tf.cast(tf.one_hot(tf.reshape(self.ids, [-1]), ROWS), dtype), self.table)
            else:
                rows = v1.nn.embedding_lookup(self.table, self.ids)
            self.rows = tf.identity(rows, name="rows")
            self.loss = tf.reduce_sum(tf.sin(rows) ** 2 + tf.cast(1.0, dtype))
            optimizer = make()
            if isinstance(optimizer, v1.train.Optimizer):
                self.step = optimizer.minimize(self.loss, step)
            else:
                optimizer.iterations = step
                gradients = tf.gradients(self.loss, [self.table])
                with tf.name_scope("keras"):
                    self.step = optimizer.apply_gradients(zip(gradients, [self.table]))
            self.init, self.ready = v1.global_variables_initializer(), v1.report_uninitialized_variables()
            self.saver = v1.train.Saver(sharded=True)
            self.values = [v.value() if v.shape.rank else v.read_value() for v in v1.global_variables()]

    def placed(self, partitioning: Partitioning | None):
        definition = self.graph.as_graph_def()
        cuts = partition(GraphIndex(definition), partitioning) if partitioning is not None else None
        return rewrite(definition, Context(SLOTS, dedup="off")).definition, cuts, definition


def train(cluster, model, partitioning, batches=IDS):
    """Initialises, trains, and gives all values and the rows of each step by the names the user knows."""
    definition, *_ = model.placed(partitioning)
    with cluster.open(definition) as session:
        assert len(session.run(model.ready.name)) == len(model.values)
        session.run(model.init.name)
        assert not len(session.run(model.ready.name))
        seen = [
            session.run([model.rows.name, model.step.name], {model.ids.name: [ids, ids[::-1]]})[0] for ids in batches
        ]
        values = session.run([value.name for value in model.values])
        destroy(session)
    return seen, values


def destroy(session):
    """The next run begins with other variables."""
    handles = [o for o in session.graph.get_operations() if o.type == "VarHandleOp"]
    with session.graph.as_default():
        gone = []
        for one in handles:
            with v1.device(one.device):
                gone.append(tf.raw_ops.DestroyResourceOp(resource=one.outputs[0]))
    session.run(gone)


def same(one, other):
    """But for the last bit: Eigen computes the ends of a buffer without vectors, and parts have more ends."""
    for left, right in zip(one, other, strict=True):
        np.testing.assert_allclose(left, right, rtol=2e-6, atol=1e-8)


@pytest.mark.parametrize("dense", [False, True], ids=["sparse", "dense"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_computes_the_same(cluster, setter, name, dense):
    model = Model(f"cut_{name}_{dense}", OPTIMIZERS[name], setter, dense)
    _, cuts, definition = model.placed(ON)
    large = {v.op.name for v in _variables(model) if v.shape == (ROWS, DIM)}
    assert set(cuts.variables) == large, cuts.reports
    assert not any(n.op == "VarHandleOp" and n.attr["shape"].shape.dim[0:1] and n.attr["shape"].shape.dim[0].size == ROWS
                   for n in definition.node)  # fmt: skip
    whole, parts = train(cluster, model, None), train(cluster, model, ON)
    np.testing.assert_array_equal(whole[0][0], parts[0][0], "the initial values are the very same")
    same(whole[0], parts[0])
    same(whole[1], parts[1])


def _variables(model):
    return model.graph.get_collection(v1.GraphKeys.GLOBAL_VARIABLES)


def _late(value):
    time.sleep(0.3)
    return value


def counted(table, write):
    """As a linear model's summary counts what is above zero: read in functions, one within the other."""

    def inner():
        written = [table.assign_add(tf.ones_like(table)).op] if write else []
        with tf.control_dependencies(written):
            return tf.reduce_sum(tf.cast(table.read_value() > 0, tf.int32))

    def outer():
        return tf.cond(tf.random.uniform([]) < 2, inner, lambda: -1)

    return tf.cond(tf.random.uniform([]) < 2, outer, lambda: -2)


@pytest.mark.parametrize("write", [False, True], ids=["read", "written"])
def test_what_functions_only_read_is_cut_and_handed_in(cluster, setter, write):
    with tf.Graph().as_default() as graph, v1.device(setter), v1.variable_scope(f"cond_{write}", use_resource=True):
        table = v1.get_variable("table", [ROWS, DIM], initializer=v1.random_uniform_initializer(-1, 1, seed=3))
        init = table.initializer
        late = tf.numpy_function(
            _late, [tf.fill([ROWS, DIM], 0.5)], tf.float32
        )  # long after a read that does not wait for it
        with tf.control_dependencies([table.assign_sub(tf.ensure_shape(late, [ROWS, DIM]))]):
            above = counted(table, write)
        value = table.read_value()
    definition = graph.as_graph_def()
    cuts = partition(GraphIndex(definition), ON)
    if write:
        assert not cuts.variables and "If" in cuts.reports[-1].detail and "cond_True/table" in cuts.reports[-1].detail
        return
    assert set(cuts.variables) == {"cond_False/table"}
    placed = rewrite(definition, Context(SLOTS, dedup="off")).definition
    with cluster.open(placed) as session:
        session.run(init.name)
        found, whole = session.run(above.name), session.run(value.name)
    assert found == (whole > 0).sum() and 0.2 < found / whole.size < 0.3, (
        "what was written before the branch is seen in it"
    )
