"""The benchmark of flipped bits counts what it says."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks import flips
from deeprec_ext.data.readers import by_name
from deeprec_ext.data.readers.base import Salvaged


@pytest.mark.parametrize("kind", ["tfrecord", "csv", "backup"])
def test_flips_are_found_where_there_is_a_checksum(tmp_path: Path, kind: str) -> None:
    chance = random.Random(4)
    if kind == "backup":
        found = flips.flips_in_backups(25, chance, tmp_path / "backup")
    else:
        found = flips.flips_in_files(kind, 25, chance, tmp_path)
    assert found.get("found", 0) + found.get("harmless", 0) + found.get("other", 0) == 25
    assert kind == "csv" or (found["found"] == 25 and not found.get("skipped wrongly"))
    assert kind != "csv" or (found["other"] > 0 and found["most_records_of_a_flip"] <= 3)


def test_a_flip_that_nobody_finds_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flips, "by_name", lambda kind: Unchecked())
    found = flips.flips_in_files("tfrecord", 25, random.Random(4), tmp_path)
    assert found["other"] > 10 and found["skipped wrongly"] > 10
    assert flips.main(["--part", "flips", "--flips", "5"]) == 1


class Unchecked(flips.Before):
    """As if the checks were gone."""

    def scan(self, path, shard_records):
        return self.scan_leniently(path, shard_records)

    def scan_leniently(self, path, shard_records):
        try:
            return by_name("tfrecord").scan_leniently(path, shard_records)
        except flips.DataError:
            return flips.Scan([], [], 0)

    def read(self, shard):
        try:
            return super().read(shard)
        except Exception as error:
            raise flips.DataError(f"{shard}: {error}") from error

    def read_leniently(self, shard):
        try:
            return Salvaged(super().read(shard), ())
        except Exception:
            return Salvaged(flips.np.array([], object), ())
