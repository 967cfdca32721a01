"""What a script loads into a large table stays in its file until the PS, or somebody here, wants it."""

from __future__ import annotations

import gc
import os
import re
import shutil
import tempfile

import h5py
import numpy as np
import psutil
import pytest
import tensorflow as tf

from deeprec_ext.keras import unmade
from deeprec_ext.keras.files import loading, rows
from deeprec_ext.tf_private import eager, keras_classes
from tests.unit.keras import models

keras = tf.keras
ROWS, DIM = 600, 8
PIECE_BYTES = 2048


@pytest.fixture
def waiting(monkeypatch):
    monkeypatch.setattr(unmade, "LARGE_BYTES", 4 * ROWS)
    monkeypatch.setattr(rows, "PIECE_BYTES", PIECE_BYTES)
    undo = unmade.begin()
    yield
    undo()


@pytest.fixture
def read(monkeypatch):
    """Bytes of what was read of files, each time."""
    found = []

    class Counted(rows.Rows):
        def between(self, begin, end):
            values = super().between(begin, end)
            found.append(values.nbytes)
            return values

        def pieces(self):
            for begin, values in super().pieces():
                found.append(values.nbytes)
                yield begin, values

    monkeypatch.setattr(loading, "Rows", Counted)
    return found


def make():
    keras.backend.clear_session()
    keras.utils.set_random_seed(3)
    ids = keras.Input((4,), dtype="int64")
    found = keras.layers.Embedding(ROWS, DIM, name="rows")(ids)
    model = keras.Model(ids, keras.layers.Dense(1)(keras.layers.Flatten()(found)))
    model.compile("adagrad", "mse")
    return model


def batches():
    ids = tf.random.stateless_uniform([64, 4], [1, 2], maxval=ROWS, dtype=tf.int64)
    return tf.data.Dataset.from_tensor_slices((ids, tf.ones([64, 1]))).batch(16)


@pytest.fixture
def plain(monkeypatch, tmp_path):
    """A model that plain Keras has trained, and saved in both ways."""
    with monkeypatch.context() as patched:
        patched.setattr(unmade, "LARGE_BYTES", 1 << 40)
        model = make()
        model.fit(batches(), verbose=0)
    model.save(str(tmp_path / "model.keras"))
    model.save_weights(str(tmp_path / "all.weights.h5"))
    return model


def table_of(model):
    found = model.get_layer("rows").embeddings
    return getattr(found, "_value", found) if models.KERAS == 3 else found


def state_of(model):
    """Of its optimizer, what is as large as the table."""
    found = [getattr(one, "_value", one) if models.KERAS == 3 else one for one in model.optimizer.variables]
    return [one for one in found if tuple(one.shape) == (ROWS, DIM)]


def same(one, other):
    for left, right in zip(one.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(left, right)


def test_what_is_loaded_before_fit_is_read_when_somebody_looks(waiting, read, plain, tmp_path):
    model = make()
    with loading.left_in_files(unmade.LARGE_BYTES):
        model.load_weights(str(tmp_path / "all.weights.h5"))
    table = table_of(model)
    assert unmade.first_of(table).loaded is not None and eager.raw_value(table).size == 0 and not read
    os.unlink(tmp_path / "all.weights.h5")
    same(model, plain)
    assert unmade.first_of(table) is None and sum(read) == ROWS * DIM * 4


def test_a_file_that_is_written_anew_is_told_and_not_taken_for_the_old_one(waiting, plain, tmp_path):
    model, path = make(), tmp_path / "all.weights.h5"
    with loading.left_in_files(unmade.LARGE_BYTES):
        model.load_weights(str(path))
    os.utime(path, ns=(1, 1))
    with pytest.raises(loading.ChangedError, match=r"all.weights.h5 was written anew"):
        model.get_weights()


def test_who_has_let_go_of_a_file_finds_it_by_its_path_or_not(waiting, plain, tmp_path):
    model, path = make(), tmp_path / "all.weights.h5"
    with loading.left_in_files(unmade.LARGE_BYTES):
        model.load_weights(str(path))
    loaded, table = unmade.first_of(table_of(model)).loaded, table_of(plain).numpy()
    for _ in range(2):
        loaded.release()
        np.testing.assert_array_equal(loaded.between(3, 9), table[3:9])
    loaded.release()
    os.replace(shutil.copy2(path, tmp_path / "other"), path)
    with pytest.raises(loading.ChangedError, match="was written anew"):
        loaded.between(0, 1)
    loaded.release()
    os.unlink(path)
    with pytest.raises(loading.ChangedError, match="cannot be read any more"):
        loaded.between(0, 1)


def test_the_file_is_let_go_of_when_the_ps_have_its_rows(waiting, plain, elastic, tmp_path):
    def held():
        return [one for one in psutil.Process().open_files() if one.path == str(tmp_path / "model.keras")]

    model = load(elastic(), tmp_path / "model.keras")
    assert held()
    model.fit(batches(), verbose=0)
    gc.collect()
    assert not held()


def test_a_model_of_large_tables_is_not_unpacked_to_be_loaded(waiting, read, plain, elastic, tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(tempfile, "TemporaryDirectory", lambda *args, **words: made.append(words) or 1 / 0)
    model = load(elastic(), tmp_path / "model.keras")
    assert unmade.first_of(table_of(model)).loaded is not None and not made and not read


def test_what_an_optimizer_keeps_is_saved_though_its_table_was_looked_at(waiting, plain, elastic, tmp_path):
    door, path = elastic(), tmp_path / "model.keras"
    model = load(door, path)
    model.get_weights()
    model.save(str(path))
    again = load(door, path)
    for one, other in zip(state_of(again), state_of(plain), strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_what_was_loaded_is_saved_into_the_same_file_before_fit(waiting, plain, elastic, tmp_path):
    elastic()
    model, path = make(), tmp_path / "all.weights.h5"
    model.load_weights(str(path))
    assert unmade.first_of(table_of(model)).loaded is not None
    model.save_weights(str(path))
    other = make()
    other.load_weights(str(path))
    same(other, plain)


def test_what_does_not_lie_in_one_piece_is_read_as_ever(waiting, read, plain, tmp_path):
    path = tmp_path / "all.weights.h5"
    with h5py.File(path, "a") as file:
        names = []
        file.visit(names.append)
        for name in [one for one in names if isinstance(file[one], h5py.Dataset) and file[one].size > 1000]:
            value = file[name][()]
            del file[name]
            file.create_dataset(name, data=value, compression="gzip")
    model = make()
    with loading.left_in_files(unmade.LARGE_BYTES):
        model.load_weights(str(path))
    assert not read and eager.raw_value(table_of(model)).shape == (ROWS, DIM)
    same(model, plain)


@pytest.mark.parametrize("shape", [(ROWS + 1, DIM), (ROWS, DIM + 1)])
@pytest.mark.parametrize("name", ["model.keras", "all.weights.h5"])
def test_another_shape_is_refused_in_the_words_of_keras(waiting, plain, tmp_path, name, shape):
    def told():
        keras.utils.set_random_seed(3)  # Keras 3 prints the values
        ids = keras.Input((4,), dtype="int64")
        model = keras.Model(ids, keras.layers.Embedding(*shape, name="rows")(ids))
        with pytest.raises(ValueError) as refused:
            model.load_weights(str(tmp_path / name))
        return re.sub(r"embeddings_?\d*|rows_\d+", "", str(refused.value))

    as_ever = told()
    with loading.left_in_files(unmade.LARGE_BYTES):
        assert told() == as_ever


def load(door, path):
    """As where a script calls it (`entry.patch` exchanges what Keras exports, which the others' tests see)."""
    with door.loading(keras.Model):
        return keras.models.load_model(str(path))


@pytest.mark.parametrize("begins", [True, False], ids=["before fit", "between two"])
def test_it_goes_from_the_file_to_the_ps(waiting, read, plain, elastic, tmp_path, begins):
    """Loaded is the model that plain Keras has trained and goes on with: both come to the same."""
    door = elastic()
    if begins:
        model = load(door, tmp_path / "model.keras")
        large = [table_of(model), *state_of(model)]
        assert len(large) == 2 and all(unmade.first_of(one).loaded is not None for one in large)
    else:
        model = make()
        model.fit(batches(), verbose=0)
        model.load_weights(str(tmp_path / "all.weights.h5"))
        large = [table_of(model), *state_of(model)]
    assert not read
    losses = model.fit(batches(), epochs=2, verbose=0).history["loss"]
    assert sum(read) == len(large) * ROWS * DIM * 4
    assert [eager.raw_value(one).size for one in large] == [0, 0]
    np.testing.assert_allclose(losses, plain.fit(batches(), epochs=2, verbose=0).history["loss"], rtol=1e-5)


def test_the_stores_of_keras_have_what_is_asked_of_them():
    """Else nothing is left in files, and nobody sees it but by the memory."""
    (store,) = keras_classes.stores()
    assert keras_classes.has_datasets(store) == (models.VERSION >= (3, 10))
    assert len(list(keras_classes.kinds_of_variables())) == (models.KERAS == 3)
    assert len(list(keras_classes.converters())) == (models.KERAS == 3)
