"""What a role prints, on its way into its log: a pipe that the launcher empties.

A role that printed into the file itself would fail with its disk: `print` raises. What cannot be written waits here, within
bounds; beyond them the oldest goes, and the log says how much of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import IO

_log = logging.getLogger(__name__)

READ_BYTES = 64 << 10
WAITING_BYTES_MAX = 1 << 20
"""Of one role."""

DRAINED_BYTES_MAX = 16 << 20
"""Read from the pipe of a role that has ended, at once: something it has started may go on printing."""

AGAIN_SECONDS = 0.5


class Printing:
    """One log. On the launcher's loop."""

    def __init__(self, path: Path, trouble: Callable[[str], None] = lambda why: None) -> None:
        """`trouble` is told why the log cannot be written, and with an empty word when it can be again."""
        self._path, self._trouble = path, trouble
        self._waiting: deque[bytes] = deque()
        self._bytes = self._dropped = 0
        self._file: IO[bytes] | None = None
        self._again: asyncio.TimerHandle | None = None
        self._pipes: set[int] = set()
        self.behind = ""  # why something waits

    def pipe(self) -> int:
        """The end into which a process prints; close it when the process has it. Raises OSError."""
        mine, its = os.pipe()
        os.set_blocking(mine, False)
        self._pipes.add(mine)
        asyncio.get_running_loop().add_reader(mine, self._read, mine)
        return its

    def add(self, text: bytes) -> None:
        """Never raises."""
        self._waiting.append(text)
        self._bytes += len(text)
        while self._bytes > WAITING_BYTES_MAX and len(self._waiting) > 1:
            oldest = len(self._waiting.popleft())
            self._bytes -= oldest
            self._dropped += oldest
        if self._again is None:
            self._write()

    def drain(self) -> None:
        """Reads what is in the pipes: of a role that has just ended, all that it has printed."""
        for pipe in list(self._pipes):
            left = DRAINED_BYTES_MAX
            while left > 0 and (got := self._read(pipe)):
                left -= got

    def close(self) -> None:
        """What still waits is tried once more."""
        self.drain()
        for pipe in list(self._pipes):
            self._end(pipe)
        if self._again is not None:
            self._again.cancel()
        self._write()
        if self._again is not None:
            self._again.cancel()
            _log.warning("%s lacks its last %d bytes: %s", self._path, self._bytes, self.behind)
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read(self, pipe: int) -> int:
        try:
            text = os.read(pipe, READ_BYTES)
        except BlockingIOError:
            return 0
        except OSError:
            text = b""
        if text:
            self.add(text)
        else:
            self._end(pipe)
        return len(text)

    def _end(self, pipe: int) -> None:
        asyncio.get_running_loop().remove_reader(pipe)
        self._pipes.discard(pipe)
        os.close(pipe)

    def _write(self) -> None:
        self._again = None
        try:
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("ab", buffering=0)
            if self._dropped:
                note = f"\n--- deeprec-ext: {self._dropped} bytes are missing here: {self.behind}\n".encode()
                self._waiting.appendleft(note)
                self._bytes, self._dropped = self._bytes + len(note), 0
            while self._waiting:
                text = self._waiting[0]
                count = self._file.write(text) or 0
                self._bytes -= count
                if count < len(text):
                    self._waiting[0] = text[count:]
                else:
                    self._waiting.popleft()
        except OSError as error:
            if not self.behind:
                self._trouble(error.strerror or str(error))
            self.behind = error.strerror or str(error)
            with contextlib.suppress(OSError):
                if self._file is not None:
                    self._file.close()
            self._file = None
            self._again = asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._write)
            return
        if self.behind:
            self.behind = ""
            self._trouble("")
