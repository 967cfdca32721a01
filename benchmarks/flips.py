"""Single flipped bits in TFRecord, CSV and backups: found, harmless, or silently another value. And what the checks cost.

    python -m benchmarks.flips [--flips 1000] [--seed 1] [--part flips|speed] [--rounds 9] [--json]

Flips: a file is made, one bit anywhere in it is changed, it is counted and read (a backup: verified and read), strictly and,
TFRecord and CSV, once more with damaged records left out. *Found*: an error names the file. *Harmless*: everything that is read
is as it was. *Other*: something else was read and nobody said so; where there is a checksum that must not be. Of CSV, which has
none, the most records that one flip costs.

Speed: `elastic_records` over TFRecord files of short and long records (counting, reading, shuffling, batches of 128) with the
reader ÷ with the one from before there were checks, which this file keeps; interleaved, medians of processor time. Target: 1.05
at the most. Beside it the same of the reader alone, counting and reading, and reading.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deeprec_ext.backup import manifest as manifests
from deeprec_ext.backup import model, snapshots
from deeprec_ext.backup.blocks import FileWriter
from deeprec_ext.backup.files import directory
from deeprec_ext.backup.merge import SlotState
from deeprec_ext.data import elastic_records, files
from deeprec_ext.data.errors import DataError
from deeprec_ext.data.readers import Scan, Shard, by_name
from deeprec_ext.data.readers.base import Lenient, Reader
from deeprec_ext.data.readers.crc32c import masked_crc32c
from deeprec_ext.errors import DeepRecError

SHARD_RECORDS = 4096
"""That of a batch of 128, if the user does not say."""
BATCH = 128
TARGET = 1.05
FLOAT = 1  # tensorflow.DataType


# ---------------------------------------------------------------------------------------------------------- reading


def shards_of(path: str, scan: Scan) -> list[Shard]:
    firsts = np.cumsum([0, *scan.records]).tolist()
    rows = zip(scan.begins, [*scan.begins[1:], scan.end], scan.records)
    return [Shard(path, n, firsts[n], records, begin, end) for n, (begin, end, records) in enumerate(rows)]


def strictly(reader: Reader, path: str, shard_records: int) -> list[bytes]:
    return [one for shard in shards_of(path, reader.scan(path, shard_records)) for one in reader.read(shard)]


def leniently(reader: Lenient, path: str, shard_records: int) -> list[bytes | None]:
    """None: damaged."""
    found: list[bytes | None] = []
    for shard in shards_of(path, reader.scan_leniently(path, shard_records)):
        salvaged = reader.read_leniently(shard)
        records: list[bytes | None] = list(salvaged.columns)
        for number in salvaged.bad:
            records[number] = None
        found += records
    return found


def tfrecord(records: Sequence[bytes]) -> bytes:
    found = []
    for record in records:
        length = struct.pack("<Q", len(record))
        found += [length, struct.pack("<I", masked_crc32c(length)), record, struct.pack("<I", masked_crc32c(record))]
    return b"".join(found)


def csv(chance: random.Random, lines: int) -> list[bytes]:
    def one(number: int) -> str:
        words = "".join(chance.choices("abcdefgh ", k=chance.randrange(3, 30)))
        text = f'"{words}, ""{words}"""' if number % 3 == 0 else f'"{words}\n{words}"' if number % 10 == 1 else words
        return f"{number},{chance.random():.5f},{text},{chance.randrange(10**6)}"

    return [one(number).encode() for number in range(lines)]


# ------------------------------------------------------------------------------------------------------------- flips


def flipped(content: bytes, chance: random.Random) -> bytes:
    bit = chance.randrange(8 * len(content))
    harmed = bytearray(content)
    harmed[bit // 8] ^= 1 << bit % 8
    return bytes(harmed)


def flips_in_files(kind: str, count: int, chance: random.Random, place: Path) -> dict[str, Any]:
    if kind == "tfrecord":
        records = [chance.randbytes(chance.randrange(40, 160)) for _ in range(400)]
        content = tfrecord(records)
    else:
        records = csv(chance, 400)
        content = b"\n".join(records) + b"\n"
    path, reader = str(place / kind), by_name(kind)
    assert isinstance(reader, Lenient)
    verdicts: Counter[str] = Counter()
    lost = worst = 0
    for _ in range(count):
        Path(path).write_bytes(flipped(content, chance))
        try:
            found = strictly(reader, path, 64)
            verdicts["harmless" if found == records else "other"] += 1
            worst = max(worst, len(records) - same_at_both_ends(found, records))
        except DataError as error:
            verdicts["found" if path in str(error) else "found, without the file's name"] += 1
        kept = leniently(reader, path, 64)
        if kind == "tfrecord":
            right = len(kept) == len(records) and all(one in (None, r) for one, r in zip(kept, records))
            verdicts["skipped wrongly"] += not right or kept.count(None) > 1
        lost = max(lost, len(records) - same_at_both_ends(kept, records))
    return {**verdicts, "most_records_of_a_flip": worst, "most_records_when_skipped": lost}


def same_at_both_ends(found: Sequence[bytes | None], records: Sequence[bytes]) -> int:
    """Records before the first that is another, and behind the last."""
    short = min(len(found), len(records))
    front = next((n for n in range(short) if found[n] != records[n]), short)
    back = next((n for n in range(short - front) if found[-1 - n] != records[-1 - n]), short - front)
    return front + back


def make_backup(place: Path) -> tuple[manifests.Manifest, dict[str, np.ndarray]]:
    """A base of two slots and a delta of some rows."""
    numbers = np.random.default_rng(3)
    variables = [manifests.SavedVariable(f"t{n}", "", FLOAT, (200, 4), n, False, f"t{n}", "") for n in (0, 1)]
    values = {one.name: numbers.normal(size=one.shape).astype("f4") for one in variables}
    where, cuts = directory(str(place)), []
    where.make()
    for number in (1, 2):
        identifier, written = manifests.snapshot_id(number, 1, "job"), []
        for slot, variable in enumerate(variables):
            name = manifests.data_name(identifier, slot)
            with where.writing(name) as stream:
                writer = FileWriter(stream, identifier, slot)
                if number == 1:
                    writer.add_range(variable.name, FLOAT, 0, values[variable.name])
                else:
                    rows = np.arange(0, 200, 5)
                    values[variable.name][rows] += 1
                    writer.add_rows(variable.name, FLOAT, rows, values[variable.name][rows])
                writer.finish()
            file = manifests.DataFile(name, writer.size, writer.crc32, slot, writer.rows, writer.raw_bytes, number == 1)
            written.append(file)
        cuts.append(manifests.Snapshot(identifier, number, tuple(written)))
    made = manifests.Manifest(
        "job", "job", model.fingerprint(variables), model.layout(variables), 10, 1, 1e9, b"", 2, "", tuple(variables),
        tuple(cuts),
    )  # fmt: skip
    snapshots.commit(where, made, manifests.dumps(made), ())
    return made, values


def flips_in_backups(count: int, chance: random.Random, place: Path) -> dict[str, Any]:
    made, values = make_backup(place)
    where = directory(str(place))
    contents = {path: path.read_bytes() for path in sorted(place.iterdir())}
    paths, sizes = list(contents), [len(content) for content in contents.values()]
    verdicts: Counter[str] = Counter()
    for _ in range(count):
        [path] = chance.choices(paths, sizes)
        path.write_bytes(flipped(contents[path], chance))
        try:
            found = snapshots.look(where)
            names = {file.name: file for one in found.manifests for file in one.files().values()}
            damaged = {**found.damaged, **snapshots.check_files(where, names.values())}
            verdicts[
                "found" if damaged else "harmless" if is_same(where, found.manifests, made, values) else "other"
            ] += 1
        except DeepRecError:
            verdicts["found"] += 1
        path.write_bytes(contents[path])
    return dict(verdicts)


def is_same(where: Any, found: Sequence[manifests.Manifest], made: manifests.Manifest, values: dict[str, Any]) -> bool:
    if list(found) != [made]:
        return False
    for variable in made.variables:
        with SlotState(where, made, variable.slot) as state:
            read = np.concatenate([piece.values for piece in state.pieces(variable, np.dtype("f4"))])
            if not np.array_equal(read, values[variable.name]):
                return False
    return True


# ------------------------------------------------------------------------------------------------------------- speed


class Before:
    """The reader as it was without checks of the data, kept to be measured against."""

    name = "tfrecord"
    _head = struct.Struct("<QI")

    def scan(self, path: str, shard_records: int) -> Scan:
        begins: list[int] = []
        records = at = 0
        rest, base = b"", 0
        for block in files.blocks(path):
            data = rest + block if rest else block
            position = at - base
            while position + 12 <= len(data):
                length, _ = self._head.unpack_from(data, position)
                end = position + 16 + length
                if end > len(data):
                    break
                if records % shard_records == 0:
                    begins.append(base + position)
                records += 1
                position = end
            at = base + position
            rest, base = data[position:], at
        full, left = divmod(records, shard_records)
        return Scan(begins, [shard_records] * full + ([left] if left else []), at)

    def read(self, shard: Shard) -> np.ndarray:
        data = files.read_range(shard.path, shard.begin, shard.end)
        found = np.empty(shard.records, object)
        position = 0
        for number in range(shard.records):
            length, _ = self._head.unpack_from(data, position)
            begin = position + 12
            position = begin + length + 4
            found[number] = data[begin : begin + length]
        return found

    def sample(self, path: str) -> None:
        return None


def speed(size: int, records: int, rounds: int, place: Path) -> dict[str, Any]:
    """Records of half to one and a half times `size` bytes."""
    chance = random.Random(size)
    path = str(place / f"of-{size}")
    Path(path).write_bytes(
        tfrecord([chance.randbytes(chance.randrange(size // 2, size * 3 // 2)) for _ in range(records)])
    )
    readers: dict[str, Reader] = {"before": Before(), "checked": by_name("tfrecord")}
    found: dict[str, dict[str, list[float]]] = {name: {"used": [], "alone": [], "read": []} for name in readers}
    for _ in range(rounds):
        for name, reader in readers.items():
            begin = time.process_time()
            shards = shards_of(path, reader.scan(path, SHARD_RECORDS))
            counted = time.process_time()
            for shard in shards:
                reader.read(shard)
            end = time.process_time()
            count = sum(len(batch) for batch in elastic_records(path, BATCH, reader=reader))
            assert count == records
            found[name]["used"].append(time.process_time() - end)
            found[name]["alone"].append(end - begin)
            found[name]["read"].append(end - counted)
    before, checked = ({key: statistics.median(some) for key, some in found[name].items()} for name in readers)
    return {
        "bytes": size, "records": records, "before_ns": 1e9 * before["used"] / records,
        "checked_ns": 1e9 * checked["used"] / records, "ratio": checked["used"] / before["used"],
        "ratio_alone": checked["alone"] / before["alone"], "ratio_read": checked["read"] / before["read"],
    }  # fmt: skip


# --------------------------------------------------------------------------------------------------------------- main


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=1000, metavar="N", help="of each kind (default 1000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--part", choices=("flips", "speed"))
    parser.add_argument("--rounds", type=int, default=9, help="of the speed (default 9)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(words)
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="flips-") as name:
        place = Path(name)
        if options.part != "speed":
            parts: dict[str, Callable[[random.Random], dict[str, Any]]] = {
                "tfrecord": lambda chance: flips_in_files("tfrecord", options.flips, chance, place),
                "csv": lambda chance: flips_in_files("csv", options.flips, chance, place),
                "backup": lambda chance: flips_in_backups(options.flips, chance, place / "backup"),
            }
            for kind, part in parts.items():
                result[kind] = part(random.Random(f"{options.seed} {kind}"))
                say(options, f"{kind}: {', '.join(f'{what} {count}' for what, count in result[kind].items())}")
        if options.part != "flips":
            result["speed"] = [speed(100, 200_000, options.rounds, place), speed(4096, 20_000, options.rounds, place)]
            for one in result["speed"]:
                told = (
                    f"records of {one['bytes']} B: {one['before_ns']:.0f} ns before, {one['checked_ns']:.0f} ns checked"
                )
                alone = f"reader alone × {one['ratio_alone']:.3f}, without counting × {one['ratio_read']:.3f}"
                say(options, f"{told}: × {one['ratio']:.3f} ({alone})")
    if options.json:
        print(json.dumps(result, indent=1))
    sound = all(not result.get(kind, {}).get("other", 0) for kind in ("tfrecord", "backup"))
    sound = sound and not result.get("tfrecord", {}).get("skipped wrongly", 0)
    return 0 if sound and all(one["ratio"] <= TARGET for one in result.get("speed", [])) else 1


def say(options: argparse.Namespace, text: str) -> None:
    print(text, file=sys.stderr if options.json else sys.stdout, flush=True)


if __name__ == "__main__":
    sys.exit(main())
