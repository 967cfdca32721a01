"""Keras's variables while their values are elsewhere: who looks at one gets the value, who writes one changes it for all.

A weight or an optimizer's state lies on a PS; the variable that the script knows is a window on it. Reading it, in whatever way
(`get_weights`, `save`, a callback's `layer.kernel.numpy()`), first brings the value here if steps have been made since; writing
it (`set_weights`, `load_weights`) is passed on before the next step. Functions of the script's own (`tf.function`) ask no
variable once they are traced: they are looked at when they are called. A metric, a counter or a learning rate is this process's
own: each run is given its value and gives back the new one, which is put into the variable when somebody looks. So a step costs
nothing for values that nobody looks at, and a step that is repeated after the loss of a PS counts once in every metric.

What is saved of a large one is not brought: it goes into the file a piece at a time. What is loaded into one stays in its file
until it is passed on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import tensorflow as tf

from deeprec_ext.graph import GraphIndex
from deeprec_ext.graph.writes import find_writes
from deeprec_ext.keras import ownership, unmade
from deeprec_ext.keras.files.rows import Rows, fitting
from deeprec_ext.tf_private import eager

NEVER = -1
SMALL_BYTES = 1 << 20
"""What is not larger is brought together with others that were asked for: one run for all."""


class Windows:
    """All of one process.

    Args:
      read: values on the PS of these variables.
      read_rows: of one, the rows [from, to).
      lock: which reads take, too: a thread that looks at a weight, and one that runs a step, wait for each other in one place.
    """

    def __init__(
        self, read: Callable[[Sequence[Any]], Sequence[np.ndarray]], read_rows: Callable[[Any, int, int], np.ndarray],
        lock: AbstractContextManager[Any],
    ) -> None:  # fmt: skip
        self._read, self._read_rows = read, read_rows
        self.lock = lock
        self._silent, self._saving = threading.local(), threading.local()
        self._remote: dict[int, _Remote] = {}
        self._local: dict[int, _Local] = {}
        self.steps = 0
        """Runs that have trained; 0: what is here is what the model begins with."""

    # -- which

    def open_remote(self, variable: Any) -> None:
        """Its value is on a PS from now on."""
        if ownership.key(variable) not in self._remote:
            self._remote[ownership.key(variable)] = _Remote(self, variable)

    def open_local(self, variable: Any) -> None:
        if ownership.key(variable) not in self._local:
            self._local[ownership.key(variable)] = _Local(self, variable)

    def function(self, run: Callable[[], Any], concrete: Any, given: Sequence[Any]) -> Any:
        """For `eager.calls_by`: variables are looked at before it runs, and changed by what it does."""
        if not (self._remote or self._local):
            return run()
        handles = [id(eager.raw_handle(one) if eager.has_handle(one) else one) for one in given]
        found = {place: self._of(key) for place, key in enumerate(handles) if self._of(key) is not None}
        for window in found.values():
            window.looked_at()
        result = run()
        for place in found.keys() & (_written(concrete) if found else ()):
            found[place].changed()
        return result

    def _of(self, key: int) -> Any:
        return self._remote.get(key) or self._local.get(key)

    # -- what runs need and give

    def local_value(self, variable: Any) -> np.ndarray:
        return self._local[ownership.key(variable)].value()

    def set_local(self, variable: Any, value: np.ndarray) -> None:
        self._local[ownership.key(variable)].later(value)

    def take_written(self) -> list[tuple[Any, np.ndarray | Rows]]:
        """Variables of PS that were written here, with their values, once."""
        with self.lock:
            return [(one.variable, one.take()) for one in self._remote.values() if one.written]

    def trained(self) -> None:
        """The values on the PS are others now."""
        self.steps += 1

    def silence(self) -> _Within:
        """Within, variables are what they are here: a step is traced, or a model begins with them."""
        return _Within(self._silent)

    def saving(self) -> _Within:
        """Within, large variables are not brought to be saved."""
        return _Within(self._saving)

    # -- for the windows

    @property
    def silent(self) -> bool:
        return getattr(self._silent, "depth", 0) > 0

    @property
    def saves(self) -> bool:
        return getattr(self._saving, "depth", 0) > 0

    def rows(self, variable: Any) -> Rows:
        """Of one on the PS. Each piece is read when it is wanted: while others train, rows may be some steps apart."""
        return Rows(
            variable.shape.as_list(), variable.dtype.as_numpy_dtype,
            lambda begin, end: self._read_rows(variable, begin, end), variable.device,
        )  # fmt: skip

    def bring(self, wanted: _Remote) -> None:
        with self.lock:
            if wanted.put_here() or wanted.step == self.steps or wanted.written:
                return
            together = [wanted]
            if wanted.small:
                others = [one for one in self._remote.values() if one.small and one is not wanted]
                together += [one for one in others if one.step != self.steps and not one.written]
            step = self.steps
            for one, value in zip(together, self._read([one.variable for one in together])):
                eager.set_raw(one.variable, value)
                one.step = step


def written_by(concrete: Any) -> frozenset[int]:
    """Keys of the variables that a traced function writes."""
    definition = concrete.graph.as_graph_def()
    places = {one.op.name: place for place, one in enumerate(concrete.inputs) if one.dtype == tf.resource}
    outside = {inside.op.name: id(handle) for handle, inside in eager.captured(concrete)}
    if definition.library.function:  # what they do is not looked into
        return frozenset(outside.values())
    writes = find_writes(GraphIndex(definition), places)
    return frozenset(outside[name] for write in writes for name in write.variables if name in outside)


def _written(concrete: Any) -> frozenset[int]:
    """Places among its inputs of the variables that a traced function writes; looked for once."""
    known: frozenset[int] | None = getattr(concrete, "_deeprec_ext_written", None)
    if known is None:
        places = {one.op.name: place for place, one in enumerate(concrete.inputs) if one.dtype == tf.resource}
        writes = find_writes(GraphIndex(concrete.graph.as_graph_def()), places)
        known = frozenset(places[name] for write in writes for name in write.variables)
        concrete._deeprec_ext_written = known
    return known


class _Within:
    def __init__(self, state: Any) -> None:
        self._state = state

    def __enter__(self) -> None:
        self._state.depth = getattr(self._state, "depth", 0) + 1

    def __exit__(self, *_: object) -> None:
        self._state.depth -= 1


class _Remote:
    """A window on a PS."""

    def __init__(self, windows: Windows, variable: Any) -> None:
        self._windows, self.variable = windows, variable
        self.large = unmade.is_large(variable)
        self.small = bool(variable.shape.rank) and not self.large and ownership.size(variable) <= SMALL_BYTES
        self.step = windows.steps if unmade.first_of(variable) is None else NEVER
        """Runs that had trained when the value was brought."""
        self.written = False
        self._loaded: Rows | None = None
        self._before = self.step
        eager.watch(variable, self)

    def looked_at(self) -> None:
        if self.step == self._windows.steps or (self._windows.silent and not self._is_wanted_now()):
            return
        if not (self.large and self.step == NEVER and self._windows.saves and not tf.executing_eagerly()):
            self._windows.bring(self)  # what is traced to be saved with a model takes a handle, no value

    def _is_wanted_now(self) -> bool:
        """What a step does eagerly while it is traced needs a value, where there is none here."""
        return self.step == NEVER and tf.executing_eagerly()

    def overwritten(self) -> None:
        self._before, self.step = self.step, self._windows.steps

    def changed(self) -> None:
        self.written, self._loaded = True, None

    def takes(self, value: Any) -> bool:
        rows = fitting(value, self.variable) if self.large else None
        if rows is not None:
            with self._windows.lock:
                self.written, self._loaded, self.step = True, rows, NEVER
        return rows is not None

    def take(self) -> np.ndarray | Rows:
        rows, self._loaded, self.written = self._loaded, None, False
        return eager.raw_value(self.variable) if rows is None else rows

    def put_here(self) -> bool:
        """Whether it had been loaded, and left where it was."""
        if self._loaded is None:
            return False
        eager.set_raw(self.variable, np.asarray(self._loaded))
        self._loaded, self.step = None, self._windows.steps
        return True

    def not_overwritten(self) -> None:
        self.step = self._before

    def rows(self) -> Rows | None:
        windows = self._windows
        if not self.large or not windows.saves or windows.silent or self.written or self.step == windows.steps:
            return None
        return windows.rows(self.variable)


class _Local:
    """A variable of this process, whose value may still be with the runs."""

    def __init__(self, windows: Windows, variable: Any) -> None:
        self._windows, self.variable = windows, variable
        self._known: np.ndarray | None = None
        self._pending = self._before = False
        if (first := unmade.first_of(variable)) is not None:
            first.make()
        eager.watch(variable, self)

    def value(self) -> np.ndarray:
        if self._known is None:
            self._known = eager.raw_value(self.variable)
        return self._known

    def later(self, value: np.ndarray) -> None:
        self._known, self._pending = value, True

    def looked_at(self) -> None:
        if self._pending and not self._windows.silent:
            self._pending = False
            eager.set_raw(self.variable, self._known)

    def overwritten(self) -> None:
        self._before, self._pending = self._pending, False

    def changed(self) -> None:
        self._known = None

    def not_overwritten(self) -> None:
        self._pending = self._before

    def rows(self) -> None: ...

    def takes(self, value: Any) -> bool:
        return False
