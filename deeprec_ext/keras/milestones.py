"""What the chief's script has done that those of others need: ended a `fit`, saved a file. They go on when it is done.

All processes run the whole script, so the n-th of these things in one of them is the n-th of the chief. How many it has done is
a number in the run directory. Where processes do not share that (pods without a common volume) nobody waits: there the chief's
files are out of reach as well.
"""

from __future__ import annotations

import logging
import threading
import time
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
    """

    def __init__(self, directory: Path | None, chief: bool, leaving: threading.Event) -> None:
        self._file = directory / NAME if directory is not None else None
        self._leaving, self._count = leaving, 0
        if chief:
            self._tell()  # also of one that begins again, with another count than before

    def made(self) -> None:
        """In the chief: one more is done."""
        self._count += 1
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
        try:
            return self._file is not None and int(self._file.read_text()) < self._count
        except (OSError, ValueError):
            return False

    def _tell(self) -> None:
        if self._file is None:
            return
        try:
            wholefiles.write(self._file, f"{self._count}\n")
        except OSError as error:
            log.info("%s cannot be written (%s): other processes do not wait for this one's script", self._file, error)
