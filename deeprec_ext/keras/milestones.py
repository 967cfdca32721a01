"""How far the chief's script has come, for the scripts of the others: they go on when it has done what they need, and decide by
what it has measured.

All processes run the whole script, so a file that one of them is to save after its second `fit` is one that the chief saves
after its second: who comes there waits until that is done, or the chief is further. The same with what `evaluate` gives between
two calls of `fit`: the chief measures, and a process that comes late, or again, gets what it was told then. A `fit` that the
chief has left by an exception which its script has caught ends in the others as well.

All of that is in one file of the run directory; beside it, how far any chief has come, which one that begins again has not to
do to the model once more, and in which generation of the model. Where processes do not share that (pods without a common
volume) nobody waits, and each measures by itself: there the chief's files are out of reach as well.
"""

from __future__ import annotations

import importlib
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from deeprec_ext import wholefiles
from deeprec_ext.errors import DeepRecError
from deeprec_ext.rundir import DONE_BY_SCRIPT as NAME

log = logging.getLogger("deeprec_ext")

LOOK_SECONDS, TELL_SECONDS = 0.1, 30.0
LIMIT_SECONDS = 600.0
"""Then the script goes on: perhaps the chief's goes another way."""

LEFT_SECONDS, LEFT_LOOK_SECONDS = 30.0, 5.0
"""A chief that has left a `fit` by an exception, and whose script has not ended for so long, has caught it; where it does
something, sooner. So often it is looked: a process looks while it trains."""

RESULTS_MAX = 10_000
"""Of `evaluate`, and `fit`s that were left: the newest."""


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
        self._chief, self._leaving, self._generation = chief, leaving, generation
        self._begun = self._ended = self._measured = 0  # calls of `fit`, and of `evaluate` since
        self._saved: dict[str, int] = {}  # since the last end of a `fit`
        self._results: dict[str, Any] = {}
        self._left: dict[str, str] = {}
        before = self._read() or self._read(of_this_run=False)
        self._most, self._of = tuple(before.get("most", (0, 0))), before.get("of", 0)
        self._results_before: dict[str, Any] = {**before.get("before", {}), **before.get("results", {})}
        self._left_before: dict[str, str] = before.get("left", {})
        self._looked = 0.0
        self._seen_left: dict[str, float] = {}
        self.begun_before = before.get("begun", 0) > 0
        """A chief was in its first `fit` when this process came: what its script has written before that is whole."""
        if chief:
            self._tell()  # also of one that begins again, with another count than before

    # -- in both

    def begins(self) -> None:
        """A call of `fit` begins."""
        self._begun, self._measured = self._begun + 1, 0
        if self._chief:
            self._tell()

    def ends(self, left: BaseException | None = None) -> None:
        """The last one that has begun ends.

        Args:
          left: by which it is left.
        """
        if isinstance(left, Exception):
            self._left[str(self._ended)] = _said(left)
        self._ended, self._measured = self._ended + 1, 0
        self._saved.clear()
        if self._chief:
            self._done()

    def _place(self) -> str:
        """Of the next `evaluate`."""
        self._measured += 1
        return f"{self._begun}.{self._ended}.{self._measured}"

    # -- in the chief

    @property
    def made_before(self) -> bool:
        """Whether another process has been the chief and done the next thing, in the model that there is."""
        return self._reached < self._most and self._of == self._generation()

    def saved(self, what: str) -> None:
        self._saved[what] = self._saved.get(what, 0) + 1
        self._done()

    def measured(self, measure: Callable[[], Any], anew: bool) -> Any:
        """What `evaluate` gives, for all.

        Args:
          anew: it is to be measured, though a chief before this one may have done so.
        """
        place = self._place()
        if anew or self._results_before.get(place) is None:
            self._results[place] = None  # whoever waits measures by itself, unless there is something better
            try:
                value = measure()
                self._results[place] = _plain(value)
            except BaseException:
                self._tell()
                raise
        else:
            self._results[place] = self._results_before[place]
            value = _given(self._results[place])
        for one in list(self._results)[:-RESULTS_MAX]:
            del self._results[one]
        self._tell()
        return value

    def script_ends(self) -> None:
        """Perhaps by what a `fit` was left by: nobody is to take it for caught."""
        if self._chief and self._left:
            self._left.clear()
            self._tell()

    @property
    def _reached(self) -> tuple[int, int]:
        return self._ended, sum(self._saved.values())

    def _done(self) -> None:
        generation = self._generation()
        self._most, self._of = max(self._reached, self._most if self._of == generation else (0, 0)), generation
        self._tell()

    # -- in another process

    def wait_end(self) -> None:
        """Until the chief has ended the `fit` that ends here."""
        self._wait(lambda chief: chief["ended"] > self._ended, LIMIT_SECONDS)

    def wait_saved(self, what: str) -> None:
        self._saved[what] = count = self._saved.get(what, 0) + 1
        self._wait(lambda chief: chief["saved"].get(what, 0) >= count or self._is_past(chief), LIMIT_SECONDS)

    def result(self, measure: Callable[[], Any]) -> Any:
        """What `evaluate` gives in the chief; where that has not asked for it, or nobody knows, it is measured here."""
        place = self._place()
        chief = self._wait(lambda chief: place in chief["results"] or self._is_past(chief), float("inf"))
        found = chief["results"].get(place) if chief is not None else None
        return measure() if found is None else _given(found)

    def left(self) -> None:
        """Of the `fit` under way. Raises what the chief has left it by, once its script goes on; in the chief, what one before
        it has."""
        place, now = str(self._ended), time.monotonic()
        if self._chief:
            if self.made_before and place in self._left_before:
                raise _error_of(self._left_before[place])
            return
        if now - self._looked < LEFT_LOOK_SECONDS:
            return
        self._looked, chief = now, self._read()
        said = chief.get("left", {}).get(place)
        if said is None:
            return
        began = self._seen_left.setdefault(place, now)
        further = chief["ended"] > self._ended + 1 or chief["begun"] > self._begun
        if further or chief["saved"] or chief["measured"] or now - began > LEFT_SECONDS:
            raise _error_of(said)

    def _is_past(self, chief: Mapping[str, Any]) -> bool:
        """Whether the chief is beyond what follows the last `fit` here."""
        return bool(chief["ended"] > self._ended or chief["begun"] > self._begun)

    def _wait(self, enough: Callable[[Mapping[str, Any]], bool], limit_seconds: float) -> Mapping[str, Any] | None:
        """What the chief says then; None: nothing that can be read, or not in time."""
        began = told = time.monotonic()
        while chief := self._read():
            if enough(chief):
                return chief
            now = time.monotonic()
            if now - began > limit_seconds:
                log.warning(
                    "the chief's script has not come so far within %d s: this one goes on without it", limit_seconds
                )
                return None
            if now - told > TELL_SECONDS:
                told = now
                log.info("waiting for the chief's script to come as far: it saves files, evaluates, or ends fit")
            if self._leaving.wait(LOOK_SECONDS):
                return None
        return None

    # -- the file

    def _read(self, *, of_this_run: bool = True) -> dict[str, Any]:
        """What the chief has written; empty: nothing that can be read. Or what an earlier run has left."""
        try:
            found = json.loads(self._file.read_text()) if self._file is not None else None
        except (OSError, ValueError):
            return {}
        wanted = {"begun", "ended", "saved", "measured", "results"} if of_this_run else {"before"}
        return found if isinstance(found, dict) and found.keys() >= wanted else {}

    def _tell(self) -> None:
        if self._file is None:
            return
        told = {
            "begun": self._begun, "ended": self._ended, "measured": self._measured, "saved": self._saved,
            "results": self._results, "left": dict(list(self._left.items())[-RESULTS_MAX:]), "most": self._most,
            "of": self._of, "before": self._results_before,
        }  # fmt: skip
        try:
            wholefiles.write(self._file, json.dumps(told) + "\n")
        except OSError as error:
            with suppress(OSError):
                self._file.unlink(missing_ok=True)  # else they would wait for what it said before
            log.info("%s cannot be written (%s): other processes do not wait for this one's script", self._file, error)


def _plain(value: Any) -> Any:
    """As JSON has it; None: it has not."""

    def of(one: Any) -> Any:
        return np.asarray(one).tolist()

    try:
        text = json.dumps(value, default=of)
        return json.loads(text)
    except (TypeError, ValueError):
        return None


def _given(told: Any) -> Any:
    """As Keras gives it: a number, or numbers in a list or by name, of which one may be an array."""
    if isinstance(told, dict):
        return {name: _array(one) for name, one in told.items()}
    return [_array(one) for one in told] if isinstance(told, list) else told


def _array(one: Any) -> Any:
    return np.asarray(one) if isinstance(one, list) else one


def _said(error: Exception) -> str:
    kind = type(error)
    return json.dumps([kind.__module__, kind.__qualname__, str(error)])


def _error_of(said: str) -> Exception:
    """Of the same class, where there is one here, so that the script catches it as the chief's has."""
    module, name, text = json.loads(said)
    kind: Any = None
    with suppress(Exception):
        kind = importlib.import_module(module)
        for part in name.split("."):
            kind = getattr(kind, part)
    for words in ((text,), (None, None, text), ()):  # the second: TensorFlow's
        if isinstance(kind, type) and issubclass(kind, Exception):
            with suppress(Exception):
                return kind(*words)
    return DeepRecError(f"the chief has left this fit by {name}: {text}")
