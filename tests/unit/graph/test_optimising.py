"""What TensorFlow's optimiser made of a run once computes the same on the PS of every view."""

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.graph import Context, Pass, Run, optimising, pack, register_pass, rewrite, unregister_pass
from deeprec_ext.graph.index import op_name
from deeprec_ext.graph.on_slots import OnSlots
from deeprec_ext.tf_private.grappler import only_processors
from tests.unit.graph.test_packing import (
    DIM,
    FIELDS,
    IDS,
    OPTIMIZERS,
    ROWS,
    WORKER,
    Model,
    branch,
    control_flow,
    loop,
    trained,
)  # fmt: skip

v1 = tf.compat.v1
VIEWS = (0, 0, 0, 0), (0, 1, 0, 1), (1, 0, 0, 0)
OPTIONS = v1.GraphOptions()


def context(slot_map=VIEWS[1], **others):
    return Context(slot_map, **{"dedup": "off", "worker_device": WORKER, **others})


def assert_same(cluster, model, ids=IDS, views=VIEWS):
    """By sessions that optimise each by itself, and by those of all views without an optimiser, packed and not."""
    on_slots = OnSlots(model.definition, context())
    found = on_slots.optimised(model.run, OPTIONS)
    assert found is not None and on_slots.known(model.run) is found, on_slots.report
    assert found.operations < found.before
    for slot_map in views:
        plain = on_slots.definition(context(slot_map))
        stock = trained(cluster, model, plain, plain, ids)
        placed = found.placed(slot_map, 0)
        packed = pack(placed, model.run, WORKER, "on", found.told(lambda tensor: None)).definition
        assert packed is not None
        assert len(ids) == 0 or len(set(stock[0])) > 1, "it trains nothing"
        for stepping in (placed, packed):
            ours = trained(cluster, model, plain, stepping, ids, quick=True)
            np.testing.assert_array_equal(stock[0], ours[0])
            for name in model.values:
                np.testing.assert_array_equal(stock[1][name], ours[1][name], err_msg=name)
    return found


@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_computes_the_same_in_every_view(cluster, setter, name, use_resource):
    assert_same(cluster, Model(f"once_{name}_{use_resource}", setter, name, use_resource=use_resource), views=VIEWS[1:])


@pytest.mark.parametrize("dtype", [tf.float64, tf.float16], ids=lambda one: one.name)
@pytest.mark.parametrize("ids_dtype", [tf.int32, tf.int64], ids=lambda one: one.name)
def test_of_other_types_too(cluster, setter, dtype, ids_dtype):
    name = f"once_{dtype.name}_{ids_dtype.name}"
    assert_same(cluster, Model(name, setter, "sgd", dtype, ids_dtype=ids_dtype), views=VIEWS[1:2])


@pytest.mark.parametrize("records", [0, 1])
def test_of_odd_batches_too(cluster, setter, records):
    assert_same(cluster, Model(f"once_odd_{records}", setter), IDS[:records], VIEWS[1:2])


@pytest.mark.parametrize("v2", [True, False], ids=["functions", "switches"])
@pytest.mark.parametrize("taken", [True, False])
def test_of_a_branch(cluster, setter, v2, taken):
    with control_flow(v2):
        model = Model(f"once_cond_{v2}_{taken}", setter, extra=branch(taken))
    assert_same(cluster, model, views=VIEWS[1:2])


@pytest.mark.parametrize("v2", [True, False], ids=["functions", "frames"])
def test_of_a_loop(cluster, setter, v2):
    with control_flow(v2):
        model = Model(f"once_loop_{v2}", setter, extra=loop)
    assert_same(cluster, model, views=VIEWS[1:2])


def test_of_functions(cluster, setter):
    """A tf.function of the script: on variables of a PS, stock TensorFlow does not take it either."""

    def extra(found, ids, variable):
        rows = v1.nn.embedding_lookup(variable("c", [ROWS, 1]), ids[:, 0])

        @tf.function
        def twice(some):
            return 2.0 * tf.tanh(some) + tf.reduce_sum(rows)

        return found + twice(found)

    assert_same(cluster, Model("once_function", setter, extra=extra))


def test_of_layers_that_the_optimiser_fuses(cluster, setter):
    """MatMul, BiasAdd and Relu become one op, and normalisation is taken apart."""

    def extra(found, ids, variable):
        layer = v1.nn.embedding_lookup(variable("c", [ROWS, DIM]), ids[:, 0])
        for number in range(2):
            layer = tf.nn.relu(
                tf.nn.bias_add(
                    tf.matmul(layer, variable(f"k{number + 2}", [DIM, DIM])), variable(f"b{number + 2}", [DIM])
                )
            )
        mean, variance = tf.nn.moments(layer, [0])
        return found + tf.reduce_sum(
            tf.nn.batch_normalization(layer, mean, variance, None, None, 1e-3), 1, keepdims=True
        )

    found = assert_same(cluster, Model("once_fused", setter, extra=extra), views=VIEWS[1:2])
    made = {node.op for node in found.placed(VIEWS[1], 0).node}
    assert "_FusedMatMul" in made, "else this has not seen it"


def test_what_is_fed_in_the_middle_is_not_computed(cluster, setter):
    with tf.Graph().as_default() as graph, v1.device(setter):
        ids = v1.placeholder(tf.int64, [None, 2], name="ids")
        with v1.variable_scope("once_fed", use_resource=True):
            tables = [v1.get_variable(f"t{n}", [ROWS, DIM], initializer=v1.ones_initializer()) for n in range(4)]
        columns = [tf.identity(ids[:, number % 2], name=f"column{number}") for number in range(4)]
        found = [v1.nn.embedding_lookup(table, column) for table, column in zip(tables, columns)]
        scale = v1.placeholder_with_default(tf.constant(1.0), [], name="scale")
        loss = tf.add_n([tf.reduce_sum(one**2) for one in found]) * (scale + tf.constant(0.0, name="nothing"))
        train = v1.train.AdagradOptimizer(0.1).minimize(loss)
        init = v1.global_variables_initializer()
    feeds = {f"column{number}:0": np.arange(3) for number in range(4)} | {"nothing:0": np.float32(1.0)}
    on_slots = OnSlots(graph.as_graph_def(), context())
    run = Run(tuple(feeds), (loss.name,), (train.name,))
    definition = on_slots.optimised(run, OPTIONS).placed(VIEWS[1], 0)
    with cluster.open(on_slots.definition(context())) as session:
        session.run(init.name)
    with cluster.open(definition, quick=True) as session:
        assert session.run([loss.name, train.name], feeds)[0] == 2 * 4 * 3 * DIM
        assert session.run(loss.name, {**feeds, "scale:0": 0.0, "nothing:0": 0.0}) == 0.0


def test_marks_are_of_the_rows_that_were_written(cluster, setter):
    model = Model("once_marks", setter)
    name, bitmap = "once_marks/t0", "once_marks/t0@dirty"
    on_slots = OnSlots(model.definition, context(tracked={name: bitmap}))
    marks = [mark for marks in on_slots.marks.values() for mark in marks]
    run = Run(model.run.feeds, model.run.fetches, (*model.run.targets, *on_slots.marks.get(model.train, ())))
    assert marks
    definition = on_slots.optimised(run, OPTIONS).placed(VIEWS[0], 0)
    with cluster.open(on_slots.definition(context(VIEWS[0]))) as session:
        cluster.fill(bitmap, ROWS, True)
        session.run(model.init)
        cluster.fill(bitmap, ROWS, False)
    with cluster.open(definition, quick=True) as session:
        session.run([model.train, *run.targets], {"ids:0": np.full([2, FIELDS], 7)})
    assert cluster.marked(bitmap, ROWS) == {7}


def test_a_seeded_op_draws_as_the_session_of_its_number_does(cluster, setter):
    """By the graph, or apart from all others."""
    with tf.Graph().as_default() as graph, v1.device(WORKER):
        drawn = tf.random.uniform([4], seed=5, name="drawn") + 0.0
    on_slots = OnSlots(graph.as_graph_def(), context())
    run = Run((), (drawn.name,), ())
    found = on_slots.optimised(run, OPTIONS)
    assert found is not None

    def draws(definition, quick):
        with cluster.open(definition, quick=quick) as session:
            return session.run(drawn.name).tolist()

    for swaps in (0, 1):
        ours = draws(found.placed(VIEWS[1], swaps), True)
        assert ours == draws(on_slots.definition(context(swaps=swaps)), False)
    assert ours != draws(found.placed(VIEWS[1], 0), True)


def test_the_graph_of_a_view_is_what_the_passes_make_of_it(setter):
    """And so are their reports, but for the seconds."""
    model = Model("once_copy", setter, extra=lambda found, ids, _: tf.nn.dropout(found, rate=0.5, seed=3))
    tracked = {"once_copy/t1": "once_copy/t1@dirty"}
    for others in ({}, {"swaps": 3}, {"tracked": tracked, "dedup": "on"}):
        on_slots = OnSlots(model.definition, context(**others))
        for slot_map in VIEWS:
            wanted, ours = (
                rewrite(model.definition, context(slot_map, **others)),
                on_slots.of(context(slot_map, **others)),
            )
            assert {n.name: n for n in wanted.definition.node} == {n.name: n for n in ours.definition.node}
            assert wanted.definition.library == ours.definition.library
            assert (wanted.drops, wanted.initializers, wanted.marks) == (ours.drops, ours.initializers, ours.marks)
            assert {(one.name, one.detail) for one in wanted.reports} == {
                (one.name, one.detail) for one in ours.reports
            }
            assert all(bool(one.changed) == bool(other.changed) for one, other in zip(wanted.reports, ours.reports))


def test_views_that_differ_in_their_ps_alone_have_one_graph_in_common():
    keys = [OnSlots.key(context(slot_map, swaps=number)) for number, slot_map in enumerate(VIEWS)]
    assert len(set(keys)) == 1
    others = {"tracked": {"a": "b"}}, {"dedup": "on"}, {"pack": "on"}, {"worker_device": "/job:worker/task:1"}
    assert len({OnSlots.key(context(**one)) for one in others} | set(keys)) == 1 + len(others)
    assert OnSlots.key(context(cut_before={"a": 3})) == keys[0], "the graph is cut before"


def test_where_the_graph_of_a_view_is_no_copy():
    class Mine(Pass):
        name = "mine"

    assert OnSlots.serves(context()) and not OnSlots.serves(Context(None))
    register_pass(Mine())
    try:
        assert not OnSlots.serves(context()), "it may ask which PS a slot is on"
    finally:
        unregister_pass("mine")
    assert OnSlots.serves(context())


def refused(model, options=OPTIONS, run=None):
    on_slots = OnSlots(model.definition, context())
    assert on_slots.optimised(run or model.run, options) is None
    return on_slots.report.detail


def test_what_is_left_to_the_optimiser_of_each_session(setter, monkeypatch):
    model = Model("once_left", setter)
    off = v1.GraphOptions()
    off.rewrite_options.disable_meta_optimizer = True
    assert "switched it off" in refused(model, off)
    with model.graph.as_default():
        made = v1.data.make_initializable_iterator(tf.data.Dataset.range(9), shared_name="once_left")
    started = Run((), (), (made.initializer.name,))
    model.definition = model.graph.as_graph_def()
    assert "MakeIterator" in refused(model, run=started)
    monkeypatch.setattr(optimising, "only_processors", lambda: False)
    assert "other devices" in refused(model)


def test_an_optimiser_that_fails_is_asked_once(setter, monkeypatch):
    asked = []

    def fails(*arguments):
        asked.append(arguments)
        raise tf.errors.InternalError(None, None, "no such luck")

    monkeypatch.setattr(optimising, "optimise", fails)
    on_slots = OnSlots(Model("once_fails", setter).definition, context())
    run = Run((), ("loss:0",), ())
    assert on_slots.optimised(run, OPTIONS) is None and on_slots.optimised(run, OPTIONS) is None
    assert len(asked) == 1 and "no such luck" in on_slots.report.detail


def test_what_is_remembered_does_not_grow_for_ever_and_nobody_asks_for_ever(setter, monkeypatch):
    monkeypatch.setattr("deeprec_ext.graph.on_slots.OPTIMISED_MAX", 2)
    model = Model("once_many", setter)
    on_slots = OnSlots(model.definition, context())
    runs = [Run(("ids:0",), (name,), ()) for name in (*model.values.values(), "loss:0")][:4]
    on_slots.optimise(runs, OPTIONS)
    assert [on_slots.known(run) is not None for run in runs] == [False, False, True, True]
    assert all(map(on_slots.is_asked, runs))
    monkeypatch.setattr("deeprec_ext.graph.on_slots.ASKED_MAX", 3)
    on_slots.optimise([Run(("ids:0",), (), (model.train,))], OPTIONS)
    assert [on_slots.is_asked(run) for run in runs] == [False, False, True, True]


def test_what_is_asked_for_is_not_forgotten_before_what_nobody_asks_for(setter, monkeypatch):
    """The step is the first run that is learnt, and each session asks for it."""
    monkeypatch.setattr("deeprec_ext.graph.on_slots.OPTIMISED_MAX", 2)
    model = Model("once_often", setter)
    on_slots = OnSlots(model.definition, context())
    step, *others = [Run(("ids:0",), (name,), ()) for name in (*model.values.values(), "loss:0")][:4]
    for run in (step, *others):
        on_slots.optimise([run], OPTIONS)
        assert on_slots.known(step) is not None
    assert on_slots.known(others[0]) is None and on_slots.known(others[-1]) is not None


def built(make):
    """A graph, and what becomes of the run of what it ends with."""
    with tf.Graph().as_default() as graph:
        run = make()
    on_slots = OnSlots(graph.as_graph_def(), context())
    found = on_slots.optimised(run, OPTIONS)
    return found, on_slots.report.detail if on_slots.report is not None else ""


def test_where_an_op_runs_must_be_known(setter):
    """The optimiser forgets what is to be kept together, and believes that there are the devices that a script names."""

    def beside(where):
        def make():
            with v1.device("/job:ps/task:1"):
                there = tf.constant(1.0, name="there") + tf.random.normal([])
            with v1.device(where), tf.Graph.colocate_with(v1.get_default_graph(), there.op, ignore_existing=True):
                found = tf.add(there, 1.0, name="found")
            return Run((), (found.name,), ())

        return make

    found, _ = built(beside(None))
    placed = {node.name: node.device for node in found.placed((1, 0, 1, 0), 0).node}
    assert placed["found"] == "/job:ps/replica:0/task:0/device:CPU:0"

    def accelerated():
        with v1.device("/job:worker/task:0/device:GPU:0"):
            return Run((), (tf.add(tf.random.normal([]), 1.0).name,), ())

    found, why = built(accelerated)
    assert found is None and "other devices" in why


def test_a_run_that_is_fed_another_output_than_the_first_is_left_to_its_session(setter):
    """The optimiser knows fed ops by their names alone, and would believe what it infers of the others."""

    def make():
        with v1.device(WORKER):
            parts = tf.split(v1.placeholder(tf.float32, [4], name="whole"), 2)
            return Run((parts[1].name,), (tf.shape(parts[1]).name,), ())

    found, why = built(make)
    assert found is None and "another output" in why


def test_of_what_the_optimiser_has_changed_the_user_is_not_believed(setter):
    """A name may stand for something else then; what it is, TensorFlow infers."""
    model = Model("once_told", setter)
    on_slots = OnSlots(model.definition, context())
    found = on_slots.optimised(model.run, OPTIONS)
    told = found.told(lambda tensor: (None, 7))
    before = {node.name: list(node.input) for node in on_slots.definition(context()).node}
    nodes = found.placed(VIEWS[1], 0).node
    same = [node.name for node in nodes if before.get(node.name) == list(node.input)]
    read = {op_name(tensor) for node in nodes for tensor in node.input if tensor[0] != "^"}
    changed = [node.name for node in nodes if before.get(node.name) != list(node.input) and node.name in read]
    assert same and all(told(f"{name}:0") == (None, 7) for name in same)
    assert changed and all(told(f"{name}:0") != (None, 7) for name in changed)
    assert any(None in shape for shape in found.shapes.values() if shape), "a batch is of any size"


def test_this_machine_has_processors_alone():
    assert only_processors(), "else these tests have tested nothing"
