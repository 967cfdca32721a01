"""Text and CSV: a record is a line, as bytes, without its end.

Lines end with LF or CRLF; the last needs no end. Empty lines are no records (a file often ends with one); a line of
spaces is. With `quotes` (reader "csv"), a line end between double quotes belongs to the record, as RFC 4180 has it.
"""

from __future__ import annotations

import numpy as np

from deeprec_ext.data import files
from deeprec_ext.data.errors import ChangedError, DataError
from deeprec_ext.data.readers.base import Scan, Shard

LF, CR, QUOTE = 10, 13, 34


class LineReader:
    """Args:
    quotes: line ends between double quotes do not end a record.
    skip_lines: so many lines at the beginning of each file are no records (a header). They may not hold quoted line ends.
    """

    def __init__(self, quotes: bool = False, skip_lines: int = 0) -> None:
        self.quotes, self.skip_lines = quotes, skip_lines
        self.name = ("csv" if quotes else "lines") + (f"-{skip_lines}" if skip_lines else "")

    def sample(self, path: str) -> None:
        return None

    def scan(self, path: str, shard_records: int) -> Scan:
        begins: list[int] = []
        at = start = 0  # offset of the block, and of the line that is being read
        inside = False  # within quotes
        skip, records, last = self.skip_lines, 0, LF
        for block in files.blocks(path):
            data = np.frombuffer(block, np.uint8)
            if at == 0 and block[:2] == b"\x1f\x8b":
                raise DataError(
                    f"{path} is compressed (gzip): it cannot be read in parts; unpack it, or pass a reader="
                )
            ends, inside = self._ends(data, inside)
            first = np.concatenate([[start], at + ends[:-1] + 1]) if len(ends) else np.empty(0, np.int64)
            lengths = at + ends - first
            ended_by_cr = np.where(ends > 0, data[ends - 1], last) == CR if len(ends) else np.empty(0, bool)
            empty = (lengths == 0) | ((lengths == 1) & ended_by_cr)
            if skip and len(ends):
                skipped = min(skip, len(ends))
                empty[:skipped] = True
                skip -= skipped
            beginnings = first[~empty]
            # Every shard_records-th record begins a shard.
            offset = -records % shard_records
            begins += [int(begin) for begin in beginnings[offset::shard_records]]
            records += len(beginnings)
            if len(ends):
                start = at + int(ends[-1]) + 1
            last = block[-1]
            at += len(block)
        if start < at and not skip and not (at - start == 1 and last == CR):  # the last line has no end
            if records % shard_records == 0:
                begins.append(start)
            records += 1
        full, left = divmod(records, shard_records)
        return Scan(begins, [shard_records] * full + ([left] if left else []), at)

    def read(self, shard: Shard) -> np.ndarray:
        data = files.read_range(shard.path, shard.begin, shard.end)
        if self.quotes and b'"' in data:
            lines = self._split_quoted(data)
        else:
            lines = data.split(b"\n")
        if b"\r" in data:
            lines = [line[:-1] if line.endswith(b"\r") else line for line in lines]
        records = [line for line in lines if line]
        if len(records) != shard.records:
            raise ChangedError(f"{shard} has {len(records)} records: the file was changed after they were counted")
        found = np.empty(len(records), object)
        found[:] = records
        return found

    def _ends(self, data: np.ndarray, inside: bool) -> tuple[np.ndarray, bool]:
        """Where the records of a block end, and whether the block ends within quotes."""
        ends = np.flatnonzero(data == LF)
        if not self.quotes:
            return ends, False
        quotes = np.flatnonzero(data == QUOTE)
        before = np.searchsorted(quotes, ends) + int(inside)
        return ends[before % 2 == 0], bool((len(quotes) + int(inside)) % 2)

    def _split_quoted(self, data: bytes) -> list[bytes]:
        ends, _ = self._ends(np.frombuffer(data, np.uint8), False)
        bounds = [-1, *ends.tolist(), len(data)]
        return [data[begin + 1 : end] for begin, end in zip(bounds, bounds[1:])]
