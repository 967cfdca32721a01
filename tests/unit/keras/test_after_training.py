"""What scripts do with a model that has been trained on parameter servers, and inputs that Keras says something of."""

from __future__ import annotations

import json
import logging
import threading

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.aimaster.ledger.ends import Ends
from deeprec_ext.errors import RefusedError
from deeprec_ext.keras import entry, ownership
from deeprec_ext.keras.leased import roles
from deeprec_ext.keras.milestones import Milestones
from tests.unit.keras import models

keras = tf.keras
L = keras.layers
WORDS = tf.constant([["a"], ["b"], ["c"], ["a"]])


def trained(elastic, **words):
    """A model of ids, trained on PS."""
    keras.utils.set_random_seed(1)
    ended = elastic(**words).trainer.ended
    if not ended.chief:  # it comes late: the others have trained
        ended.of["fit 1"] = Ends()
        ended.of["fit 1"].came_to = [json.dumps({"logs": {"loss": 1.0}, "stop": False})]
    ids = keras.Input((1,), dtype="int64")
    model = keras.Model(ids, L.Dense(1)(L.Flatten()(L.Embedding(5, 2)(ids))))
    model.compile("sgd", "mse", metrics=["mae"])
    model.fit(np.arange(4)[:, None], np.ones((4, 1), "float32"), batch_size=2, verbose=0)
    return model


def by_vocabulary():
    return L.StringLookup(vocabulary=["a", "b", "c"])


def by_text():
    layer = L.TextVectorization(output_sequence_length=1)
    layer.adapt(tf.constant(["a b c", "c c"]))
    return layer


@pytest.mark.parametrize("make", [by_vocabulary, by_text])
def test_a_model_around_the_trained_one_that_looks_up_words_is_evaluated_and_predicts_here(make, elastic, host, caplog):
    """As in "Text classification from scratch" of keras.io: strings in, what was trained behind a table of words."""
    caplog.set_level(logging.INFO, logger="deeprec_ext")
    model = trained(elastic)
    look_up = make()
    text = keras.Input((1,), dtype="string")
    whole = keras.Model(text, model(look_up(text)))
    whole.compile("sgd", "mse", metrics=["mae"])
    labels = np.ones((4, 1), "float32")
    ids = look_up(WORDS).numpy()
    for _ in range(2):
        data = tf.data.Dataset.from_tensor_slices((WORDS, labels)).batch(3)
        np.testing.assert_allclose(whole.evaluate(data, verbose=0), model.evaluate(ids, labels, verbose=0), rtol=1e-6)
        predicted = whole.predict(data.map(lambda x, y: x), verbose=0)
        np.testing.assert_allclose(predicted, model.predict(ids, verbose=0), rtol=1e-6)
        model.fit(ids, labels, batch_size=2, verbose=0)  # and then it has other weights
    assert not host.refusals
    assert "is made in this process, with the weights on PS" in caplog.text


@pytest.mark.parametrize("words", [{"validation_split": 0.5}, {"y": np.ones((8, 1), "float32")}])
def test_what_a_dataset_cannot_be_given_keras_says(elastic, tmp_path, words):
    path = tmp_path / "one.csv"
    path.write_text("1,2\n" * 8)
    elastic()
    model = keras.Sequential([L.Input((1,)), L.Dense(1)])
    model.compile("sgd", "mse")
    data = tf.data.experimental.CsvDataset(str(path), [0.0, 0.0]).map(lambda x, y: (x[None], y[None])).batch(4)
    with pytest.raises(ValueError, match=r"validation_split|`y`"):
        model.fit(data, verbose=0, **words)
    model.fit(data, verbose=0)


def test_more_steps_than_arrays_have_is_said(elastic, host, caplog):
    caplog.set_level(logging.INFO, logger="deeprec_ext")
    elastic()
    model = models.dense()
    model.compile("sgd", "mse")
    model.fit(np.ones((64, 20)), np.ones((64, 1)), batch_size=32, steps_per_epoch=3, verbose=0)
    assert [one[0] for one in host.notices] == ["own-pass"]
    assert "each process trains a pass of its own" in caplog.text and "more than it has batches" in caplog.text


@pytest.mark.skipif(models.KERAS == 3, reason="Keras 3 has no ragged inputs of layers")
def test_ragged_predictions_are_joined(elastic):
    elastic()
    x = keras.Input((None,), ragged=True, dtype="int64")
    model = keras.Model(x, L.Embedding(9, 2)(x))
    model.compile("sgd", lambda truth, predicted: tf.reduce_mean(predicted.flat_values))
    data = tf.ragged.constant([[1, 2], [3], [4, 5, 6]], dtype=tf.int64)
    model.fit(tf.data.Dataset.from_tensor_slices((data, np.zeros(3))).batch(2), verbose=0)
    found = model.predict(tf.data.Dataset.from_tensor_slices(data).batch(2), verbose=0)
    assert found.shape[0] == 3 and found.row_lengths().numpy().tolist() == [2, 1, 3]


@pytest.mark.parametrize("chief", [True, False])
def test_a_function_that_saves_is_the_chiefs_too(elastic, tmp_path, chief, monkeypatch):
    from deeprec_ext.tf_private import keras_classes

    kept = {}
    monkeypatch.setattr(keras_classes, "wrap_saving", lambda module, name, around: kept.update({name: around}))
    model = trained(elastic, chief=chief)
    assert entry.SAVES and set(kept) == {"save_model", "load_model"}
    path = str(tmp_path / "model.keras")
    kept["save_model"](lambda model, path: model.save(path), model, path)
    assert (tmp_path / "model.keras").exists() == chief


@pytest.mark.parametrize("chief", [True, False])
def test_what_tensorflow_saves_of_the_model_is_the_chiefs_too(elastic, tmp_path, chief, caplog):
    caplog.set_level(logging.INFO, logger="deeprec_ext")
    model = trained(elastic, chief=chief)
    whole, inner = tf.Module(), tf.Module()
    whole.parts, inner.model = [inner], model
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    manager = tf.train.CheckpointManager(checkpoint, str(tmp_path / "managed"), 2)
    tf.saved_model.save(whole, str(tmp_path / "served"))
    written = checkpoint.write(file_prefix=str(tmp_path / "written"))
    saved, kept = checkpoint.save(file_prefix=tmp_path / "saved"), manager.save()
    tf.train.Checkpoint(optimizer=model.optimizer).write(str(tmp_path / "optimizer"))
    assert (written, saved) == (str(tmp_path / "written"), str(tmp_path / "saved-1"))
    assert kept == (str(tmp_path / "managed" / "ckpt-2") if chief else None)
    assert (manager.latest_checkpoint, manager.checkpoints) == ((kept, [kept]) if chief else (None, []))
    names = {one.name.partition(".")[0] for one in tmp_path.iterdir()} - {"managed", "checkpoint"}
    assert names == ({"served", "written", "saved-1", "optimizer"} if chief else set())
    assert ("all processes would write the same file" in caplog.text) != chief
    if chief:
        other = keras.models.clone_model(model)
        tf.train.Checkpoint(model=other).read(saved).expect_partial()
        np.testing.assert_array_equal(other.get_weights()[0], model.get_weights()[0])


def test_what_no_process_trains_each_saves(elastic, tmp_path):
    trained(elastic, chief=False)
    other = tf.Variable(3.0)
    assert tf.train.Checkpoint(other=other).save(str(tmp_path / "own")) == str(tmp_path / "own-1")
    tf.train.Checkpoint(models.dense()).write(str(tmp_path / "model"))
    unmade = keras.Sequential([L.Dense(1)])
    tf.train.Checkpoint(unmade=unmade, models=[models.dense()]).write(str(tmp_path / "unmade"))
    assert {"own-1.index", "model.index", "unmade.index"} <= {one.name for one in tmp_path.iterdir()}


@pytest.mark.parametrize("steps", [None, 2])
@pytest.mark.parametrize("kind", ["arrays", "dataset", "generator", "sequence"])
def test_the_chief_has_a_model_before_it_asks_for_records(elastic, kind, steps, monkeypatch):
    """With --autoscale, and for `estimate`: nobody gives it any before its model is known."""
    if kind == "generator" and steps is None:
        pytest.skip("is not leased")
    x, y = np.ones((8, 20), "float32"), np.ones((8, 1), "float32")

    class OfTwo(keras.utils.Sequence):
        def __len__(self):
            return 2

        def __getitem__(self, place):
            return x[:4], y[:4]

    inputs = {
        "arrays": (x, y), "dataset": (tf.data.Dataset.from_tensor_slices((x, y)).batch(4),),
        "generator": (((x[:4], y[:4]) for _ in range(2)),), "sequence": (OfTwo(),),
    }  # fmt: skip
    door = elastic()
    asked = door.trainer.inputs.end_of_epoch

    def ask(request):
        assert door.trains(model), "there is no model yet"
        return asked(request)

    monkeypatch.setattr(door.trainer.inputs, "end_of_epoch", ask)
    model = models.dense()
    model.compile("sgd", "mse")
    history = model.fit(*inputs[kind], batch_size=4 if kind == "arrays" else None, steps_per_epoch=steps, verbose=0)
    assert len(history.history["loss"]) == 1 and int(model.optimizer.iterations) == 2
    model = models.dense()  # another one in the same script, whose session there is
    model.compile("sgd", "mse")
    model.fit(x, y, batch_size=4, verbose=0)


def test_callbacks_in_lists_are_sorted_out_too(elastic, tmp_path):
    elastic(chief=False)
    model = models.dense()
    model.compile("sgd", "mse")
    best = keras.callbacks.EarlyStopping("loss", restore_best_weights=True)
    writes = keras.callbacks.CSVLogger(str(tmp_path / "log.csv"))
    assert roles.of_a_worker([[writes], (best,)]) == [best] and not best.restore_best_weights


class StopsAtOnce(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.model.stop_training = epoch == 1


def test_a_script_that_stops_at_the_beginning_of_an_epoch_has_stopped(elastic):
    elastic()
    model = models.dense()
    model.compile("sgd", "mse")
    history = model.fit(np.ones((64, 20)), np.ones((64, 1)), epochs=5, callbacks=[StopsAtOnce()], verbose=0)
    assert len(history.epoch) <= 2


@pytest.mark.parametrize("ended", [False, True])
def test_what_is_written_at_the_end_of_a_fit_is_written_once_though_the_chief_begins_again(
    elastic, tmp_path, monkeypatch, ended
):
    """ended: the chief before had come so far."""

    class TakesOne(keras.callbacks.Callback):
        def on_train_end(self, logs=None):
            bias = self.model.layers[-1].bias
            bias.assign(bias - 1.0)

    monkeypatch.setattr(entry.env, "workdir", lambda: str(tmp_path))
    if ended:
        before = Milestones(tmp_path, True, threading.Event())
        before.begins()
        before.ends()
    door = elastic()
    door.trainer.ended.of["fit 1"] = ends = Ends()
    ends.came_to, ends.begun = [json.dumps({"logs": {"loss": 1.0}, "stop": False})], True
    model = models.dense()
    model.compile(keras.optimizers.SGD(0.0), "mse")
    model.fit(np.ones((64, 20)), np.ones((64, 1)), callbacks=[TakesOne()], verbose=0)
    assert model.get_weights()[-1].tolist() == [0.0 if ended else -1.0]


class Sets(keras.callbacks.Callback):
    """The bias, when an epoch begins: to its number. Notes how many epochs were told of then, and at its first batch."""

    def __init__(self, door):
        super().__init__()
        self.door, self.begun, self.trained = door, [], []

    @property
    def ends(self):
        return self.door.trainer.ended.of["fit 1"]

    def on_epoch_begin(self, epoch, logs=None):
        self.begun.append((epoch, self.ends.begun, len(self.ends.came_to)))
        self.model.layers[-1].bias.assign([float(epoch)])

    def on_train_batch_begin(self, batch, logs=None):
        if batch == 0:
            bias = models.generation.weights(self.model)[-1]
            shared = self.door.steps.shared[ownership.key(bias)]
            [value] = self.door._session.run([shared.read], {})
            self.trained.append((value.tolist(), self.ends.begun, len(self.ends.came_to)))


@pytest.mark.parametrize("past", [0, 2])
def test_what_callbacks_write_when_an_epoch_begins_is_in_the_model_before_others_train(elastic, past):
    """past: of so many epochs a chief before this one has told, and has written when the next began."""
    door = elastic()
    if past:
        door.trainer.ended.of["fit 1"] = ends = Ends()
        ends.came_to, ends.begun = [json.dumps({"logs": {"loss": 1.0}, "stop": False})] * past, True
    sets, model = Sets(door), models.dense()
    model.compile(keras.optimizers.SGD(0.0), "mse")
    model.fit(np.ones((64, 20)), np.ones((64, 1)), epochs=4, callbacks=[sets], verbose=0)
    if past:
        assert sets.trained == [([0.0], True, 2), ([3.0], True, 3)]
    else:
        assert sets.begun == [(0, False, 0), (1, True, 0), (2, True, 1), (3, True, 2)]
        assert sets.trained == [([float(epoch)], True, epoch) for epoch in range(4)]
    assert len(sets.ends.came_to) == 4


swapping = pytest.mark.skipif(not hasattr(keras.callbacks, "SwapEMAWeights"), reason="this Keras has no SwapEMAWeights")


@swapping
@pytest.mark.parametrize("swap_on_epoch", [False, True])
def test_averages_are_swapped_in_as_in_plain_keras(elastic, swap_on_epoch):
    def train():
        keras.backend.clear_session()
        keras.utils.set_random_seed(3)
        model = models.dense()
        model.compile(keras.optimizers.SGD(0.01, use_ema=True, ema_momentum=0.5), "mse")
        x, y = models.records(models.dense, 4)
        swap = keras.callbacks.SwapEMAWeights(swap_on_epoch=swap_on_epoch)
        fitted = model.fit(x, y, epochs=3, validation_data=(x, y), shuffle=False, callbacks=[swap], verbose=0)
        return fitted.history, model.get_weights()

    expected, weights = train()
    elastic()
    history, found = train()
    for name, values in expected.items():
        np.testing.assert_allclose(history[name], values, rtol=1e-5)
    for one, other in zip(weights, found):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)


@swapping
def test_averages_are_swapped_in_by_the_chief_and_not_while_others_train(elastic, host):
    swap = keras.callbacks.SwapEMAWeights()
    assert roles.of_a_worker([swap]) == []
    elastic()
    model = models.dense()
    model.compile(keras.optimizers.SGD(0.01, use_ema=True), "mse")
    with pytest.raises(RefusedError, match="SwapEMAWeights exchanges all weights"):
        model.fit(models.dataset(models.dense, 2), callbacks=[swap], verbose=0)
    assert len(host.refusals) == 1


def test_best_weights_that_are_put_back_at_the_end_are_on_the_ps_when_fit_ends(elastic):
    class PutsBack(keras.callbacks.Callback):
        def on_train_end(self, logs=None):
            self.model.set_weights([np.full(one.shape, 7.0) for one in self.model.get_weights()])

    door = elastic()
    model = models.dense()
    model.compile("sgd", "mse")
    model.fit(np.ones((64, 20)), np.ones((64, 1)), callbacks=[PutsBack()], verbose=0)
    assert not door.windows.take_written(), "nothing waits for the next step"
    door.changed()
    assert all((one == 7.0).all() for one in model.get_weights())
