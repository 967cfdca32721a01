"""Steps that users write: several optimizers, conditions, random numbers, losses that are scaled, states of their own."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.keras import ownership
from tests.unit.keras import models

keras = tf.keras
L = keras.layers


class Two(keras.Model):
    """Two halves with an optimizer each, one of which steps every other time, and metrics of its own."""

    def __init__(self):
        super().__init__()
        self.one, self.other = L.Dense(8, activation="tanh"), L.Dense(1)
        self.rarely = keras.metrics.Sum(name="rarely")
        self.count = tf.Variable(0, trainable=False)

    def compile(self):
        super().compile()
        self.first, self.second = keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.01)

    def call(self, x, training=False):
        return self.other(self.one(x))

    def note(self, loss):
        self.rarely.update_state(loss)
        return 0

    def train_step(self, data):
        x, y = data
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_mean(tf.square(self(x) - y))
        self.first.apply_gradients(zip(tape.gradient(loss, self.one.weights), self.one.weights))
        self.count.assign_add(1)
        tf.cond(self.count % 2 == 0, lambda: self.note(loss), lambda: 0)
        gradients = [tf.where(self.count % 2 == 0, one, 0.0) for one in tape.gradient(loss, self.other.weights)]
        self.second.apply_gradients(zip(gradients, self.other.weights))
        return {"loss": loss, "rarely": self.rarely.result(), "count": self.count}


class Gan:
    """Two models that share weights, trained in turn, batch by batch."""

    def __init__(self):
        self.critic = keras.Sequential([L.Input((20,)), L.Dense(8, activation="relu"), L.Dense(1)], name="critic")
        self.critic.compile(keras.optimizers.Adam(0.01), "mse")
        maker = keras.Sequential([L.Input((20,)), L.Dense(20)], name="maker")
        self.both = keras.Sequential([maker, self.critic], name="both")
        self.critic.trainable = False
        self.both.compile(keras.optimizers.Adam(0.01), "mse")

    def trained(self, x, y):
        return [self.step(one, x, y) for _ in range(5) for one in (self.critic, self.both)]

    def step(self, model, x, y):
        self.critic.trainable = model is self.critic  # Keras 3 looks when it traces, Keras 2 when it compiles
        return np.ravel(model.train_on_batch(x, y)).tolist()  # Keras 3.5 gives the loss twice, of the model inside too


class Outer(keras.Model):
    """With a compiled model inside, whose own optimizer trains that."""

    def __init__(self):
        super().__init__()
        self.inner, self.top = keras.Sequential([L.Input((20,)), L.Dense(8, activation="tanh")]), L.Dense(1)
        self.inner.compile(keras.optimizers.Adam(0.01), "mse")

    def call(self, x, training=False):
        return self.top(self.inner(x))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_mean(tf.square(self(x) - y))
        for optimizer, part in ((self.inner.optimizer, self.inner), (self.optimizer, self.top)):
            optimizer.apply_gradients(zip(tape.gradient(loss, part.trainable_weights), part.trainable_weights))
        return {"loss": loss}


class Compiled(keras.Sequential):
    """With a function that asks for XLA, has a condition, and reads and writes a variable."""

    @tf.function(jit_compile=True)
    def scaled(self, x):
        self.factor.assign_add(0.5)
        return tf.cond(self.factor > 2.0, lambda: x * self.factor, lambda: x)

    def train_step(self, data):
        x, y = data
        return super().train_step((self.scaled(x), y))


def plain_and_elastic(elastic, train):
    results = []
    for prepare in (lambda: None, elastic):
        prepare()
        keras.backend.clear_session()
        keras.utils.set_random_seed(3)
        results.append(train())
    return results


def fitted(model, epochs=2, steps=6):
    losses = models.Losses()
    model.fit(models.dataset(models.dense, steps), epochs=epochs, callbacks=[losses], verbose=0)
    return losses.seen


def test_two_optimizers_and_a_condition(elastic):
    def train():
        model = Two()
        model.compile()
        return fitted(model)

    plain, seen = plain_and_elastic(elastic, train)
    assert seen == plain


def test_what_an_optimizer_of_a_model_inside_keeps_is_on_the_ps(elastic):
    def train():
        model = Outer()
        model.compile(keras.optimizers.Adam(0.01))
        return model, fitted(model)

    (_, plain), (model, seen) = plain_and_elastic(elastic, train)
    assert seen == plain
    door = model.train_function._door
    moments = [one for one in models.generation.optimizer_variables(model) if one.shape.rank]
    assert len(moments) == 8 and all(ownership.key(one) in door.steps.shared for one in moments)


def test_a_function_that_asks_for_xla_is_done_without_and_a_line_says_so(elastic, caplog):
    def train():
        model = Compiled([L.Input((20,)), L.Dense(1)])
        model.factor = tf.Variable(0.5, trainable=False)
        model.compile("sgd", "mse")
        return [one["loss"] for one in fitted(model)]

    with caplog.at_level(logging.INFO):
        plain, seen = plain_and_elastic(elastic, train)
    np.testing.assert_allclose(seen, plain, rtol=1e-5)
    assert caplog.text.count("jit_compile of scaled is left out") == 1


def test_jit_compile_of_a_model_is_left_out_and_a_line_says_so(elastic, caplog, monkeypatch):
    def train(**words):
        keras.backend.clear_session()
        keras.utils.set_random_seed(3)
        model = models.dense()
        model.compile("sgd", "mse", **words)
        return fitted(model)

    expected = train()
    elastic()
    monkeypatch.undo()
    with caplog.at_level(logging.INFO):
        assert train(jit_compile=True) == expected
    assert caplog.text.count("jit_compile of the model is left out") == 1


def test_two_models_that_share_weights(elastic):
    x, y = models.records(models.dense, 1)
    plain, seen = plain_and_elastic(elastic, lambda: Gan().trained(x, y))
    assert seen == plain


def test_mixed_precision_with_a_scaled_loss(elastic):
    def train():
        keras.mixed_precision.set_global_policy("mixed_float16")
        try:
            model = keras.Sequential([L.Input((20,)), L.Dense(16, activation="relu"), L.Dense(1, dtype="float32")])
            model.compile(keras.optimizers.Adam(0.01), "mse")
            return fitted(model, epochs=1), [np.asarray(one) for one in model.get_weights()]
        finally:
            keras.mixed_precision.set_global_policy("float32")

    (plain, weights), (seen, others) = plain_and_elastic(elastic, train)
    assert seen == plain
    for one, other in zip(weights, others):
        np.testing.assert_array_equal(one, other)


def test_random_numbers_of_a_generator_go_on(elastic):
    class Noisy(keras.Sequential):
        def train_step(self, data):
            x, y = data
            return super().train_step((x + self.noise.normal(tf.shape(x)), y))

    def train():
        model = Noisy([L.Input((20,)), L.Dense(1)])
        model.noise = tf.random.Generator.from_seed(1)
        model.compile("sgd", "mse")
        return fitted(model)

    plain, seen = plain_and_elastic(elastic, train)
    assert seen == plain


def test_a_recurrent_layer_keeps_its_state_from_batch_to_batch(elastic):
    def train():
        model = keras.Sequential([L.Input((4, 5), batch_size=models.BATCH), L.SimpleRNN(3, stateful=True), L.Dense(1)])
        model.compile("sgd", "mse")
        x, y = models.records(models.dense, 6)
        losses = models.Losses()
        model.fit(x.reshape(-1, 4, 5), y, batch_size=models.BATCH, shuffle=False, callbacks=[losses], verbose=0)
        return [one["loss"] for one in losses.seen]

    plain, seen = plain_and_elastic(elastic, train)
    np.testing.assert_allclose(seen, plain, rtol=1e-6)


def test_a_callback_of_the_scripts_own_sees_and_changes_the_model(elastic):
    class Halves(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            kernel = self.model.layers[-1].kernel
            kernel.assign(kernel / 2)

    def train():
        model = models.dense()
        model.compile("adam", "mse", metrics=["mae"])
        losses = models.Losses()
        schedule = keras.callbacks.LearningRateScheduler(lambda epoch: 0.01 / (1 + epoch))
        stop = keras.callbacks.EarlyStopping("val_loss", patience=0, min_delta=1e9)
        data = models.dataset(models.dense, 6)
        history = model.fit(
            data, epochs=9, validation_data=data, callbacks=[losses, Halves(), schedule, stop], verbose=0
        )
        return losses.seen, history.history

    plain, seen = plain_and_elastic(elastic, train)
    assert seen == plain and len(seen[1]["loss"]) == 2


@pytest.mark.parametrize(
    "words", [{"class_weight": {0: 1.0, 1: 5.0}}, {"validation_split": 0.25}, {"steps_per_epoch": 3}]
)
def test_what_fit_takes_is_keras_affair(elastic, words):
    def train():
        model = models.dense()
        model.compile("adam", "mse")
        x, y = models.records(models.dense, 8)
        return model.fit(
            x, (y > 0).astype("float32"), epochs=2, batch_size=32, shuffle=False, verbose=0, **words
        ).history

    plain, seen = plain_and_elastic(elastic, train)
    assert seen == plain


def test_a_batch_that_does_not_fit_is_keras_error(elastic):
    elastic()
    model = models.dense()
    model.compile("adam", "mse")
    with pytest.raises(ValueError, match="incompatible"):
        model.fit(np.zeros([8, 3]), np.zeros([8, 1]), verbose=0)
    if not models.refuses_ids():
        return
    ids = keras.Sequential([L.Input((1,), dtype="int32"), L.Embedding(10, 2), L.Flatten(), L.Dense(1)])
    ids.compile("sgd", "mse")
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"99 is not in \[0, 10\)"):
        ids.fit(np.full([8, 1], 99), np.zeros([8, 1]), verbose=0)
