"""What the chief's script has done that those of others need: ended a `fit`, saved a file. They go on when it is done.

All processes run the whole script, so the n-th of these things in one of them is the n-th of the chief. How many it has done is
a number in the run directory; beside it, how many any chief has done, which one that begins again has not to do to the model
once more, and in which generation of the model. Where processes do not share that (pods without a common volume) nobody waits:
there the chief's files are out of reach as well.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from deeprec_ext import wholefiles

log = logging.getLogger("deeprec_ext")

NAME = "done-by-script"
LOOK_SECONDS, TELL_SECONDS = 0.1, 30.0
LIMIT_SECONDS = 600.0
"""Then the script goes on: perhaps the chief's goes another way."""


class Milestones:
    """
    Args:
      directory: of the run; None: there is none.
      leaving: this process leaves the job.
      generation: of the model, which another one has if it went back to something older.
    """

    def __init__(
        self, directory: Path | None, chief: bool, leaving: threading.Event, generation: Callable[[], int] = lambda: 0
    ) -> None:
        self._file = directory / NAME if directory is not None else None
        self._leaving, self._generation, self._count = leaving, generation, 0
        _, *before = self._read()
        self._most, self._of = before if len(before) == 2 else (0, 0)
        if chief:
            self._tell()  # also of one that begins again, with another count than before

    @property
    def made_before(self) -> bool:
        """In the chief: whether another process has been the chief and done the next one, in the model that there is."""
        return self._count < self._most and self._of == self._generation()

    def made(self) -> None:
        """In the chief: one more is done."""
        self._count += 1
        generation = self._generation()
        self._most, self._of = max(self._count, self._most if self._of == generation else 0), generation
        self._tell()

    def wait(self) -> None:
        """In another process, in its place: until the chief has done it."""
        self._count += 1
        began = told = time.monotonic()
        while self._missing and not self._leaving.wait(LOOK_SECONDS):
            now = time.monotonic()
            if now - began > LIMIT_SECONDS:
                log.warning(
                    "the chief's script has not come so far within %d s: this one goes on without it", LIMIT_SECONDS
                )
                return
            if now - told > TELL_SECONDS:
                told = now
                log.info("waiting for the chief's script to come as far: it saves files, or ends fit")

    @property
    def _missing(self) -> bool:
        """Whether the chief says that it has made fewer."""
        made, *_ = self._read()
        return 0 <= made < self._count

    def _read(self) -> list[int]:
        """What the chief has written; `[-1]`: nothing that can be read."""
        try:
            return [int(word) for word in self._file.read_text().split()] or [-1] if self._file is not None else [-1]
        except (OSError, ValueError):
            return [-1]

    def _tell(self) -> None:
        if self._file is None:
            return
        try:
            wholefiles.write(self._file, f"{self._count} {self._most} {self._of}\n")
        except OSError as error:
            with suppress(OSError):
                self._file.unlink(missing_ok=True)  # else they would wait for what it said before
            log.info("%s cannot be written (%s): other processes do not wait for this one's script", self._file, error)
