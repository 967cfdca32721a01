"""Calls of a script before its first step, and what they gave: an epoch to resume from, a seed, records of all.

Who comes later makes the same calls, which nobody makes with it any more: it gets what they gave then. So what all have alike
by them it has, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from deeprec_ext.errors import RefusedError
from deeprec_ext.horovod.things import decoded, encoded

KEPT_BYTES, CALLS_MAX = 1 << 20, 1000
"""What is kept of all results together; larger ones (a model, which is given later as it is then) are this process's own."""


class Before:
    """Of one process, which may have them of another."""

    def __init__(self) -> None:
        self._gave: list[tuple[str, bytes | None]] = []
        self._at = 0  # calls that this process has made
        self._left = KEPT_BYTES
        self.is_whole = True
        """All is kept: whoever makes the same calls and gets this comes to the same."""

    @property
    def has_more(self) -> bool:
        """There are calls that this process has still to make."""
        return self._at < len(self._gave)

    def made(self, name: str, result: Any) -> None:
        """With the others."""
        self._at += 1
        if len(self._gave) == CALLS_MAX:
            self.is_whole = False
        elif len(self._gave) < self._at:
            said = self._said(result)
            self._left -= len(said or b"")
            self._gave.append((name, said))
            self.is_whole = self.is_whole and said is not None

    def next(self, name: str) -> tuple[Any] | None:
        """What this process's next call gave the others. None: nobody knows."""
        self._at += 1
        if self._at > len(self._gave):
            return None
        made, said = self._gave[self._at - 1]
        return (decoded(said),) if made == name and said is not None else None

    def told(self) -> list[Any]:
        return [list(one) for one in self._gave]

    def hear(self, told: list[Any], is_whole: bool) -> None:
        self._gave, self.is_whole = [(name, said) for name, said in told], is_whole
        self._left = KEPT_BYTES - sum(len(said or b"") for _, said in self._gave)

    def _said(self, result: Any) -> bytes | None:
        arrays = [one for one in (result if isinstance(result, list) else [result]) if isinstance(one, np.ndarray)]
        if sum(one.nbytes for one in arrays) > self._left:
            return None
        try:
            said = encoded(result)
        except RefusedError:
            return None
        return said if len(said) <= self._left else None
