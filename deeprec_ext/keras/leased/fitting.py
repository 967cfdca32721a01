"""`fit` of a process of the job: whether its records can be leased, and how Keras is called then.

Arrays are leased by row, an `elastic_dataset` as it says, a pipeline over files by file and range (`pipelines`). Of anything
else each process trains a pass of its own.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from deeprec_ext.data import streams
from deeprec_ext.data.dataset import reads_of
from deeprec_ext.data.plan import Plan
from deeprec_ext.graph.marks import DIVIDED, parse
from deeprec_ext.graph.sources import source_of_dataset
from deeprec_ext.keras.leased import roles
from deeprec_ext.keras.leased.arrays import BATCH, Rows, rows_of
from deeprec_ext.keras.leased.epochs import STEPS_MAX, Epochs, Home, Model
from deeprec_ext.keras.leased.pipelines import NotFollowed, followed
from deeprec_ext.keras.leased.weights import by_class
from deeprec_ext.tf_private import eager

log = logging.getLogger("deeprec_ext")


@dataclass(frozen=True)
class Input:
    """Records that can be leased."""

    plan: Plan
    """In turn, of this `fit` alone."""
    spec: Any
    make: Callable[[Any], Iterator[Any]]
    """An iterator of the batches of a source."""
    first: int
    """Number of the first epoch."""
    passes: int
    """How often an epoch reads the records."""
    batches: int | None
    """Of an epoch, for the progress bar."""
    reads: Sequence[str] = ("format:memory",)
    """What is known of where they come from, as `graph.marks.READS` has it."""
    instead: str = ""
    """Dataset of the script whose batches these are."""


class Fitting:
    """Of one process.

    Args:
      home: its trainer.
      model: on the PS.
    """

    def __init__(self, home: Home, model: Model) -> None:
        self._home, self._model = home, model
        self._count = 0
        self._running: dict[int, Epochs] = {}
        self._fitted: set[int] = set()

    def epochs(self, model: Any) -> Epochs | None:
        """Of the `fit` under way, whose loop is about to train a batch."""
        running = self._running.get(id(model))
        return running if running is not None and running.within_batch else None

    def is_past(self, model: Any) -> bool:
        """Whether it goes through an epoch that the others have had before."""
        running = self._running.get(id(model))
        return running is not None and running.replayed

    def has_fitted(self, model: Any) -> bool:
        """Whether the job trains it, though this process may have had no batch of it."""
        return id(model) in self._fitted

    def fit(self, original: Callable[..., Any], model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """As Keras's `fit`, with records leased where they can be."""
        try:
            given = inspect.signature(original).bind(model, *args, **kwargs)
        except TypeError:
            return original(model, *args, **kwargs)  # which says what is wrong
        given.apply_defaults()
        words = dict(given.arguments)
        words.pop(next(iter(words)))
        as_given = dict(words)
        found = self._input(words)
        if found is None:
            if not self._home.chief and as_given.get("callbacks"):
                as_given["callbacks"] = roles.of_a_worker(as_given["callbacks"])
            return original(model, **as_given)
        return self._leased(original, model, words, found)

    def _input(self, words: dict[str, Any]) -> Input | None:
        """Changes `words` to what Keras is still told of them."""
        if words.get("steps_per_epoch") is not None:
            self._own_pass("it has steps_per_epoch, which are those of each process")
            return None
        if isinstance(words["x"], tf.data.Dataset):
            return self._of_dataset(words)
        return self._of_arrays(words)

    def _of_arrays(self, words: dict[str, Any]) -> Input | None:
        y, weights = words.get("y"), words.get("sample_weight")
        rows = rows_of(words["x"], y, weights)
        epochs, batch = _whole(words.get("epochs")), _whole(words.get("batch_size") or BATCH)
        first = words.get("initial_epoch") or 0
        if rows is None or epochs is None or batch is None or epochs - first < 1:
            if rows is None:
                self._own_pass("it is neither arrays of as many rows each, nor an elastic_dataset")
            return None
        if (share := words.get("validation_split")) and words.get("validation_data") is None:
            parts = rows.split(share)
            if parts is None:
                return None  # Keras says so
            rows, held = parts
            words["validation_data"] = _validation(held.structure)
        if words.get("class_weight"):
            if y is None:
                return None
            labels, given = rows.structure[1], rows.structure[2] if len(rows.structure) > 2 else None
            _, _, weighed = by_class(words["class_weight"])(None, labels, given)
            rows = Rows((*rows.structure[:2], weighed.numpy()), rows.count)
        plan = rows.plan(batch, 1, bool(words.get("shuffle", True)), self._count)
        plan = plan.in_turn(self._name(), epochs - first, rows.content())
        return Input(
            plan, rows.spec, lambda source: map(rows.pack, source.batches()), first, 1, math.ceil(rows.count / batch)
        )

    def _of_dataset(self, words: dict[str, Any]) -> Input | None:
        dataset = words["x"]
        if DIVIDED in eager.first_names(dataset):
            return None
        mark = next((one for name in eager.first_names(dataset) if (one := parse(name)) is not None), None)
        if mark is None:
            dataset = self._followed(dataset, words)
            if dataset is None:
                return None
            mark = next(one for name in eager.first_names(dataset) if (one := parse(name)) is not None)
        source = self._home.inputs.find(mark.dataset)
        epochs, first = _whole(words.get("epochs")), words.get("initial_epoch") or 0
        if source is None or epochs is None or epochs - first < 1 or source.declaration.purpose != "train":
            return None
        if mark.with_ids or not source.declaration.epochs:
            log.info(
                "the elastic_dataset given to fit has %s: its records count as trained when they are read, and epochs end for "
                "each process by itself", "ids" if mark.with_ids else "no end",
            )  # fmt: skip
            return None
        definition = tf.raw_ops.DatasetToGraphV2(
            input_dataset=tf.data.experimental.to_variant(dataset), external_state_policy=1
        )
        source_of_dataset(tf.compat.v1.GraphDef.FromString(definition.numpy()))
        if not all(isinstance(one, tf.TensorSpec) and one.shape.rank for one in tf.nest.flatten(dataset.element_spec)):
            self._own_pass("its elastic_dataset gives elements that are no batches of tensors")
            return None
        if words.get("class_weight"):
            dataset = dataset.map(by_class(words["class_weight"]))
        plan = Plan(source.declaration, source.reader, source.batch_size)
        passes = source.declaration.epochs
        plan = plan.in_turn(f"{self._name()} {mark.dataset}", passes * (epochs - first))
        reads = reads_of(plan)
        return Input(plan, dataset.element_spec, lambda _: iter(dataset), first, passes, None, reads, mark.dataset)

    def _followed(self, dataset: tf.data.Dataset, words: dict[str, Any]) -> tf.data.Dataset | None:
        """Of a pipeline over files the same with leased records; None: each process trains a pass of its own."""
        if _whole(words.get("epochs")) is None or words["epochs"] <= (words.get("initial_epoch") or 0):
            return None
        try:
            return followed(dataset).leased(f"files of {self._name()}")
        except NotFollowed as error:
            self._own_pass(f"of its tf.data pipeline, {error}")
            return None

    def _name(self) -> str:
        return f"fit {self._count + 1}"

    def _leased(self, original: Callable[..., Any], model: Any, words: dict[str, Any], found: Input) -> Any:
        self._count += 1
        home, inputs = self._home, self._home.inputs
        source = streams.shared(found.plan, inputs)
        epochs = Epochs(
            home, self._model, source, lambda: found.make(source), found.spec, found.first, found.passes, found.reads,
        )  # fmt: skip
        verbose = _verbose(words.get("verbose", "auto"))
        callbacks = roles.in_the_job(words.get("callbacks"))
        if not home.chief:
            callbacks = roles.of_a_worker(callbacks)
        params = {"verbose": verbose, "epochs": words["epochs"], "steps": found.batches}
        words.update(
            x=_stand_in(found.spec), y=None, sample_weight=None, batch_size=None, class_weight=None, validation_split=0.0,
            steps_per_epoch=STEPS_MAX, verbose=verbose,
            validation_batch_size=words.get("validation_batch_size") or words.get("batch_size"),
            callbacks=roles.job_callbacks(epochs, callbacks, model, verbose != 0, params),
        )  # fmt: skip
        if not home.chief:
            words["validation_data"] = None
        self._fitted.add(id(model))
        home.asked_to_train = True  # there may be nothing left for it
        before, self._running[id(model)] = self._running.get(id(model)), epochs
        if found.instead:
            inputs.instead[found.instead] = source
        try:
            return original(model, **words)
        finally:
            inputs.instead.pop(found.instead, None)
            epochs.close()
            if before is None:
                del self._running[id(model)]
            else:
                self._running[id(model)] = before

    def _own_pass(self, why: str) -> None:
        log.info(
            "each process trains a pass of its own over the input of fit: %s; give fit arrays, or "
            "deeprec_ext.data.elastic_dataset(files, ...), and its records are divided among the processes", why,
        )  # fmt: skip


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value > 0 else None


def _validation(structure: Any) -> tuple[Any, ...]:
    """As `validation_data`."""
    parts = structure if isinstance(structure, tuple) else (structure,)
    return parts if len(parts) > 1 else (*parts, None)


def _verbose(verbose: Any) -> int:
    if verbose != "auto":
        return int(verbose)
    shows = getattr(tf.keras.utils, "is_interactive_logging_enabled", lambda: True)
    return 1 if shows() else 2


def _stand_in(spec: Any) -> tf.data.Dataset:
    """For Keras, which makes iterators of what it is given; the batches come from elsewhere."""

    def one() -> Iterator[Any]:
        while True:
            yield tf.nest.map_structure(_empty, spec)

    return tf.data.Dataset.from_generator(one, output_signature=spec)


def _empty(spec: tf.TensorSpec) -> Any:
    shape = [1 if size is None else size for size in spec.shape]
    return np.full(shape, b"", object) if spec.dtype == tf.string else np.zeros(shape, spec.dtype.as_numpy_dtype)
