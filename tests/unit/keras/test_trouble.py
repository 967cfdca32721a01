"""What goes wrong in a script: input that ends, callbacks that raise, batches that cannot be. Keras's own messages stay."""

from __future__ import annotations

import logging
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.keras import opening
from tests.unit.keras import models

keras = tf.keras
L = keras.layers


def batches(count):
    x, y = models.records(models.dense, count)
    for number in range(count):
        part = slice(number * models.BATCH, (number + 1) * models.BATCH)
        yield x[part], y[part]


def compiled(**words):
    """With an optimizer that does not look at its own count of steps: plain Keras counts one more where its input ends."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(3)
    model = models.dense()
    model.compile("adagrad", "mse", **words)
    return model


@pytest.mark.parametrize("per_execution", [1, 4])
def test_a_generator_that_ends_early_ends_fit_as_in_plain_keras(elastic, caplog, per_execution):
    def train():
        model = compiled(steps_per_execution=per_execution)
        history = model.fit(batches(7), steps_per_epoch=8, epochs=3, verbose=0).history
        return history, int(model.optimizer.iterations)

    with caplog.at_level(logging.WARNING), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        plain, _ = train()
        elastic()
        # Keras 2 ends `fit`; Keras 3 has epochs of what little it finds, and here no more steps than there are batches for.
        assert train() == ({"loss": plain["loss"][:1]}, 7)
    said = [record.getMessage() for record in caplog.records] + [str(one.message) for one in warned]
    told = sum("ran out of data" in text for text in said)
    assert told >= 2


def test_a_dataset_of_unknown_length(elastic):
    def train():
        model, losses = compiled(), models.Losses()
        data = models.dataset(models.dense, 6).filter(lambda x, y: True)
        model.fit(data, epochs=2, validation_data=data, callbacks=[losses], verbose=0)
        return losses.seen, int(model.optimizer.iterations)

    plain, _ = train()
    elastic()
    assert train() == (plain, 12)


def test_fit_goes_on_after_a_callback_that_raised(elastic):
    class Raises(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 2:
                raise KeyError("of the script")

    def train():
        model, losses = compiled(), models.Losses()
        data = models.dataset(models.dense, 6)
        with pytest.raises(KeyError, match="of the script"):
            model.fit(data, callbacks=[losses, Raises()], verbose=0)
        model.fit(data, callbacks=[losses], verbose=0)
        return losses.seen, int(model.optimizer.iterations)

    plain = train()
    elastic()
    assert train() == plain and plain[1] == 9


def test_fit_goes_on_after_a_batch_that_cannot_be(elastic):
    """An id beyond the table, which a PS refuses, and a label beyond the classes, which this process does."""

    def train():
        keras.backend.clear_session()
        keras.utils.set_random_seed(3)
        model = keras.Sequential([L.Input((1,), dtype="int32"), L.Embedding(10, 4), L.Flatten(), L.Dense(3)])
        model.compile("adagrad", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        ids, labels = np.arange(8).reshape([8, 1]), np.arange(8) % 3
        for wrong in ((ids + 9, labels), (ids, labels + 9)):
            with pytest.raises(tf.errors.InvalidArgumentError):
                model.fit(*wrong, verbose=0)
        return model.fit(ids, labels, epochs=2, shuffle=False, verbose=0).history, int(model.optimizer.iterations)

    plain = train()
    elastic()
    assert train() == plain


def test_a_small_model_is_written_more_often():
    variables = [SimpleNamespace(shape=tf.TensorShape([1 << 20, rows]), dtype=tf.float32) for rows in (1, 64)]
    assert [opening.save_seconds(variables[:count]) for count in (1, 2)] == [60.0, 600.0]
