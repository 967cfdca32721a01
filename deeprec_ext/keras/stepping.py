"""What Keras calls for each batch instead of its own `train_function`, `test_function` and `predict_function`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import tensorflow as tf

from deeprec_ext.errors import RefusedError
from deeprec_ext.keras.door import Door
from deeprec_ext.keras.leased.epochs import Epochs
from deeprec_ext.keras.parting import Held
from deeprec_ext.keras.stepgraph import Batches, Imported
from deeprec_ext.tf_private.eager import is_flat, next_flat, reads

log = logging.getLogger("deeprec_ext")

SPECS_MAX = 8
"""Kinds of batches for which a step is traced; after that the newest are used as they are."""


class Steps:
    """Of one model.

    Args:
      kind: "train", "test" or "predict".
      leased: the epochs of the `fit` that asks for a step, where its records are leased.
      otherwise: makes Keras's own function, for what cannot be done on PS and need not: it trains nothing.
    """

    def __init__(
        self, door: Door, model: Any, kind: str, leased: Callable[[], Epochs | None] = lambda: None,
        otherwise: Callable[[], Any] | None = None,
    ) -> None:  # fmt: skip
        self._door, self._model, self._kind, self._leased = door, model, kind, leased
        self._otherwise, self._own = otherwise, None
        self._known: list[tuple[Any, Imported]] = []
        self._last: tuple[Held, Imported] | None = None
        self._flat = False
        """Whether the last iterator gives its batches as they are needed here."""

    def __call__(self, given: Any) -> Any:
        """As many steps as the model makes per execution; what the last one gives, or all of them predict.

        Args:
          given: an iterator; Keras 3 has taken batches from it before it predicts, and gives a list of them.

        Raises StopIteration, as Keras expects it, when there are no more batches.
        """
        if self._otherwise is not None:
            self._try(given)
        if self._own is not None:
            self._door.bring(self._model)
            return self._own(given)
        if isinstance(given, list):
            return self._predict([_plain(batch) for batch in given])
        outputs, made, epochs = None, 0, self._leased()
        predicted = []
        for _ in range(self._door.generation.steps_per_execution(self._model)):
            if epochs is not None and not epochs.ready():
                break
            try:
                imported, leaves = self._next(given) if epochs is None else self._next_leased(epochs, given)
            except StopIteration:
                if epochs is not None or (made and self._door.generation.GIVES_LAST):
                    break  # with epochs: the ledger took the batch back, and there is no other
                raise
            with nullcontext() if epochs is None else epochs.step():
                outputs, made = self._run(imported, leaves), made + 1
            if self._kind == "predict":
                predicted.append(outputs)
            if self._kind == "train" and self._door.should_stop:
                self._model.stop_training = True
                break
        if epochs is not None:
            if outputs is None and not self._known:
                self._attach(epochs, given)
            return epochs.results(self._model, outputs)
        return _joined(predicted) if predicted else outputs

    def _try(self, given: Any) -> None:
        """Once, before a batch is taken: whether a step can be made of it."""
        otherwise, self._otherwise = self._otherwise, None
        spec = getattr(given, "element_spec", None) if not isinstance(given, list) else _spec_of(given[0])
        if spec is None or otherwise is None:
            return
        try:
            self._prepared(given if not isinstance(given, list) else None, _plain(spec), None)
        except RefusedError as error:
            log.info("%s: %s is made in this process, with the weights on PS (%s)", self._model.name, self._kind, error)
            self._own = otherwise()

    def _predict(self, batches: Sequence[Any]) -> Any:
        """Of all of them, one after the other."""
        found = [
            self._run(self._step_of(None, batch), tf.nest.flatten(batch, expand_composites=True)) for batch in batches
        ]
        return _joined(found)

    def _run(self, imported: Imported, leaves: Sequence[Any]) -> Any:
        values = [value for one in leaves if (value := _array(one)) is not None]
        return self._door.run(imported, values, train=self._kind == "train")

    def _next(self, iterator: Any) -> tuple[Imported, Sequence[Any]]:
        """A step, and the leaves of the batch that it is to be run on."""
        if self._last is not None and self._last[0].iterator is iterator and self._flat:
            return self._last[1], next_flat(iterator)
        batch = next(iterator) if isinstance(iterator, Epochs) else _plain(next(iterator))
        return self._step_of(iterator, batch), tf.nest.flatten(batch, expand_composites=True)

    def _next_leased(self, epochs: Epochs, given: Any) -> tuple[Imported, Sequence[Any]]:
        """The same of the next step of the job. Raises StopIteration when there is none for this process."""
        while True:
            found = self._next_of_own(epochs, given) if epochs.own_input else self._next(epochs)
            if epochs.holds():  # else its step was made only now, for which a session was closed, and leases went back
                return found

    def _next_of_own(self, epochs: Epochs, given: Any) -> tuple[Imported, Sequence[Any]]:
        step = next(epochs)
        try:
            for _ in range(epochs.in_vain(step)):
                (next_flat if is_flat(given) else next)(given)
            return self._next(given)
        except StopIteration:
            epochs.run_dry()
            raise

    def _step_of(self, iterator: Any, batch: Any) -> Imported:
        if iterator is not None and self._last is not None and self._last[0].iterator is iterator:
            return self._last[1]
        spec = _plain(getattr(iterator, "element_spec", None))
        return self._prepared(iterator, _spec_of(batch) if spec is None else spec, _records(batch))

    def _prepared(self, iterator: Any, spec: Any, records: int | None) -> Imported:
        found = next((imported for known, imported in self._known if _fits(known, spec)), None)
        if found is None:
            spec = self._wider(spec)
            known = iterator.reads if isinstance(iterator, Epochs) else reads(iterator)
            found = self._door.prepare(self._model, self._kind, spec, Batches(records, known))
            self._known = [*self._known[1 - SPECS_MAX :], (spec, found)]
        self._last, self._flat = (Held(iterator), found), is_flat(iterator)
        return found

    def _attach(self, epochs: Epochs, given: Any) -> None:
        """Others have left no batch for this process: the model is what they have trained nevertheless."""
        self.attach(epochs, given.element_spec if epochs.own_input else epochs.element_spec)

    def attach(self, epochs: Epochs, spec: Any, records: int | None = None) -> None:
        """Before there is a batch, if no step was made ready before.

        Args:
          spec: of one.
          records: of one, where they are known.
        """
        if self._known:
            self._door.use(self._known[-1][1])
        if spec is None or self._known:
            return
        spec = _plain(spec)
        self._known = [(spec, self._door.prepare(self._model, self._kind, spec, Batches(records, epochs.reads)))]

    def _wider(self, spec: Any) -> Any:
        """Of batches of many sizes not each gets a step of its own."""
        for known, _ in reversed(self._known):
            try:
                return tf.nest.map_structure(_common, known, spec)
            except (TypeError, ValueError):
                continue
        return spec


def _joined(parts: Sequence[Any]) -> Any:
    """What several steps have predicted, one after the other."""
    found = [tf.nest.map_structure(_tensor, one) for one in parts]
    return found[0] if len(found) == 1 else tf.nest.map_structure(_one_after_the_other, *found)


def _tensor(one: Any) -> Any:
    return one if isinstance(one, tf.__internal__.CompositeTensor) else tf.convert_to_tensor(one)


def _one_after_the_other(*each: Any) -> Any:
    return tf.sparse.concat(0, each) if isinstance(each[0], tf.SparseTensor) else tf.concat(each, 0)


def _spec_of(batch: Any) -> Any:
    return tf.nest.map_structure(lambda one: None if one is None else tf.type_spec_from_value(one), batch)


def _plain(batch: Any) -> Any:
    """Of tensors and None: Keras 3 gives arrays where a script trains on one batch, and empty Optionals where a generator
    gives None."""

    def leaf(one: Any) -> Any:
        if one is None or isinstance(one, (tf.experimental.Optional, tf.OptionalSpec)):
            return None
        return one if isinstance(one, (tf.__internal__.CompositeTensor, tf.TypeSpec)) else tf.convert_to_tensor(one)

    return tf.nest.map_structure(leaf, batch)


def _array(leaf: Any) -> np.ndarray | None:
    """None: it is no tensor, but a part of the structure."""
    if isinstance(leaf, tf.Tensor):
        value: np.ndarray = leaf.numpy()
        return value
    return leaf if isinstance(leaf, np.ndarray) else None


def _fits(known: Any, spec: Any) -> bool:
    try:
        tf.nest.assert_same_structure(known, spec)
    except (TypeError, ValueError):
        return False
    pairs = zip(tf.nest.flatten(known), tf.nest.flatten(spec))
    return all(
        one is other or (one is not None and other is not None and other.is_subtype_of(one)) for one, other in pairs
    )


def _common(one: Any, other: Any) -> Any:
    if one is None or other is None:
        if one is not other:
            raise TypeError
        return None
    found = one.most_specific_common_supertype([other])
    if found is None:
        raise TypeError
    return found


def _records(batch: Any) -> int | None:
    leaves = [one for one in tf.nest.flatten(batch) if tf.is_tensor(one) or isinstance(one, np.ndarray)]
    sized = [one for one in leaves if len(one.shape)]
    return int(sized[0].shape[0]) if sized and sized[0].shape[0] is not None else None
