"""A step without PS whose batches are computed one after the other is the step of the whole batch."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.allreduce.summing import Summed
from deeprec_ext.keras.in_step.home import Model
from deeprec_ext.keras.in_step.model import Collected, InStep
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.keras import models

keras = tf.keras


class Member:
    """Alone in its ring; keeps what it has summed."""

    def __init__(self, most: int) -> None:
        self.settings = pb.AgentSettings(worker_batch_max=most, rate_scaling="none")
        self.step, self.weights, self.shares = 0, [], []

    def anew(self) -> None:
        pass

    def sum(self, arrays, weight, **words):
        self.step += 1
        self.weights.append(weight)
        self.shares.append(words.get("share", 1.0))
        means = [np.array(one) if weight else np.zeros_like(one) for one in arrays]
        return Summed(means, weight, self.step, True, True)


def made(build, optimizer, most):
    model = build()
    model.compile(optimizer(), "mse")
    home = SimpleNamespace(state=Model(), member=Member(most), chief=True, refused=print)
    return model, InStep(home, models.generation, SimpleNamespace(look=lambda *one: None)), home


@pytest.mark.parametrize("optimizer", [
    lambda: keras.optimizers.SGD(0.05), lambda: keras.optimizers.Adam(0.01, clipnorm=0.1),
    lambda: keras.optimizers.Adagrad(0.1),
])  # fmt: skip
def test_a_step_in_parts_is_the_step_of_all_its_records(optimizer) -> None:
    random = np.random.default_rng(1)
    x, y = random.normal(size=(36, 20)).astype("float32"), random.normal(size=(36, 1)).astype("float32")
    plain = models.dense()
    plain.compile(optimizer(), "mse")
    model, door, home = made(models.dense, optimizer, 4)
    model.set_weights(plain.get_weights())
    spec = (tf.TensorSpec((None, 20)), tf.TensorSpec((None, 1)))
    prepared = door.prepare(model, "train", spec, None)
    for start in range(0, 36, 12):
        plain.train_on_batch(x[start : start + 12], y[start : start + 12])
        before = model.get_weights()
        for part in range(3):
            door.records, door.collects = 4, part < 2
            rows = slice(start + 4 * part, start + 4 * part + 4)
            door.run(prepared, [x[rows], y[rows]], train=True)
            if part < 2:
                assert door.summed is None or door.summed.step == start // 12
                for one, other in zip(model.get_weights(), before):
                    np.testing.assert_array_equal(one, other)
    assert home.member.weights == [12, 12, 12] and int(model.optimizer.iterations.numpy()) == 3
    for one, other in zip(model.get_weights(), plain.get_weights()):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_who_finds_no_more_batches_gives_what_it_has_collected_and_what_is_stale_counts_nothing() -> None:
    model, door, home = made(models.batch_norm, lambda: keras.optimizers.SGD(0.05), 4)
    spec = (tf.TensorSpec((None, 20)), tf.TensorSpec((None, 1)))
    prepared = door.prepare(model, "train", spec, None)
    batch = [np.ones((4, 20), np.float32), np.ones((4, 1), np.float32)]
    door.records, door.collects = 4, True
    door.run(prepared, batch, train=True)
    assert home.member.weights == [] and not door.stale
    door.idle()
    assert home.member.weights == [4] and int(model.optimizer.iterations.numpy()) == 1
    door.run(prepared, batch, train=True)
    home.state.put([*home.state.take()])  # the model of others
    assert door.stale
    door.drop()
    door.idle()
    assert home.member.weights == [4, 0] and not door.stale
    assert int(model.optimizer.iterations.numpy()) == 1


class Halves(keras.Model):
    """One half of it after the other, as a GAN."""

    def __init__(self):
        super().__init__()
        self.one, self.normal, self.other = (
            keras.layers.Dense(8),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(1),
        )

    def compile(self):
        super().compile(keras.optimizers.Adam(0.01), "mse")
        self.second = keras.optimizers.SGD(0.05, momentum=0.9)

    def call(self, x, training=False):
        return self.other(self.normal(self.one(x), training=training))

    def train_step(self, data):
        x, y = data
        for optimizer, layer in ((self.optimizer, self.one), (self.second, self.other), (self.optimizer, self.one)):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
            weights = layer.trainable_weights
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        return {"loss": loss}


def halves():
    model = Halves()
    model(tf.zeros((1, 20)))
    model.compile()
    return model, [tf.TensorSpec((None, 20)), tf.TensorSpec((None, 1))]


def test_a_step_with_several_optimizers_is_that_of_plain_keras() -> None:
    random = np.random.default_rng(1)
    (plain, spec), (model, _) = halves(), halves()
    model.set_weights(plain.get_weights())
    home = SimpleNamespace(state=Model(), member=Member(0), chief=True, refused=print)
    door = InStep(home, models.generation, SimpleNamespace(look=lambda *one: None))
    prepared = door.prepare(model, "train", tuple(spec), None)
    for _ in range(4):
        x, y = random.normal(size=(8, 20)).astype("float32"), random.normal(size=(8, 1)).astype("float32")
        plain.train_on_batch(x, y)
        door.run(prepared, [x, y], train=True)
        assert not door.between and door.summed.counted
    assert home.member.step == 12 and home.member.shares == [1 / 3] * 12  # their records count once
    for one, other in zip(model.get_weights(), plain.get_weights()):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_who_was_away_makes_the_rest_of_a_step_with_the_others_and_gives_its_batch_back() -> None:
    model, spec = halves()
    home = SimpleNamespace(state=Model(), member=Member(0), chief=True, refused=print)
    door = InStep(home, models.generation, SimpleNamespace(look=lambda *one: None))
    prepared = door.prepare(model, "train", tuple(spec), None)
    batch = [np.ones((8, 20), np.float32), np.ones((8, 1), np.float32)]
    door.run(prepared, batch, train=True)
    plain_sum, others = home.member.sum, [np.array(one) for one in home.state.take()]

    def of_others(arrays, weight, **words):
        """They are at the second sum of a step, and have this process take what they have."""
        home.member.sum = plain_sum
        *state, _, rate = others
        home.state.put([*state, np.array(1), rate])
        summed = plain_sum([np.ones_like(one) for one in arrays], 8)
        return Summed(summed.arrays, 8, summed.step, False, True)

    home.member.sum, home.member.weights = of_others, []
    assert door.run(prepared, batch, train=True) is None
    assert not door.between and not door.summed.counted and home.member.weights == [8, 0]
    counts = [int(one.iterations.numpy()) for one in (model.optimizer, model.second)]
    assert counts == [2, 2], "the third sum was of nothing: nobody had anything, and nothing is applied"
    door.run(prepared, batch, train=True)
    assert door.summed.counted and not door.between


def test_what_one_optimizer_has_written_is_there_when_the_next_is_summed() -> None:
    """Also where both have their gradients of the weights before: others may be given the state in that sum."""
    (model, spec), seen = halves(), []

    def at_once(data):
        x, y = data
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        for optimizer, layer in ((model.optimizer, model.one), (model.second, model.other)):
            weights = layer.trainable_weights
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        return {"loss": loss}

    model.train_step = at_once
    home = SimpleNamespace(state=Model(), member=Member(0), chief=True, refused=print)
    door = InStep(home, models.generation, SimpleNamespace(look=lambda *one: None))
    prepared = door.prepare(model, "train", tuple(spec), None)
    plain_sum = home.member.sum

    def watched(arrays, weight, **words):
        seen.append((home.state.site, int(model.optimizer.iterations.numpy())))
        return plain_sum(arrays, weight, **words)

    home.member.sum = watched
    batch = [np.ones((8, 20), np.float32), np.ones((8, 1), np.float32)]
    for _ in range(20):
        door.run(prepared, batch, train=True)
    assert seen == [(site, step + site) for step in range(20) for site in range(2)]


def test_gradients_are_added_by_records_and_of_statistics_the_last_count() -> None:
    one = Collected(0, statistics=1)
    one.add([np.float32([1, 2]), np.float32([7])], 1)
    one.add([np.float32([4, 5]), np.float32([9])], 2)
    gradients, statistic = one.mean()
    np.testing.assert_array_equal(gradients, np.float32([3, 4]))
    np.testing.assert_array_equal(statistic, np.float32([9]))
    assert one.weight == 3
