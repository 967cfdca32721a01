"""A module's loss and metrics are computed as they are written, within Keras's own step."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.errors import UsageError
from deeprec_ext.modeldef import model as models
from deeprec_ext.modeldef.definition import Definition

keras = tf.keras
X = np.arange(8, dtype=np.float32)[:, None] / 8
Y = np.float32(X[:, 0] > 0.4)


def two_outputs():
    inputs = keras.Input(shape=(1,))
    logits = keras.layers.Dense(1, kernel_initializer="ones", name="dense")(inputs)
    return keras.Model(inputs, {"logits": logits, "probs": keras.layers.Activation("sigmoid")(logits)})


def cross_entropy(labels, predictions):
    return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels[:, None], logits=predictions["logits"])


def definition(**parts) -> Definition:
    found = {
        "feed": lambda dataset, mode: dataset, "loss": cross_entropy, "optimizer": lambda: keras.optimizers.SGD(0.5),
        "model": two_outputs, **parts,
    }  # fmt: skip
    return Definition("m", **found)


def test_a_loss_of_all_outputs_trains_as_one_by_hand():
    model = models.make(definition(), "train")
    by_hand = two_outputs()
    optimizer = keras.optimizers.SGD(0.5)
    for _ in range(5):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(cross_entropy(Y, by_hand(X)))
        optimizer.apply_gradients(zip(tape.gradient(loss, by_hand.trainable_variables), by_hand.trainable_variables))
        told = model.train_on_batch(X, Y, return_dict=True)
        model.reset_metrics()
    assert told["loss"] == pytest.approx(float(loss), abs=1e-6)
    np.testing.assert_allclose(model.get_weights()[0], by_hand.get_weights()[0], rtol=1e-6)


def test_metrics_of_outputs_by_function_and_by_keras():
    metrics = {
        "logits": {"accuracy": lambda labels, logits: tf.equal(logits[:, 0] > 0.0, labels > 0.5)},
        "probs": {"auc": keras.metrics.AUC()},
    }
    model = models.make(definition(eval_metrics_fn=lambda: metrics), "train")
    found = model.evaluate(X, Y, batch_size=3, return_dict=True, verbose=0)
    assert found["logits_accuracy"] == pytest.approx(np.mean((X[:, 0] > 0) == (Y > 0.5)))
    assert found["probs_auc"] == pytest.approx(1.0)
    assert model.evaluate(X, Y, batch_size=8, return_dict=True, verbose=0) == pytest.approx(found), "each begins anew"


def test_a_loss_that_is_one_number_is_that_number():
    assert float(models.mean_loss(tf.constant(3.0))) == 3.0
    assert float(models.mean_loss(tf.constant([1.0, 3.0]))) == 2.0
    assert float(models.mean_loss(tf.constant([[1.0], [3.0]]), [1.0, 0.0])) == 0.5


def test_regularisation_counts():
    def regular():
        inputs = keras.Input(shape=(1,))
        layer = keras.layers.Dense(1, kernel_initializer="ones", kernel_regularizer=keras.regularizers.L2(0.5))
        return keras.Model(inputs, {"logits": layer(inputs)})

    told = models.make(definition(model=regular), "train").test_on_batch(X, Y, return_dict=True)
    plain = models.make(definition(), "train").test_on_batch(X, Y, return_dict=True)
    assert told["loss"] == pytest.approx(plain["loss"] + 0.5)


def test_a_model_with_a_step_of_its_own_keeps_it():
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def call(self, inputs):
            return self.dense(inputs)

        def train_step(self, data):
            return {"mine": tf.constant(7.0)}

    model = models.make(definition(model=Own, loss=lambda labels, predicted: tf.square(predicted)), "train")
    assert model.train_on_batch(X, Y, return_dict=True) == {"mine": 7.0}


def test_a_model_that_is_compiled_needs_neither_loss_nor_optimizer():
    def compiled():
        inputs = keras.Input(shape=(1,))
        model = keras.Model(inputs, keras.layers.Dense(1)(inputs))
        model.compile("sgd", "mse")
        return model

    metrics = {"mean": lambda labels, predictions: labels}
    model = models.make(definition(model=compiled, loss=None, optimizer=None, eval_metrics_fn=lambda: metrics), "train")
    told = model.train_on_batch(X, Y, return_dict=True)
    assert told["mean"] == pytest.approx(Y.mean()) and told["loss"] > 0


@pytest.mark.parametrize(
    ("parts", "what"),
    [
        ({"model": lambda: 3}, "gave int, and not a keras.Model"),
        ({"loss": None}, "m has no loss"),
        ({"optimizer": None}, "m has no optimizer"),
        ({"eval_metrics_fn": lambda: {"auc": 3}}, "auc is neither a metric of Keras nor a function"),
    ],
    ids=["model", "loss", "optimizer", "metric"],
)
def test_what_cannot_be_is_said_before_it_trains(parts, what):
    with pytest.raises(UsageError, match=what):
        models.make(definition(**parts), "train")


def test_a_metric_of_an_output_that_there_is_not():
    metrics = {"scores": {"auc": keras.metrics.AUC()}}
    model = models.make(definition(eval_metrics_fn=lambda: metrics), "train")
    with pytest.raises(UsageError, match="the output 'scores'"):
        model.test_on_batch(X, Y)


def test_the_only_feature_of_a_model_with_one_input_may_have_any_name():
    def feed(dataset, mode):
        return dataset.map(lambda value: ({"feature": value}, value))

    given = definition(feed=feed)
    found = models.suited(given, models.make(given, "train")).feed(tf.data.Dataset.from_tensors(X), "training", None)
    features, _ = next(iter(found))
    assert features.shape == X.shape
    inputs = [keras.Input((1,)), keras.Input((1,))]
    assert models.suited(given, keras.Model(inputs, keras.layers.Add()(inputs))) is given


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.columns = keras.layers.DenseFeatures([tf.feature_column.embedding_column(
            tf.feature_column.categorical_column_with_hash_bucket("town", 50), 4)])  # fmt: skip
        self.dense = keras.layers.Dense(1)

    def call(self, inputs):
        return self.dense(self.columns(inputs))


def test_weights_come_back_into_a_subclassed_model_with_feature_columns(tmp_path):
    batch = {"town": tf.constant([["a"], ["b"], ["c"]])}
    model = Subclassed()
    expected = model(batch).numpy()
    models.save(model, str(tmp_path / "out"))
    again = Subclassed()
    models.build(again, batch)
    assert not np.allclose(again(batch), expected)
    models.load_weights(again, str(tmp_path / "out"))
    np.testing.assert_array_equal(again(batch), expected)
    served = tf.saved_model.load(str(tmp_path / "out" / models.EXPORTED))
    np.testing.assert_allclose(served.serve(batch), expected, rtol=1e-6)


def test_weights_of_another_model_or_nowhere(tmp_path):
    model = two_outputs()
    with pytest.raises(UsageError, match=r"--weights .*there is no"):
        models.load_weights(model, str(tmp_path))
    models.save(
        keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), keras.layers.Dense(2)]), str(tmp_path / "a")
    )
    with pytest.raises(UsageError, match="not of this model"):
        models.load_weights(model, str(tmp_path / "a"))
