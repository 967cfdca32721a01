"""Reads events.jsonl, which the AIMaster writes, as it grows; and puts an event into one line."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from deeprec_ext.printable import printable, shortened
from deeprec_ext.rundir import former

_VALUE_MAX = 80
_MAX = dict.fromkeys(("reason", "text", "why"), 300)
"""Fields that are sentences for people."""

_KNOWN = ("sequence", "time", "type", "role", "epoch", "json", "job")


class EventTail:
    """`poll()` returns what has been added since the last call; a line not yet ended waits for its end.

    A full file is put aside by the AIMaster and another begun (`aimaster.events`): then the rest of the old one comes first.
    """

    def __init__(self, path: Path, from_end: bool = False) -> None:
        self._path = path
        self._position = path.stat().st_size if from_end and path.exists() else 0
        self._inode = path.stat().st_ino if path.exists() else 0

    def poll(self) -> list[dict[str, Any]]:
        try:
            with self._path.open("rb") as file:
                inode, events = os.fstat(file.fileno()).st_ino, []
                if self._inode not in (0, inode):
                    with contextlib.suppress(FileNotFoundError), former(self._path).open("rb") as before:
                        events = self._rest(before)
                    self._position = 0
                self._inode = inode
                return events + self._rest(file)
        except OSError:  # not there yet, or not to be read at present
            return []

    def _rest(self, file: IO[bytes]) -> list[dict[str, Any]]:
        file.seek(self._position)
        data = file.read()
        whole = data.rpartition(b"\n")[0]
        if not whole:
            return []
        self._position += len(whole) + 1
        events = []
        for line in whole.splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue  # the AIMaster was killed while it wrote it
            if isinstance(event, dict):
                events.append(event)
        return events


def event_fields(event: Mapping[str, Any]) -> dict[str, Any]:
    """The further fields of an event, whether they lie beside the others or in `json`."""
    fields = {key: value for key, value in event.items() if key not in _KNOWN}
    extra = event.get("json")
    if isinstance(extra, str) and extra:
        try:
            extra = json.loads(extra)
        except ValueError:
            extra = {"text": extra}
    if isinstance(extra, Mapping):
        fields.update(extra)
    return fields


def format_event(event: Mapping[str, Any]) -> str:
    """`14:02:11 registered ps-2 (view 4) pid=812 address=…`: people take an epoch for one of the training."""
    parts = [time.strftime("%H:%M:%S", time.localtime(float(event.get("time", 0)))), str(event.get("type", "?"))]
    if event.get("role"):
        parts.append(str(event["role"]))
    if event.get("epoch"):
        parts.append(f"(view {event['epoch']})")
    fields = {key: value for key, value in event_fields(event).items() if value not in (None, "", [], {})}
    parts += [f"{key}={_short(value, _MAX.get(key, _VALUE_MAX))}" for key, value in fields.items()]
    return printable(" ".join(parts))


def _short(value: Any, most: int) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1e5 else f"{value:.0f}"
    return shortened(value if isinstance(value, str) else json.dumps(value), most)
