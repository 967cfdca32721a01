"""Large tables are made on the PS: this process has them when it looks at them, filled as Keras would have filled them."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.keras import unmade
from deeprec_ext.tf_private import eager
from tests.unit.keras import models

keras = tf.keras
ROWS = 500


@pytest.fixture
def waiting(monkeypatch):
    monkeypatch.setattr(unmade, "LARGE_BYTES", 4 * ROWS)
    undo = eager.variables_by(unmade.create)
    yield
    undo()


def make():
    keras.backend.clear_session()
    keras.utils.set_random_seed(3)
    ids = keras.Input((4,), dtype="int64")
    rows = keras.layers.Embedding(ROWS, 8, name="rows")(ids)
    hidden = keras.layers.Dense(4, activation="relu")(keras.layers.Flatten()(rows))
    return keras.Model(ids, keras.layers.Dense(1)(hidden))


def batches():
    ids = tf.random.stateless_uniform([96, 4], [1, 2], maxval=ROWS, dtype=tf.int64)
    return tf.data.Dataset.from_tensor_slices((ids, tf.cast(ids[:, :1] % 2, tf.float32))).batch(16)


def table_of(model):
    found = model.get_layer("rows").embeddings
    return getattr(found, "_value", found) if models.KERAS == 3 else found


def state_of(model):
    return [getattr(one, "_value", one) if models.KERAS == 3 else one for one in model.optimizer.variables]


def looks(shape):
    return tf.constant(tf.random.stateless_normal(shape, [1, 2]).numpy())


def stored(variable):
    """Numbers that are in this process; TensorFlow reads a variable that has none as an empty tensor."""
    return eager.raw_value(variable).size


def test_a_table_has_no_storage_until_somebody_looks_at_it(waiting):
    model = make()
    table = table_of(model)
    assert unmade.first_of(table) is not None and tuple(table.shape) == (ROWS, 8)
    assert stored(table) == 0
    seen = np.asarray(model.get_weights()[0])
    assert unmade.first_of(table) is None and seen.std() > 0.02
    np.testing.assert_array_equal(eager.raw_value(table), seen)


def test_what_it_has_then_is_what_plain_keras_fills_it_with(waiting, monkeypatch):
    own = make().get_weights()
    monkeypatch.setattr(unmade, "LARGE_BYTES", 1 << 40)
    for mine, plain in zip(own, make().get_weights()):
        np.testing.assert_array_equal(mine, plain)


def test_a_model_is_called_and_its_weights_are_set_as_ever(waiting):
    model, ids = make(), np.arange(8).reshape(2, 4)
    first = model(ids).numpy()
    assert first.shape == (2, 1) and first.any()
    other = make()
    other.set_weights(model.get_weights())
    np.testing.assert_array_equal(other(ids).numpy(), first)


@pytest.mark.parametrize("optimizer", ["adagrad", "adam", "sgd", "ftrl", "rmsprop"])
def test_it_trains_on_the_ps_as_in_plain_keras_and_is_never_here(waiting, elastic, optimizer, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(unmade, "LARGE_BYTES", 1 << 40)
        plain = make()
        plain.compile(optimizer, "mse")
        losses = plain.fit(batches(), epochs=2, verbose=0).history["loss"]
    elastic()
    model = make()
    model.compile(optimizer, "mse")
    here = model.fit(batches(), epochs=2, verbose=0).history["loss"]
    np.testing.assert_allclose(here, losses, rtol=1e-5)
    large = [table_of(model), *(one for one in state_of(model) if one.shape.num_elements() == ROWS * 8)]
    assert len(large) >= 1 + (optimizer != "sgd")
    for one in large:
        assert stored(one) == 0
    np.testing.assert_allclose(model.get_weights()[0], plain.get_weights()[0], rtol=1e-4, atol=1e-6)


def test_what_is_filled_from_an_array_or_by_chance_is_made_as_ever(waiting):
    given = np.arange(ROWS * 8, dtype="float32").reshape(ROWS, 8)
    monkey = keras.layers.Embedding(ROWS, 8, embeddings_initializer=lambda shape, dtype=None: tf.random.normal(shape))
    monkey.build((None, 4))
    eagerly = keras.layers.Embedding(ROWS, 8, embeddings_initializer=lambda shape, dtype=None: looks(shape))
    eagerly.build((None, 4))
    for layer in (monkey, eagerly):
        assert unmade.first_of(layer.embeddings if models.KERAS == 2 else layer.embeddings._value) is None
    assert eagerly.get_weights()[0].any()
    variable = tf.Variable(given)
    assert unmade.first_of(variable) is None


@pytest.mark.parametrize("made", [
    lambda: 0.1 * tf.ones((ROWS, 8)), lambda: tf.zeros((ROWS, 8)) + 0.1, lambda: tf.broadcast_to(0.1, (ROWS, 8)),
    lambda: tf.cast(tf.fill((ROWS, 8), tf.constant(0.1, tf.float64)), tf.float32),
])  # fmt: skip
def test_one_number_is_filled_where_it_is_wanted_and_never_folded_in_the_chief(waiting, made):
    variable = tf.Variable(made)
    assert [node.op for node in unmade.first_of(variable).definition.node] == ["Const", "Const", "Fill"]
    np.testing.assert_array_equal(variable.numpy(), np.full((ROWS, 8), 0.1, "float32"))


def test_values_that_differ_are_not_taken_for_one_number(waiting):
    variable = tf.Variable(lambda: tf.ones((ROWS, 8)) * tf.range(8.0))
    assert unmade.first_of(variable) is not None
    np.testing.assert_array_equal(variable.numpy(), np.tile(np.arange(8.0, dtype="float32"), (ROWS, 1)))


def test_a_look_after_a_first_step_that_failed_sees_the_first_values(waiting, elastic):
    plain = make().get_weights()[0]
    elastic()
    model = make()
    model.compile("adagrad", "mse")
    wrong = np.full((16, 4), ROWS + 7)
    with pytest.raises(Exception, match=r"indices|index|range"):
        model.fit(wrong, np.zeros((16, 1), "float32"), batch_size=16, verbose=0)
    np.testing.assert_array_equal(model.get_weights()[0], plain)
