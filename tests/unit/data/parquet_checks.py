"""What is promised of Parquet files: `python parquet_checks.py pyarrow`, or `tensorflow_io`, in a process of its own.

Each of the two libraries brings its own Arrow, and one process can use only one.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from deeprec_ext.data.errors import DataError
from deeprec_ext.data.readers import Shard, by_name

TABLE = str(Path(__file__).with_name("table.parquet"))
"""id: 0 to 99, text: t0 to t99, x: id / 2; in row groups of 30."""


def columns(by_groups: bool) -> None:
    reader = by_name("parquet")
    scan = reader.scan(TABLE, 20)
    assert list(scan.records) == ([20, 10, 20, 10, 20, 10, 10] if by_groups else [20] * 5), scan
    firsts = np.cumsum([0, *scan.records]).tolist()
    ends = [*scan.begins[1:], scan.end]
    cuts = zip(firsts, scan.records, scan.begins, ends)
    found: list[Any] = [
        reader.read(Shard(TABLE, number, first, records, begin, end))
        for number, (first, records, begin, end) in enumerate(cuts)
    ]
    assert np.concatenate([one["id"] for one in found]).tolist() == list(range(100))
    assert found[-1]["text"].tolist()[-5:] == [f"t{n}".encode() for n in range(95, 100)]
    sample: Any = reader.sample(TABLE)
    assert found[0]["x"].dtype == np.float64 and sample["id"].dtype == np.int64
    across: Any = reader.read(Shard(TABLE, 0, 25, 40, 0, 0))
    assert across["id"].tolist() == list(range(25, 65))


def chosen() -> None:
    sample: Any = by_name("parquet", columns=["x"]).sample(TABLE)
    assert set(sample) == {"x"}
    assert "no column y, z; it has id, text, x" in refused(TABLE, ["y", "x", "z"])


def refused(path: str, names: list[str] | None = None) -> str:
    reader = by_name("parquet", columns=names)
    try:
        reader.read(Shard(path, 0, 0, reader.scan(path, 10).records[0], 0, 0))
    except DataError as error:
        return str(error)
    raise AssertionError(f"{names} of {path} were read")


def kinds() -> None:
    """What only pyarrow can write."""
    import pyarrow
    import pyarrow.parquet

    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/kinds.parquet"
        table = {
            "null": [1, None], "word": ["a", None], "list": [[1], [2]], "yes": [True, False],
            "category": pyarrow.array(["x", "y"]).dictionary_encode(),
        }  # fmt: skip
        pyarrow.parquet.write_table(pyarrow.table(table), path)
        good: Any = by_name("parquet", columns=["word", "yes", "category"]).read(Shard(path, 0, 0, 2, 0, 0))
        assert {name: values.tolist() for name, values in good.items()} == {
            "word": [b"a", b""], "yes": [True, False], "category": [b"x", b"y"]
        }, good  # fmt: skip
        assert "column null has nulls; fill them, or choose columns=" in refused(path, ["null"])
        assert "column list is list<" in refused(path, ["list"])


def checksums() -> None:
    """Where the file has them, a flipped bit is found."""
    import pyarrow
    import pyarrow.parquet

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "sums.parquet"
        table = pyarrow.table({"n": np.arange(5000), "x": np.arange(5000) / 7})
        pyarrow.parquet.write_table(
            table, path, write_page_checksum=True, row_group_size=1000, compression="none", use_dictionary=False
        )  # fmt: skip
        content = bytearray(path.read_bytes())
        place = content.find((2500).to_bytes(8, "little"))
        content[place] ^= 4
        path.write_bytes(content)
        reader = by_name("parquet")
        good: Any = reader.read(Shard(str(path), 0, 0, 2000, 0, 0))
        assert good["n"].tolist() == list(range(2000))
        try:
            reader.read(Shard(str(path), 2, 2000, 1000, 0, 0))
        except DataError as error:
            assert "sums.parquet: row group 2, from record 2000 on, is damaged" in str(error), error
        else:
            raise AssertionError("a flipped bit was not found")


def main(library: str) -> None:
    if library == "pyarrow":
        kinds()
        checksums()
    else:
        sys.modules["pyarrow"] = None  # type: ignore[assignment]
    columns(library == "pyarrow")
    chosen()
    assert "is no Parquet file" in refused(__file__)


if __name__ == "__main__":
    main(sys.argv[1])
