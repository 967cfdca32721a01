"""With `rate_scaling` each optimizer of Keras trains as with another rate."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext import errors
from deeprec_ext.graph import GraphIndex, follow_trainers, make_lazy
from deeprec_ext.graph.learning_rates import NAME
from deeprec_ext.keras.captured import capture
from deeprec_ext.keras.stepgraph import StepGraph
from tests.unit.keras import models

keras, v1 = tf.keras, tf.compat.v1
o, legacy = keras.optimizers, keras.optimizers.legacy
generation = models.generation
ROWS, DIM, RATE, TIMES = 60, 4, 0.1, 0.25

OPTIMIZERS = {
    "SGD": lambda rate: o.SGD(rate), "momentum": lambda rate: o.SGD(rate, momentum=0.9),
    "nesterov": lambda rate: o.SGD(rate, momentum=0.9, nesterov=True), "Adam": lambda rate: o.Adam(rate),
    "amsgrad": lambda rate: o.Adam(rate, amsgrad=True), "AdamW": lambda rate: o.AdamW(rate),
    "RMSprop": lambda rate: o.RMSprop(rate, momentum=0.5, centered=True), "Adagrad": lambda rate: o.Adagrad(rate),
    "Adadelta": lambda rate: o.Adadelta(10 * rate), "Adamax": lambda rate: o.Adamax(rate),
    "Nadam": lambda rate: o.Nadam(rate), "Lion": lambda rate: o.Lion(rate),
    "schedule": lambda rate: o.Adam(o.schedules.ExponentialDecay(rate, 2, 0.5)),
}  # fmt: skip
if models.KERAS == 2:
    OPTIMIZERS.update({
        "legacy SGD": lambda rate: legacy.SGD(rate, momentum=0.9), "legacy Adam": lambda rate: legacy.Adam(rate),
        "legacy Adagrad": lambda rate: legacy.Adagrad(rate),
        "legacy RMSprop": lambda rate: legacy.RMSprop(rate), "legacy Nadam": lambda rate: legacy.Nadam(rate),
    })  # fmt: skip


class Stepped:
    """A model's train step as jobs with PS run it, in a session on the spot."""

    def __init__(self, optimizer, follows: bool, lazy: bool = False):
        keras.backend.clear_session()
        keras.utils.set_random_seed(2)
        ids = keras.Input((2,), dtype="int64")
        rows = keras.layers.Embedding(ROWS, DIM, name="table")(ids)
        model = keras.Model(ids, keras.layers.Dense(1)(keras.layers.Flatten()(rows)))
        model.compile(optimizer, "mse")
        spec = (tf.TensorSpec([None, 2], tf.int64), tf.TensorSpec([None, 1]))
        steps = StepGraph(2)
        with generation.traceable(model):
            captured = capture(generation.step(model, "train"), spec, lambda: generation.optimizer_variables(model))
        weights, state = generation.weights(model), generation.optimizer_variables(model)
        self.step = steps.add(captured, weights, state, generation.counters(model), "train", True)
        with steps.graph.as_default():
            begin = v1.global_variables_initializer()
        self.definition = steps.graph.as_graph_def()
        index = GraphIndex(self.definition)
        if lazy:
            make_lazy(index)
        trained = [one.op.name for one in steps.graph.get_collection(v1.GraphKeys.TRAINABLE_VARIABLES)]
        self.rates = [follow_trainers(index, trained)] if follows else []
        for node in self.definition.node:
            node.device = ""
        with tf.Graph().as_default() as graph:
            v1.import_graph_def(self.definition, name="")
        self.session = v1.Session(graph=graph)
        self.session.run(begin.name)
        self.reads = {one.here.op.name: one.read.name for one in steps.shared.values() if one.here.op.name in trained}

    def trained(self, times: float = 1.0):
        for number in range(3):
            ids = np.array([[number, 7], [number + 9, 7]])
            feeds = {place.name: value for place, value in zip(self.step.feeds, (ids, np.ones([2, 1], np.float32)))}
            feeds.update((value.name, variable.numpy()) for variable, value in self.step.given)
            feeds.update(dict.fromkeys(self.rates, np.float32(times)))
            self.session.run(self.step.done.name, feeds)
        return self.session.run(self.reads)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_fit_s_updates_follow_the_number_of_trainers(name):
    make = OPTIMIZERS[name]
    found = Stepped(make(RATE), True)
    assert found.rates
    values, wanted = found.trained(TIMES), Stepped(make(RATE * TIMES), False).trained()
    plain = Stepped(make(RATE), False).trained()
    for variable in wanted:
        np.testing.assert_allclose(values[variable], wanted[variable], rtol=1e-4, atol=1e-5, err_msg=variable)
        assert not np.allclose(plain[variable], wanted[variable], rtol=1e-3, atol=1e-4)


def test_rows_of_a_batch_alone_follow_too():
    found, wanted = Stepped(o.Adam(RATE), True, lazy=True), Stepped(o.Adam(RATE * TIMES), False, lazy=True)
    scatters = [node for node in found.definition.node if node.op == "ResourceScatterSub"]
    assert any(NAME in node.input[2] for node in scatters)
    for (_, value), (_, other) in zip(sorted(found.trained(TIMES).items()), sorted(wanted.trained().items())):
        np.testing.assert_allclose(value, other, rtol=1e-4, atol=1e-5)


def test_keras_s_own_ftrl_sets_its_variables_and_is_refused():
    with pytest.raises(errors.RefusedError, match=r"rate_scaling.*cannot be found"):
        Stepped(o.Ftrl(RATE), True)
    if models.KERAS == 2:
        with pytest.raises(errors.RefusedError, match=r"rate_scaling.*cannot be found"):
            Stepped(legacy.Ftrl(RATE), True)
