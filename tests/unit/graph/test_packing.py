"""Packing changes what is sent, not what is computed."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.graph import Context, GraphIndex, Partitioning, Run, pack, partition, rewrite, sites, told_by
from deeprec_ext.graph.packing.crossings import certain, find_crossings
from deeprec_ext.graph.packing.processes import Processes
from deeprec_ext.graph.packing.reaching import reached
from deeprec_ext.tf_private import c_graph

v1 = tf.compat.v1
ROWS, DIM, FIELDS, HIDDEN = 50, 8, 4, 6
WORKER = "/job:worker/task:0"
IDS = np.random.default_rng(3).zipf(1.5, [12, FIELDS]).clip(1, ROWS) - 1
TWO_PS = (0, 1, 0, 1)

OPTIMIZERS = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.1),
    "adagrad": lambda: v1.train.AdagradOptimizer(0.1),
    "momentum": lambda: v1.train.MomentumOptimizer(0.1, 0.9),
    "ftrl": lambda: v1.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
    "adam": lambda: v1.train.AdamOptimizer(0.1),
}


class Model:
    """A small DeepFM: a table and a weight for each field, two dense layers."""

    def __init__(
        self, scope, setter, optimizer="adagrad", dtype=tf.float32, use_resource=True, ids_dtype=tf.int64, extra=None,
        rows=ROWS,
    ):  # fmt: skip
        with tf.Graph().as_default() as graph, v1.device(setter):
            step = v1.train.get_or_create_global_step()
            ids = v1.placeholder(ids_dtype, [None, FIELDS], name="ids")
            with v1.variable_scope(scope, use_resource=use_resource):
                start = v1.random_uniform_initializer(-1, 1, seed=5, dtype=dtype)

                def variable(name, shape):
                    return v1.get_variable(name, shape, dtype, initializer=start)

                wide, deep = [], []
                for field in range(FIELDS):
                    column = ids[:, field]
                    wide.append(v1.nn.embedding_lookup(variable(f"w{field}", [rows, 1]), column))
                    deep.append(v1.nn.embedding_lookup(variable(f"t{field}", [rows, DIM]), column))
                layer = tf.matmul(tf.concat(deep, 1), variable("k0", [FIELDS * DIM, HIDDEN])) + variable("b0", [HIDDEN])
                found = tf.matmul(tf.nn.relu(layer), variable("k1", [HIDDEN, 1])) + variable("b1", [1]) + tf.add_n(wide)
                if extra is not None:
                    found = extra(found, ids, variable)
            loss = tf.reduce_mean(found**2, name="loss")
            train = OPTIMIZERS[optimizer]().minimize(loss, step)
            init = v1.global_variables_initializer()
            self.values = {v.op.name: v.read_value().name for v in v1.global_variables()}
        self.graph, self.definition, self.init, self.train = graph, graph.as_graph_def(), init.name, train.name
        self.run = Run(("ids:0",), ("loss:0",), (self.train,))

    def placed(self, slot_map=TWO_PS, **context):
        return rewrite(self.definition, Context(slot_map, **{"dedup": "off", "worker_device": WORKER, **context}))

    def pack(self, definition, mode="on"):
        return pack(definition, self.run, WORKER, mode, told_by(self.graph))

    def requests(self, definition):
        """Between processes, in a step."""
        index = GraphIndex(definition)
        names = reached(index, self.run)
        return certain(find_crossings(index, names, Processes(index, names, WORKER), self.run))


def trained(cluster, model, plain, stepping, ids, steps=3, quick=False):
    """Losses of the steps, which are made in a session on `stepping`, and the variables after them."""
    with cluster.open(plain) as session:
        session.run(model.init)
        with cluster.open(stepping, quick=quick) as other:
            losses = [other.run(["loss:0", model.train], {"ids:0": ids})[0] for _ in range(steps)]
        return losses, session.run(model.values)


def assert_same(cluster, model, definition, ids=IDS):
    packed = model.pack(definition)
    assert packed.report.changed > 0, packed.report.detail
    stock, ours = (trained(cluster, model, definition, one, ids) for one in (definition, packed.definition))
    np.testing.assert_array_equal(stock[0], ours[0])
    assert len(ids) == 0 or len(set(ours[0])) > 1, "it trains nothing"
    for name in model.values:
        np.testing.assert_array_equal(stock[1][name], ours[1][name], err_msg=name)
    return packed


@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_packed_step_computes_the_same(cluster, setter, name, use_resource):
    model = Model(f"pack_{name}_{use_resource}", setter, name, use_resource=use_resource)
    assert_same(cluster, model, model.placed().definition)


@pytest.mark.parametrize("dtype", [tf.float64, tf.float16], ids=lambda one: one.name)
@pytest.mark.parametrize("ids_dtype", [tf.int32, tf.int64], ids=lambda one: one.name)
def test_other_types_travel_as_well(cluster, setter, dtype, ids_dtype):
    model = Model(f"pack_{dtype.name}_{ids_dtype.name}", setter, "sgd", dtype, ids_dtype=ids_dtype)
    assert_same(cluster, model, model.placed().definition)


@pytest.mark.parametrize("records", [0, 1])
def test_odd_batches(cluster, setter, records):
    model = Model(f"pack_odd_{records}", setter)
    assert_same(cluster, model, model.placed().definition, IDS[:records])


def test_after_unique_look_ups(cluster, setter):
    model = Model("pack_dedup", setter)
    assert_same(cluster, model, model.placed(dedup="on").definition)


def test_a_step_needs_a_few_messages_for_each_ps(setter):
    """Ids, rows, dense variables, gradients of rows, dense gradients; and the wait at the end."""
    model = Model("pack_count", setter)
    definition = model.placed().definition
    packed = model.pack(definition, "auto")
    before, after = model.requests(definition), model.requests(packed.definition)
    assert before - after == packed.report.changed
    assert before > 40 and after <= 2 * 6 + 2, packed.report.detail


def test_what_is_placed_elsewhere_is_packed_anew(cluster, setter):
    model = Model("pack_anew", setter)
    found = {}
    for slot_map in ((0, 0, 0, 0), TWO_PS, (1, 0, 0, 0)):
        definition = model.placed(slot_map).definition
        packed = assert_same(cluster, model, definition)
        found[slot_map] = model.requests(packed.definition)
    assert found[0, 0, 0, 0] < found[TWO_PS] and found[0, 0, 0, 0] < found[1, 0, 0, 0]


def test_parts_of_a_table_that_share_a_ps_share_their_messages(cluster, setter):
    whole, cut = (Model(f"pack_{name}", setter, rows=10_000) for name in ("whole", "cut"))
    assert len(partition(GraphIndex(cut.definition), Partitioning(4, "on")).variables) == 2 * FIELDS, "and accumulators"
    one, four = whole.placed().definition, cut.placed().definition
    packed = assert_same(cluster, cut, four, IDS * 150)
    assert cut.requests(four) > 1.5 * whole.requests(one)
    assert cut.requests(packed.definition) <= whole.requests(whole.pack(one).definition) + 2, packed.report.detail


def messages(definition):
    return [node for node in definition.node if node.op == "ConcatV2" and node.name.endswith("__packed")]


@contextlib.contextmanager
def control_flow(v2):
    (v1.enable_control_flow_v2 if v2 else v1.disable_control_flow_v2)()
    try:
        yield
    finally:
        v1.enable_control_flow_v2()


def branch(taken):
    """Where a branch is not taken its tensors have no values: those that are there must arrive all the same."""

    def extra(found, ids, variable):
        tables = [variable(f"c{number}", [ROWS, 1]) for number in range(4)]
        wanted = tf.reduce_sum(ids) > (-1 if taken else 10**6)
        return tf.cond(
            wanted,
            lambda: found + tf.add_n([v1.nn.embedding_lookup(table, ids[:, 0]) for table in tables[:2]]),
            lambda: found - tf.add_n([v1.nn.embedding_lookup(table, ids[:, 1]) for table in tables[2:]]),
        )

    return extra


def loop(found, ids, variable):
    table = variable("c", [ROWS, 1])

    def body(number, total):
        column = (ids[:, 0] + tf.cast(number, tf.int64)) % ROWS
        return number + 1, total * 0.5 + v1.nn.embedding_lookup(table, column)

    return tf.while_loop(lambda number, total: number < 3, body, [0, found])[1]


@pytest.mark.parametrize("v2", [True, False], ids=["functions", "switches"])
@pytest.mark.parametrize("taken", [True, False])
def test_look_ups_in_one_branch_alone(cluster, setter, v2, taken):
    with control_flow(v2):
        model = Model(f"pack_cond_{v2}_{taken}", setter, extra=branch(taken))
    assert_same(cluster, model, model.placed().definition)


@pytest.mark.parametrize("v2", [True, False], ids=["functions", "frames"])
def test_look_ups_in_a_loop(cluster, setter, v2):
    with control_flow(v2):
        model = Model(f"pack_loop_{v2}", setter, extra=loop)
    packed = assert_same(cluster, model, model.placed().definition)
    assert len(messages(packed.definition)) >= 4, "what stands before the loop"


def test_bits_arrive_as_they_were(cluster):
    """Of every type, shape and size that may travel, a NaN with a payload among them."""
    kinds = (tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int32, tf.int64)
    with tf.Graph().as_default() as graph:
        given, wanted = [], []
        for dtype in kinds:
            for number, shape in enumerate(([None], [None, 3], [2, None], [4], [], [2, 2])):
                with v1.device(WORKER):
                    fed = v1.placeholder(dtype, shape, name=f"{dtype.name}_{number}")
                    sent = tf.identity(fed)
                with v1.device("/job:ps/task:1"):
                    given.append(fed)
                    wanted.append(tf.identity(sent))
        runs = Run(tuple(one.name for one in given), tuple(one.name for one in wanted), ())
    packed = pack(graph.as_graph_def(), runs, WORKER, "on", told_by(graph))
    assert packed.report.changed == 5 * len(kinds) - len(kinds), "[2, None] goes alone: 2 may be of most batches only"
    generator = np.random.default_rng(1)
    feeds = {}
    for one in given:
        shape = [5 if size is None else size for size in one.shape.as_list()]
        raw = generator.integers(0, 256, int(np.prod(shape)) * one.dtype.size, dtype=np.uint8).tobytes()
        feeds[one.name] = np.frombuffer(raw, one.dtype.as_numpy_dtype).reshape(shape)
    with cluster.open(packed.definition) as session:
        for fed, found in zip(given, session.run([one.name for one in wanted], feeds)):
            assert np.asarray(found).tobytes() == feeds[fed.name].tobytes(), fed.name


def test_who_fetches_less_is_left_alone(setter):
    """A look-up must not wait for another one, and take a batch for it."""
    model = Model("pack_less", setter)
    definition = model.placed().definition
    for run in (
        Run((), (), (model.init,)),
        Run(("ids:0",), ("loss:0",), ()),
        Run((), (model.values["global_step"],), ()),
    ):
        packed = pack(definition, run, WORKER, "auto", told_by(model.graph))
        assert packed.definition is None and packed.report.changed == 0


def test_nothing_is_reached_that_the_run_did_not_reach(setter):
    model = Model("pack_reach", setter)
    definition = model.placed().definition
    before = reached(GraphIndex(definition), model.run)
    packed = model.pack(definition).definition
    added = {node.name for node in packed.node} - {node.name for node in definition.node}
    assert reached(GraphIndex(packed), model.run) - added <= before


def test_what_is_fed_in_the_middle_is_not_computed(cluster, setter):
    with tf.Graph().as_default() as graph, v1.device(setter):
        ids = v1.placeholder(tf.int64, [None, 2], name="ids")
        with v1.variable_scope("pack_fed", use_resource=True):
            tables = [v1.get_variable(f"t{n}", [ROWS, DIM], initializer=v1.ones_initializer()) for n in range(8)]
        columns = [tf.identity(ids[:, number % 2], name=f"column{number}") for number in range(8)]
        found = [v1.nn.embedding_lookup(table, column) for table, column in zip(tables, columns)]
        loss = tf.add_n([tf.reduce_sum(one**2) for one in found])
        train = v1.train.AdagradOptimizer(0.1).minimize(loss)
        init = v1.global_variables_initializer()
    definition = rewrite(graph.as_graph_def(), Context(TWO_PS, dedup="off", worker_device=WORKER)).definition
    feeds = {f"column{number}:0": np.arange(3) for number in range(8)}
    packed = pack(definition, Run(tuple(feeds), (loss.name,), (train.name,)), WORKER, "on", told_by(graph))
    assert packed.report.changed > 0
    with cluster.open(definition) as session:
        session.run(init.name)
    with cluster.open(packed.definition) as session:
        assert session.run([loss.name, train.name], feeds)[0] == 8 * 3 * DIM


def test_marks_are_of_the_rows_that_were_written(cluster, setter):
    model = Model("pack_marks", setter)
    name, bitmap = "pack_marks/t0", "pack_marks/t0@dirty"
    result = model.placed((0, 0, 0, 0), tracked={name: bitmap})
    marks = [mark for marks in result.marks.values() for mark in marks]
    assert marks
    packed = model.pack(result.definition)
    with cluster.open(result.definition) as session:
        cluster.fill(bitmap, ROWS, True)
        session.run(model.init)
        cluster.fill(bitmap, ROWS, False)
    with cluster.open(packed.definition) as session:
        session.run(model.train, {"ids:0": np.full([2, FIELDS], 7)})
    assert cluster.marked(bitmap, ROWS) == {7}


def alone(build, setter, targets):
    """What packing says of a step that looks up in eight tables, and of what `build` adds to it."""
    with tf.Graph().as_default() as graph, v1.device(setter), v1.variable_scope("pack_alone", use_resource=True):
        ids = v1.placeholder(tf.int64, [None], name="ids")
        tables = [v1.get_variable(f"t{number}", [ROWS, DIM]) for number in range(8)]
        found = tf.add_n([v1.nn.embedding_lookup(table, ids) for table in tables])
        added = build()
        train = v1.train.AdagradOptimizer(0.1).minimize(
            tf.reduce_sum(found) + tf.cast(tf.reduce_sum(added), tf.float32)
        )
    definition = rewrite(graph.as_graph_def(), Context(TWO_PS, dedup="off", worker_device=WORKER)).definition
    packed = pack(definition, Run(("ids:0",), (), (train.name, added.op.name, *targets)), WORKER, "on", told_by(graph))
    return packed.report.detail if packed.definition is None else ""


def table_on(device):
    def build():
        with v1.device(device):
            table = tf.raw_ops.MutableHashTableV2(key_dtype=tf.int64, value_dtype=tf.int64)
            one = tf.constant([1], tf.int64)
            return tf.raw_ops.LookupTableFindV2(table_handle=table, keys=one, default_value=tf.constant(0, tf.int64))

    return build


def iterator():
    made = v1.data.make_initializable_iterator(tf.data.Dataset.range(9), shared_name="pack_alone")
    tf.identity(made.get_next(), name="read")
    tf.group(made.initializer, name="starts")
    return tf.constant(0)


def test_a_run_that_is_tied_to_its_session_stays_in_it(setter):
    """What a table without a name holds no other session finds; whoever starts an iterator must end after all its readers."""
    assert alone(table_on(WORKER), setter, ()) == ""
    assert "MutableHashTableV2" in alone(table_on("/job:ps/task:1"), setter, ())
    assert alone(iterator, setter, ("pack_alone/read",)) == ""
    assert "MakeIterator" in alone(iterator, setter, ("pack_alone/starts",))


def test_a_script_may_say_more_records_than_there_are(cluster, setter):
    """Nothing checks what it says with `set_shape`."""
    with tf.Graph().as_default() as graph, v1.device(setter), v1.variable_scope("pack_said", use_resource=True):
        fed = v1.placeholder(tf.int64, [None, FIELDS], name="ids")
        start = v1.random_uniform_initializer(-1, 1, seed=5)
        ids = tf.identity(fed)
        ids.set_shape([32, FIELDS])
        tables = [v1.get_variable(f"t{number}", [ROWS, DIM], initializer=start) for number in range(FIELDS)]
        found = [v1.nn.embedding_lookup(table, ids[:, number]) for number, table in enumerate(tables)]
        assert found[0].shape.as_list() == [32, DIM]
        loss = tf.reduce_sum(tf.add_n(found) ** 2, name="loss")
        updates = [
            table.scatter_sub(tf.IndexedSlices(0.1 * rows, ids[:, number]))  # TensorFlow's own gradients believe it
            for number, (table, rows) in enumerate(zip(tables, found))
        ]
        train = tf.group(*updates)
        init = v1.global_variables_initializer()
    definition = rewrite(graph.as_graph_def(), Context(TWO_PS, dedup="off", worker_device=WORKER)).definition
    packed = pack(definition, Run((fed.name,), (loss.name,), (train.name,)), WORKER, "on", told_by(graph)).definition
    losses = []
    for stepping in (definition, packed):
        with cluster.open(definition) as session:
            session.run(init.name)
        with cluster.open(stepping) as session:
            losses.append([session.run([loss.name, train.name], {fed.name: IDS[:5]})[0] for _ in range(2)])
    assert losses[0] == losses[1] and losses[0][0] != losses[0][1]


def test_an_op_may_be_placed_with_one_that_the_run_does_not_reach(cluster, setter):
    with tf.Graph().as_default() as graph, v1.device(setter):
        with v1.device("/job:ps/task:1"):
            elsewhere = tf.constant(1.0, name="elsewhere")
        fed = [v1.placeholder(tf.float32, [None], name=f"fed{number}") for number in range(2)]
        with v1.device(WORKER):
            sent = [tf.exp(one) for one in fed]
        with v1.device(None), v1.colocate_with(elsewhere.op):
            found = [tf.negative(one) for one in sent]
        with v1.device("/job:ps/task:1"):
            found.append(sent[0] + sent[1])
    run = Run(tuple(one.name for one in fed), tuple(one.name for one in found), ())
    packed = pack(graph.as_graph_def(), run, WORKER, "on", told_by(graph)).definition
    feeds = dict.fromkeys(run.feeds, np.ones([3], np.float32))
    with cluster.open(graph.as_graph_def()) as session, cluster.open(packed) as other:
        np.testing.assert_array_equal(session.run(run.fetches, feeds), other.run(run.fetches, feeds))


def test_what_packs_works_for_no_slot_and_the_others_as_before(setter):
    model = Model("pack_sites", setter)
    user, plain = GraphIndex(model.definition), GraphIndex(model.placed().definition)
    packed = GraphIndex(model.pack(plain.definition).definition)
    before, after = (sites(user, one, ["loss", model.train]) for one in (plain, packed))
    added = {name: site for name, site in after.items() if name not in plain.nodes}
    assert len(added) > 10 and {site.slot for site in added.values()} == {-1}
    kinds = [{name: (one.slot, one.kind) for name, one in some.items() if one.slot >= 0} for some in (before, after)]
    assert kinds[0] == kinds[1] and len(kinds[0]) > 10


def test_off_and_little_to_gain(setter):
    model = Model("pack_off", setter)
    assert model.pack(model.placed().definition, "off").definition is None
    with tf.Graph().as_default() as graph, v1.device(setter):
        ids = v1.placeholder(tf.int64, [None], name="ids")
        table = v1.get_variable("pack_little", [ROWS, DIM], use_resource=True)
        train = v1.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(v1.nn.embedding_lookup(table, ids)))
    definition = rewrite(graph.as_graph_def(), Context(TWO_PS, dedup="off", worker_device=WORKER)).definition
    run = Run(("ids:0",), (), (train.name,))
    assert pack(definition, run, WORKER, "auto", told_by(graph)).definition is None


def test_the_graph_that_is_packed_stays_as_it_is(setter):
    model = Model("pack_pure", setter)
    definition = model.placed().definition
    before = definition.SerializeToString(deterministic=True)
    assert model.pack(definition).definition is not None
    assert definition.SerializeToString(deterministic=True) == before


def test_no_op_gets_an_attribute_that_it_does_not_have(setter):
    """To look one up in a node is to add it, and TensorFlow refuses such a graph."""
    model = Model("pack_attributes", setter)
    packed = model.pack(model.placed().definition).definition
    before = {node.name: set(node.attr) for node in model.placed().definition.node}
    for node in packed.node:
        assert set(node.attr) == before.get(node.name, set(node.attr)), node.name


def scoped(found, ids, variable):
    """Ops that are called as the scopes that they end, which hold what is sent and what comes of it."""
    for field in range(FIELDS):
        with tf.name_scope(f"column{field}/") as scope:
            rows = v1.nn.embedding_lookup(variable(f"s{field}", [ROWS, 1]), ids[:, field])
            summed = tf.identity(rows + 1.0, name=scope)
        found = found + summed
    return found


def test_a_packed_run_is_imported_in_pieces_and_computes_the_same(monkeypatch):
    import importlib

    module = importlib.import_module("deeprec_ext.graph.packing.pack")
    model = Model("pieces", v1.train.replica_device_setter(2, worker_device=WORKER), extra=scoped)
    placed, told = model.placed().definition, told_by(model.graph)
    together = pack(placed, model.run, WORKER, "on", told).definition
    monkeypatch.setattr(module, "NAMED_APART_NODES", 0)
    apart = pack(placed, model.run, WORKER, "on", told).definition

    def largest(definition):
        return max(map(len, c_graph._pieces(definition, 25)))

    assert largest(apart) < 60 < largest(together)
    names = {node.name for node in apart.node}
    assert {"loss", "column0-itself"} <= names and "column0" not in names, "what is asked for has its name"
    assert {node.op for node in apart.node if node.name.endswith("-itself")}.isdisjoint({"VarHandleOp", "VariableV2"})
    graph = tf.Graph()
    c_graph.import_definition(graph, apart, 25)
