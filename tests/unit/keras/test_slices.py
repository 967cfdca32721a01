"""tf.data pipelines over arrays that are given to `fit`: their rows are leased, each is trained once an epoch."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.data import streams
from deeprec_ext.keras.leased.pipelines import followed

keras = tf.keras
Dataset = tf.data.Dataset
ROWS, BATCH = 64, 8
NUMBERS, LABELS = np.arange(ROWS), (np.arange(ROWS) % 2).astype("float32")
SLICES = ({"number": NUMBERS}, LABELS)


def plain():
    return Dataset.from_tensor_slices(SLICES).shuffle(100).batch(BATCH).prefetch(2)


def in_order():
    return Dataset.from_tensor_slices(SLICES).cache().batch(BATCH)


def one_by_one():
    slices = Dataset.from_tensor_slices((NUMBERS.astype("str"), LABELS))
    return slices.map(lambda text, label: ({"number": tf.strings.to_number(text, tf.int64)}, label)).batch(BATCH)


def zipped():
    """As Keras makes its datasets of directories."""
    texts = Dataset.from_tensor_slices(NUMBERS.astype("str")).map(lambda text: tf.strings.to_number(text, tf.int64))
    both = Dataset.zip((texts, Dataset.from_tensor_slices(LABELS)))
    return both.map(lambda number, label: ({"number": number}, label)).shuffle(8 * BATCH).batch(BATCH)


def by_batches():
    both = Dataset.zip(({"number": Dataset.from_tensor_slices(NUMBERS)}, Dataset.from_tensor_slices(LABELS)))
    return both.batch(BATCH).map(lambda x, y: (x, tf.identity(y)))


def numbered():
    """Batches are made of elements of a range."""
    return Dataset.range(ROWS).map(lambda number: ({"number": number}, tf.cast(number % 2, tf.float32))).batch(BATCH)


def of_batches():
    """Elements are batches, as our examples make them."""
    firsts = Dataset.range(0, ROWS, BATCH).map(lambda first: first + tf.range(BATCH, dtype=tf.int64))
    return firsts.map(lambda numbers: ({"number": numbers}, tf.cast(numbers % 2, tf.float32))).prefetch(2)


MADE = (numbered, of_batches, plain, in_order, one_by_one, zipped, by_batches)


def rows_of(dataset):
    return [pair for x, y in dataset.as_numpy_iterator() for pair in zip(x["number"].tolist(), y.tolist(), strict=True)]


@pytest.mark.parametrize("make", MADE)
def test_elements_are_those_of_the_pipeline(make):
    found = followed(make())
    leased = found.leased(f"elements {make.__name__}", 1)
    assert tf.nest.map_structure(lambda one: one.dtype, leased.element_spec) == tf.nest.map_structure(
        lambda one: one.dtype, make().element_spec
    )
    given = rows_of(leased)
    assert sorted(given) == sorted(rows_of(make())) and found.batches == -(-ROWS // BATCH)
    assert (given == rows_of(make())) == (make not in (plain, zipped)), "shuffled are those that the script shuffles"


@pytest.mark.parametrize("kind", [tf.int64, tf.int32, tf.float32])
def test_numbers_of_a_range_have_its_type(kind):
    dataset = Dataset.range(8, output_type=kind).map(lambda x: x * tf.constant(2, kind)).batch(4)
    leased = followed(dataset).leased(f"of {kind.name}")
    assert leased.element_spec.dtype == kind
    assert [x.tolist() for x in leased.as_numpy_iterator()] == [[0, 2, 4, 6], [8, 10, 12, 14]]


def test_many_numbers_are_shuffled_by_the_ledger_alone():
    found = followed(Dataset.range(1 << 40).shuffle(100).batch(4))
    assert found.content and found._rows.reader(True, 1)._order is None


@pytest.mark.parametrize("full", [True, False])
def test_batches_that_are_not_full_are_dropped_where_the_script_says_so(full):
    rows = ROWS - 4
    dataset = Dataset.from_tensor_slices((NUMBERS[:rows], LABELS[:rows])).batch(BATCH, drop_remainder=full)
    sizes = [len(y) for _, y in followed(dataset).leased(f"full {full}").as_numpy_iterator()]
    assert sorted(sizes, reverse=True) == [BATCH] * (rows // BATCH) + ([] if full else [4])


class Counts(keras.Model):
    """Adds one to the row of each number that it is trained on."""

    def __init__(self):
        super().__init__()
        self.seen = self.add_weight(name="seen", shape=(ROWS, 1), initializer="zeros")

    def call(self, inputs):
        return tf.gather(tf.convert_to_tensor(self.seen), inputs["number"])

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, **_):
        return -tf.reduce_sum(y_pred)


@pytest.mark.parametrize("steps", [None, 4], ids=["an epoch of all", "an epoch of four steps"])
@pytest.mark.parametrize("make", MADE)
def test_each_row_is_trained_once_an_epoch(make, steps, elastic, host, monkeypatch, caplog):
    monkeypatch.setattr(streams, "trainer", lambda: SimpleNamespace(inputs=host.inputs))
    door = elastic()
    keras.backend.clear_session()
    model = Counts()
    model.compile(keras.optimizers.SGD(1.0))
    with caplog.at_level(logging.INFO):
        model.fit(
            make() if steps is None else make().repeat(), epochs=2 if steps is None else 4, steps_per_epoch=steps,
            verbose=0,
        )  # fmt: skip
    assert "a pass of its own" not in caplog.text and "by itself" not in caplog.text
    np.testing.assert_array_equal(np.asarray(model.get_weights()[0]).ravel(), np.full(ROWS, 2.0))
    if steps is None:
        [name] = door.trainer.ended.of
        assert len(door.trainer.ended.of[name].came_to) == 2


@pytest.mark.parametrize("shuffled", [True, False])
def test_rows_in_another_order_are_the_same_ones_where_they_are_shuffled(shuffled):
    order = np.random.default_rng(4).permutation(ROWS)

    def leased(rows, name):
        dataset = Dataset.from_tensor_slices((NUMBERS[rows], LABELS[rows]))
        found = followed((dataset.shuffle(9) if shuffled else dataset).batch(BATCH))
        return found.content, [x.tolist() for x, _ in found.leased(name, 1).as_numpy_iterator()]

    mine, other = leased(np.arange(ROWS), f"mine {shuffled}"), leased(order, f"other {shuffled}")
    assert (mine == other) == shuffled
    assert leased(np.arange(ROWS) // 2, f"others {shuffled}")[0] != mine[0]
