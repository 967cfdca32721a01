"""An optimizer's arithmetic is done beside its state, and no more than that."""

from __future__ import annotations

import pytest
import tensorflow as tf

from deeprec_ext.keras import ownership
from deeprec_ext.keras.captured import capture
from deeprec_ext.keras.placing import HERE, place
from deeprec_ext.keras.rewriting.wholes import done_by_rows
from tests.unit.keras import models

keras, generation = tf.keras, models.generation


def placed(make, optimizer):
    """Index of the train step, and the device of all PS variables."""
    keras.backend.clear_session()
    model = make()
    model.compile(optimizer, "mse")
    spec = models.dataset(make, 1).element_spec
    with generation.traceable(model):
        captured = capture(generation.step(model, "train"), spec, lambda: generation.optimizer_variables(model))
    shapes = {inside: tuple(one.shape) for inside, one in captured.variables.items()}
    wanted = (*captured.outputs, *captured.targets, *(name for name, _, _ in captured.feeds))
    index = done_by_rows(captured.definition, shapes, wanted)
    weights = {ownership.key(one) for one in generation.weights(model)}
    state = {ownership.key(one) for one in generation.optimizer_variables(model) if one.shape.rank}
    remote = {inside: one for inside, one in captured.variables.items() if ownership.key(one) in weights | state}
    numbers = [inside for inside, one in captured.variables.items() if one.shape.rank == 0]
    states = [inside for inside, one in remote.items() if ownership.key(one) in state]
    place(index, dict.fromkeys(remote, "/job:ps/task:0"), states, numbers, set())
    return index


def crossings(index):
    """Tensors with dimensions that go to a PS, and ops whose results come from one."""
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(index.definition, name="")
    there, back = set(), set()
    for node in index.nodes.values():
        for tensor in node.input:
            before = index.nodes[tensor.lstrip("^").split(":")[0]]
            if tensor[0] == "^" or before.op in ("Const", "Placeholder"):
                continue
            ps, ps_before = (one.device.startswith("/job:ps") for one in (node, before))
            named = tensor if ":" in tensor else tensor + ":0"
            if ps and not ps_before and graph.get_tensor_by_name(named).shape.rank:
                there.add(named)
            elif ps_before and not ps:
                back.add(before.name)
    return there, back


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop", "adamax", "nadam", "adagrad"])
def test_of_each_weight_one_tensor_travels_and_no_moment(optimizer):
    index = placed(models.dense, optimizer)
    there, back = crossings(index)
    assert len(there) == 4, sorted(there)
    assert len(back) == 4 and {index.nodes[name].op for name in back} == {"ReadVariableOp"}, sorted(back)


def test_the_model_itself_is_computed_here():
    index = placed(models.wide_deep, "adam")
    assert {node.device for node in index.nodes.values() if node.op in ("MatMul", "Relu", "BiasAdd")} == {HERE}
    assert {node.device for node in index.nodes.values() if node.op == "ResourceGather"} == {"/job:ps/task:0"}


@pytest.mark.skipif(models.KERAS > 2, reason="Keras 3 has no optimizer with fused ops")
@pytest.mark.parametrize("optimizer", ["Adagrad", "Ftrl"])
def test_fused_ops_are_beside_their_variables(optimizer):
    index = placed(models.wide_deep, getattr(keras.optimizers.legacy, optimizer)())
    applies = [node for node in index.nodes.values() if "Apply" in node.op]
    assert applies and all(node.device == "/job:ps/task:0" for node in applies)


@pytest.fixture
def _soft_placement():
    """As where a script begins eagerly; where tests of graphs have been before in this process TensorFlow has it off."""
    before = tf.config.get_soft_device_placement()
    tf.config.set_soft_device_placement(True)
    yield
    tf.config.set_soft_device_placement(before)


@pytest.mark.usefixtures("_soft_placement")
def test_a_device_that_a_script_asks_for_is_kept_and_one_of_the_trace_is_not():
    class Own(models.OwnStep):
        def call(self, inputs, training=False):
            with tf.device("/gpu:1"):
                return super().call(inputs, training)

    index = placed(Own, "sgd")
    devices = {node.device for node in index.nodes.values()}
    assert devices == {HERE, "/job:ps/task:0", HERE + "/device:GPU:1"}
