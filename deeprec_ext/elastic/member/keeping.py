"""Disk backups of a job without PS: who has the lowest place in the ring writes all that there is, every so often.

The state is copied between two steps, by the thread that sums; everything else is done beside the training, in a thread of low
priority. The data ledger's position is asked for before the copy is made, so it is never ahead of it. What cannot be written is
told once, and tried again at the next interval.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deeprec_ext.allreduce.ring import Array
from deeprec_ext.backup import process_cuts
from deeprec_ext.backup.files import directory
from deeprec_ext.elastic.agent.background import Polite
from deeprec_ext.errors import DeepRecError

log = logging.getLogger("deeprec_ext")


class Keeping:
    """
    Args:
      job: its name.
      settings: those of the job, with `disk_backup` and what belongs to it.
      place: (whether this process has the lowest place, number of the view).
      secret: of the job: its backups are told from those of another of the same name by it.
      position: asks for that of the data ledger.
      tell: is given (what is wrong, what to do), once for each time that it goes wrong.
    """

    def __init__(
        self, job: str, settings: Callable[[], Any], place: Callable[[], tuple[bool, int]], secret: Callable[[], bytes],
        position: Callable[[], bytes], tell: Callable[[str, str], None],
    ) -> None:  # fmt: skip
        self._job, self._settings, self._place, self._secret = job, settings, place, secret
        self._position, self._tell = position, tell
        self._begun = time.monotonic()
        self._asked: Polite[bytes] | None = None
        self._writing: Polite[None] | None = None
        self._failed = False

    def look(self, state: Any, step: int, own: str = "join") -> None:
        """Before a sum: `state` is as the last step has left it.

        Args:
          own: what it is called where it does not say so.
        """
        settings = self._settings()
        if settings.disk_backup in ("", "off") or step < 1 or getattr(state, "between", False):
            return
        if self._writing is not None and not self._writing.ended:
            return
        first, view = self._place()
        if not first or time.monotonic() - self._begun < settings.disk_backup_seconds:
            return
        if self._asked is None:
            self._asked = Polite(self._position)
        if not self._asked.ended:
            return  # the position is on its way
        asked, self._asked, self._begun = self._asked, None, time.monotonic()
        try:
            arrays = [np.array(one) for one in state.take()]
            names, called = _names(state, len(arrays)), str(getattr(state, "called", own))
        except Exception:  # of a class of the script's: no training stops for it
            log.exception("the state could not be taken for a disk backup")
            return
        self._writing = Polite(
            self._write, settings.disk_backup, int(settings.disk_backup_keep), view, arrays, names, called, step, asked,
        )  # fmt: skip

    def wait(self, seconds: float) -> None:
        """Until what is being written is."""
        if self._writing is not None:
            self._writing.wait(seconds)

    def _write(
        self, path: str, keep: int, view: int, arrays: Sequence[Array], names: Sequence[str], called: str, step: int,
        asked: Polite[bytes],
    ) -> None:  # fmt: skip
        began = time.monotonic()
        try:
            state = process_cuts.State(called, names, arrays, step, asked.result(), time.time())
            key = hmac.digest(self._secret(), b"disk backups", hashlib.sha256).hex()[:8]
            made = process_cuts.write(directory(path), state, job=self._job, job_id=key, writer=view, keep=keep)
        except (DeepRecError, OSError, ValueError) as error:
            if not self._failed:
                self._tell(
                    f"no disk backup could be written to {path}: {str(error)[:500]}",
                    "training goes on, and it is tried again: make room there, or give another directory",
                )
            self._failed = True
            return
        except Exception:  # a defect of ours: no training stops for it
            log.exception("no disk backup could be written to %s", path)
            return
        self._failed = False
        log.info("step %d: cut %d of the disk backup is written (%.2f s)", step, made.number, time.monotonic() - began)


def _names(state: Any, count: int) -> list[str]:
    """Each once."""
    given = getattr(state, "names", None)
    names: list[str] = list(given()) if callable(given) else []
    if len(names) != count:
        names = [f"array_{at}" for at in range(count)]
    found: dict[str, None] = {}
    for name in names:
        new, number = name, 1
        while new in found:
            number += 1
            new = f"{name}_{number}"
        found[new] = None
    return list(found)
