"""Large tables are made on the PS: this process has them when it looks at them, filled as Keras would have filled them."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.keras import unmade
from deeprec_ext.tf_private import eager, keras_classes
from tests.unit.keras import models

keras = tf.keras
ROWS = 500


@pytest.fixture
def waiting(monkeypatch):
    monkeypatch.setattr(unmade, "LARGE_BYTES", 4 * ROWS)
    undo = unmade.begin()
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
    with unmade.Filling().as_default():
        variable = tf.Variable(made())
    assert [node.op for node in unmade.first_of(variable).definition.node] == ["Const", "Const", "Fill"]
    np.testing.assert_array_equal(variable.numpy(), np.full((ROWS, 8), 0.1, "float32"))


def test_values_that_differ_are_not_taken_for_one_number(waiting):
    with unmade.Filling().as_default():
        variable = tf.Variable(tf.ones((ROWS, 8)) * tf.range(8.0))
    assert unmade.first_of(variable) is not None
    np.testing.assert_array_equal(variable.numpy(), np.tile(np.arange(8.0, dtype="float32"), (ROWS, 1)))


def test_a_look_after_a_first_step_that_failed_sees_the_first_values(waiting, elastic):
    plain = make().get_weights()[0]
    elastic()
    model = make()
    model.compile("adagrad", "mse")
    if not models.refuses_ids():
        pytest.skip("this Keras takes the nearest row")
    wrong = np.full((16, 4), ROWS + 7)
    with pytest.raises(Exception, match=r"indices|index|range"):
        model.fit(wrong, np.zeros((16, 1), "float32"), batch_size=16, verbose=0)
    np.testing.assert_array_equal(model.get_weights()[0], plain)


def test_a_write_that_fails_leaves_the_first_values(waiting):
    plain = make().get_weights()[0]
    table = table_of(make())
    with pytest.raises(ValueError, match="shape"):
        table.assign(tf.ones((3, 8)))
    np.testing.assert_array_equal(table.numpy(), plain)


def test_many_threads_that_look_at_once_see_the_same(waiting):
    table, seen = table_of(make()), []
    threads = [threading.Thread(target=lambda: seen.append(table.numpy())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(seen) == 8 and all(one.shape == (ROWS, 8) and (one == seen[0]).all() for one in seen)


def test_an_initializer_of_the_script_is_called_once_for_each_variable(waiting):
    given = iter([np.full((4, 8), 1.0, "float32"), np.full((ROWS, 8), 2.0, "float32")])
    small, large = (
        keras.layers.Embedding(rows, 8, embeddings_initializer=lambda shape, dtype=None: tf.constant(next(given)))
        for rows in (4, ROWS)
    )
    for layer in (small, large):
        layer.build((None, 4))
    assert (small.get_weights()[0] == 1).all() and (large.get_weights()[0] == 2).all()


class FillsAtOnce:
    """As the variables of Keras 3 before 3.5: they call what fills them, and TensorFlow gets the result."""

    def __init__(self, initializer, shape=None, deferred=False):
        self._initializer, self._shape, self.filled = initializer, shape, None
        if not deferred:
            self.filled = initializer(shape, dtype="float32")

    @property
    def seen(self):
        return self._initializer(self._shape, dtype="float32")

    def _deferred_initialize(self):
        self.filled = self._initializer(self._shape, dtype="float32")


def test_keras_3_before_3_5_leaves_it_to_tensorflow_to_fill_variables(monkeypatch):
    monkeypatch.setitem(sys.modules, "keras.src.backend", SimpleNamespace(Variable=FillsAtOnce))
    undo, ones = keras_classes.fill_late(), keras.initializers.Ones()
    later = FillsAtOnce(ones, (2, 3), deferred=True)
    assert later.seen.shape == (2, 3), "a layer that is not built yet is called with numbers"
    later._deferred_initialize()
    for one in (FillsAtOnce(ones, (2, 3)), FillsAtOnce(initializer=ones, shape=(2, 3)), later):
        assert keras_classes.first_shape(one.filled) == (2, 3)
        np.testing.assert_array_equal(one.filled(), np.ones((2, 3)))
    of_script = FillsAtOnce(lambda shape, dtype=None: np.full(shape, 7.0), (2,))
    np.testing.assert_array_equal(of_script.filled, [7.0, 7.0])
    undo()
    np.testing.assert_array_equal(FillsAtOnce(ones, (2,)).filled, [1.0, 1.0])


class Copies(keras.layers.Layer):
    """Reads another layer's table at once, also while a step is traced."""

    def __init__(self, other):
        super().__init__()
        self.others, self.seen = [other], []

    def call(self, inputs):
        with tf.init_scope():
            self.seen.append(np.asarray(self.others[0].get_weights()[0]))
        return inputs


def test_an_eager_look_while_a_step_is_traced_sees_the_first_values(waiting, elastic):
    plain = make().get_weights()[0]
    elastic()
    model = make()
    copies = Copies(model.get_layer("rows"))
    both = keras.Sequential([model, copies])
    both.compile("adagrad", "mse")
    both.fit(batches(), verbose=0)
    assert copies.seen
    np.testing.assert_array_equal(copies.seen[0], plain)


class Large(keras.metrics.Metric):
    """A state as large as a table, which stays in the process."""

    def __init__(self):
        super().__init__(name="large")
        self.sum = self.add_weight(name="sum", shape=(ROWS, 8), initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.sum.assign_add(tf.ones((ROWS, 8)))

    def result(self):
        return tf.reduce_mean(tf.convert_to_tensor(self.sum))

    def reset_state(self):
        pass


def test_a_large_state_of_a_metric_has_its_values(waiting, elastic):
    elastic()
    model = make()
    model.compile("adagrad", "mse", metrics=[Large()])
    assert model.fit(batches(), verbose=0).history["large"] == [6.0]


@pytest.mark.skipif(models.KERAS == 3, reason="Keras 3 keeps averages otherwise")
def test_averages_of_weights_are_kept_as_ever(waiting, elastic):
    elastic()
    model = make()
    model.compile(keras.optimizers.SGD(0.1, use_ema=True), "mse")
    assert np.isfinite(model.fit(batches(), verbose=0).history["loss"]).all()
