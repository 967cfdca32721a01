"""The event log: every event goes into the store and, one JSON line each, into `events.jsonl` of the run directory.

When that file is full it becomes `events.jsonl.1`, in place of the one before, and a new one is begun: no more than twice
`FILE_BYTES` are on the disk, however long the job runs.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import math
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import IO, Any

from deeprec_ext.aimaster.core.signals import Signal
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.rundir import former

log = logging.getLogger(__name__)
PAGE, UNREADABLE_MAX = 500, 500
FILE_BYTES = 64 << 20
TAIL_BYTES = 1 << 20
"""Read at the start to find the last event of the file: an event is far shorter."""


def tail(path: Path) -> str:
    """The end of a file; empty if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


def last_sequence(text: str) -> int:
    """Of the last whole event in these lines; 0 if there is none."""
    for line in reversed(text.splitlines()):
        try:
            return int(json.loads(line)["sequence"])
        except (ValueError, KeyError, TypeError):
            continue
    return 0


def plain(value: Any) -> Any:
    """As JSON has it: NaN and infinities, which it has not, become words."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value


def read_fields(text: str) -> dict[str, Any]:
    """Of an event in the store. What an older version has stored that is no JSON object is shown as the text that it is."""
    try:
        found = plain(json.loads(text))
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {"unreadable": text[:UNREADABLE_MAX]}


class EventLog:
    """Adds events and lets readers follow them. Readers page through the store: nothing is queued for them, nor for the file.

    An event is told when it is true for good: an AIMaster killed in a transaction, or whose store could not be written, has
    not decided anything. What cannot be written into the file is written when that is possible again: the store has it.
    """

    def __init__(self, store: Store, path: Path, clock: Any) -> None:
        self._store, self._clock, self.changed = store, clock, Signal()
        self._path = path
        self._file: IO[bytes] | None = None
        self.behind = ""  # why the file lacks events; empty: it has them
        self._written: int | None = None  # the last one in the file; None: not looked yet
        with contextlib.suppress(OSError):
            store.continue_events(self._last_in_file())  # a store that was lost begins anew, the file does not
        self._told = store.newest_event()
        self._store.after_commit(self._write_new)

    def _last_in_file(self) -> int:
        return last_sequence(tail(self._path)) or last_sequence(tail(former(self._path)))

    def add(self, type_: str, role: str = "", epoch: int = 0, **fields: Any) -> None:
        fields = {key: plain(value) for key, value in fields.items()}
        self._store.add_event(self._clock.wall(), type_, role, epoch, fields)
        self._store.after_commit(self._tell)

    def _tell(self) -> None:
        """All that have not been told."""
        while page := self._store.events(self._told, PAGE):
            self._told = page[-1][0]
            for _, _, type_, role, epoch, text in page:
                details = " ".join(
                    f"{key}={value}" for key, value in read_fields(text).items() if value not in ("", None)
                )
                log.info("%s %s view=%d %s", type_, role, epoch, details)
        self._write_new()
        self.changed.notify()

    # ------------------------------------------------------------------------------------------------ the file

    def try_again(self) -> None:
        """Writes what the file lacks, if that is possible; call it now and then."""
        if self.behind:
            self._store.after_commit(self._write_new)

    def _write_new(self) -> None:
        try:
            if self._file is None or self._written is None:
                self._open()
            while page := self._store.events(self._written or 0, PAGE):
                for row in page:
                    self._write(*row)
        except OSError as error:
            if not self.behind:
                log.error("%s cannot be written: %s; it is tried again", self._path, error)
            self.behind = f"{self._path.name}: {error.strerror or error}"
            self._close()
            return
        self.behind = ""

    def _open(self) -> None:
        """Also appends what the store has and the file lacks: the last AIMaster may have died between the two."""
        self._file = self._path.open("ab", buffering=0)
        text = tail(self._path)
        if text and not text.endswith("\n"):
            self._append(b"\n")  # a torn last line stays visible, and is written again whole
        if self._written is None:
            self._written = self._last_in_file()

    def _write(self, sequence: int, time: float, type_: str, role: str, epoch: int, text: str) -> None:
        line = {"sequence": sequence, "time": time, "type": type_, "role": role, "epoch": epoch, **read_fields(text)}
        self._append(json.dumps(line).encode() + b"\n")
        self._written = sequence  # also where no new file can be begun: this one has it
        assert self._file is not None
        if self._file.tell() >= FILE_BYTES:
            self._close()
            self._path.replace(former(self._path))
            self._open()

    def _append(self, line: bytes) -> None:
        """The whole line or nothing of it."""
        assert self._file is not None
        end = self._file.seek(0, os.SEEK_END)
        if (self._file.write(line) or 0) < len(line):
            self._file.truncate(end)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))

    def _close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None

    async def follow(self, after: int, follow: bool) -> AsyncIterator[pb.Event]:
        while True:
            page = [row for row in self._store.events(after, PAGE) if row[0] <= self._told]
            for sequence, time, type_, role, epoch, text in page:
                yield pb.Event(sequence=sequence, time=time, type=type_, role=role, epoch=epoch, json=text)
                after = sequence
            if len(page) == PAGE:
                continue
            if not follow:
                return
            await self._next(after)

    async def _next(self, after: int) -> None:
        await self.changed.until(lambda: self._told > after, 5.0)

    def close(self) -> None:
        self._close()
