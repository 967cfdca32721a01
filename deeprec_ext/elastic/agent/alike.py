"""Global generators of random numbers (Python's and NumPy's), which are alike in all processes of a job.

A Keras script that makes its arrays by chance (`np.random.random((1000, 20))`, `train_test_split`) runs in each process, and
`fit` divides the rows of its arrays among them: they have to be the same. So the generators begin with the same numbers
everywhere, and in a process that is started again; or the script seeds them. While `fit` runs each process draws numbers of its
own, for the batches that it makes; what an input does to itself between two epochs (it shuffles) is the same in all; and after
`fit` all go on alike, however much each has drawn.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from deeprec_ext.layout import Facts

MODULE = "numpy.random"


class Alike:
    """Of this process."""

    def __init__(self) -> None:
        self._module: ModuleType | None = None
        self._fits = 0
        self._within: int | None = None
        """Number of the `fit` under way."""
        self._ended = False

    def begin(self, module: ModuleType, job: str) -> None:
        """`numpy.random` has been imported, and nobody has drawn a number yet."""
        if self._module is None:
            self._module = module
            self._seed(zlib.crc32(job.encode()))

    def end(self, place: str) -> None:
        """From now on all that is drawn is this process's own.

        Args:
          place: of the process; empty: that of the chief, which goes on as it is.
        """
        if self._module is not None and not self._ended and self._within is None:
            self._ended = True
            if place:
                self._seed(self._number(place))

    @contextmanager
    def apart(self, place: str) -> Iterator[None]:
        """While `fit` runs. The chief's first one draws what it would draw without the others."""
        if self._module is None or self._ended or self._within is not None:
            yield
            return
        self._fits += 1
        before = self._state()
        self._within = self._number("")
        if place or self._fits > 1:
            self._seed(self._number(place))
        try:
            yield
        finally:
            self._within = None
            self._set(before)

    @contextmanager
    def together(self, what: str) -> Iterator[None]:
        """Within a `fit`: what is drawn is the same in all processes."""
        if self._within is None:
            yield
            return
        before = self._state()
        self._seed(zlib.crc32(f"{self._within} {what}".encode()))
        try:
            yield
        finally:
            self._set(before)

    def _number(self, place: str) -> int:
        """Of a `fit` in this process: nothing is drawn for it."""
        assert self._module is not None
        kind, words, *rest = self._module.get_state()
        return zlib.crc32(f"{kind} {zlib.crc32(words.tobytes())} {rest} {self._fits} {place}".encode())

    def _state(self) -> tuple[Any, Any]:
        assert self._module is not None
        return random.getstate(), self._module.get_state()

    def _set(self, state: tuple[Any, Any]) -> None:
        assert self._module is not None
        random.setstate(state[0])
        self._module.set_state(state[1])

    def _seed(self, number: int) -> None:
        assert self._module is not None
        random.seed(number)
        self._module.seed(number)


def is_wanted(facts: Facts | None) -> bool:
    """Of a script of Keras that knows of no cluster; others divide their records themselves, by chance perhaps."""
    return (
        facts is not None and facts.keras and not (facts.sessions or facts.estimator or facts.tf_config or facts.flags)
    )


ALIKE = Alike()
