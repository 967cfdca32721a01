"""What `fit`, `evaluate` and `predict` of a process run on parameter servers: its models, one graph, one session."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from deeprec_ext.errors import DeepRecError, RefusedError
from deeprec_ext.keras import ownership, unmade
from deeprec_ext.keras.captured import capture
from deeprec_ext.keras.files.loading import left_in_files
from deeprec_ext.keras.files.replacing import replacing
from deeprec_ext.keras.files.rows import Rows, held
from deeprec_ext.keras.files.streaming import streamed
from deeprec_ext.keras.opening import StepSession
from deeprec_ext.keras.stepgraph import Batches, Imported, Shared, StepGraph
from deeprec_ext.keras.windows import Windows
from deeprec_ext.tf_private import eager, keras_classes
from deeprec_ext.tf_private.wrapping import wrap_within
from deeprec_ext.units import few

log = logging.getLogger("deeprec_ext")


class WentBackError(DeepRecError):
    """The model is another one than when a file of it was begun."""


class Door:
    """Args:
    open_session: makes a session on a graph; given the records of a step, where they are known.
    slots: how many the job has.
    chief: whether what this process writes into a variable is written into the model.
    generation: what is of this generation of Keras alone (`keras2`, `keras3`).
    refused: is told why a step cannot be elastic, before RefusedError is raised.
    discarded: is told of variables that a process which is not the chief has written.
    """

    def __init__(
        self, open_session: Callable[[tf.Graph, int | None], StepSession], slots: int, chief: bool, generation: Any,
        refused: Callable[[str], None], discarded: Callable[[Sequence[str]], None] = lambda names: None,
    ) -> None:  # fmt: skip
        self._open_session, self._chief = open_session, chief
        self._refused, self._discarded = refused, discarded
        self.further: Callable[[], bool] = lambda: False
        """Whether a chief before this one has come further: what the script writes into the model has been written."""
        self.went_back: Callable[[], int] = lambda: 0
        """Another number where the model has gone back to something older."""
        self._saved = threading.local()
        self.generation = generation
        self.steps = StepGraph(slots)
        self.lock = threading.RLock()
        self.windows = Windows(self._read, self._read_rows, self.lock)
        self._session: StepSession | None = None
        self._told_of_xla: set[str] = set()
        self._opened_with = 0  # variables in the graph when the session was opened

    def trains(self, model: Any) -> bool:
        """Whether some of the model is on PS."""
        return any(map(self.has, self.generation.weights(model)))

    def has(self, variable: Any) -> bool:
        """Whether it is."""
        return ownership.key(variable) in self.steps.shared

    def prepare(self, model: Any, kind: str, spec: Any, batches: Batches) -> Imported:
        """Traces a step and makes it ready to run.

        Args:
          kind: "train", "test" or "predict".
          spec: of a batch.
          batches: what is known of them.
        """
        generation = self.generation
        xla = ["the model"] if getattr(model, "jit_compile", False) else []
        with self.lock, self.windows.silence(), unmade.silence(), generation.traceable(model):
            try:
                captured = capture(generation.step(model, kind), spec, lambda: generation.optimizer_variables(model))
            except RefusedError as error:
                if kind == "train":
                    self._refused(str(error))
                raise
            self._tell_of_xla([*xla, *captured.compiled])
            state = generation.optimizer_variables(model)
            imported = self.steps.add(
                captured, generation.weights(model), state, generation.counters(model), kind, kind == "train", batches
            )
            new = self._opened_with != len(self.steps.shared)
            if new:
                self._open(batches.records)
            for shared in self.steps.shared.values():
                self.windows.open_remote(shared.variable)
            for variable, _ in imported.given:
                self.windows.open_local(variable)
            if new:
                self.windows.trained()  # what is on the PS is what counts
        return imported

    def use(self, imported: Imported) -> None:
        """All steps are in one graph."""

    def run(self, imported: Imported, batch: Sequence[np.ndarray], *, train: bool) -> Any:
        """One step on one batch; its results as Keras's step gives them."""
        self.pass_on()
        assert self._session is not None
        feeds = dict(zip(imported.feeds, batch))
        feeds.update((value, self.windows.local_value(variable)) for variable, value in imported.given)
        fetches = [*imported.outputs, *(tensor for _, tensor in imported.taken), imported.done]
        with self.lock:  # a thread that looks at a weight runs the session, too
            results = (self._session.train if train else self._session.run)(fetches, feeds)
            while self.steps.beginnings:
                self.steps.beginnings.pop().release()
        count = len(imported.outputs)
        for (variable, _), value in zip(imported.taken, results[count:]):
            self.windows.set_local(variable, value)
        if train:
            self.windows.trained()
        return imported.captured.pack(results[:count])

    def bring(self, model: Any) -> None:
        """Its variables have their values here, for a step that is Keras's own."""
        for variable in self.generation.weights(model):
            _ = variable.handle

    @property
    def should_stop(self) -> bool:
        return self._session is not None and self._session.should_stop

    def recover(self) -> None:
        """Where the model was lost while no step was made: the chief restores it, and others find it again."""
        if self._session is not None:
            self._session.run([self.steps.step], {})

    @contextmanager
    def saving(
        self, model: Any, args: Sequence[Any], words: Mapping[str, Any]
    ) -> Iterator[tuple[Sequence[Any], Mapping[str, Any]]]:
        """Within, what is large goes from the PS into files a piece at a time. What was loaded is read before: it may lie in
        the file that is written.

        Args:
          args, words: those of Keras's method that saves, but for the model. Given are those to call it with.

        Raises WentBackError where what is saved would be of two models.
        """
        if getattr(model, "built", False):
            unmade.make_loaded([*self.generation.weights(model), *self.generation.optimizer_variables(model)])
        if self._chief:
            self.pass_on()
        if not any(unmade.is_large(one.variable) for one in self.steps.shared.values()):
            yield args, words
            return
        self._saved.of = self.went_back()
        try:
            with self.windows.saving(), streamed(self._rows_of), replacing(args, words) as given:
                yield given
        finally:
            self._saved.of = None

    @contextmanager
    def loading(self, kind: Any) -> Iterator[None]:
        """Within, what is large stays in the files that it is loaded from, until it is wanted.

        Args:
          kind: Keras's class of models. What their optimizers keep of large tables is not made here, either.
        """
        seen: set[int] = set()
        with ExitStack() as undo, left_in_files(unmade.LARGE_BYTES):

            def compiled(original: Callable[..., Any], model: Any, *args: Any, **words: Any) -> Any:
                result = original(model, *args, **words)
                if id(model) not in seen:
                    seen.add(id(model))
                    undo.enter_context(self.generation.filling(model))
                return result

            # Where it is defined: elsewhere Keras 3 would take it for the script's own, and not compile what it loads.
            owner = next(one for one in kind.__mro__ if "compile" in vars(one))
            wrap_within(undo, owner, "compile", compiled)
            yield

    def _tell_of_xla(self, compiled: Sequence[str]) -> None:
        """Once of each."""
        if new := [name for name in compiled if name not in self._told_of_xla]:
            self._told_of_xla.update(new)
            log.info(
                "jit_compile of %s is left out: what XLA compiles is one piece, of which no parameter server could run a part",
                few(new, 3),
            )

    def _rows_of(self, value: Any) -> Rows | None:
        """Of what is written: a variable of Keras 3, or what it or TensorFlow's has given for its value."""
        watcher = eager.watcher_of(keras_classes.inside(value))
        return held(value) if watcher is None else watcher.rows()

    def changed(self) -> None:
        """Others have trained: what was read of the model is old."""
        self.windows.trained()

    def forget(self) -> None:
        """What the script has written into variables of the model: it was done before, or comes too late."""
        if written := self.windows.take_written():
            self.windows.trained()
            log.info("left out, the model is further: what was written into %s", few(_names(written), 3))

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _open(self, examples: int | None) -> None:
        """Anew where variables have come: they are initialised, or waited for, when a session is made."""
        self.close()
        self._session = self._open_session(self.steps.graph, examples)
        self._opened_with = len(self.steps.shared)

    def pass_on(self) -> None:
        """What the script has written into variables of the model; where there is no session yet, it is what the model begins
        with."""
        if self._chief and self.further():
            return
        written = self.windows.take_written() if self._session is not None else []
        if not written or self._session is None:
            return
        if not self._chief:
            self.windows.trained()
            self._discarded(_names(written))
            return
        shared = [(self.steps.shared[ownership.key(variable)], value) for variable, value in written]
        whole = [(one, value) for one, value in shared if held(value) is None]
        with self.lock:
            if whole:
                self._session.run([one.write for one, _ in whole], {one.value: value for one, value in whole})
            for one, value in shared:
                if (rows := held(value)) is not None:
                    self._load(one, rows)

    def _load(self, shared: Shared, rows: Rows) -> None:
        assert self._session is not None
        key = ownership.key(shared.variable)
        self.steps.loading[key] = rows
        try:
            self._session.run([self.steps.load_of(shared.variable)], {})
        finally:
            del self.steps.loading[key]

    def _read(self, variables: Sequence[Any]) -> Sequence[np.ndarray]:
        with self.lock:
            if self._session is None:
                raise RuntimeError(
                    f"{ownership.name(variables[0])} is on parameter servers, and this process has left them: read it before"
                )
            return self._session.run([self.steps.shared[ownership.key(one)].read for one in variables], {})

    def _read_rows(self, variable: Any, begin: int, end: int) -> np.ndarray:
        with self.lock:
            if self._session is None:
                raise RuntimeError(f"{ownership.name(variable)} is on parameter servers, which this process has left")
            rows, between = self.steps.some_of(variable)
            found: np.ndarray = self._session.run([rows], {between: [begin, end]})[0]
        of = getattr(self._saved, "of", None)
        if of is not None and of != self.went_back():
            raise WentBackError(f"{ownership.name(variable)} has gone back to an older state while it was saved")
        return found


def _names(written: Sequence[tuple[Any, Any]]) -> list[str]:
    return sorted(ownership.name(variable) for variable, _ in written)
