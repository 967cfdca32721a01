"""Arrays given to `fit`: leased by row, and otherwise as in plain Keras."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.data.readers.base import Shard
from deeprec_ext.keras.leased import digests
from deeprec_ext.keras.leased.arrays import rows_of
from tests.unit.keras import models

keras = tf.keras
L = keras.layers


def compiled(make=models.dense, optimizer="adam", **words):
    keras.backend.clear_session()
    keras.utils.set_random_seed(3)
    model = make()
    model.compile(optimizer, "mse", **{"metrics": ["mae"], **words})
    return model


def trained(make=models.dense, rows=7 * models.BATCH + 5, words=None, **given):
    """What a callback and the history saw, and the weights."""
    model, losses = compiled(make, **(words or {})), models.Losses()
    x, y = models.records(make, -(-rows // models.BATCH))
    x = x[:rows] if isinstance(x, np.ndarray) else tuple(one[:rows] for one in x)
    history = model.fit(x, y[:rows], callbacks=[losses], verbose=0, shuffle=False, **{"epochs": 2, **given})
    return losses.seen, history.history, [one.tolist() for one in model.get_weights()]


@pytest.mark.parametrize("make", [models.dense, models.wide_deep])
def test_in_order_the_batches_are_those_of_plain_keras(elastic, make):
    plain = trained(make)
    elastic()
    assert trained(make) == plain


@pytest.mark.parametrize(
    "given",
    [
        {"validation_split": 0.25, "batch_size": 16},
        {"sample_weight": np.linspace(0, 2, 7 * models.BATCH + 5)},
        {"validation_data": models.records(models.dense, 2), "initial_epoch": 1, "epochs": 4, "validation_freq": 2},
        {"validation_split": 0.5, "sample_weight": np.linspace(0, 2, 7 * models.BATCH + 5), "validation_batch_size": 10},
    ],
    ids=["split", "sample weights", "validation data", "split and weights"],
)  # fmt: skip
def test_arguments_mean_what_they_mean_to_keras(elastic, given):
    plain = trained(**given)
    elastic()
    assert trained(**given) == plain


def test_class_weights_are_those_of_plain_keras(elastic):
    def train(labels, **words):
        keras.backend.clear_session()
        keras.utils.set_random_seed(3)
        model = keras.Sequential([L.Dense(3)])
        model.compile("adagrad", keras.losses.SparseCategoricalCrossentropy(True) if labels.ndim < 2 else "mse")
        x, _ = models.records(models.dense, 3)
        return model.fit(x, labels, class_weight={0: 0.5, 1: 2, 2: 7.0}, verbose=0, shuffle=False, **words).history

    classes = np.arange(3 * models.BATCH) % 3
    given = np.linspace(1, 2, len(classes)).astype("float32")
    cases = [(classes, {}), (np.eye(3, dtype="float32")[classes], {})]
    if models.KERAS == 2:  # Keras 3 takes one kind of weights at a time
        cases.append((classes, {"sample_weight": given}))
    plain = [train(labels, **words) for labels, words in cases]
    elastic()
    assert [train(labels, **words) for labels, words in cases] == plain


@pytest.mark.parametrize("given", [{1: 10.0}, {0: 2.0, 2: 0.5}])
def test_classes_that_are_not_named_are_as_in_plain_keras(elastic, given):
    """Keras 3 takes 1 for them, Keras 2 says what it wants."""

    def train(as_dataset):
        keras.backend.clear_session()
        keras.utils.set_random_seed(3)
        model = keras.Sequential([L.Dense(3)])
        model.compile("adagrad", keras.losses.SparseCategoricalCrossentropy(True))
        x, _ = models.records(models.dense, 3)
        labels = np.arange(3 * models.BATCH) % 3
        data = (tf.data.Dataset.from_tensor_slices((x, labels)).batch(32),) if as_dataset else (x, labels)
        try:
            return model.fit(*data, class_weight=given, verbose=0, shuffle=False).history
        except (ValueError, tf.errors.InvalidArgumentError) as error:
            return "keys from 0" in str(error), "is not in [0, 2)" in str(error)

    plain = [train(as_dataset) for as_dataset in (False, True)]
    elastic()
    assert [train(as_dataset) for as_dataset in (False, True)] == plain


@pytest.mark.parametrize("per_execution", [1, 4])
def test_several_steps_per_execution(elastic, per_execution):
    plain = trained(rows=8 * models.BATCH, words={"steps_per_execution": per_execution})
    elastic()
    assert trained(rows=8 * models.BATCH, words={"steps_per_execution": per_execution}) == plain


@pytest.mark.parametrize("per_execution", [1, 4])
def test_all_rows_are_predicted_whatever_the_steps_per_execution(elastic, per_execution):
    plain = compiled(steps_per_execution=per_execution)
    x, y = models.records(models.dense, 10)
    plain.fit(x, y, verbose=0, shuffle=False)
    expected = plain.predict(x, verbose=0)
    elastic()
    model = compiled(steps_per_execution=per_execution)
    model.fit(x, y, verbose=0, shuffle=False)
    np.testing.assert_array_equal(model.predict(x, verbose=0), expected)


class Counts(keras.Model):
    """How often each row was trained: its place in a table grows by one each time."""

    def __init__(self, rows):
        super().__init__()
        self.table = L.Embedding(rows, 1, embeddings_initializer="zeros")

    def call(self, ids):
        return self.table(ids)

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = -tf.reduce_sum(self(data, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


def test_shuffled_each_row_is_trained_once_an_epoch_and_epochs_have_another_order(elastic):
    elastic()
    rows, orders = 1000, []

    class Order(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            orders.append(dict(logs))

    model = Counts(rows)
    model.compile(keras.optimizers.SGD(1.0))
    history = model.fit(np.arange(rows), epochs=3, batch_size=64, callbacks=[Order()], verbose=0)
    assert (model.get_weights()[0] == 3).all()
    assert int(model.optimizer.iterations) == 3 * -(-rows // 64)
    assert history.epoch == [0, 1, 2] and len(orders) == 3


def test_a_second_fit_trains_everything_again_and_so_does_one_after_an_error(elastic):
    elastic()
    model = Counts(200)
    model.compile(keras.optimizers.SGD(1.0))

    class Raises(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 1:
                raise KeyError("of the script")

    for _ in range(2):
        model.fit(np.arange(200), verbose=0)
    with pytest.raises(KeyError, match="of the script"):
        model.fit(np.arange(200), callbacks=[Raises()], verbose=0)
    assert model.get_weights()[0].sum() == 2 * 200 + 2 * 32
    model.fit(np.arange(200), verbose=0)
    assert model.get_weights()[0].min() == 3


def test_two_models_in_turns(elastic):
    """As a GAN has them."""

    def train():
        one, other = compiled(optimizer="adagrad"), models.batch_norm()
        other.compile("sgd", "mse")
        x, y = models.records(models.dense, 3)
        found = []
        for _ in range(3):
            found.append(one.fit(x, y, verbose=0, shuffle=False).history)
            found.append(other.fit(x, y, verbose=0, shuffle=False).history)
            found.append(float(other.train_on_batch(x[:8], y[:8])))
        return found

    plain = train()
    elastic()
    assert train() == plain


def test_a_callback_that_stops_within_an_epoch_ends_fit(elastic):
    class Stops(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch == 2

    def train():
        model, losses = compiled(), models.Losses()
        x, y = models.records(models.dense, 6)
        model.fit(x, y, epochs=3, shuffle=False, callbacks=[Stops(), losses], verbose=0)
        return losses.seen

    plain = train()
    elastic()
    assert train() == plain and len(plain) == 3


@pytest.mark.parametrize(
    ("x", "y", "match"),
    [
        (np.zeros((64, 20)), np.zeros((63, 1)), "Data cardinality is ambiguous"),
        (np.zeros((64, 7)), np.zeros((64, 1)), "incompatible with the layer"),
        (np.zeros((0, 20)), np.zeros((0, 1)), "non-empty|Expected input data|not yet been built"),
    ],
    ids=["lengths", "shape", "nothing"],
)
def test_what_plain_keras_says_of_wrong_arrays_is_said(elastic, x, y, match):
    elastic()
    with pytest.raises(ValueError, match=match):
        compiled().fit(x, y, verbose=0)


def test_a_split_that_leaves_nothing_is_refused_as_by_keras(elastic):
    elastic()
    with pytest.raises(ValueError, match="not sufficient to split"):
        compiled().fit(np.zeros((1, 20)), np.zeros((1, 1)), validation_split=0.1, verbose=0)


@pytest.mark.skipif(models.KERAS != 2, reason="in Keras 3 they weigh 1")
def test_labels_beyond_the_class_weights(elastic):
    elastic()
    with pytest.raises(tf.errors.InvalidArgumentError, match="is not in"):
        compiled().fit(np.zeros((64, 20)), np.full((64, 1), 3), class_weight={0: 1.0, 1: 1.0}, verbose=0)


def test_which_inputs_are_rows():
    x = np.zeros((4, 2), "float64")
    assert rows_of(x, None, None).structure.dtype == np.float32
    assert rows_of({"a": x, "b": [1, 2, 3, 4]}, x, None).count == 4
    assert rows_of([x, x], None, None).spec[0][0].shape.as_list() == [None, 2]
    assert rows_of(tf.constant(x), [1.0] * 4, None).structure[0].dtype == np.float64
    for other in (iter([x]), tf.data.Dataset.range(3), object(), None, np.array([{}, {}])):
        assert rows_of(other, None, None) is None
    assert rows_of(x, x[:3], None) is None


def test_shards_are_many_and_shuffled_have_rows_of_everywhere():
    rows = rows_of(np.arange(1920), np.arange(1920) // 960, None)
    made = rows.plan(32, 1, True, 1)
    size = made.declaration.shard_records
    assert 1920 / size >= 30, "of 60 batches each of many processes gets some"
    read = [made.reader.read(Shard("", 0, first, size, 0, 0)) for first in range(0, 1920, size)]
    assert sorted(np.concatenate([one["0"] for one in read]).tolist()) == list(range(1920))
    assert all(set(one["1"].tolist()) == {0, 1} for one in read), "in the arrays one class comes after the other"
    in_order = rows.plan(32, 1, False, 1)
    assert in_order.reader.read(Shard("", 0, 64, 64, 0, 0))["0"].tolist() == list(range(64, 128))
    assert rows_of(np.arange(100_000), None, None).plan(10, 1, True, 1).declaration.shard_records == 320


@pytest.mark.parametrize("looked_at", [True, False], ids=["all of it", "a sample"])
def test_the_content_of_rows_is_known(looked_at, monkeypatch):
    if not looked_at:
        monkeypatch.setattr(digests, "BYTES_MAX", 100)
    random = np.random.default_rng(1)
    x, y = random.normal(size=(500, 3)), np.arange(500)
    for shuffle in (True, False):
        content = rows_of(x, y, None).content(shuffle)
        assert rows_of(x.copy(), y.copy(), None).content(shuffle) == content
        assert rows_of(x[::-1], y, None).content(shuffle) != content
        assert rows_of(x, y.astype("int32"), None).content(shuffle) != content
        same = rows_of(x[::-1].copy(), y[::-1].copy(), None).content(shuffle) == content
        assert same == (shuffle and looked_at), "the same rows in another order"


def test_processes_that_have_the_same_rows_in_another_order_mean_the_same_row():
    random = np.random.default_rng(1)
    x, names = random.normal(size=(500, 3)).astype("float32"), np.array([f"name {n % 7}" for n in range(500)], object)
    x[:250] = x[250:]  # some are there twice
    mine = rows_of((x, names), None, None)
    order = random.permutation(500)
    other = rows_of((x[order], names[order]), None, None)
    for seed in (0, 1):
        read = [one.reader(True, seed).read(Shard("", 0, 100, 50, 0, 0)) for one in (mine, other)]
        np.testing.assert_array_equal(read[0]["0"], read[1]["0"])
        assert read[0]["1"].tolist() == read[1]["1"].tolist()


def test_digests_tell_rows_apart():
    values = np.float32([[1, 2], [1, -2], [-1, -2], [-1, 2], [2, 1], [0, 0], [-0.0, 0], [0, -0.0], [np.nan, 0]])
    for one in (values, values.astype("float64"), values.astype("float16"), np.arange(9, dtype="uint8")[:, None]):
        found = digests.digests([one])
        assert (
            len(set(found.tolist())) == len(one)
            and digests.digests([one[::-1].copy()]).tolist() == found[::-1].tolist()
        )
    texts = np.array([["ab", "c"], ["a", "bc"], ["", "abc"], [b"\0", ""]], object)
    assert len(set(digests.digests([texts]).tolist())) == 4
    many = np.random.default_rng(2).integers(0, 2, (50_000, 64)).astype("uint8")
    assert len(set(digests.digests([many]).tolist())) == len(np.unique(many, axis=0))
    assert len(set(digests.digests([np.zeros((3, 0), "float32"), np.arange(3)]).tolist())) == 3
