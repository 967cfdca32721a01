"""What is saved of a large table goes from the PS into the file a piece at a time, and is what plain Keras would write."""

from __future__ import annotations

import errno
import inspect
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor

import h5py
import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.graph.partitioning import layout
from deeprec_ext.keras import unmade
from deeprec_ext.keras.door import WentBackError
from deeprec_ext.keras.files import rows, streaming
from deeprec_ext.tf_private import eager
from tests.unit.keras import models

keras = tf.keras
ROWS, DIM = 600, 8
PIECE_BYTES = 2048
ALWAYS = ["model.keras", "all.weights.h5", "old.h5"]
if (3, 0) <= models.VERSION < (3, 10):
    ALWAYS.remove("old.h5")  # Keras itself fails: the accumulators of its Adagrad have one name
FILES = [*ALWAYS, *(["checkpoint", "saved_model"] if models.KERAS == 2 else ["export"])]


@pytest.fixture
def pieces(monkeypatch):
    """Sizes of what was read of large variables, with tables that count as large, and pieces that are small."""
    monkeypatch.setattr(unmade, "LARGE_BYTES", 4 * ROWS)
    monkeypatch.setattr(rows, "PIECE_BYTES", PIECE_BYTES)
    monkeypatch.setattr(streaming, "PART_BYTES", 3 * PIECE_BYTES)
    read = []

    class Counted(rows.Rows):
        def pieces(self):
            for begin, values in super().pieces():
                read.append(values.nbytes)
                yield begin, values

        def __array__(self, dtype=None, copy=None):
            read.append(self.nbytes)
            return super().__array__(dtype, copy)

    monkeypatch.setattr("deeprec_ext.keras.windows.Rows", Counted)
    undo = unmade.begin()
    yield read
    undo()


@pytest.fixture
def cut(monkeypatch):
    """Tables are cut over slots."""
    monkeypatch.setattr(layout, "LEAST_BYTES", 4096)
    monkeypatch.setattr(layout, "PART_BYTES", 4096)


def make():
    keras.backend.clear_session()
    keras.utils.set_random_seed(3)
    ids = keras.Input((4,), dtype="int64")
    found = keras.layers.Embedding(ROWS, DIM, name="rows")(ids)
    return keras.Model(ids, keras.layers.Dense(1)(keras.layers.Flatten()(found)))


def trained(elastic):
    door, model = elastic(), make()
    model.compile("adagrad", "mse")
    ids = tf.random.stateless_uniform([64, 4], [1, 2], maxval=ROWS, dtype=tf.int64)
    model.fit(tf.data.Dataset.from_tensor_slices((ids, tf.ones([64, 1]))).batch(16), verbose=0)
    return door, model


def table_of(model):
    found = model.get_layer("rows").embeddings
    return getattr(found, "_value", found) if models.KERAS == 3 else found


def save(model, path):
    if path.name.endswith(".weights.h5") or path.name == "checkpoint":
        model.save_weights(str(path))
    elif path.name == "export":
        quiet = {"verbose": False} if "verbose" in inspect.signature(model.export).parameters else {}  # Keras 3.0: not
        model.export(str(path), **quiet)
    else:
        model.save(str(path))


def contents(path):
    """Of a file of h5py: everything, by its name."""
    found = {}

    def look(name, thing):
        attributes = {key: np.asarray(value).tolist() for key, value in thing.attrs.items()}
        found[name] = attributes, (thing.dtype, thing[()].tolist()) if isinstance(thing, h5py.Dataset) else None

    with h5py.File(path) as file:
        file.visititems(look)
    return found


def weights_of_file(path):
    if path.suffix == ".keras":
        with zipfile.ZipFile(path) as archive:
            return contents(archive.extract("model.weights.h5", path.parent))
    return contents(path)


def weights_in(path):
    """The table and the state of it, as whoever reads the file gets them."""
    if path.name in ("checkpoint", "export", "saved_model"):
        reader = tf.train.load_checkpoint(str(path if path.name == "checkpoint" else path / "variables" / "variables"))
        names = [name for name, shape in reader.get_variable_to_shape_map().items() if shape == [ROWS, DIM]]
        return [reader.get_tensor(name) for name in sorted(names)]
    values = [one[1] for _, one in sorted(weights_of_file(path).items()) if one[1] is not None]
    return [np.asarray(value, dtype) for dtype, value in values if np.shape(value) == (ROWS, DIM)]


def on_ps(door):
    """The table and what the optimizer keeps of it."""
    large = [one for one in door.steps.shared.values() if tuple(one.variable.shape) == (ROWS, DIM)]
    return door._session.run([one.read for one in large], {})


def test_a_table_is_saved_by_pieces_and_never_here(pieces, cut, elastic, host, tmp_path):
    door, model = trained(elastic)
    assert any("@" in one.name for one in host.declared[-1].variables), "it is cut over slots"
    there = on_ps(door)
    for name in FILES:
        del pieces[:]
        save(model, tmp_path / name)
        assert pieces and max(pieces) <= PIECE_BYTES, name
        assert eager.raw_value(table_of(model)).size == 0, name
        found = weights_in(tmp_path / name)
        assert len(there) == len(found) == 2, name
        assert all(any((one == other).all() for other in there) for one in found), name
        assert sum(pieces) == len(found) * ROWS * DIM * 4, name


def test_the_file_is_the_same_as_one_that_is_written_whole(pieces, elastic, tmp_path, monkeypatch):
    _, model = trained(elastic)
    (tmp_path / "whole").mkdir()
    for name in ALWAYS:
        save(model, tmp_path / name)
    assert pieces
    _ = model.get_weights(), [np.asarray(one) for one in model.optimizer.variables]  # now they are here
    del pieces[:]
    for name in ALWAYS:
        save(model, tmp_path / "whole" / name)
        streamed, whole = (weights_of_file(path) for path in (tmp_path / name, tmp_path / "whole" / name))
        assert streamed == whole and len(whole) > 4, name
    assert not pieces
    monkeypatch.setattr(unmade, "LARGE_BYTES", 1 << 40)
    other = keras.models.load_model(str(tmp_path / "model.keras"))
    for mine, plain in zip(model.get_weights(), other.get_weights()):
        np.testing.assert_array_equal(mine, plain)


class Halved(keras.layers.Embedding):
    """Does something of its own with what it saves."""

    def save_own_variables(self, store):
        value = table_of_layer(self).numpy()
        store["half"] = value * 0.5
        store["first"] = value[:3].astype("float64")
        store["shape"] = np.asarray(value.shape)


def table_of_layer(layer):
    return getattr(layer.embeddings, "_value", layer.embeddings)


def test_a_layer_that_computes_what_it_saves_gets_an_array(pieces, elastic, tmp_path):
    door = elastic()
    ids = keras.Input((4,), dtype="int64")
    layer = Halved(ROWS, DIM)
    model = keras.Model(ids, keras.layers.Dense(1)(keras.layers.Flatten()(layer(ids))))
    model.compile("sgd", "mse")
    model.fit(np.zeros((4, 4), "int64"), np.ones((4, 1), "float32"), verbose=0)
    model.save_weights(str(tmp_path / "own.weights.h5"))
    (there,) = on_ps(door)
    found = {name.rpartition("/")[2]: one[1] for name, one in contents(tmp_path / "own.weights.h5").items()}
    np.testing.assert_array_equal(np.asarray(found["half"][1], "float32"), there * 0.5)
    np.testing.assert_array_equal(np.asarray(found["first"][1]), there[:3])
    assert found["shape"][1] == [ROWS, DIM]


def test_what_fails_leaves_no_file_of_weights_behind(pieces, elastic, tmp_path, monkeypatch):
    door, model = trained(elastic)
    before = exchanged()
    monkeypatch.setattr(door.windows, "_read_rows", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model.save(str(tmp_path / "model.keras"))
    assert not list(tmp_path.iterdir())
    assert exchanged() == before


def test_what_fails_in_the_midst_leaves_the_file_that_was_there(pieces, cut, elastic, tmp_path, monkeypatch):
    def one_piece(self):
        yield next(before(self))
        raise OSError(errno.ENOSPC, "No space left on device")

    _, model = trained(elastic)
    for name in FILES:
        save(model, tmp_path / name)
    before, there = rows.Rows.pieces, files_in(tmp_path)
    assert not [path for path in there if "of-rows" in path.name], "the parts of a checkpoint"
    monkeypatch.setattr(rows.Rows, "pieces", one_piece)
    for name in FILES:
        with pytest.raises(OSError, match="No space left"):
            save(model, tmp_path / name)
    found = files_in(tmp_path)
    assert all(found[path] == content for path, content in there.items())
    assert not [path for path in set(found) - set(there) if ".new." in path.name or "of-rows" in path.name]


def exchanged():
    return h5py.Group.create_dataset, h5py.Group.__setitem__, h5py.Dataset.__setitem__


def files_in(path):
    return {one: one.read_bytes() for one in path.rglob("*") if one.is_file()}


def test_a_file_keeps_its_mode_and_a_link_its_file(pieces, elastic, tmp_path):
    _, model = trained(elastic)
    (tmp_path / "there").mkdir()
    there, link = tmp_path / "there" / "a.weights.h5", tmp_path / "all.weights.h5"
    there.write_bytes(b"old")
    there.chmod(0o640)
    link.symlink_to(there)
    save(model, link)
    assert link.is_symlink() and there.stat().st_mode & 0o777 == 0o640 and len(weights_in(there)) == 2
    assert [one.name for one in there.parent.iterdir()] == [there.name]


def test_a_model_that_goes_back_while_it_is_saved_is_saved_once_more(pieces, elastic, tmp_path):
    door, model = trained(elastic)
    there, generation = on_ps(door), iter([1, 1, 2])
    door.went_back = lambda: next(generation, 2)
    save(model, tmp_path / "model.keras")
    assert sum(pieces) > 2 * ROWS * DIM * 4, "two pieces more than a file has"
    assert all(any((one == other).all() for other in there) for one in weights_in(tmp_path / "model.keras"))
    generation = iter(range(1000))
    with pytest.raises(WentBackError, match="older state"):
        save(model, tmp_path / "model.keras")
    assert len(weights_in(tmp_path / "model.keras")) == 2, "the file that was there"


def test_what_a_chief_before_has_written_is_not_written_again_to_be_saved(pieces, elastic, tmp_path):
    door, model = trained(elastic)
    there, door.further = on_ps(door), lambda: True
    model.set_weights([np.zeros_like(one) for one in model.get_weights()])
    save(model, tmp_path / "model.keras")
    model.evaluate(np.zeros([4, 4], np.int64), np.ones([4, 1]), verbose=0)
    assert all((one == other).all() for one, other in zip(on_ps(door), there))
    door.further = lambda: False
    model.evaluate(np.zeros([4, 4], np.int64), np.ones([4, 1]), verbose=0)
    assert not on_ps(door)[0].any() or not on_ps(door)[1].any()


def test_two_threads_save_at_once_and_nothing_stays_exchanged(pieces, elastic, tmp_path):
    door, model = trained(elastic)
    before, there = exchanged(), on_ps(door)
    both, alone = threading.Barrier(2, timeout=60), rows.Rows.pieces

    def meet(self):
        both.wait()
        return alone(self)

    with pytest.MonkeyPatch.context() as patched, ThreadPoolExecutor() as pool:
        patched.setattr(rows.Rows, "pieces", meet)
        for one in [pool.submit(save, model, tmp_path / name) for name in ("a.keras", "b.keras")]:
            one.result()
    assert max(pieces) <= PIECE_BYTES and exchanged() == before
    for name in ("a.keras", "b.keras"):
        found = weights_in(tmp_path / name)
        assert len(found) == 2 and all(any((one == other).all() for other in there) for one in found)


def test_rows_are_an_array_to_those_who_do_not_know_them(monkeypatch):
    whole = np.arange(24, dtype="float32").reshape(6, 4)
    monkeypatch.setattr(rows, "PIECE_BYTES", 40)
    one = rows.Rows(whole.shape, whole.dtype, lambda begin, end: whole[begin:end])
    assert [begin for begin, _ in one.pieces()] == [0, 2, 4]
    np.testing.assert_array_equal(np.asarray(one), whole)
    np.testing.assert_array_equal(tf.convert_to_tensor(one), whole)
    np.testing.assert_array_equal(2 * one - one, whole)
    np.testing.assert_array_equal(one.astype("int32").T, whole.T.astype("int32"))
    assert one[2, 1] == 9 and one.mean() == whole.mean()
    assert (len(one), one.ndim, one.size, one.nbytes) == (6, 2, 24, 96)
    assert not hasattr(one, "_anything")
