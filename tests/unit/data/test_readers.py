"""How records are found in files: no TensorFlow but for what its own writer writes."""

from __future__ import annotations

import random
import subprocess
import sys

import numpy as np
import pytest

from deeprec_ext.data import files
from deeprec_ext.data.errors import ChangedError, DataError
from deeprec_ext.data.readers import IterableReader, LineReader, Reader, Scan, Shard, by_name
from deeprec_ext.data.readers.tfrecord import masked_crc32c
from deeprec_ext.errors import UsageError


def shards(path: str, scan: Scan) -> list[Shard]:
    ends = [*scan.begins[1:], scan.end]
    firsts = np.cumsum([0, *scan.records])
    return [
        Shard(path, number, int(firsts[number]), records, begin, end)
        for number, (begin, end, records) in enumerate(zip(scan.begins, ends, scan.records))
    ]


def read_all(reader: Reader, path, shard_records: int) -> list[bytes]:
    path = str(path)
    scan = reader.scan(path, shard_records)
    assert all(records == shard_records for records in scan.records[:-1])
    return [record for shard in shards(path, scan) for record in reader.read(shard)]


@pytest.mark.parametrize(
    "content, records",
    [
        (b"", []),
        (b"\n\n\r\n", []),
        (b"a", [b"a"]),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\nb", [b"a", b"b"]),
        (b"a\r\nb\r\n", [b"a", b"b"]),
        (b"\na\n\n\nb\n \n", [b"a", b"b", b" "]),
        (b"a\r\n\r\nb\r", [b"a", b"b"]),
        (b'"a\nb",1\n', [b'"a', b'b",1']),
    ],
)
@pytest.mark.parametrize("shard_records", [1, 2, 100])
def test_lines_end_with_lf_or_crlf_and_empty_ones_are_no_records(tmp_path, content, records, shard_records):
    path = tmp_path / "text"
    path.write_bytes(content)
    assert read_all(LineReader(), path, shard_records) == records


@pytest.mark.parametrize("shard_records", [1, 2, 100])
def test_csv_has_line_ends_between_quotes_and_headers(tmp_path, shard_records):
    path = tmp_path / "table.csv"
    path.write_bytes(b'name,text\r\n1,"a\nb"\r\n2,"he said ""no""\n\n"\n3,c')
    reader = by_name("csv", skip_lines=1)
    assert read_all(reader, path, shard_records) == [b'1,"a\nb"', b'2,"he said ""no""\n\n"', b"3,c"]


@pytest.mark.parametrize("quotes", [False, True])
def test_lines_are_the_same_whatever_the_size_of_the_blocks_that_are_read(tmp_path, monkeypatch, quotes):
    chance = random.Random(3)
    content = b"".join(chance.choice([b"a", b"bc", b"\n", b"\r\n", b"\n\n", b',"x\ny",', b"\r"]) for _ in range(600))
    path = tmp_path / "text"
    path.write_bytes(content)
    whole = read_all(LineReader(quotes), path, 7)
    for size in (1, 2, 3, 17):
        monkeypatch.setattr(files, "BLOCK_BYTES", size)
        assert read_all(LineReader(quotes), path, 7) == whole
    assert len(whole) > 50


def test_a_compressed_file_is_refused(tmp_path):
    import gzip

    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(b"a\nb\n"))
    with pytest.raises(DataError, match="compressed"):
        LineReader().scan(str(path), 10)


def write_tfrecord(path, records: list[bytes]) -> None:
    with open(path, "wb") as file:
        for record in records:
            length = len(record).to_bytes(8, "little")
            file.write(length + masked_crc32c(length).to_bytes(4, "little") + record)
            file.write(masked_crc32c(record).to_bytes(4, "little"))


@pytest.mark.parametrize("block", [7, 1 << 20])
def test_tfrecords_are_read_whole(tmp_path, monkeypatch, block):
    monkeypatch.setattr(files, "BLOCK_BYTES", block)
    records = [bytes([number]) * (number % 40) for number in range(100)]
    path = tmp_path / "data.tfrecord"
    write_tfrecord(path, records)
    assert read_all(by_name("tfrecord"), path, 7) == records


def test_what_tensorflow_writes_is_a_tfrecord(tmp_path):
    tf = pytest.importorskip("tensorflow")
    with tf.io.TFRecordWriter(str(tmp_path / "data")) as writer:
        for record in (b"one", b"", b"three"):
            writer.write(record)
    assert read_all(by_name("tfrecord"), tmp_path / "data", 2) == [b"one", b"", b"three"]


@pytest.mark.parametrize("harm", ["torn", "text", "tail"])
def test_a_tfrecord_that_is_none_is_named_with_the_place(tmp_path, harm):
    path = tmp_path / "data"
    write_tfrecord(path, [b"abc"] * 10)
    content = path.read_bytes()
    path.write_bytes({"torn": content[:-1], "text": b"hello, world, this is no TFRecord", "tail": content + b"x"}[harm])
    with pytest.raises(DataError, match=r"data is (torn|no TFRecord).* byte"):
        by_name("tfrecord").scan(str(path), 3)


def test_a_function_reads_what_nobody_else_can(tmp_path):
    opened = []

    def numbers(path):
        opened.append(path)
        return ({"n": n, "word": f"w{n}"} for n in range(25))

    reader = IterableReader(numbers)
    path = str(tmp_path)
    found = [reader.read(shard) for shard in shards(path, reader.scan(path, 10))]
    assert np.concatenate([one["n"] for one in found]).tolist() == list(range(25))
    assert found[2]["word"].tolist() == [b"w20", b"w21", b"w22", b"w23", b"w24"]
    assert len(opened) == 2, "once to count, once to read in order"


@pytest.mark.parametrize("name", ["lines", "tfrecord"])
@pytest.mark.parametrize("harm", ["shrunk", "rewritten", "vanished"])
def test_a_file_that_changed_is_noticed(tmp_path, name, harm):
    path = tmp_path / "data"
    records = [f"record {number}".encode() for number in range(50)]
    if name == "lines":
        path.write_bytes(b"\n".join(records))
    else:
        write_tfrecord(path, records)
    reader = by_name(name)
    last = shards(str(path), reader.scan(str(path), 20))[-1]
    if harm == "shrunk":
        path.write_bytes(path.read_bytes()[:-5])
    elif harm == "rewritten":
        path.write_bytes(b"\n" * path.stat().st_size)
    else:
        path.unlink()
    with pytest.raises(ChangedError, match="data"):
        reader.read(last)


def test_patterns_are_sorted_and_each_file_is_taken_once(tmp_path):
    for name in "bac":
        (tmp_path / f"{name}.txt").write_text(name)
    found = files.matching([str(tmp_path / "b.txt"), str(tmp_path / "*.txt")])
    assert [path[-5] for path in found] == ["b", "a", "c"]
    with pytest.raises(UsageError, match="no file matches"):
        files.matching(str(tmp_path / "*.csv"))
    with pytest.raises(UsageError, match="empty"):
        files.matching([])


@pytest.mark.parametrize(
    "reader, options", [("xml", {}), ("lines", {"columns": []}), (3, {}), (lambda path: [], {"skip_lines": 1})]
)
def test_readers_that_are_none_are_refused(reader, options):
    with pytest.raises(UsageError, match="reader"):
        by_name(reader, **options)


def test_records_need_no_tensorflow(tmp_path):
    (tmp_path / "a.txt").write_text("1\n2\n3\n")
    code = (
        "import sys; from deeprec_ext.data import elastic_records;"
        f"print(sorted(int(r) for b in elastic_records({str(tmp_path / 'a.txt')!r}, 2) for r in b));"
        "assert 'tensorflow' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout == "[1, 2, 3]\n", done.stderr
