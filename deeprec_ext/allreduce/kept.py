"""The model of a job without PS on the chief's disk: who has it when nobody else has.

Each worker has the model, so a chief that dies gets it from them. Where there is none, or all have ended by then, the chief
begins with what it has kept: that of the last epoch, a minute old at the most, and whole once a `fit` has ended.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deeprec_ext.allreduce.ring import Array
from deeprec_ext.backup.manifest import KEPT_POSITION
from deeprec_ext.errors import ProtocolError

log = logging.getLogger("deeprec_ext")

EVERY_SECONDS, AGAIN_SECONDS = 60.0, 10.0
JOIN_SECONDS = 60.0
"""For a file that is being written, at the end of a `fit`; a disk that hangs is not waited for longer."""
SMALL_BYTES = 64 << 20
FITS_MAX = 10
"""Files that stay: of a script that calls `fit` again and again the last ones."""
_POSITION, _REACHED = KEPT_POSITION, "reached"


class Kept:
    """
    Args:
      directory: None: nothing is kept.
      position: asks for that of the data ledger: what is trained for sure. It is kept with a model that has all of that.
      begun: the beginning of the model (`Summing.begun`).
    """

    def __init__(
        self, directory: Path | None, position: Callable[[], bytes] = lambda: b"", begun: Callable[[], int] = lambda: 0
    ) -> None:
        self._directory, self._ask, self._begun = directory, position, begun
        self._asked: list[bytes | None] | None = None
        self.position = b""
        """Of what is `back`."""
        self.reached = 0, 0
        """Its beginning, and its step."""
        self._fit = ""
        self._written = time.monotonic()
        self._writing: threading.Thread | None = None

    def of(self, fit: str) -> None:
        """The `fit` that is kept from now on."""
        if fit != self._fit:
            self._fit, self._written, self._asked = fit, time.monotonic(), None

    @property
    def is_there(self) -> bool:
        """Something was kept of this `fit`, by this job or by one before it."""
        return self._directory is not None and self._file.exists()

    def look(self, variables: Any, step: int) -> None:
        """After a step: writes the state before it if that is due, beside the training."""
        busy = self._writing is not None and self._writing.is_alive()
        if self._directory is None or busy or time.monotonic() - self._written < EVERY_SECONDS:
            return
        if self._asked is None:
            self._asked = asked = []
            threading.Thread(target=lambda: asked.append(self._now()), name="deeprec-kept", daemon=True).start()
        if not self._asked:
            return  # it is on its way
        [position], self._asked, self._written = self._asked, None, time.monotonic()
        if position is None:  # what is kept is older, and right
            self._written -= EVERY_SECONDS - AGAIN_SECONDS
            return
        arrays = [np.array(one) for one in variables.take()]
        given = self._file, arrays, (self._begun(), step), position
        self._writing = threading.Thread(target=self._write, args=given, name="deeprec-kept", daemon=True)
        self._writing.start()

    def epoch(self, variables: Any, step: int) -> None:
        """An epoch has ended: written at once, unless the model is large and was written a moment ago."""
        large = sum(one.nbytes for one in variables.take()) > SMALL_BYTES
        if not large or time.monotonic() - self._written > EVERY_SECONDS:
            self.whole(variables, step)

    def whole(self, variables: Any, step: int) -> None:
        """A `fit` has ended."""
        if self._directory is not None:
            if self._writing is not None:
                self._writing.join(JOIN_SECONDS)
            self._written = time.monotonic()
            if (self._writing is None or not self._writing.is_alive()) and (position := self._now()) is not None:
                self._write(self._file, variables.take(), (self._begun(), step), position)

    def back(self, variables: Any) -> bool:
        """The state that was kept last of this `fit`, or of the next one that has any. False: there is none that fits."""

        def put(held: Any) -> None:
            variables.put([held[f"arr_{at}"] for at in range(sum(one.startswith("arr_") for one in held.files))])

        if found := self._read(put):
            log.info("the model is as it was kept in %s, unless another process has a newer one", self._file)
        return found

    def where(self) -> bytes | None:
        """The position of what would be `back`; empty: there is nothing. None: there is something without one, as releases
        before kept it, and nobody knows what it was trained on."""
        return (self.position or None) if self._read(lambda held: None) else b""

    def _read(self, use: Callable[[Any], None]) -> bool:
        """What is kept is for `use`, which raises where it does not fit."""
        if self._directory is None:
            return False
        try:
            with np.load(self._kept_file()) as held:
                position = held[_POSITION].tobytes() if _POSITION in held.files else b""
                # There is none of a backup.
                begun, step = map(int, held[_REACHED]) if _REACHED in held.files else (0, 0)
                use(held)
                self.position, self.reached = position, (max(0, begun), max(0, step))
        except FileNotFoundError:
            return False
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, ProtocolError) as error:
            log.warning("the model that was kept in %s cannot be used: %s", self._file, error)
            return False
        return True

    def remove(self) -> None:
        """What was kept of this `fit` is used up."""
        if self._directory is not None:
            try:
                self._file.unlink(missing_ok=True)
            except OSError as error:
                log.warning("%s stays there: %s", self._file, error)

    def _now(self) -> bytes | None:
        """None: nobody tells it. A model without one would take the ledger to its beginning."""
        try:
            return self._ask()
        except Exception as error:  # nothing is worth that training stops here
            log.warning("nobody tells the data ledger's position (%s): the model is kept later", error)
            return None

    def _kept_file(self) -> Path:
        """This `fit`'s, or where that was tidied away the next one's, which has gone on with the model."""
        later = {}
        if not self._file.exists():
            later = {_number(one): one for one in self._file.parent.glob("*.npz") if _number(one) > _number(self._file)}
        return later[min(later)] if later else self._file

    @property
    def _file(self) -> Path:
        assert self._directory is not None
        return self._directory / f"{self._fit}.npz"

    def _write(self, file: Path, arrays: Sequence[Array], reached: tuple[int, int], position: bytes) -> None:
        began = time.monotonic()
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            draft = file.with_name(f".{file.name}.{os.getpid()}")  # one before this may hang in its own
            with open(draft, "wb") as to:
                np.savez(to, *arrays, **{_POSITION: np.frombuffer(position, np.uint8), _REACHED: np.array(reached)})
                to.flush()
                os.fsync(to.fileno())
            draft.replace(file)
            self._tidy(file)
        except OSError as error:
            log.warning("the model could not be kept in %s: %s", file, error)
            return
        log.info("step %d: the model is kept in %s (%.2f s)", reached[1], file, time.monotonic() - began)

    def _tidy(self, newest: Path) -> None:
        """Of earlier calls of `fit` the last ones stay, and no drafts of processes that have ended."""
        there = sorted(newest.parent.glob("*.npz"), key=lambda one: one.stat().st_mtime)
        for old in there[:-FITS_MAX]:
            old.unlink(missing_ok=True)
        for draft in newest.parent.glob(f".{newest.name}.*"):
            draft.unlink(missing_ok=True)


def _number(file: Path) -> int:
    """Of a call of `fit`."""
    digits = re.search(r"\d+$", file.stem)
    return int(digits.group()) if digits else 0
