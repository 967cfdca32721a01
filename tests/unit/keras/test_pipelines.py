"""tf.data pipelines over files that are given to `fit`: what is followed, and that each record is trained once an epoch."""

from __future__ import annotations

import gzip
import logging
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.data import streams
from deeprec_ext.keras.leased import pipelines
from deeprec_ext.keras.leased.pipelines import NotFollowed, followed
from deeprec_ext.tf_private.eager import Source

keras = tf.keras
RECORDS, FILES, BATCH = 20, 3, 8
AUTOTUNE = tf.data.AUTOTUNE


@pytest.fixture
def texts(tmp_path):
    """Files of lines `number,label` behind a line of titles."""
    found = []
    for number in range(FILES):
        lines = [f"{number * RECORDS + at},{at % 2}" for at in range(RECORDS)]
        path = tmp_path / f"part-{number}.csv"
        path.write_text("\n".join(["number,label", *lines]) + "\n")
        found.append(str(path))
    return found


@pytest.fixture
def examples(tmp_path):
    """Files of tf.train.Examples with the same."""
    found = []
    for number in range(FILES):
        path = str(tmp_path / f"part-{number}.tfrecord")
        with tf.io.TFRecordWriter(path) as file:
            for at in range(RECORDS):
                features = {
                    "number": tf.train.Feature(int64_list=tf.train.Int64List(value=[number * RECORDS + at])),
                    "label": tf.train.Feature(float_list=tf.train.FloatList(value=[at % 2])),
                }
                file.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
        found.append(path)
    return found


FEATURES = {"number": tf.io.FixedLenFeature([], tf.int64), "label": tf.io.FixedLenFeature([], tf.float32)}


def of_example(record):
    parsed = tf.io.parse_single_example(record, FEATURES)
    return {"number": parsed["number"]}, parsed["label"]


def of_examples(records):
    parsed = tf.io.parse_example(records, FEATURES)
    return {"number": parsed["number"]}, parsed["label"]


def of_line(line):
    number, label = tf.io.decode_csv(line, [tf.constant(0, tf.int64), 0.0])
    return {"number": number}, label


def one_by_one(files):
    return tf.data.TFRecordDataset(files).map(of_example, AUTOTUNE).shuffle(100).batch(BATCH).prefetch(AUTOTUNE)


def by_batches(files):
    return tf.data.TFRecordDataset(files, num_parallel_reads=2).cache().batch(BATCH).map(of_examples)


def full_batches(files):
    return tf.data.TFRecordDataset(files).batch(BATCH, drop_remainder=True).map(of_examples)


def full_batches_one_by_one(files):
    return tf.data.TFRecordDataset(files).map(of_example).batch(BATCH, drop_remainder=True)


def interleaved(files):
    names = tf.data.Dataset.list_files(files)
    return names.interleave(tf.data.TFRecordDataset, num_parallel_calls=2).map(of_example).batch(BATCH)


def with_titles(files):
    names = tf.data.Dataset.from_tensor_slices(files)
    return names.flat_map(lambda name: tf.data.TextLineDataset(name).skip(1)).map(of_line).batch(BATCH)


def columns(files):
    read = tf.data.experimental.CsvDataset(files, [tf.int64, 0.0], header=True)
    return read.map(lambda number, label: ({"number": number}, label)).batch(BATCH)


def one_with_titles(files):
    return tf.data.TextLineDataset(files[0]).skip(1).map(of_line).batch(BATCH)


@pytest.mark.parametrize(
    ("make", "reader", "skip", "shuffled", "of_records", "of_batches"),
    [
        (one_by_one, "tfrecord", 0, True, 1, 0), (by_batches, "tfrecord", 0, False, 0, 1),
        (interleaved, "tfrecord", 0, False, 1, 0),
    ],
)  # fmt: skip
def test_files_of_examples_are_followed(make, reader, skip, shuffled, of_records, of_batches, examples):
    found = followed(make(examples))
    assert found.source == Source(examples, reader, skip)
    assert (found.shuffled, len(found.of_records), len(found.of_batches)) == (shuffled, of_records, of_batches)
    assert found.batch_size == BATCH


@pytest.mark.parametrize(
    ("make", "files", "reader"), [(with_titles, FILES, "lines"), (one_with_titles, 1, "lines"), (columns, FILES, "csv")]
)
def test_files_of_lines_are_followed_and_lines_of_titles_left_out(make, files, reader, texts):
    assert followed(make(texts)).source == Source(texts[:files], reader, 1)


def test_columns_are_those_of_the_csv_dataset(tmp_path):
    path = tmp_path / "one.csv"
    path.write_text('5;"a;b";-;2.5\n6;c;7;-\n')
    dataset = tf.data.experimental.CsvDataset(
        str(path), [tf.int64, tf.string, tf.constant([0.5])], field_delim=";", na_value="-", select_cols=[0, 1, 3]
    ).batch(2)
    (expected,) = dataset.as_numpy_iterator()
    (given,) = followed(dataset).leased("columns").as_numpy_iterator()
    assert [one.tolist() for one in given] == [one.tolist() for one in expected]


def csv_dataset(files, **words):
    words = {"label_name": "label", "num_epochs": 1, "shuffle": False, "num_parallel_reads": 2, **words}
    return tf.data.experimental.make_csv_dataset(files, BATCH, **words)


def features_dataset(files, **words):
    words = {"label_key": "label", "reader": tf.data.TFRecordDataset, "num_epochs": 1, "shuffle": False, **words}
    return tf.data.experimental.make_batched_features_dataset(files, BATCH, FEATURES, **words)


def all_of(dataset):
    """Sorted rows (number, label) of its elements, and their types."""
    rows, types = [], set()
    for features, label in dataset.as_numpy_iterator():
        rows += zip(features["number"].ravel().tolist(), label.ravel().tolist())
        types.add((tuple(features), features["number"].dtype, label.dtype))
    return sorted(rows), types


@pytest.mark.parametrize("make", [csv_dataset, features_dataset])
def test_what_tensorflow_makes_of_files_in_one_call_is_followed(make, texts, examples):
    files = texts if make is csv_dataset else examples
    rows, types = all_of(followed(make(files)).leased(f"one call {make.__name__}"))
    assert (rows, types) == all_of(make(files))
    assert len(rows) == FILES * RECORDS
    endless = followed(make(files, num_epochs=None, shuffle=True))
    assert (endless.passes, endless.shuffled) == (None, True)


def test_columns_of_a_csv_dataset_in_one_call_are_its_own(tmp_path):
    path = tmp_path / "one.csv"
    path.write_text('id;text;none;value\n5;"a;b\nc";-;2.5\n6;c;7;-\n')
    dataset = tf.data.experimental.make_csv_dataset(
        str(path), 2, select_columns=["id", "text", "value"], column_defaults=[tf.int64, "", 0.5], field_delim=";",
        na_value="-", num_epochs=1, shuffle=False,
    )  # fmt: skip
    (expected,) = dataset.as_numpy_iterator()
    (given,) = followed(dataset).leased("columns in one call").as_numpy_iterator()
    assert {name: one.tolist() for name, one in given.items()} == {name: one.tolist() for name, one in expected.items()}


def test_compressed_files_of_a_csv_dataset_are_not_followed(tmp_path):
    path = tmp_path / "one.csv.gz"
    with gzip.open(path, "wt") as file:
        file.write("number,label\n1,0\n2,1\n")
    with pytest.raises(NotFollowed, match="ParallelInterleave"):
        followed(csv_dataset([str(path)], compression_type="GZIP"))


@pytest.fixture
def tables(tmp_path):
    """Files of Parquet with the same."""
    if find_spec("tensorflow_io") is None:
        pytest.skip("no tensorflow_io, without which no pipeline reads Parquet")
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    found = []
    for number in range(FILES):
        columns = {"number": number * RECORDS + np.arange(RECORDS), "label": np.arange(RECORDS, dtype=np.float32) % 2}
        found.append(str(tmp_path / f"part-{number}.parquet"))
        parquet.write_table(pyarrow.table(columns), found[-1])
    return found


COLUMNS = {"number": tf.TensorSpec([], tf.int64), "label": tf.TensorSpec([], tf.float32)}


def table(file, columns=COLUMNS):
    import tensorflow_io as tfio

    return tfio.IODataset.from_parquet(file, columns=columns)


def of_row(row):
    return {"number": row["number"]}, row["label"]


def one_table(files):
    return table(files[0]).map(of_row).batch(BATCH)


def names_as_bytes(files):
    return table(files[0], None).map(lambda row: ({"number": row[b"number"]}, row[b"label"])).batch(BATCH)


def tables_interleaved(files):
    return tf.data.Dataset.from_tensor_slices(files).interleave(table).map(of_row).shuffle(100).batch(BATCH)


@pytest.mark.parametrize(("make", "files"), [(one_table, 1), (names_as_bytes, 1), (tables_interleaved, FILES)])
def test_files_of_parquet_are_followed(make, files, tables):
    found = followed(make(tables))
    assert list(found.source.files) == tables[:files] and found.source.reader == "parquet"
    assert all_of(found.leased(f"tables {make.__name__}")) == all_of(make(tables))


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.skip(1), lambda rows: rows.map(lambda row: {**row, "number": row["number"] + 1}),
        lambda rows: rows.map(lambda row: {"number": row["label"], "label": row["number"]}),
    ],
)  # fmt: skip
def test_what_else_is_done_to_rows_of_a_table_is_not_left_out(change, tables):
    names = tf.data.Dataset.from_tensor_slices(tables)
    with pytest.raises(NotFollowed, match="Interleave"):
        followed(names.interleave(lambda name: change(table(name))).batch(BATCH))


def test_tables_that_our_reader_cannot_read_are_each_process_s_own(tables, monkeypatch, tmp_path):
    """Dates are whole numbers for tensorflow-io."""
    import pyarrow
    from pyarrow import parquet

    dated = str(tmp_path / "dated.parquet")
    columns = {"number": np.arange(4), "label": np.zeros(4, np.float32)}
    parquet.write_table(pyarrow.table({**columns, "day": pyarrow.array([1, 2, 3, 4], pyarrow.date32())}), dated)
    spec = {**COLUMNS, "day": tf.TensorSpec([], tf.int32)}
    with pytest.raises(NotFollowed, match="day is date32"):
        followed(table(dated, spec).batch(2)).leased("dated")
    monkeypatch.setattr(pipelines, "find_spec", lambda name: None)
    with pytest.raises(NotFollowed, match="pyarrow"):
        followed(one_table(tables)).leased("without")


NOT_FOLLOWED = {
    "Repeat": lambda lines: lines.map(of_line).batch(BATCH).repeat(0),
    "Filter": lambda lines: lines.filter(lambda line: True).map(of_line).batch(BATCH),
    "Take": lambda lines: lines.map(of_line).batch(BATCH).take(-1),
    "Shard": lambda lines: lines.shard(2, 0).map(of_line).batch(BATCH),
    "Skip": lambda lines: lines.map(of_line).skip(1).batch(BATCH),
    "Unbatch": lambda lines: lines.batch(4).unbatch().map(of_line).batch(BATCH),
    "no batches of tensors": lambda lines: lines.map(of_line),
    "no rows of arrays": lambda lines: tf.data.Dataset.zip((tf.data.Dataset.range(1), lines.map(of_line))).batch(BATCH),
    "what its functions have made": lambda lines: tf.data.Dataset.range(8).map(lambda x: x + 1).batch(BATCH).cache(),
    "made, of all elements": lambda lines: tf.data.Dataset.zip(
        (tf.data.Dataset.range(8).map(lambda x: x + 1).cache(), tf.data.Dataset.range(8))
    ).batch(BATCH),
    "it shuffles batches, whose rows": lambda lines: tf.data.Dataset.range(8).batch(BATCH).shuffle(2),
    "its range is without end": lambda lines: tf.data.Dataset.range(2**63 - 1).batch(BATCH),
    "it has no full batch": lambda lines: tf.data.Dataset.range(1).batch(BATCH, drop_remainder=True),
    "it has no elements": lambda lines: tf.data.Dataset.range(0).batch(BATCH),
    "ends with the shortest": lambda lines: tf.data.Dataset.zip(
        (tf.data.Dataset.from_tensor_slices([1.0]), tf.data.Dataset.from_tensor_slices([1.0, 2.0]))
    ).batch(BATCH),
    "sparse or ragged": lambda lines: (
        tf.data.Dataset.from_tensor_slices((tf.ragged.constant([[1.0], []]), [1.0, 2.0]))
        .map(lambda x, y: (tf.reduce_sum(x), y))
        .batch(BATCH)
    ),
}


@pytest.mark.parametrize("what", NOT_FOLLOWED)
def test_what_is_not_followed_is_named(what, texts):
    with pytest.raises(NotFollowed, match=what):
        followed(NOT_FOLLOWED[what](tf.data.TextLineDataset(texts)))


def test_what_a_function_does_besides_reading_a_file_is_not_followed(texts):
    names = tf.data.Dataset.from_tensor_slices(texts)
    for read in (
        lambda name: tf.data.TextLineDataset(name).map(of_line),
        lambda name: tf.data.TextLineDataset(name + ""),
        lambda name: tf.data.TextLineDataset(name, compression_type="GZIP"),
    ):
        with pytest.raises(NotFollowed):
            followed(names.flat_map(read).batch(BATCH))


@pytest.mark.parametrize("kind", [tf.data.TextLineDataset, tf.data.TFRecordDataset])
def test_compressed_files_are_not_followed(kind, texts):
    with pytest.raises(NotFollowed, match="reads no files whose records can be divided"):
        followed(kind(texts, compression_type="GZIP").batch(BATCH))
    with pytest.raises(NotFollowed):
        followed(tf.data.experimental.CsvDataset(texts, [0, 0.0], compression_type="GZIP").batch(BATCH))


@pytest.mark.parametrize(
    "share", [lambda names: names.shard(2, 0), lambda names: names.take(2), lambda names: names.shuffle(3).skip(1)]
)
def test_a_share_of_the_files_is_not_that_of_all_processes(share, texts):
    names = share(tf.data.Dataset.from_tensor_slices(texts))
    for dataset in (tf.data.TextLineDataset(names), names.interleave(tf.data.TextLineDataset)):
        with pytest.raises(NotFollowed):
            followed(dataset.batch(BATCH))


def test_names_of_files_are_no_patterns(tmp_path):
    path = tmp_path / "part[1].txt"
    path.write_text("1\n")
    (tmp_path / "part1.txt").write_text("2\n")
    found = followed(tf.data.TextLineDataset(str(path)).batch(BATCH)).leased("one")
    assert [one.tolist() for one in found.as_numpy_iterator()] == [[b"1"]]


def of_one_size(batch):
    return tf.reshape(batch, [BATCH, 1])


def test_functions_of_batches_of_one_size_are_followed_where_others_are_dropped(texts):
    """Else the last one has fewer records, so that a function that needs all of them would fail within the job."""
    lines = tf.data.TextLineDataset(texts)
    found = followed(lines.batch(BATCH, drop_remainder=True).map(of_one_size)).leased("of one size")
    assert [len(one) for one in found.as_numpy_iterator()] == [BATCH] * (FILES * (1 + RECORDS) // BATCH)
    with pytest.raises(NotFollowed, match="batches of one size"):
        followed(lines.batch(BATCH).map(of_one_size)).leased("of any size")


@pytest.mark.parametrize("make", [full_batches, full_batches_one_by_one])
def test_what_is_no_full_batch_is_dropped_where_the_pipeline_says_so(make, examples):
    leased = followed(make(examples)).leased(f"full {make.__name__}")
    assert [one.shape.as_list() for one in tf.nest.flatten(leased.element_spec)] == [[BATCH], [BATCH]]
    assert [len(label) for _, label in leased.as_numpy_iterator()] == [BATCH] * (FILES * RECORDS // BATCH)
    assert not followed(by_batches(examples)).drop_remainder


class Counts(keras.Model):
    """Adds one to the row of each number that it is trained on."""

    def __init__(self):
        super().__init__()
        self.seen = self.add_weight(name="seen", shape=(FILES * RECORDS, 1), initializer="zeros")

    def call(self, inputs):
        return tf.gather(tf.convert_to_tensor(self.seen), inputs["number"])

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, **_):
        return -tf.reduce_sum(y_pred)


@pytest.mark.parametrize("make", [one_by_one, by_batches, interleaved, with_titles, columns])
def test_each_record_is_trained_once_an_epoch(make, texts, examples, elastic, host, monkeypatch, caplog):
    monkeypatch.setattr(streams, "trainer", lambda: SimpleNamespace(inputs=host.inputs))
    elastic()
    keras.backend.clear_session()
    model = Counts()
    model.compile(keras.optimizers.SGD(1.0))
    with caplog.at_level(logging.INFO):
        model.fit(make(texts if make in (with_titles, columns) else examples), epochs=2, verbose=0)
    assert "a pass of its own" not in caplog.text
    np.testing.assert_array_equal(np.asarray(model.get_weights()[0]).ravel(), np.full(FILES * RECORDS, 2.0))


class OfOneSize(Counts):
    def call(self, inputs):
        return super().call({"number": tf.reshape(inputs["number"], [BATCH])})


def test_a_model_that_takes_batches_of_one_size_is_trained_on_full_ones(examples, elastic, host, monkeypatch):
    """The same records are dropped in each epoch: they are not shuffled."""
    monkeypatch.setattr(streams, "trainer", lambda: SimpleNamespace(inputs=host.inputs))
    door = elastic()
    keras.backend.clear_session()
    model = OfOneSize()
    model.compile(keras.optimizers.SGD(1.0))
    model.fit(full_batches(examples), epochs=2, verbose=0)
    seen = np.asarray(model.get_weights()[0]).ravel()
    assert set(seen) == {0.0, 2.0} and seen.sum() == 2 * (FILES * RECORDS // BATCH) * BATCH
    assert len(door.trainer.ended.of["fit 1"].came_to) == 2
