"""Data files: what is written is read, and what is torn or flipped is never taken for data."""

from __future__ import annotations

import io
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deeprec_ext.backup import blocks, codec
from deeprec_ext.backup.errors import DamagedError, WrongBackupError
from deeprec_ext.errors import DeepRecError


def written(used=codec.ZLIB) -> bytes:
    stream = io.BytesIO()
    writer = blocks.FileWriter(stream, "cut", 3, used)
    writer.add_range("table", 1, 5, np.arange(40, dtype="f4").reshape(10, 4))
    writer.add_rows("table", 1, np.array([0, 7, 1000]), np.ones((3, 4), "f4"))
    writer.add_rows("noise", 2, np.array([4]), np.random.default_rng(0).normal(size=(1, 50)))
    writer.add_whole("words", 7, np.array([[b"one", b""], [b"\0\xff", b"four"]], object))
    writer.add_whole("step", 9, np.int64(7))
    writer.add_range("empty", 1, 0, np.zeros((1, 0), "f4"))
    writer.finish()
    data = stream.getvalue()
    assert (writer.size, writer.crc32) == (len(data), zlib.crc32(data))
    return data


def read(data: bytes) -> list[blocks.Block]:
    reader = blocks.FileReader(io.BytesIO(data), "the-file", len(data))
    return [reader.read(info) for info in reader.blocks]


@pytest.mark.parametrize("used", [codec.ZLIB, codec.best()], ids=lambda one: one.name)
def test_what_is_written_is_read(used):
    table, rows, noise, words, step, empty = read(written(used))
    np.testing.assert_array_equal(table.values(np.float32), np.arange(40).reshape(10, 4))
    assert (table.info.first, table.info.last, table.info.stored) == (5, 14, used.name)
    assert rows.rows.tolist() == [0, 7, 1000] and rows.values(np.float32).sum() == 12
    assert noise.info.stored == "raw"  # noise is not worth compressing
    assert words.values(object).tolist() == [[b"one", b""], [b"\0\xff", b"four"]]
    assert step.values(np.int64) == 7 and step.values(np.int64).shape == ()
    assert empty.values(np.float32).shape == (1, 0)


def test_a_flipped_bit_anywhere_is_found_before_a_value_is_used():
    bad = bytearray(written())
    for at in range(len(bad)):
        for bit in range(8):
            bad[at] ^= 1 << bit
            with pytest.raises((DamagedError, WrongBackupError)) as error:
                read(bytes(bad))
            assert "the-file" in str(error.value)
            bad[at] ^= 1 << bit


@given(st.integers(0, len(written()) - 1))
@settings(max_examples=200, deadline=None)
def test_a_file_cut_off_anywhere_is_torn(length):
    with pytest.raises(DamagedError, match="the-file"):
        read(written()[:length])


def test_a_block_that_claims_to_be_huge_is_not_allocated():
    stream = io.BytesIO()
    writer = blocks.FileWriter(stream, "cut", 0, codec.ZLIB)
    writer.add_range("bomb", 1, 0, np.zeros((1 << 20, 1), "f4"))  # 4 kB of zlib
    writer.index[0] = blocks.BlockInfo.from_list([*writer.index[0].to_list()[:3], [2], *writer.index[0].to_list()[4:]])
    writer.finish()
    with pytest.raises(DamagedError, match=r"4194304 bytes for \(2,\) of float32"):
        read(stream.getvalue())


@given(st.lists(st.binary(max_size=20), max_size=20))
def test_strings_of_any_bytes_are_kept(texts):
    values = np.empty(len(texts), object)
    values[:] = texts
    stream = io.BytesIO()
    writer = blocks.FileWriter(stream, "cut", 0)
    writer.add_whole("words", 7, values)
    writer.finish()
    assert read(stream.getvalue())[0].values(object).tolist() == texts


def test_another_version_is_refused_by_name(monkeypatch):
    data = written()
    monkeypatch.setattr(blocks, "VERSION", 9)
    with pytest.raises(WrongBackupError, match="version 1, this deeprec-ext reads 9"):
        read(data)


def test_an_unknown_codec_is_named():
    with pytest.raises(DeepRecError, match="lz77"):
        codec.named("lz77")


def test_without_zstandard_zlib_is_used(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    assert codec.best() is codec.ZLIB
    with pytest.raises(DeepRecError, match="pip install zstandard"):
        codec.named("zstd")
