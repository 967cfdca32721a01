"""What a script has partitioned computes the same when its parts are one variable, for each optimizer and way of dividing."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.errors import RefusedError
from deeprec_ext.graph import (
    Context,
    GraphIndex,
    Partitioning,
    agree,
    join,
    partition,
    rewrite,
    saved_names,
    tell_cuts,
    told_cuts,
    variables_on_ps,
)
from tests.unit.graph.test_partitioning import OPTIMIZERS, SLOTS, destroy, same

v1 = tf.compat.v1
ROWS, DIM, PARTS = 43, 3, 4  # parts of 11, 11, 11 and 10 rows
IDS = [[5, 42, 11, 5], [10, 11, 0, 32]]


class Model:
    """Tables in parts, looked up once or more often, and a layer in parts; `call` says how they are looked up."""

    def __init__(
        self, scope, make, setter, call=None, dtype=tf.float32, ids=tf.int64, parts=PARTS, change=None
    ) -> None:
        cut = v1.fixed_size_partitioner(parts)
        with tf.Graph().as_default() as self.graph, v1.device(setter):
            v1.set_random_seed(7)
            step = v1.train.get_or_create_global_step()
            self.ids = v1.placeholder(ids, [None, None], name="ids")
            with v1.variable_scope(scope, use_resource=True, partitioner=cut):
                initial = v1.random_uniform_initializer(-1, 1, 7, dtype)
                self.table = v1.get_variable("table", [ROWS, DIM], dtype, initializer=initial)
                self.kernel = v1.get_variable("kernel", [DIM * 3, 2], dtype, initializer=initial)
                self.bias = v1.get_variable("bias", [8], dtype, initializer=initial)
            rows = (call or looked_up("div"))(self.table, self.ids)
            self.rows = tf.identity(rows, name="rows")
            wide = tf.concat([tf.reshape(rows, [-1, DIM])] * 3, 1)
            self.loss = tf.reduce_sum(tf.sin(tf.matmul(wide, self.kernel)) ** 2 + tf.cast(1.0, dtype))
            self.loss += tf.reduce_sum(tf.convert_to_tensor(self.bias) ** 2)
            optimizer = make()
            if isinstance(optimizer, v1.train.Optimizer):
                pairs = optimizer.compute_gradients(self.loss)
                self.step = optimizer.apply_gradients(change(pairs) if change else pairs, step)
            else:
                optimizer.iterations = step
                variables = [*self.table, *self.kernel, *self.bias]
                with tf.name_scope("keras"):
                    self.step = optimizer.apply_gradients(zip(tf.gradients(self.loss, variables), variables))
            self.init, self.ready = v1.global_variables_initializer(), v1.report_uninitialized_variables()
            self.saver = v1.train.Saver(sharded=True)
            self.values = [one.value() if one.shape.rank else one.read_value() for one in v1.global_variables()]

    def placed(self, partitioning=None, slots=SLOTS):
        definition = self.graph.as_graph_def()
        joined = cuts = None
        if partitioning is not None:
            index, joined = join(GraphIndex(definition), saved_names(self.graph).names, partitioning)
            cuts = partition(index, partitioning, joined)
        return rewrite(definition, Context(slots, dedup="off")).definition, cuts, definition


def looked_up(strategy):
    return lambda table, ids: v1.nn.embedding_lookup(table, ids, partition_strategy=strategy)


def train(cluster, model, definition, batches=(IDS, [[42, 42, 1, 0]])):
    with cluster.open(definition) as session:
        session.run(model.init.name)
        assert not len(session.run(model.ready.name))
        before = session.run([one.name for one in model.values])
        seen = [session.run([model.rows.name, model.step.name], {model.ids.name: ids})[0] for ids in batches]
        seen.append(session.run(model.loss.name, {model.ids.name: IDS}))
        after = session.run([one.name for one in model.values])
        destroy(session)
    return seen, before, after


def assert_same(cluster, model, tables, batches=(IDS, [[42, 42, 1, 0]])):
    """`tables`: how many variables are one."""
    stock = train(cluster, model, model.placed()[0], batches)
    definition, cuts, _ = model.placed(Partitioning(4))
    assert len(cuts.joined.tables) == tables, cuts.reports
    ours = train(cluster, model, definition, batches)
    np.testing.assert_array_equal(ours[0][0], stock[0][0], "the initial values are the very same")
    for seen, expected in zip(ours, stock, strict=True):
        same(seen, expected)
    assert sum(not np.array_equal(one, other) for one, other in zip(ours[1], ours[2])) > PARTS, "it trains nothing"
    return cuts


def names(definition):
    return {one.name for one in variables_on_ps(GraphIndex(definition)).values()}


@pytest.mark.parametrize(
    ("name", "strategy"),
    [(one, "div") for one in OPTIMIZERS] + [(one, "mod") for one in ("sgd", "adagrad", "adam", "ftrl")],
)
def test_every_optimizer_computes_the_same(cluster, setter, name, strategy):
    model = Model(f"join_{name}_{strategy}", OPTIMIZERS[name], setter, looked_up(strategy))
    in_parts = [one for one in model.graph.get_collection("variables") if "/part_0" in one.op.name]
    if name.startswith("keras") and len(in_parts) > 3:  # its slots are saved under the names of the parts
        cuts = assert_same(cluster, model, 0)
        assert "is saved as a variable of its own" in cuts.reports[0].detail
        return
    assert_same(cluster, model, len(in_parts))
    assert not [name for name in names(model.placed(Partitioning(4))[2]) if "/part_" in name]


@pytest.mark.parametrize("dtype", [tf.float64, tf.float16], ids=lambda one: one.name)
@pytest.mark.parametrize("ids", [tf.int32, tf.int64], ids=lambda one: one.name)
@pytest.mark.parametrize("strategy", ["div", "mod"])
def test_of_other_types_too(cluster, setter, dtype, ids, strategy):
    model = Model(
        f"join_{dtype.name}_{ids.name}_{strategy}", OPTIMIZERS["sgd"], setter, looked_up(strategy), dtype=dtype, ids=ids
    )
    assert_same(cluster, model, 3)


@pytest.mark.parametrize("batch", [np.zeros([0, 2], int), [[7]], [[42], [42]]], ids=["empty", "one", "twice"])
@pytest.mark.parametrize("strategy", ["div", "mod"])
def test_of_odd_batches_too(cluster, setter, batch, strategy):
    model = Model(f"join_odd_{np.size(batch)}_{strategy}", OPTIMIZERS["adagrad"], setter, looked_up(strategy))
    assert_same(cluster, model, 6, (IDS, batch))


def _twice(table, ids):
    """Gradients of two look-ups are one update."""
    return looked_up("div")(table, ids) + looked_up("mod")(table, ids[:, ::-1])


def _sparse(table, ids):
    present = tf.sparse.from_dense(ids)
    rows = v1.nn.safe_embedding_lookup_sparse(table, present, combiner="sqrtn", partition_strategy="div")
    return tf.tile(rows[:, None, :], [1, tf.shape(ids)[1], 1])


def _unique(table, ids):
    unique, where = tf.unique(tf.reshape(ids, [-1]))
    return tf.reshape(tf.gather(looked_up("mod")(table, unique), where), tf.concat([tf.shape(ids), [DIM]], 0))


def _whole(table, ids):
    """The loss reads all rows too: its gradient is one of all rows."""
    return looked_up("div")(table, ids) + tf.reduce_sum(tf.convert_to_tensor(table)) * 0.01


def _summed(table, ids):
    """What is computed of each part alone."""
    return looked_up("div")(table, ids) + tf.add_n([tf.nn.l2_loss(part) for part in table]) * 0.01


def _limited(table, ids):
    return v1.nn.embedding_lookup(table, ids, partition_strategy="div", max_norm=0.5)


def _behind_a_branch(table, ids):
    rows = tf.cond(tf.size(ids) > 0, lambda: ids, lambda: ids[:0])
    return looked_up("div")(table, rows)


@pytest.mark.parametrize("name", ["sgd", "adagrad", "adam", "ftrl"])
@pytest.mark.parametrize(
    "call", [_twice, _sparse, _unique, _whole, _summed, _limited, _behind_a_branch], ids=lambda one: one.__name__
)
def test_ways_of_looking_up(cluster, setter, call, name):
    model = Model(f"join_{call.__name__}_{name}", OPTIMIZERS[name], setter, call)
    assert_same(
        cluster, model, len([one for one in model.graph.get_collection("variables") if "/part_0" in one.op.name])
    )


def _clipped(pairs):
    gradients, variables = zip(*pairs)
    return list(zip(tf.clip_by_global_norm(gradients, 0.1)[0], variables))


def _each_clipped(pairs):
    return [(tf.clip_by_norm(gradient, 0.1), variable) for gradient, variable in pairs]


def test_gradients_scaled_by_one_number_are_updates_of_the_whole(cluster, setter):
    assert_same(cluster, Model("join_clipped", OPTIMIZERS["adagrad"], setter, change=_clipped), 6)


def test_gradients_that_are_scaled_part_by_part_leave_the_table_in_parts(cluster, setter):
    """Each part has a norm of its own. The layer's rows are put one after the other."""
    cuts = assert_same(cluster, Model("join_each", OPTIMIZERS["adagrad"], setter, change=_each_clipped), 4)
    assert "in parts: join_each/table and 1 more" in cuts.reports[0].detail, cuts.reports


def _one_part(table, ids):
    return looked_up("div")(table, ids) + tf.gather(next(iter(table)), 3)


def test_what_is_looked_up_otherwise_stays_in_parts(cluster, setter):
    cuts = assert_same(cluster, Model("join_one_part", OPTIMIZERS["adagrad"], setter, _one_part), 4)
    assert "table" in cuts.reports[0].detail.partition("in parts")[2], cuts.reports


def test_updates_of_parts_one_after_another_stay_so(cluster, setter):
    """One op cannot wait for itself."""

    class Chained(v1.train.GradientDescentOptimizer):
        last = None

        def _resource_apply_sparse_duplicate_indices(self, grad, handle, indices):
            with tf.control_dependencies([self.last] if self.last is not None else []):
                self.last = super()._resource_apply_sparse_duplicate_indices(grad, handle, indices)
            return self.last

    cuts = assert_same(cluster, Model("join_chained", lambda: Chained(0.1), setter), 0)
    assert "updated after another" in cuts.reports[0].detail


@pytest.mark.parametrize("strategy", ["div", "mod"])
@pytest.mark.parametrize("wrong", [ROWS, ROWS + 1, -1, 2**40])
def test_ids_that_the_table_does_not_have_are_errors(cluster, setter, strategy, wrong):
    model = Model(f"join_wrong_{strategy}_{wrong}", OPTIMIZERS["sgd"], setter, looked_up(strategy))
    for definition in (model.placed()[0], model.placed(Partitioning(4))[0]):
        with cluster.open(definition) as session:
            session.run(model.init.name)
            with pytest.raises(tf.errors.InvalidArgumentError):
                session.run(model.rows.name, {model.ids.name: [[3, wrong]]})
            destroy(session)


@pytest.mark.parametrize("sharded", [True, False])
def test_checkpoints_are_those_of_the_script_both_ways(cluster, setter, tmp_path, sharded):
    model = Model(f"join_saved_{sharded}", OPTIMIZERS["adagrad"], setter)
    if not sharded:
        with model.graph.as_default():
            model.saver = v1.train.Saver()
    saver = model.saver.saver_def
    placed = [model.placed()[0], model.placed(Partitioning(4))[0]]
    if sharded:
        assert_shards(placed[1])
    written = []
    for number, definition in enumerate(placed):
        prefix = str(tmp_path / f"model-{number}")
        with cluster.open(definition) as session:
            session.run(model.init.name)
            session.run(model.step.name, {model.ids.name: IDS})
            session.run(saver.save_tensor_name, {saver.filename_tensor_name: prefix})
            values = session.run([one.name for one in model.values])
            destroy(session)
        written.append((prefix, values))
    shapes = [tf.train.load_checkpoint(prefix).get_variable_to_shape_map() for prefix, _ in written]
    assert shapes[0] == shapes[1] and shapes[0][f"join_saved_{sharded}/table"] == [ROWS, DIM]
    for prefix, values in written:
        for definition in placed:
            with cluster.open(definition) as session:
                session.run(saver.restore_op_name, {saver.filename_tensor_name: prefix})
                for one, other in zip(session.run([one.name for one in model.values]), values, strict=True):
                    np.testing.assert_array_equal(one, other)
                destroy(session)


def assert_shards(definition):
    """What is saved is on the PS that writes it."""
    index = GraphIndex(definition)
    savers = [node for node in index.nodes.values() if node.op == "SaveV2" and "/job:ps" in node.device]
    assert savers
    for node in savers:
        for tensor in index.inputs(node.name)[3:]:
            source = index.nodes[tensor.removeprefix("^").partition(":")[0]]
            assert source.device.startswith(node.device.partition("/device")[0]) or not source.device, source.name


def test_tables_that_would_be_cut_stay_as_the_script_has_cut_them(setter):
    with tf.Graph().as_default() as graph, v1.device(setter):
        with v1.variable_scope("", use_resource=True, partitioner=v1.fixed_size_partitioner(4)):
            large = v1.get_variable("large", [1 << 20, 4])
            small = v1.get_variable("small", [1000, 4])
            for table in (large, small):
                looked_up("div")(table, tf.constant([1], tf.int64))
    definition = graph.as_graph_def()
    _, joined = join(GraphIndex(definition), saved_names(graph).names, Partitioning(4))
    assert list(joined.tables) == ["small"] and joined.counts == {"large": 4, "small": 1}
    assert names(definition) == {"small", *(f"large/part_{part}" for part in range(4))}


def test_joined_tables_are_dealt_out_to_the_slots_that_have_their_parts(setter):
    with tf.Graph().as_default() as graph, v1.device(setter):
        with v1.variable_scope("", use_resource=True, partitioner=v1.fixed_size_partitioner(4)):
            for field in range(8):
                looked_up("div")(v1.get_variable(f"deep_{field}", [1000, 4]), tf.constant([1], tf.int64))
                looked_up("div")(v1.get_variable(f"wide_{field}", [1000, 1]), tf.constant([1], tf.int64))
    definition = graph.as_graph_def()
    join(GraphIndex(definition), saved_names(graph).names, Partitioning(4))
    slots = {one.name: one.slot for one in variables_on_ps(GraphIndex(definition)).values()}
    for kind in ("deep", "wide"):
        assert sorted(slots[f"{kind}_{field}"] for field in range(8)) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_all_roles_join_what_the_chief_has_joined(setter):
    def graph_of(call=None):
        return Model("roles", OPTIMIZERS["adagrad"], setter, call)

    _, chief, _ = graph_of().placed(Partitioning(4))
    told = tell_cuts(chief)
    assert {"roles/table@1/0", "roles/table/Adagrad@1/0"} <= set(told)
    known = told_cuts(told)
    _, worker, _ = graph_of().placed(Partitioning(4, known=known))
    assert worker.joined.tables.keys() == chief.joined.tables.keys() and agree(known, worker)
    _, apart, _ = graph_of().placed(Partitioning(4, known={}))
    assert not apart.joined.tables and agree({}, apart) and not agree(known, apart) and not agree({}, worker)
    with pytest.raises(
        RefusedError, match=r"the chief has made one variable of the parts of 'roles/table'.*--setting cut=off"
    ):
        graph_of(_one_part).placed(Partitioning(4, known=known))
    with pytest.raises(RefusedError, match="an earlier session has made one variable"):
        graph_of(_one_part).placed(Partitioning(4, before=dict(chief.counts)))
    _, later, _ = graph_of().placed(Partitioning(4, before={"roles/table/part_0": 1}))
    assert "roles/table" not in later.joined.tables and "roles/kernel" in later.joined.tables
    assert not graph_of().placed(Partitioning(4, "off"))[1].joined.tables


def joined(build, setter, known=None):
    """(definition, what was joined) of a graph with tables in four parts."""
    with tf.Graph().as_default() as graph, v1.device(setter):
        with v1.variable_scope("", use_resource=True, partitioner=v1.fixed_size_partitioner(4)):
            build()
    index, found = join(GraphIndex(graph.as_graph_def()), saved_names(graph).names, Partitioning(4, known=known))
    return index, found


def _divided(ids, loose, ordered=False):
    """A look-up as somebody writes it by hand; `loose`: with ids that are wrapped; `ordered`: behind another op."""

    def build():
        table = v1.get_variable("table", [8, 2])
        flat = tf.reshape(tf.constant(ids, tf.int64), [-1])
        flat = flat % 8 if loose else flat
        part, within = tf.cast(flat // 2, tf.int32), flat % 2
        own = tf.dynamic_partition(within, part, 4)
        places = tf.dynamic_partition(tf.range(tf.size(flat)), part, 4)
        with tf.control_dependencies([tf.no_op("before")] if ordered else []):
            taken = [tf.identity(one) for one in own]
            rows = [tf.gather(one, at) for one, at in zip(table, taken)]
            tf.identity(tf.dynamic_stitch(places, rows), name="rows")

    return build


def test_ids_that_a_script_wraps_are_wrapped(cluster, setter):
    index, found = joined(_divided([3, 1_234_567], loose=True), setter)
    assert "table" in found.tables
    with cluster.open(rewrite(index.definition, Context(SLOTS, dedup="off")).definition) as session:
        session.run([one.name for one in session.graph.get_operations() if one.name.endswith("/Assign")])
        assert session.run("rows:0").shape == (2, 2)
        destroy(session)


def test_what_a_look_up_waits_for_it_goes_on_waiting_for(setter):
    """Left out with the ops of the parts it would be lost."""
    index, _ = joined(_divided([3, 5], loose=False, ordered=True), setter)
    assert "before" in index.upstream(["rows"])


def test_rows_of_one_part_that_go_elsewhere_leave_it_in_parts(setter):
    def build():
        table = v1.get_variable("table", [8, 2])
        other = v1.get_variable("other", [3, 2], partitioner=lambda shape, dtype: [1, 1])
        v1.scatter_update(next(iter(other)), [0], tf.gather(next(iter(table)), [1]))

    assert "table" not in joined(build, setter)[1].tables


def test_the_gradient_of_a_vector_made_of_parts_is_one_of_the_table(setter):
    """The weights of a linear model, [rows, 1], used as a vector."""

    def build():
        table = v1.get_variable("table", [8, 1])
        loss = tf.reduce_sum(tf.concat([tf.squeeze(part, 1) for part in table], 0) ** 2)
        v1.train.GradientDescentOptimizer(0.1).minimize(loss)

    index, found = joined(build, setter)
    assert "table" in found.tables
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(index.definition, name="")  # shapes are right
    assert graph.get_operations()


def test_first_values_of_one_number_are_made_where_they_are(setter):
    def build():
        table = v1.get_variable("table", [8, 2])
        v1.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(looked_up("div")(table, tf.constant([1], tf.int64))))

    index, found = joined(build, setter)
    assert "table/Adagrad" in found.tables
    made = [node for node in index.nodes.values() if node.op == "Fill" and "/Adagrad/Assign" in node.name]
    assert len(made) == 1


def test_a_part_that_lies_elsewhere_is_missing(setter):
    with tf.Graph().as_default() as graph, v1.device(setter):
        with v1.variable_scope("", use_resource=True, partitioner=v1.fixed_size_partitioner(4)):
            v1.get_variable("table", [8, 2])
    saved, definition = saved_names(graph).names, graph.as_graph_def()
    last = saved.pop("table/part_3")
    assert not join(GraphIndex(graph.as_graph_def()), saved, Partitioning(4))[1].tables
    assert join(GraphIndex(definition), {**saved, "table/part_3": last}, Partitioning(4))[1].tables


def test_a_role_with_more_tables_has_the_others_where_the_chief_has_them(setter):
    def tables(*names):
        def build():
            for name in names:
                looked_up("div")(v1.get_variable(name, [8, 2]), tf.constant([1], tf.int64))

        return build

    _, chief = joined(tables("one", "two"), setter)
    known = dict.fromkeys(chief.tables, 1) | {f"{name}@slot": slot for name, slot in chief.slots.items()}
    _, worker = joined(tables("before", "one", "two"), setter, known)
    assert worker.slots == chief.slots and worker.counts["before"] == 4
    assert told_cuts(["one@1/3", "two@4"]) == {"one": 1, "one@slot": 3, "two": 4}


def test_a_learning_rate_of_many_ops_is_read_in_time(cluster, setter):
    def make():
        rate = tf.constant(0.3)
        for _ in range(40):
            rate = rate * rate + tf.cos(rate)
        return v1.train.GradientDescentOptimizer(rate / 100.0)

    assert_same(cluster, Model("join_rate", make, setter), 3)


def test_two_optimizers_of_one_table(cluster, setter):
    class Both(v1.train.Optimizer):
        def __init__(self):
            self._both = v1.train.GradientDescentOptimizer(0.1), v1.train.AdagradOptimizer(0.1)

        def compute_gradients(self, loss):
            return self._both[0].compute_gradients(loss)

        def apply_gradients(self, pairs, step):
            with tf.control_dependencies([self._both[0].apply_gradients(pairs)]):
                return self._both[1].apply_gradients(
                    [(tf.identity(g) if isinstance(g, tf.Tensor) else g, v) for g, v in pairs], step
                )

    assert_same(cluster, Model("join_two", Both, setter), 6)


def test_what_is_saved_of_a_table_is_the_whole(setter):
    model = Model("named", OPTIMIZERS["adagrad"], setter)
    _, cuts, _ = model.placed(Partitioning(4))
    found = cuts.saved(saved_names(model.graph).names)
    assert found["named/table"] == ("named/table", "") and found["named/table/Adagrad"] == ("named/table/Adagrad", "")
    assert not [name for name in found if "part_" in name]


def test_no_op_is_given_an_attribute_that_it_does_not_have(setter):
    definition = Model("attributes", OPTIMIZERS["adam"], setter).placed(Partitioning(4))[2]
    wrong = [
        (node.name, key)
        for node in definition.node
        for key, value in node.attr.items()
        if not value.WhichOneof("value")
    ]
    assert not wrong
