"""Which variables of a model lie on parameter servers, on which slot, and which belong to this process.

On a PS: weights, and the state of optimizers, each beside the weight that it is of, since one op updates both. In the process:
metrics, counters, states of random generators and of recurrent layers, and a learning rate, which a callback sets in each
process; in short, what is neither a weight nor an optimizer's.

Slots follow from the order and the sizes of the weights alone, so that all processes give the same, whatever step each of them
has traced first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from deeprec_ext.tf_private.eager import raw_handle


def key(variable: Any) -> int:
    """Of its identity: every variable of TensorFlow lives as long as its handle."""
    return id(raw_handle(variable))


def size(variable: Any) -> int:
    """Bytes; 0 where the shape is not known."""
    count = variable.shape.num_elements()
    return (count or 0) * max(1, variable.dtype.size or 1)


def call(variable: Any, name: str) -> None:
    """Gives it a name by which it is known from now on: TensorFlow's own does not tell it from others."""
    variable._deeprec_ext_name = name


def name(variable: Any) -> str:
    return str(getattr(variable, "_deeprec_ext_name", "") or variable.name)


def plain_name(variable: Any) -> str:
    """As a graph can have it: letters, digits and `/._-`."""
    return re.sub(r"[^A-Za-z0-9_./\-]", "_", name(variable).split(":")[0]).lstrip("_/-.") or "variable"


def is_metric(variable: Any) -> bool:
    """Keras makes them so that with `tf.distribute` each replica would have its own, of which the sum counts; of the statistics
    of a normalisation the mean does."""
    own = variable.synchronization == tf.VariableSynchronization.ON_READ
    return bool(own and variable.aggregation == tf.VariableAggregation.SUM)


@dataclass(frozen=True)
class Written:
    """What a step does with a variable."""

    ever: bool
    """It writes it."""
    over: bool
    """It does nothing but set it, as the state of a recurrent layer; an optimizer adds to what is there."""
    generates: bool
    """It draws random numbers from it."""


@dataclass(frozen=True)
class Known:
    """Keys of what a model has."""

    weights: Collection[int]
    state: Collection[int]
    """What its optimizers keep."""
    counters: Collection[int]
    """Of batches, in this process."""


def is_local(variable: Any, known: Known, written: Written) -> bool:
    """Whether it belongs to this process."""
    own, number = key(variable), variable.shape.rank == 0
    if written.generates or own in known.counters:
        return True
    if own in known.weights:
        return False
    if own in known.state:
        return number and not written.ever
    return is_metric(variable) or not variable.trainable or (written.over if written.ever else number)


class Slots:
    """Args:
    count: how many the job has.
    """

    def __init__(self, count: int) -> None:
        self._bytes = [0] * max(1, count)
        self._of: dict[int, int] = {}
        self._placed: list[Any] = []

    def known(self, variable: Any) -> int | None:
        return self._of.get(key(variable))

    def weights(self, variables: Iterable[Any]) -> None:
        """In their order, each to the slot with the fewest bytes."""
        for variable in variables:
            if key(variable) not in self._of:
                self._put(variable, self._bytes.index(min(self._bytes)))

    def state(self, variables: Sequence[Any], together: Callable[[Any], Iterable[Any]]) -> None:
        """What optimizers keep.

        Args:
          together: variables that are updated by the same op as this one.
        """
        for variable in variables:
            if key(variable) in self._of:
                continue
            beside = [one for one in together(variable) if key(one) in self._of]
            owner = beside[0] if beside else self._owner(variable)
            if owner is not None:
                self._put(variable, self._of[key(owner)])
            else:
                self._put(variable, self._bytes.index(min(self._bytes)))

    def _owner(self, variable: Any) -> Any:
        """The weight of which a slot of an optimizer has the name: `Adam/m/dense/kernel`, `Adam/dense/kernel/m`,
        `adam/dense_kernel_momentum`; the longest of those that fit."""
        if not variable.shape.rank:
            return None
        words = _letters(name(variable))
        found = [
            one for one in self._placed
            if _letters(name(one)) in words and one.shape.rank and one.shape[0] == variable.shape[0]
        ]  # fmt: skip
        return max(found, key=lambda one: len(_letters(name(one))), default=None)

    def _put(self, variable: Any, slot: int) -> None:
        self._of[key(variable)] = slot
        self._bytes[slot] += max(1, size(variable))
        self._placed.append(variable)


def _letters(text: str) -> str:
    return "/" + text.split(":")[0].replace("_", "/").lower() + "/"
