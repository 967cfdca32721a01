"""Text and CSV: a record is a line, as bytes, without its end.

Lines end with LF or CRLF; the last needs no end. Empty lines are no records (a file often ends with one); a line of
spaces is. With `quotes` (reader "csv"), a line end between double quotes belongs to the record, as RFC 4180 has it.

A quote that is not closed would take the lines behind it into one record. Such a record is damaged: it runs over more lines or
bytes than one may have, or it runs over lines and one of its quotes stands in the middle of a word, where none opens or closes
a field. Of a damaged record only its first line is given up; the next line begins a record.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from deeprec_ext.data import compressed, files
from deeprec_ext.data.errors import ChangedError, DamagedError
from deeprec_ext.data.readers.base import Salvaged, Scan, Shard, StringReader, shares, strings
from deeprec_ext.errors import UsageError

log = logging.getLogger("deeprec_ext")

LF, CR, QUOTE = 10, 13, 34

RECORD_LINES, RECORD_BYTES = 100, 8 << 20
"""How many lines, and bytes, a record has at most; more: `reader_options`."""

_WORD = np.zeros(256, bool)
"""Letters, digits, and what is part of longer characters: a quote beside one inside is no end of a field."""
_WORD[[*range(48, 58), *range(65, 91), *range(97, 123), *range(128, 256)]] = True


@dataclass(frozen=True)
class _Found:
    """Lines of some bytes that begin with a record. Places are offsets in them."""

    begins: np.ndarray
    ends: np.ndarray  # where their LF stands, or the bytes end
    used: int  # behind the last of them; what follows is a record that has not ended, or the damaged one
    wrong: str = ""  # what is wrong with the record at `used`


class LineReader(StringReader):
    """Args:
    quotes: line ends between double quotes do not end a record.
    skip_lines: so many lines at the beginning of each file are no records (a header). They may not hold quoted line ends.
    max_record_lines, max_record_bytes: a record that has more is damaged.
    encoding: "utf-8": a record that is not is damaged; None (default): the first of a file is told in the log.
    """

    def __init__(
        self, quotes: bool = False, skip_lines: int = 0, max_record_lines: int = RECORD_LINES,
        max_record_bytes: int = RECORD_BYTES, encoding: str | None = None,
    ) -> None:  # fmt: skip
        for what, value in (("max_record_lines", max_record_lines), ("max_record_bytes", max_record_bytes)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError(f"{what}={value!r}: a whole number, at least 1")
        if encoding not in (None, "utf-8"):
            raise UsageError(f'encoding={encoding!r}: "utf-8", or None: records are bytes, and nobody checks them')
        self.quotes, self.skip_lines, self.encoding = quotes, skip_lines, encoding
        self.max_lines, self.max_bytes = max_record_lines, max_record_bytes
        self.name = ("csv" if quotes else "lines") + (f"-{skip_lines}" if skip_lines else "")
        if (max_record_lines, max_record_bytes, encoding) != (RECORD_LINES, RECORD_BYTES, None):
            self.name += f"-{max_record_lines}-{max_record_bytes}-{encoding or 'bytes'}"
        self._told: set[str] = set()  # files in which something is not UTF-8

    # -- counting

    def _scan(self, path: str, shard_records: int, lenient: bool) -> Scan:
        begins: list[int] = []
        records, skip = 0, self.skip_lines
        for at, data, found in self._pieces(path):
            if at == 0:
                compressed.refuse(path, data[: compressed.HEAD_BYTES])
            lengths = found.ends - found.begins
            bytes_ = np.frombuffer(data, np.uint8)
            kept = (lengths > 1) | ((lengths == 1) & (bytes_[found.begins] != CR))
            if skip:
                skipped = min(skip, len(kept))
                kept[:skipped] = False
                skip -= skipped
            places = found.begins[kept]
            if found.wrong and skip == 0:
                if not lenient:
                    raise self._error(path, records + len(places), at + found.used, found.wrong)
                places = np.append(places, found.used)
            elif found.wrong:
                skip -= 1
            # Every shard_records-th record begins a shard.
            begins += [at + int(place) for place in places[-records % shard_records :: shard_records]]
            records += len(places)
        return Scan(begins, shares(records, shard_records), files.size(path))

    def _error(self, path: str, record: int, byte: int, what: str) -> DamagedError:
        return DamagedError(path, record, byte, what, 1 + _lines_before(path, byte))

    def _pieces(self, path: str) -> Iterator[tuple[int, bytes, _Found]]:
        """(place, bytes that begin there, their lines). Behind a damaged record the next piece begins with the next line."""
        rest, at = b"", 0  # bytes not walked yet, and their place
        lost = False  # within a damaged line
        for block, last in _with_last(files.blocks(path)):
            rest = rest + block if rest else block
            while rest or last:
                if lost:
                    cut = rest.find(b"\n") + 1
                    lost = not cut
                    at, rest = (at + cut, rest[cut:]) if cut else (at + len(rest), b"")
                    if not rest:
                        break
                found = self._lines(rest, last)
                yield at, rest, found
                at, rest = at + found.used, rest[found.used :]
                lost = bool(found.wrong)
                if not lost:
                    break

    # -- what is a line

    def _lines(self, data: bytes, last: bool) -> _Found:
        """`last`: nothing follows these bytes, which may be a whole shard or the end of a file."""
        view = np.frombuffer(data, np.uint8)
        ends = every = np.flatnonzero(view == LF)
        quotes = np.empty(0, np.int64)
        if self.quotes and len(quotes := np.flatnonzero(view == QUOTE)):
            ends = every[np.searchsorted(quotes, every) % 2 == 0]
        if last and len(data) and (not len(ends) or ends[-1] + 1 < len(data)):
            ends = np.append(ends, len(data))
        begins = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else np.empty(0, np.int64)
        used = min(len(data), int(ends[-1]) + 1) if len(ends) else 0
        bad = self._first_bad(view, begins, ends, every, quotes)
        if bad is not None:
            number, what = bad
            return _Found(begins[:number], ends[:number], int(begins[number]), what)
        if used < len(data):
            what = self._too_long(len(data) - used, len(every) - int(np.searchsorted(every, used)))
            return _Found(begins, ends, used, what)
        return _Found(begins, ends, used)

    def _too_long(self, size: int, line_ends: int) -> str:
        if size > self.max_bytes:
            return f"it has more than {self.max_bytes} bytes"
        if line_ends >= self.max_lines:
            return f"it runs over more than {self.max_lines} lines: a quote is not closed"
        return ""

    def _first_bad(
        self, view: np.ndarray, begins: np.ndarray, ends: np.ndarray, every: np.ndarray, quotes: np.ndarray
    ) -> tuple[int, str] | None:
        """Number of the first record that cannot be one, and why."""
        found: list[tuple[int, str]] = []
        if len(ends) and int((ends - begins).max()) > self.max_bytes:
            number = int(np.argmax(ends - begins > self.max_bytes))
            found.append((number, self._too_long(self.max_bytes + 1, 0)))
        if len(quotes) and len(ends) and len(every) > len(ends) - (int(ends[-1]) == len(view)):
            inner = np.searchsorted(every, ends) - np.searchsorted(every, begins)  # line ends in each record
            if len(long := np.flatnonzero(inner >= self.max_lines)):
                found.append((int(long[0]), self._too_long(0, self.max_lines)))
            odd = _misplaced(view, quotes)
            records = np.searchsorted(ends, odd)
            odd, records = odd[records < len(ends)], records[records < len(ends)]
            if len(torn := records[inner[records] > 0]):
                found.append((int(torn[0]), "it runs over lines, and a quote in it stands in the middle of a word"))
            if int(ends[-1]) == len(view) and len(quotes) % 2 and inner[-1] > 0:
                found.append((len(ends) - 1, "a quote in it is not closed before the end"))
        return min(found, default=None)

    # -- reading

    def read(self, shard: Shard) -> np.ndarray:
        data = files.read_range(shard.path, shard.begin, shard.end)
        if self.quotes and b'"' in data:
            found = self._lines(data, True)
            if found.wrong or data.count(b'"') % 2:
                return self._whole(shard, self._salvage(shard, data))
            lines = [data[begin:end] for begin, end in zip(found.begins.tolist(), found.ends.tolist())]
        else:
            lines = data.split(b"\n")
        if b"\r" in data:
            lines = [line[:-1] if line.endswith(b"\r") else line for line in lines]
        records = [line for line in lines if line]
        if len(records) != shard.records:
            raise ChangedError(f"{shard} has {len(records)} records: the file was changed after they were counted")
        if (len(data) > self.max_bytes and max(map(len, records)) >= self.max_bytes) or not _is_utf8(data):
            return self._whole(shard, self._salvage(shard, data))
        return strings(records)

    def read_leniently(self, shard: Shard) -> Salvaged:
        try:
            return Salvaged(self.read(shard), ())
        except DamagedError:
            return self._salvage(shard, files.read_range(shard.path, shard.begin, shard.end))

    def _whole(self, shard: Shard, found: Salvaged) -> np.ndarray:
        if found.bad:
            raise found.errors[0]
        return found.columns  # type: ignore[return-value]

    def _salvage(self, shard: Shard, data: bytes) -> Salvaged:
        records: list[bytes] = []
        wrong: dict[int, tuple[int, str]] = {}  # number -> (place, what)
        begins: list[int] = []
        at = 0
        while at < len(data):
            piece = data[at:] if at else data
            found = self._lines(piece, True)
            for begin, end in zip(found.begins.tolist(), found.ends.tolist()):
                record = piece[begin : end - 1 if piece[end - 1 : end] == b"\r" and end > begin else end]
                if record:
                    begins.append(at + begin)
                    records.append(record)
            at += found.used
            if not found.wrong:
                break
            wrong[len(records)] = (at, found.wrong)
            begins.append(at)
            records.append(b"")
            at = data.find(b"\n", at) + 1 or len(data)
        # A record whose quote is open where the shard ends was found damaged when the file was counted: more lines followed.
        if self.quotes and records and len(records) - 1 not in wrong and _is_open(shard, data[begins[-1] :]):
            wrong[len(records) - 1] = (begins[-1], "a quote in it is not closed")
        if len(records) != shard.records:
            raise ChangedError(f"{shard} has {len(records)} records: the file was changed after they were counted")
        if not _is_utf8(data):
            for number, record in enumerate(records):
                if number not in wrong and not _is_utf8(record):
                    if self.encoding is None:
                        self._tell(shard, begins[number])
                        break
                    wrong[number] = (begins[number], "it is not UTF-8")
        errors = tuple(
            self._error(shard.path, shard.first + number, shard.begin + place, what)
            for number, (place, what) in sorted(wrong.items())[:ERRORS_MAX]
        )
        return Salvaged(strings(records), tuple(sorted(wrong)), errors)

    def _tell(self, shard: Shard, place: int) -> None:
        """Bytes that are no UTF-8: perhaps another encoding, perhaps damage; once a file."""
        if shard.path in self._told or len(self._told) >= TOLD_MAX:
            return
        self._told.add(shard.path)
        line = 1 + _lines_before(shard.path, shard.begin + place)
        log.warning(
            "%s: line %d is not UTF-8; it is given as it is (reader_options={'encoding': 'utf-8'}: such are damaged)",
            shard.path, line,
        )  # fmt: skip


ERRORS_MAX = 100
"""Of a shard, that are told one by one."""
TOLD_MAX = 1000


def _misplaced(view: np.ndarray, quotes: np.ndarray) -> np.ndarray:
    """Quotes that open behind a word, or close before one. A doubled quote within a field closes and opens: no word there."""
    before = _WORD[view[np.maximum(quotes[::2] - 1, 0)]] & (quotes[::2] > 0)
    closing = quotes[1::2]
    behind = _WORD[view[np.minimum(closing + 1, len(view) - 1)]] & (closing + 1 < len(view))
    return np.sort(np.concatenate([quotes[::2][before], closing[behind]]))


def _is_open(shard: Shard, last: bytes) -> bool:
    """Whether a quote is open where the shard ends, and not the file, which may end so."""
    return last.count(b'"') % 2 == 1 and shard.end < files.size(shard.path)


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _lines_before(path: str, byte: int) -> int:
    """Line ends before that place."""
    lines = at = 0
    for block in files.blocks(path):
        lines += block.count(b"\n", 0, max(0, byte - at))
        at += len(block)
        if at >= byte:
            break
    return lines


def _with_last(blocks: Iterator[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Each with whether it is the last; a last one that is empty where the file is."""
    before = b""
    for block in blocks:
        if before:
            yield before, False
        before = block
    yield before, True
