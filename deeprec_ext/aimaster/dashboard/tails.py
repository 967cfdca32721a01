"""The end of a role's log, or what was added to it since; bounded."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

TAIL_MAX = 64 << 10
"""Bytes of one answer."""


@dataclass(frozen=True)
class Tail:
    text: str
    start: int  # offset of the first byte of `text`
    end: int  # offset after the last one: ask again from here
    size: int  # of the file; more than `end`: ask again at once


def read_tail(path: Path, count: int, after: int | None = None) -> Tail:
    """The last `count` bytes from the beginning of a line on, or up to `count` bytes from `after` on.

    A file that has become shorter than `after` is read anew. Raises OSError.
    """
    count = max(0, min(count, TAIL_MAX))
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        size = os.fstat(handle).st_size
        follows = after is not None and 0 <= after <= size
        start = after if follows and after is not None else max(0, size - count)
        file.seek(start)
        data = file.read(count)
    if not follows and start > 0:
        whole = data.find(b"\n") + 1  # a line that is longer than all we read stays as it is
        start, data = start + whole, data[whole:]
    return Tail(data.decode(errors="replace"), start, start + len(data), size)
