"""Which files are read, and how."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.errors import UsageError
from deeprec_ext.modeldef import records, stream


def first(source: records.Source, count: int = 2):
    batch = stream.first_records(source, count)
    return list(tf.data.Dataset.from_tensor_slices(source.records(batch)).as_numpy_iterator())


def test_a_directory_stands_for_its_files_but_hidden_ones(lines, tmp_path):
    (tmp_path / "data" / "_SUCCESS").touch()
    (tmp_path / "data" / ".part").touch()
    found = records.source(lines)
    assert [path.rpartition("/")[2] for path in found.paths] == ["part-0.txt", "part-1.txt"]
    assert found.reader == "lines"
    assert first(found) == [b"0.0", b"0.01"]


def test_several_places_with_commas_between(lines):
    found = records.source(f"{lines}/part-1.txt, {lines}/part-0*")
    assert [path[-5] for path in found.paths] == ["1", "0"]


def test_a_tfrecord_file_is_known_by_its_beginning(tmp_path):
    path = str(tmp_path / "data-00000")
    with tf.io.TFRecordWriter(path) as writer:
        writer.write(b"first")
        writer.write(b"second")
    found = records.source(path)
    assert found.reader == "tfrecord"
    assert first(found) == [b"first", b"second"]


def test_recordio_is_refused_with_what_to_do(tmp_path):
    path = tmp_path / "data-00000"
    path.write_bytes(b"\x04\x03\x02\x01" + bytes(100))
    with pytest.raises(UsageError, match=r"looks like RecordIO.*TFRecord"):
        records.source(str(path))


def test_rows_of_a_csv_file_with_a_header(tmp_path):
    path = tmp_path / "flowers.csv"
    path.write_text('length,"the, width",kind\n5.1,3.5,0\n4.9,"3,0",1\n')
    found = records.source(str(path), "columns")
    assert found.metadata.column_names == ("length", "the, width", "kind")
    rows = first(found)
    assert [row.tolist() for row in rows] == [[b"5.1", b"3.5", b"0"], [b"4.9", b"3,0", b"1"]]


def test_lines_may_be_left_out(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x\n1\n2\n")
    assert first(records.source(str(path), skip_lines=1)) == [b"1", b"2"]


def test_columns_of_parquet(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    path = str(tmp_path / "a.parquet")
    parquet.write_table(pyarrow.table({"id": [1, 2], "price": [0.5, 1.5]}), path)
    found = records.source(path)
    assert found.metadata.column_names == ("id", "price")
    assert found.metadata.column_dtypes["id"] == np.int64
    assert first(found)[1] == {"id": 2, "price": 1.5}


@pytest.mark.parametrize(
    ("data", "reader", "skip", "what"),
    [
        ("nowhere/*", "auto", 0, "no file matches"), ("", "auto", 0, "an empty path"),
        (".", "auto", 0, "the directory has no files"), ("data", "xml", 0, "--reader xml"),
        ("data", "tfrecord", 1, "have no lines"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_said_before_anything_is_read(tmp_path, lines, monkeypatch, data, reader, skip, what):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty" if data == "." else tmp_path)
    with pytest.raises(UsageError, match=what):
        records.source(data, reader, skip)
