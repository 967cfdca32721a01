"""What a step has just written is what it goes on with, whoever else has written it in the meantime."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.graph import GraphIndex
from deeprec_ext.keras.captured import capture
from deeprec_ext.keras.rewriting.between import go_on_with_what_was_written
from deeprec_ext.keras.rewriting.wholes import done_by_rows
from tests.unit.keras import models
from tests.unit.keras.imported import Imported

v1 = tf.compat.v1
ROWS, DIM = 20, 3
READS = ("ReadVariableOp", "ResourceGather")
IDS, THEIRS = np.array([7, 3, 7], np.int64), np.array([3, 11], np.int64)

pytestmark = pytest.mark.skipif(models.KERAS != 2, reason="optimizers of Keras 3 go on with what they have computed")


class Trained:
    """A step that trains a table and a vector by an optimizer of Keras 2; `changed`: as it is run on PS."""

    def __init__(self, make, changed):
        keras = tf.keras
        self.table = tf.Variable(np.random.default_rng(0).normal(size=(ROWS, DIM)).astype("float32"), name="table")
        self.vector = tf.Variable([1.0, 2.0, 3.0], name="vector")
        optimizer = make(keras.optimizers)
        optimizer.build([self.table, self.vector])

        def step(ids):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.gather(self.table, ids) * self.vector)
            variables = [self.table, self.vector]
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
            return loss

        self.captured = capture(step, tf.TensorSpec([None], tf.int64), lambda: optimizer.variables)
        self.index, self.unused = GraphIndex(self.captured.definition), set()
        if changed:
            shapes = {inside: tuple(one.shape) for inside, one in self.captured.variables.items()}
            [(feed, _, _)] = self.captured.feeds
            wanted = (*self.captured.outputs, *self.captured.targets, feed, *self.captured.constants)
            self.index = done_by_rows(self.captured.definition, shapes, wanted)
            names = {id(one): name for name, one in self.captured.variables.items()}
            state = [names[id(one)] for one in optimizer.variables if one.shape.rank and id(one) in names]
            self.unused = go_on_with_what_was_written(self.index, state)

    def handle(self, name):
        [found] = [inside for inside, one in self.captured.variables.items() if one.name == name + ":0"]
        return found

    def run(self, times=3, ids=IDS, met=False):
        """All variables after so many steps.

        Args:
          met: between the step's writes of what the optimizer keeps and its updates of weights, another worker makes a step.
        """
        imported = Imported(self.captured, self.index)
        session = v1.Session(graph=imported.graph)
        theirs, their_ids = imported.add(self.index.definition, "theirs")

        def meet():
            session.run(theirs, {their_ids: THEIRS})
            return np.int32(0)

        own, own_ids = imported.add(self._meeting(meet) if met else self.index.definition, "own")
        with session:
            imported.initialise(session)
            for _ in range(times):
                session.run(own, {own_ids: ids})
            return imported.values(session)

    def _meeting(self, meet):
        """The step, in which `meet` is called when all is read and written but for the weights."""
        index = GraphIndex(v1.GraphDef.FromString(self.index.definition.SerializeToString()))
        weights = [self.handle("table"), self.handle("vector")]
        users = [user for handle in self.captured.variables for user, _ in index.consumers(handle)]
        updates = [user for one in weights for user, _ in index.consumers(one) if user.op not in READS]
        updating = index.upstream(user.name for user in updates)
        last = {
            index.inputs(user.name)[1].split(":")[0] for user in updates if user.op.startswith("Assign")
        }  # reads of what was written, if there are any
        before = [user.name for user in users if user not in updates and user.name not in last]
        before = [name for name in before if name in updating]
        self._graph = tf.Graph()  # keeps the function alive
        with self._graph.as_default():
            tf.numpy_function(meet, [], tf.int32, name="meet")
            [node] = self._graph.as_graph_def().node
        index.definition.node.add().CopyFrom(node)
        met = index.definition.node[-1]
        met.input.extend("^" + name for name in before)
        for name in {*last, *(user.name for user in updates)}:
            index.nodes[name].input.append("^" + met.name)
        return index.definition


OPTIMIZERS = {
    "sgd": lambda keras: keras.SGD(0.1),
    "momentum": lambda keras: keras.SGD(0.1, momentum=0.9),
    "nesterov": lambda keras: keras.SGD(0.1, momentum=0.9, nesterov=True),
    "adam": lambda keras: keras.Adam(0.1),
    "amsgrad": lambda keras: keras.Adam(0.1, amsgrad=True),
    "adagrad": lambda keras: keras.Adagrad(0.1),
    "adadelta": lambda keras: keras.Adadelta(0.1),
    "adamax": lambda keras: keras.Adamax(0.1),
    "nadam": lambda keras: keras.Nadam(0.1),
    "ftrl": lambda keras: keras.Ftrl(0.1),
    "rmsprop": lambda keras: keras.RMSprop(0.1),
    "rmsprop centered": lambda keras: keras.RMSprop(0.1, momentum=0.9, centered=True),
    "lion": lambda keras: keras.Lion(0.1),
    "decay": lambda keras: keras.AdamW(0.1, weight_decay=0.01),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_one_process_trains_what_it_trained_to_the_last_bit(name):
    plain, changed = (Trained(OPTIMIZERS[name], changed) for changed in (False, True))
    expected, found = plain.run(), changed.run()
    unused = {changed.captured.variables[one].name for one in changed.unused}
    for variable in expected.keys() - unused:
        np.testing.assert_array_equal(found[variable], expected[variable], err_msg=variable)


def test_sgd_does_without_what_it_keeps_for_a_momentum_of_a_table():
    changed = Trained(OPTIMIZERS["sgd"], True)
    assert {changed.captured.variables[one].name for one in changed.unused} == {"m/table:0"}
    writes = sorted(user.op for user, _ in changed.index.consumers(changed.handle("table")))
    assert writes == ["ResourceGather", "ResourceScatterAdd"]
    assert not Trained(OPTIMIZERS["momentum"], True).unused


@pytest.mark.parametrize("name", ["sgd", "momentum"])
def test_an_update_of_a_vector_that_meets_another_workers_is_done_once(name):
    _met(name, ["vector"])


def test_so_is_that_of_a_table_by_sgd():
    _met("sgd", ["table", "vector"])


def _met(name, weights):
    """Both workers read the weights before either writes them: of SGD, what is added is the sum of what each adds alone."""
    begun = Trained(OPTIMIZERS["sgd"], False)
    begun = {"table:0": begun.table.numpy(), "vector:0": begun.vector.numpy()}
    alone = [Trained(OPTIMIZERS[name], False).run(times=1, ids=ids) for ids in (IDS, THEIRS)]
    plain, changed = (Trained(OPTIMIZERS[name], one).run(times=1, met=True) for one in (False, True))
    for one in weights:
        own, theirs = (after[one + ":0"] - begun[one + ":0"] for after in alone)
        if name == "sgd":
            np.testing.assert_allclose(changed[one + ":0"], begun[one + ":0"] + own + theirs, rtol=1e-5)
        # Without the change the step adds what the other has written a second time, and nothing of its own.
        second = changed[one + ":0"] - plain[one + ":0"]
        assert np.abs(second).max() > 1e-3, "they have not met"
