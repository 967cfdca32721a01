"""What cannot be elastic is refused by name, before anything trains."""

from __future__ import annotations

import pytest
import tensorflow as tf

from deeprec_ext.errors import RefusedError
from deeprec_ext.keras import refusing
from tests.unit.keras import models

keras = tf.keras


def refused(host, model, match):
    with pytest.raises(RefusedError, match=match):
        model.fit(models.dataset(models.dense, 2), verbose=0)
    return host.refusals


def test_run_eagerly(elastic, host):
    elastic()
    model = models.dense()
    model.compile("sgd", "mse", run_eagerly=True)
    assert refused(host, model, "leave it out of compile")
    model.compile("sgd", "mse")
    tf.config.run_functions_eagerly(True)
    try:
        assert refused(host, model, "run_functions_eagerly")
    finally:
        tf.config.run_functions_eagerly(False)


def test_batches_of_the_script_are_refused_as_fit_is(elastic, host):
    elastic()
    model = models.dense()
    model.compile("sgd", "mse", run_eagerly=True)
    x, y = next(iter(models.dataset(models.dense, 1)))
    with pytest.raises(RefusedError, match="leave it out of compile"):
        model.train_on_batch(x, y)
    assert len(host.refusals) == 1


def test_a_scope_of_tf_distribute(elastic, host):
    elastic()
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        model = models.dense()
        model.compile("sgd", "mse")
    assert refused(host, model, "scope of a OneDeviceStrategy")


def test_a_way_of_its_own_to_make_steps(elastic, host):
    class Own(keras.Sequential):
        def make_train_function(self, force=False):
            return super().make_train_function(force)

    elastic()
    model = Own([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    assert refused(host, model, "Own overrides make_train_function")


@pytest.mark.skipif(models.KERAS != 3, reason="Keras 2 has none")
def test_gradients_that_are_added_up_over_steps(elastic, host):
    elastic()
    model = models.dense()
    if "gradient_accumulation_steps" not in vars(keras.optimizers.Adam()):
        pytest.skip("optimizers of this Keras have none")
    model.compile(keras.optimizers.Adam(gradient_accumulation_steps=4), "mse")
    assert refused(host, model, "so many times the batch_size")


def test_a_model_of_another_keras(elastic, host, monkeypatch):
    elastic()
    model = models.dense()
    model.compile("sgd", "mse")
    monkeypatch.setattr(refusing, "is_of_this_keras", lambda model: False)
    assert refused(host, model, "TF_USE_LEGACY_KERAS=1")


def test_a_lookup_table_within_the_model(elastic, host):
    elastic()
    words = keras.Input((1,), dtype=tf.string)
    ids = keras.layers.StringLookup(vocabulary=["a", "b"])(words)
    model = keras.Model(words, keras.layers.Dense(1)(keras.layers.Embedding(3, 2)(ids)))
    model.compile("sgd", "mse")
    with pytest.raises(RefusedError, match=r"LookupTableFindV2 of .*string_lookup.*dataset\.map"):
        model.fit(tf.constant([["a"], ["b"]]), tf.constant([[0.0], [1.0]]), verbose=0)
    assert len(host.refusals) == 1
