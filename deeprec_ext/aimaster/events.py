"""The event log: every event goes into the store and, one JSON line each, into `events.jsonl` of the run directory.

When that file is full it becomes `events.jsonl.1`, in place of the one before, and a new one is begun: no more than twice
`FILE_BYTES` are on the disk, however long the job runs.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from deeprec_ext.aimaster.signals import Signal
from deeprec_ext.aimaster.store import Store
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
    """Adds events and lets readers follow them. Readers page through the store: nothing is queued for them."""

    def __init__(self, store: Store, path: Path, clock: Any) -> None:
        self._store, self._clock, self.changed = store, clock, Signal()
        self._path = path
        self._file = path.open("a", encoding="utf-8")
        self._catch_up()

    def _catch_up(self) -> None:
        """Appends what the store has and the file lacks: the last AIMaster may have died between the two."""
        text = tail(self._path)
        if text and not text.endswith("\n"):
            self._file.write("\n")  # a torn last line stays visible, and is written again whole
        last = last_sequence(text) or last_sequence(tail(former(self._path)))
        self._store.continue_events(last)  # a store that was lost begins anew, the file does not
        while page := self._store.events(last, PAGE):
            for row in page:
                self._write(*row)
            last = page[-1][0]

    def _write(self, sequence: int, time: float, type_: str, role: str, epoch: int, text: str) -> None:
        line = {"sequence": sequence, "time": time, "type": type_, "role": role, "epoch": epoch, **read_fields(text)}
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        if self._file.tell() >= FILE_BYTES:
            self._begin_another()

    def _begin_another(self) -> None:
        self._file.close()
        self._path.replace(former(self._path))
        self._file = self._path.open("a", encoding="utf-8")

    def add(self, type_: str, role: str = "", epoch: int = 0, **fields: Any) -> None:
        now, fields = self._clock.wall(), {key: plain(value) for key, value in fields.items()}
        sequence = self._store.add_event(now, type_, role, epoch, fields)
        self._store.after_commit(lambda: self._tell(sequence, now, type_, role, epoch, fields))

    def _tell(self, sequence: int, now: float, type_: str, role: str, epoch: int, fields: Mapping[str, Any]) -> None:
        """Others see it only when it is true for good: an AIMaster killed in a transaction has not decided anything."""
        self._write(sequence, now, type_, role, epoch, json.dumps(fields))
        details = " ".join(f"{key}={value}" for key, value in fields.items() if value not in ("", None))
        log.info("%s %s epoch=%d %s", type_, role, epoch, details)
        self.changed.notify()

    async def follow(self, after: int, follow: bool) -> AsyncIterator[pb.Event]:
        while True:
            page = self._store.events(after, PAGE)
            for sequence, time, type_, role, epoch, text in page:
                yield pb.Event(sequence=sequence, time=time, type=type_, role=role, epoch=epoch, json=text)
                after = sequence
            if len(page) == PAGE:
                continue
            if not follow:
                return
            await self._next(after)

    async def _next(self, after: int) -> None:
        await self.changed.until(lambda: bool(self._store.events(after, 1)), 5.0)

    def close(self) -> None:
        self._file.close()
