"""Damaged files: found and named, or left out and counted; what is whole is given, each record once."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from deeprec_ext.data import compressed, files
from deeprec_ext.data.errors import ChangedError, DamagedError, DataError
from deeprec_ext.data.feeder import Feeder
from deeprec_ext.data.ids import IdFeeder
from deeprec_ext.data.local import LocalLedger
from deeprec_ext.data.plan import plan
from deeprec_ext.data.readers import LineReader, Scan, Shard, by_name
from deeprec_ext.data.readers import crc32c as checks
from deeprec_ext.data.readers.base import Lenient, Reader
from deeprec_ext.data.readers.tfrecord import TFRecordReader
from deeprec_ext.errors import UsageError
from deeprec_ext.proto import deeprec_ext_pb2 as pb

LIMIT = 20.0


def frames(records: list[bytes]) -> bytes:
    found = []
    for record in records:
        length = len(record).to_bytes(8, "little")
        head, tail = checks.masked_crc32c(length), checks.masked_crc32c(record)
        found.append(length + head.to_bytes(4, "little") + record + tail.to_bytes(4, "little"))
    return b"".join(found)


def shards_of(path: Path, scan: Scan) -> list[Shard]:
    firsts = np.cumsum([0, *scan.records])
    rows = zip(scan.begins, [*scan.begins[1:], scan.end], scan.records)
    return [Shard(str(path), n, int(firsts[n]), records, begin, end) for n, (begin, end, records) in enumerate(rows)]


def strictly(reader: Reader, path: Path, scan: Scan | None = None) -> list[bytes]:
    scan = scan or reader.scan(str(path), 8)
    return [record for shard in shards_of(path, scan) for record in reader.read(shard)]


def leniently(reader: Reader, path: Path, shard_records: int = 8, scan: Scan | None = None) -> list[bytes | None]:
    """None in the place of what is damaged."""
    assert isinstance(reader, Lenient)
    scan = scan or reader.scan_leniently(str(path), shard_records)
    found: list[bytes | None] = []
    for shard in shards_of(path, scan):
        salvaged = reader.read_leniently(shard)
        assert len(salvaged.columns) == shard.records and len(salvaged.bad) >= len(salvaged.errors)
        records: list[bytes | None] = list(salvaged.columns)
        for number in salvaged.bad:
            records[number] = None
        found += records
    return found


# --------------------------------------------------------------------------------------------------------------- the CRC


@pytest.fixture(params=["fast", "table"])
def crc(request, monkeypatch) -> str:
    """The library's CRC, and the table that takes its place."""
    if request.param == "table":
        monkeypatch.setattr(checks, "CRC_IS_FAST", False)
        monkeypatch.setattr(checks, "value", checks.value_slowly)
        monkeypatch.setattr(checks, "extend", checks.extend_slowly)
    else:
        assert checks.CRC_IS_FAST, "google-crc32c is a dependency, with its C part"
    return request.param


def test_the_crc_is_castagnolis(crc):
    assert checks.value(b"123456789") == 0xE3069283
    assert checks.extend(checks.value(b"1234"), b"56789") == 0xE3069283
    assert checks.extend(checks.RESIDUE, b"".join(word.to_bytes(4, "little") for word in checks.RESET)) == 0


def test_a_block_is_checked_by_one_call_as_well_as_record_by_record():
    chance = random.Random(1)
    records = [chance.randbytes(chance.randrange(90)) for _ in range(50)]
    data = frames(records)
    assert checks.damaged(b"xyz" + data, records, 3) is None and checks.damaged(b"", []) is None
    for number in chance.sample(range(50), 20):
        wrong = [*records]
        wrong[number] = wrong[number] + b""
        begin = len(frames(records[:number]))
        place = begin + 12 + chance.randrange(len(records[number]) + 4)
        harmed = bytearray(data)
        harmed[place] ^= 1 << chance.randrange(8)
        again = [bytes(harmed[len(frames(records[:n])) + 12 :][: len(one)]) for n, one in enumerate(records)]
        assert checks.damaged(bytes(harmed), again) == number


@pytest.mark.parametrize("when", ["before it is counted", "after"])
@pytest.mark.parametrize("longest", [80, 3000])
def test_every_flipped_bit_of_a_tfrecord_is_found_and_costs_one_record(tmp_path, crc, when, longest):
    chance = random.Random(f"{when} {longest}")
    records = [chance.randbytes(chance.randrange(longest)) for _ in range(30)]
    good, path, reader = frames(records), tmp_path / "data", TFRecordReader()
    path.write_bytes(good)
    counted = reader.scan(str(path), 8) if when == "after" else None
    assert strictly(reader, path, counted) == records == leniently(reader, path, scan=counted)
    for _ in range(150 if crc == "fast" else 15):
        bit = chance.randrange(8 * len(good))
        harmed = bytearray(good)
        harmed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(harmed)
        with pytest.raises(DataError, match=r"data.*byte \d+"):
            strictly(reader, path, counted)
        found = leniently(reader, path, scan=counted)
        assert [one for one in found if one is not None] == [r for r, one in zip(records, found) if one is not None]
        assert found.count(None) == 1 and len(found) == len(records)


def test_a_damaged_record_is_named_with_file_number_and_place(tmp_path):
    path = tmp_path / "clicks.tfrecord"
    records = [b"%03d" % number for number in range(20)]
    harmed = bytearray(frames(records))
    harmed[13 * 19 + 13] ^= 4
    path.write_bytes(harmed)
    with pytest.raises(
        DamagedError, match=r"clicks.tfrecord: record 13, at byte 247, is damaged: the CRC of its data"
    ) as told:
        strictly(TFRecordReader(), path)
    assert (told.value.record, told.value.byte) == (13, 247) and "--bad-records skip" in str(told.value)


@pytest.mark.parametrize("cut", [1, 5, 17])
def test_a_torn_end_is_one_damaged_record(tmp_path, cut):
    path = tmp_path / "data"
    records = [bytes([65 + number]) * 10 for number in range(17)]
    path.write_bytes(frames(records)[:-cut])
    with pytest.raises(DataError, match="torn"):
        TFRecordReader().scan(str(path), 8)
    assert leniently(TFRecordReader(), path) == [*records[:-1], None]


def test_damage_in_a_row_is_one_record_where_a_length_is_lost_and_text_is_no_tfrecord_at_all(tmp_path):
    path = tmp_path / "data"
    records = [bytes([65 + number]) * 10 for number in range(20)]
    harmed = bytearray(frames(records))
    harmed[5 * 26 : 7 * 26 + 3] = bytes(2 * 26 + 3)
    path.write_bytes(harmed)
    found = leniently(TFRecordReader(), path)
    assert found == [*records[:5], None, *records[8:]], "nobody can say how many they were"
    path.write_bytes(b"hello, world, this is no TFRecord at all")
    with pytest.raises(DataError, match="no TFRecord"):
        TFRecordReader().scan_leniently(str(path), 8)


def test_without_the_library_tensorflows_reader_checks(tmp_path, monkeypatch):
    pytest.importorskip("tensorflow")
    monkeypatch.setattr(checks, "CRC_IS_FAST", False)
    reader, path = TFRecordReader(), tmp_path / "data"
    assert reader._fallback is not None
    records = [b"%03d" % number for number in range(20)]
    good = frames(records)
    path.write_bytes(good)
    assert strictly(reader, path) == records
    path.write_bytes(good[:80] + bytes([good[80] ^ 1]) + good[81:])
    with pytest.raises(DamagedError, match="record 4, at byte 76"):
        strictly(reader, path)


# --------------------------------------------------------------------------------------------------------------- CSV


HEAD = [b"%d,abc,%d" % (number, number * 7) for number in range(30)]


@pytest.mark.parametrize(
    "what, where",
    [(b'30,"never closed,1', "record 30, at line 31, byte"), (b'30,5" pipe,1', "record 30, at line 31, byte")],
)
@pytest.mark.parametrize("rest", ["plain", "quoted"])
def test_a_quote_that_is_not_closed_costs_its_line_alone(tmp_path, what, where, rest):
    path = tmp_path / "table.csv"
    tail = [b"%d,abc,1" % n if rest == "plain" or n % 9 else b'%d,"a b",1' % n for n in range(31, 170)]
    path.write_bytes(b"\n".join([*HEAD, what, *tail]) + b"\n")
    reader = by_name("csv")
    with pytest.raises(DamagedError, match=where):
        reader.scan(str(path), 8)
    assert leniently(reader, path) == [*HEAD, None, *tail]


def test_what_is_quoted_over_lines_is_whole_up_to_its_bounds(tmp_path):
    path = tmp_path / "table.csv"
    long = b'1,"' + b"\n".join([b'a ""word"" more'] * 60) + b'",2'
    records = [*HEAD, long, b'2,"",x', b'3,"a\nb"', b"4,c"]
    path.write_bytes(b"\n".join(records) + b"\n")
    assert strictly(by_name("csv"), path) == records == leniently(by_name("csv"), path)
    bounded = by_name("csv", max_record_lines=59)
    with pytest.raises(DamagedError, match=r"line 31.* runs over more than 59 lines"):
        bounded.scan(str(path), 8)
    short = LineReader(max_record_bytes=40)
    path.write_bytes(b"\n".join([b"a", b"b" * 41, b"c"]))
    with pytest.raises(DamagedError, match=r"record 1, at line 2, byte 2, .*more than 40 bytes"):
        short.scan(str(path), 8)
    assert leniently(short, path) == [b"a", None, b"c"]
    assert len({by_name("csv").name, bounded.name, short.name, by_name("lines").name}) == 4


@pytest.mark.parametrize("seed", range(8))
def test_counting_and_reading_agree_on_what_is_damaged(tmp_path, monkeypatch, seed):
    """Whatever the shards, and however the blocks fall, which are read while it is counted."""
    chance = random.Random(seed)
    makers: list[Callable[[int], str]] = [
        lambda n: f"{n},abc,1", lambda n: f'{n},"a b",3', lambda n: f'{n},"a\nb ""x"" c",3', lambda n: f'{n},"un,3',
        lambda n: f'{n},un"x,3', lambda n: "", lambda n: f'{n},"{"z" * chance.randrange(200)}"', lambda n: f"{n}\r",
    ]  # fmt: skip
    path = tmp_path / "table.csv"
    for _ in range(25):
        lines = [chance.choices(makers, [9, 4, 2, 2, 1, 1, 1, 1])[0](n) for n in range(chance.randrange(1, 120))]
        path.write_bytes("\n".join(lines).encode())
        bounds = {"max_record_lines": chance.choice([2, 5, 100]), "max_record_bytes": chance.choice([40, 1000])}
        found = []
        for block, shard_records in ((5, 1), (50, 3), (5000, 1000), (1 << 20, 10)):
            monkeypatch.setattr(files, "BLOCK_BYTES", block)
            found.append(leniently(by_name("csv", **bounds), path, shard_records))
        assert all(one == found[0] for one in found)
        kept = [one for one in found[0] if one is not None]
        assert all(one in path.read_bytes() for one in kept)


def test_what_is_no_utf8_is_told_with_its_line_or_damaged_where_that_is_asked_for(tmp_path, caplog):
    path = tmp_path / "names.csv"
    path.write_bytes(b"a,1\nb,2\nc\xff,3\nd\xfe,4\n\xc3\xa9,5\n")
    records = [b"a,1", b"b,2", b"c\xff,3", b"d\xfe,4", b"\xc3\xa9,5"]
    reader = by_name("csv")
    assert strictly(reader, path) == records == strictly(reader, path)
    told = [one.getMessage() for one in caplog.records if "UTF-8" in one.getMessage()]
    assert len(told) == 1 and f"{path}: line 3 is not UTF-8" in told[0]
    asked = by_name("csv", encoding="utf-8")
    with pytest.raises(DamagedError, match=r"record 2, at line 3, byte 8, .*not UTF-8"):
        strictly(asked, path)
    assert leniently(asked, path) == [b"a,1", b"b,2", None, None, records[4]]
    with pytest.raises(UsageError, match="encoding"):
        by_name("lines", encoding="latin-1")
    with pytest.raises(UsageError, match="max_record_lines"):
        by_name("csv", max_record_lines=0)


# --------------------------------------------------------------------------------------------------------------- packed


PACKED = {
    "gzip": gzip.compress(b"a,b\n" * 999), "zlib": zlib.compress(b"a,b\n" * 999), "bzip2": bz2.compress(b"a,b\n" * 999),
    "xz": lzma.compress(b"a,b\n" * 999), "Zstandard": b"\x28\xb5\x2f\xfd\x04\x00a", "LZ4": b"\x04\x22\x4d\x18d@\xa7",
    "zip": b"PK\x03\x04\x14\x00", "Snappy": b"\xff\x06\x00\x00sNaPpY", "7-Zip": b"7z\xbc\xaf\x27\x1c\x00",
}  # fmt: skip


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("reader", ["lines", "csv", "tfrecord"])
@pytest.mark.parametrize("lenient", [False, True])
def test_compressed_files_are_refused_by_name_with_what_to_do(tmp_path, name, reader, lenient):
    path = tmp_path / "packed"
    path.write_bytes(PACKED[name])
    made = by_name(reader)
    scan = made.scan_leniently if lenient else made.scan
    with pytest.raises(DataError, match=rf"packed is compressed \({name}\).*Unpack it \(.*reader="):
        scan(str(path), 10)


@pytest.mark.parametrize("text", [b"x^2,3\n" * 2000, b"x\x01", b"BZh9 is a name\n", b"PK,1\n", b"7z,1\n", b"", b"x"])
def test_text_that_begins_like_a_compressed_file_is_text(text):
    assert compressed.compression(text[: compressed.HEAD_BYTES]) is None


# --------------------------------------------------------------------------------------------------------------- feeders


class Ledger(LocalLedger):
    """Keeps what it is told."""

    def __init__(self, declaration: pb.Dataset) -> None:
        super().__init__(declaration)
        self.leases: dict[int, pb.Lease] = {}
        self.skipped: dict[int, set[int]] = {}
        self.done: dict[int, int] = {}
        self.failures: list[str] = []

    def answer(self, request: pb.DataRequest) -> pb.DataReply:
        for progress in request.progress:
            self.done[progress.lease] = progress.done
            self.skipped.setdefault(progress.lease, set()).update(progress.skipped)
        self.failures += [failure.error for failure in request.failed]
        reply = super().answer(request)
        self.leases.update((lease.id, lease) for lease in reply.leases if lease.kind == pb.Lease.DATA)
        return reply


@pytest.fixture
def fed(tmp_path) -> Iterator[Callable]:
    made: list[Feeder] = []

    def make(
        bad: set[int], records: int, mode: str, kind: type = Feeder, shard_records: int = 30, shuffle: bool = True
    ):
        content = b"".join(
            frames([b"%05d" % n])[:-1] + b"\0" if n in bad else frames([b"%05d" % n]) for n in range(records)
        )
        path = tmp_path / "data"
        path.write_bytes(content)
        asked = plan(str(path), 10, 1, shuffle, 5, "tfrecord", shard_records, None, "train", False, {})
        feeder = kind(asked.declaration, asked.reader, 10, 2.0, mode)
        made.append(feeder)
        ledger = Ledger(asked.declaration)

        class Link:
            def send(self, request: pb.DataRequest) -> None:
                feeder.receive(ledger.answer(request))

        feeder.connect(Link())
        feeder.registered(1)
        return feeder, ledger

    yield make
    for feeder in made:
        feeder.close()


@pytest.mark.parametrize("kind", [Feeder, IdFeeder])
@pytest.mark.parametrize("claimed", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(
    "bad", [{0}, {99}, set(range(30, 60)), set(range(5, 95)), set(range(100)), {*range(29, 31), *range(58, 62), 99}]
)
def test_what_is_skipped_and_what_is_trained_are_all_there_is(fed, bad, shuffle, claimed, kind):
    feeder, ledger = fed(bad, 100, "skip", kind, shuffle=shuffle)
    trained: list[bytes] = []
    if claimed:
        feeder.claim()
    batches = feeder.batches()
    while True:
        ticket = feeder.begin(1, LIMIT) if claimed else None
        batch = next(batches, None)
        if batch is None:
            if claimed and ticket is not None and feeder.unused(ticket):
                continue
            break
        rows = batch["record"] if isinstance(batch, dict) else batch
        assert len(rows) > 0, "no step gets a batch without records"
        trained += list(rows)
        if claimed:
            feeder.trained(ticket, batch["deeprec_record"] if isinstance(batch, dict) else None)
    feeder.finish()
    assert sorted(trained) == [b"%05d" % n for n in range(100) if n not in bad]
    assert sum(map(len, ledger.skipped.values())) == len(bad)
    assert sum(ledger.done.values()) == 100
    for lease, places in ledger.skipped.items():
        assert all(place < ledger.done[lease] for place in places)


def test_without_it_a_damaged_record_fails_its_shard_by_name(fed):
    feeder, ledger = fed({17}, 100, "fail", shuffle=False)
    with pytest.raises(DataError, match=r"shard 0 .*record 17, at byte 357, is damaged"):
        list(feeder.batches())
    assert ledger.failures and not ledger.skipped.get(1)


def test_what_was_changed_after_it_was_counted_is_no_damage_to_skip(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(frames([b"abcd"] * 20))
    reader = TFRecordReader()
    shard = shards_of(path, reader.scan(str(path), 20))[0]
    path.write_bytes(frames([b"ab"] * 10 + [b"abcdef"] * 10))
    with pytest.raises(ChangedError):
        strictly(reader, path, Scan([0], [21], path.stat().st_size))
    assert shard.end == path.stat().st_size


# -------------------------------------------------------------------------------------------- what was given to steps


def test_the_first_step_is_told_before_it_ends_and_what_runs_is_told_with_every_request(fed):
    feeder, ledger = fed(set(), 100, "fail")
    requests: list[pb.DataRequest] = []
    answer = ledger.answer

    def kept(request: pb.DataRequest) -> pb.DataReply:
        requests.append(request)
        return answer(request)

    ledger.answer = kept
    feeder.claim()
    batches = feeder.batches()
    ticket = feeder.begin(1, LIMIT)
    next(batches)
    for _ in range(2000):
        if any(one.handed_records == 10 for one in requests):
            break
        feeder._pause(0.01)
    assert requests[-1].handed_records == 10 and not requests[-1].progress
    feeder.trained(ticket)
    second = feeder.begin(1, LIMIT)
    next(batches)
    feeder.trained(second)
    feeder.finish()
    assert requests[-1].handed_records == 0 and sum(one.done for one in requests[-1].progress) == 20


def test_with_ids_what_waits_in_a_shuffle_buffer_was_given_to_no_step(fed):
    feeder, _ = fed(set(), 200, "fail", IdFeeder)
    feeder.claim()
    batches = feeder.batches()
    read = [feeder.begin(1, LIMIT) and next(batches) for _ in range(1)]
    assert feeder._handed() == 10, "its first step may have read all that was given"
    read += [next(batches) for _ in range(9)]
    feeder.trained(next(iter(feeder._running.values())), read[5]["deeprec_record"])
    assert feeder._handed() <= 10
    feeder.begin(1, LIMIT)
    assert feeder._handed() <= 20 < 90, "90 records are in the pipeline"
