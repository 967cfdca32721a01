"""Of what a trace has, a session runs what has an effect, and no message is sent for an order that the data has."""

from __future__ import annotations

import tensorflow as tf

from deeprec_ext.graph import GraphIndex
from deeprec_ext.keras.captured import capture
from deeprec_ext.keras.rewriting.lean import make_lean
from deeprec_ext.keras.stepgraph import StepGraph
from tests.unit.keras import models

keras, v1, generation = tf.keras, tf.compat.v1, models.generation


def test_results_wait_for_nothing_and_groups_become_their_members():
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [], name="x")
        first, second = tf.identity(x, name="first"), tf.negative(x, name="second")
        with tf.control_dependencies([second]):
            both = tf.group(first, name="both")
        with tf.control_dependencies([both]):
            tf.identity(x, name="result")
    index = GraphIndex(graph.as_graph_def())
    assert sorted(make_lean(index, ["result:0"], ["both"])) == ["first", "second"]
    assert index.inputs("result") == ["x"]
    assert list(index.nodes["result"].input) == ["x"]


def test_who_takes_a_value_does_not_wait_for_it_besides():
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [], name="x")
        y = tf.negative(x, name="y")
        with tf.control_dependencies([x, y]):
            tf.square(x, name="z")
    index = GraphIndex(graph.as_graph_def())
    make_lean(index, [], ["z"])
    assert index.inputs("z") == ["x", "^y"]


def test_inputs_that_are_the_same_stay_two():
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [], name="x")
        with tf.control_dependencies([tf.negative(x, name="y")]):
            z = tf.add(x, x, name="z")
        with tf.control_dependencies([z]):
            tf.identity(x, name="result")
    index = GraphIndex(graph.as_graph_def())
    index.keep_controls(index.nodes["z"], ())
    assert index.inputs("z") == ["x", "x"] and list(index.nodes["z"].input) == ["x", "x"]
    assert [number for one, number in index.consumers("x") if one.name == "z"] == [0, 1] and index.consumers("y") == []


def test_of_a_step_no_order_crosses_but_the_end():
    """Ids and rows of three tables, four gradients and a learning rate go to the PS; rows and weights come back. Ids twice: for
    the look-up and for the update; Keras 3 casts the latter for one of its ops."""
    keras.backend.clear_session()
    model = models.wide_deep()
    model.compile("adagrad", "mse", metrics=["mae"])
    spec = models.dataset(models.wide_deep, 1).element_spec
    steps = StepGraph(1)
    with generation.traceable(model):
        captured = capture(generation.step(model, "train"), spec, lambda: generation.optimizer_variables(model))
    state = generation.optimizer_variables(model)
    step = steps.add(captured, generation.weights(model), state, generation.counters(model), "train", True)
    index = GraphIndex(steps.graph.as_graph_def())
    reached = index.upstream([step.done.name, *(one.name for one in step.outputs)])
    crossing = {
        (tensor.lstrip("^").split(":")[0], tensor[0] == "^", index.nodes[name].device[:7])
        for name in reached
        for tensor in index.inputs(name)
        if "" != index.nodes[tensor.lstrip("^").split(":")[0]].device[:7] != index.nodes[name].device[:7] != ""
    }
    orders = {name for name, order, _ in crossing if order}
    there = {name for name, order, device in crossing if not order and device == "/job:ps"}
    back = {name for name, order, device in crossing if not order and device == "/job:wo"}
    assert orders == set()
    assert len(back) == 3 + 4 and {index.nodes[name].op for name in back} == {"ResourceGather", "ReadVariableOp"}
    assert len(there) == 3 * (3 if models.KERAS == 2 else 4) + 4 + 1, sorted(there)
