"""Learning rates that are multiplied by what runs are fed: each optimizer then trains as with another rate."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext import errors
from deeprec_ext import graph as passes
from deeprec_ext.graph import GraphIndex, follow_trainers
from deeprec_ext.graph.learning_rates import NAME

v1 = tf.compat.v1
train = v1.train
ROWS, DIM, STEPS, RATE, TIMES = 12, 4, 3, 0.05, 0.25

OPTIMIZERS = {
    "sgd": train.GradientDescentOptimizer, "momentum": lambda rate: train.MomentumOptimizer(rate, 0.9),
    "nesterov": lambda rate: train.MomentumOptimizer(rate, 0.9, use_nesterov=True), "adam": train.AdamOptimizer,
    "adagrad": train.AdagradOptimizer, "adadelta": lambda rate: train.AdadeltaOptimizer(100 * rate),
    "rmsprop": train.RMSPropOptimizer, "centered": lambda rate: train.RMSPropOptimizer(rate, centered=True, momentum=0.5),
    "proximal": lambda rate: train.ProximalGradientDescentOptimizer(rate, 0.01),
    "proximal adagrad": lambda rate: train.ProximalAdagradOptimizer(rate, l2_regularization_strength=0.01),
}  # fmt: skip


def build(make, resource: bool, rate=RATE, dtype=tf.float32):
    """A table that is looked up, and a dense layer on another slot; an average and statistics beside."""
    with tf.Graph().as_default() as graph, v1.variable_scope("", use_resource=resource):
        ids = v1.placeholder(tf.int64, [None], name="ids")
        start = np.random.default_rng(7)
        with v1.device("/job:ps/task:0"):
            step = v1.get_variable("steps", [], tf.int64, v1.zeros_initializer(), trainable=False)
            table = v1.get_variable("table", initializer=start.normal(size=[ROWS, DIM]).astype(dtype.as_numpy_dtype))
        with v1.device("/job:ps/task:1"):
            kernel = v1.get_variable("kernel", initializer=start.normal(size=[DIM, 1]).astype(dtype.as_numpy_dtype))
            mean = v1.get_variable("mean", [], dtype, v1.zeros_initializer(), trainable=False)
        loss = tf.reduce_sum(tf.sin(v1.nn.embedding_lookup(table, ids) @ kernel))
        averaged = v1.assign_add(mean, tf.ones([], dtype))
        step = tf.group(make(rate() if callable(rate) else rate).minimize(loss, step), averaged)
        init = v1.global_variables_initializer()
    return graph, step.name, init.name


TRAINED = ("table", "kernel")


def following(graph, trained=TRAINED):
    definition = graph.as_graph_def()
    index = GraphIndex(definition)
    rate = follow_trainers(index, trained)
    return definition, [rate] if rate else []


def trained(
    definition, step: str, init: str, rates=(), times: float = 1.0, given=None, last: float | None = None
) -> dict[str, np.ndarray]:
    """Values of all variables after some steps, by their names; after one more, that takes `last` times the rate."""
    for node in definition.node:
        node.device = ""
    names = [node.name for node in definition.node if node.op in ("VarHandleOp", "VariableV2")]
    reads = {
        name: next(
            one.name for one in definition.node
            if one.op in ("ReadVariableOp", "Identity") and one.input[0] == name and one.name.startswith(f"{name}/")
        )
        for name in names
    }  # fmt: skip
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(definition, name="")
        with v1.Session(graph=graph) as session:
            session.run(init)
            for number in range(STEPS + (last is not None)):
                fed = dict.fromkeys(rates, np.float32(times if number < STEPS else last))
                ids = {"ids:0": [number, 3, 3, number + 5]} if given is None else given
                session.run(step, {**ids, **fed})
            return session.run({name: f"{read}:0" for name, read in reads.items()})


@pytest.mark.parametrize("resource", [True, False], ids=["resource", "reference"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_trains_as_with_another_rate(name, resource):
    make = OPTIMIZERS[name]
    graph, step, init = build(make, resource)
    definition, rates = following(graph)
    assert rates == [f"{NAME}:0"]
    found = trained(definition, step, init, rates, TIMES)
    other, step, init = build(make, resource, RATE * TIMES)
    wanted = trained(other.as_graph_def(), step, init)
    plain, step, init = build(make, resource)
    unlike = trained(plain.as_graph_def(), step, init)
    assert found.keys() == wanted.keys()
    for variable in wanted:
        np.testing.assert_allclose(found[variable], wanted[variable], rtol=2e-5, atol=1e-6, err_msg=variable)
    for variable in TRAINED:
        assert not np.allclose(unlike[variable], wanted[variable], rtol=1e-3), "the rate makes a difference at all"


@pytest.mark.parametrize("name", ["adam", "rmsprop", "adagrad"])
def test_fed_one_it_is_the_same_bit_for_bit(name):
    graph, step, init = build(OPTIMIZERS[name], True)
    definition, rates = following(graph)
    found, plain = trained(definition, step, init, rates, 1.0), trained(graph.as_graph_def(), step, init)
    for variable in plain:
        np.testing.assert_array_equal(found[variable], plain[variable], err_msg=variable)


def test_a_schedule_and_another_type_are_followed():
    def schedule():
        return train.exponential_decay(RATE, tf.constant(5), 2, 0.5)

    graph, step, init = build(train.AdagradOptimizer, True, schedule, tf.float64)
    definition, rates = following(graph)
    found = trained(definition, step, init, rates, TIMES)
    other, step, init = build(train.AdagradOptimizer, True, lambda: TIMES * schedule(), tf.float64)
    wanted = trained(other.as_graph_def(), step, init)
    for variable in TRAINED:
        np.testing.assert_allclose(found[variable], wanted[variable], rtol=1e-6, err_msg=variable)


def test_parts_of_a_table_that_is_cut_have_it_on_their_slots():
    with tf.Graph().as_default() as graph, v1.variable_scope("", use_resource=True):
        with v1.device("/job:ps/task:0"):
            table = v1.get_variable("table", [50_000, 16], initializer=v1.zeros_initializer())
        ids = v1.placeholder(tf.int64, [None], name="ids")
        train.AdamOptimizer(0.1).minimize(tf.reduce_sum(v1.nn.embedding_lookup(table, ids)))
    index = GraphIndex(graph.as_graph_def())
    cuts = passes.partition(index, passes.Partitioning(4, "on"))
    names = cuts.saved({"table": ("", "")})
    assert len(names) > 1
    rates = follow_trainers(index, names)
    assert rates == f"{NAME}:0"
    homes = set()
    for write in (node for node in index.definition.node if node.op == "AssignSubVariableOp" and "table" in node.name):
        multiplied = index.nodes[index.inputs(write.name)[1].split(":")[0]]
        assert multiplied.op == "Mul" and NAME in multiplied.name
        assert multiplied.input[1] == NAME and multiplied.device == index.nodes[write.input[0]].device
        homes.add(multiplied.device)
    assert len(homes) == 4, "what is computed on a PS is multiplied there"


def test_what_the_trainer_has_is_multiplied_there_and_crosses_as_before():
    setter = v1.train.replica_device_setter(2, worker_device="/job:worker/task:0")
    with tf.Graph().as_default() as graph, v1.device(setter):
        for number in range(2):
            v1.get_variable(f"x{number}", [3], use_resource=True, initializer=v1.zeros_initializer())
        step = train.AdagradOptimizer(0.1).minimize(tf.add_n([tf.reduce_sum(x**2) for x in v1.trainable_variables()]))
    definition, _ = following(graph, ["x0", "x1"])
    (multiplied,) = [node for node in definition.node if NAME in node.name and node.op == "Mul"]
    assert multiplied.device.startswith("/job:worker") and step is not None
    updates = [node for node in definition.node if node.op == "ResourceApplyAdagrad"]
    assert len(updates) == 2 and all(multiplied.name in node.input for node in updates), "one number for all"


def test_a_variable_that_is_set_in_another_way_is_refused_by_name():
    with tf.Graph().as_default() as graph, v1.device("/job:ps/task:0"):
        x = v1.get_variable("x", [3], use_resource=True, initializer=v1.zeros_initializer())
        v1.assign(x, 0.9 * x + 1.0)
    with pytest.raises(errors.RefusedError, match=r"rate_scaling.*\bx\b.*AssignVariableOp.*leave rate_scaling out"):
        following(graph, ["x"])
    definition, rates = following(graph, [])
    assert not rates and definition == graph.as_graph_def(), "of what is not trained nothing is asked"


def test_an_assignment_of_what_it_was_and_something_less_is_followed():
    with tf.Graph().as_default() as graph, v1.device("/job:ps/task:0"):
        x = v1.get_variable("x", initializer=np.array([3.0, -3.0], np.float32), use_resource=True)
        step = v1.assign(x, x - 0.5 * x.read_value()).op
        init = v1.global_variables_initializer()
    definition, rates = following(graph, ["x"])
    found = trained(definition, step.name, init.name, rates, 0.5, {})
    np.testing.assert_allclose(found["x"], np.array([3.0, -3.0]) * 0.75**STEPS, rtol=1e-6)


def test_a_constraint_beside_an_optimizer_is_left_alone():
    with tf.Graph().as_default() as graph, v1.device("/job:ps/task:0"):
        x = v1.get_variable("x", initializer=np.array([3.0, -3.0], np.float32), use_resource=True)
        step = train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(x))
        with tf.control_dependencies([step]):
            v1.assign(x, tf.clip_by_value(x.read_value(), -1.0, 1.0))
    definition, rates = following(graph, ["x"])
    assert len(rates) == 1
    multiplied = [node.name for node in definition.node if NAME in node.name and node.op == "Mul"]
    assert len(multiplied) == 1 and "GradientDescent" in multiplied[0]


def test_of_a_function_that_updates_nobody_knows_the_rate():
    with tf.Graph().as_default() as graph, v1.device("/job:ps/task:0"):
        x = v1.get_variable("x", [3], use_resource=True, initializer=v1.zeros_initializer())

        @tf.function
        def step():
            x.assign_sub([0.1, 0.1, 0.1])

        step()
    with pytest.raises(errors.RefusedError, match="cannot be found"):
        following(graph, ["x"])


@pytest.mark.parametrize("resource", [True, False], ids=["resource", "reference"])
def test_what_sets_a_variable_by_all_its_steps_and_the_present_rate_is_refused(resource):
    """With another rate FTRL multiplies the variable itself."""
    graph, _, _ = build(lambda rate: train.FtrlOptimizer(rate, l1_regularization_strength=0.01), resource)
    with pytest.raises(errors.RefusedError, match=r"rate_scaling.*cannot be found.*Ftrl"):
        following(graph)


@pytest.mark.parametrize(
    "name", [name for name in OPTIMIZERS if name != "centered"]
)  # whose momentum has the rate in it
def test_another_factor_from_a_step_on_changes_updates_and_not_the_variable(name):
    """A step whose factor is nothing leaves it as it is."""
    graph, step, init = build(OPTIMIZERS[name], True)
    definition, rates = following(graph)
    before = trained(definition, step, init, rates, TIMES)
    still = trained(definition, step, init, rates, TIMES, last=1e-9)
    for variable in TRAINED:
        np.testing.assert_allclose(still[variable], before[variable], rtol=1e-4, atol=1e-5, err_msg=variable)


def test_counters_that_a_script_has_left_among_the_trained_are_no_updates():
    with tf.Graph().as_default() as graph, v1.variable_scope("", use_resource=True):
        with v1.device("/job:ps/task:0"):
            step = v1.get_variable("global_step", [], tf.int64, v1.zeros_initializer())
            epoch = v1.get_variable("epoch", [], tf.float32, v1.zeros_initializer())
            kernel = v1.get_variable("kernel", [2], initializer=v1.ones_initializer())
        counted = v1.assign_add(epoch, 1.0)
        updated = train.GradientDescentOptimizer(0.5).minimize(tf.reduce_sum(kernel), step)
        run, init = tf.group(updated, counted).name, v1.global_variables_initializer().name
    definition, rates = following(graph, ("global_step", "epoch", "kernel"))
    found = trained(definition, run, init, rates, TIMES, given={})
    assert (found["global_step"], found["epoch"]) == (STEPS, STEPS)
    np.testing.assert_allclose(found["kernel"], 1 - STEPS * 0.5 * TIMES)
