"""What `elastic.run` keeps alike in all processes: models, variables, and attributes such as the epoch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from deeprec_ext.horovod.reducing import broadcast_object, hand_arrays, raw
from deeprec_ext.horovod.world import WORLD
from deeprec_ext.keras.optimizers import optimizers, settings_of

v1 = tf.compat.v1


class State:
    """What is committed, restored and handed to who comes. Subclasses say what: `save`, `restore`, `sync`."""

    def __init__(self, bcast_object: Any = broadcast_object, get_rank: Any = None) -> None:
        self._bcast_object, self._rank = bcast_object, get_rank or (lambda: WORLD.rank)
        self._reset_callbacks: list[Callable[[], None]] = []
        self._age = 0  # grows with each commit, so who is farthest is known

    def register_reset_callbacks(self, callbacks: Sequence[Callable[[], None]]) -> None:
        """Are called where processes have come or gone, before the state is handed on."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def commit(self) -> None:
        """Keeps the present state, and hears whether processes come or go, as `check_host_updates`."""
        self._age += 1
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raises HostsUpdatedInterrupt, which `elastic.run` catches, in all processes at once."""
        WORLD.check()

    def synchronise(self) -> None:
        """All have the state of the first of those that are farthest."""
        ages = list(map(int, WORLD.gather("sync", str(self._age))))
        WORLD.root = ages.index(max(ages))
        try:
            self.sync()
        finally:
            WORLD.root = 0
        self._age = max(ages) + 1

    def save(self) -> None:
        raise NotImplementedError

    def restore(self) -> None:
        raise NotImplementedError

    def sync(self) -> None:
        raise NotImplementedError

    def reset(self) -> None:
        pass


class ObjectState(State):
    """Attributes, by name: numbers, texts, arrays, and lists and dicts of them (`things`)."""

    def __init__(self, bcast_object: Any = broadcast_object, get_rank: Any = None, **kwargs: Any) -> None:
        super().__init__(bcast_object, get_rank)
        self._saved = kwargs
        self._set()

    def save(self) -> None:
        self._saved = {name: copy.copy(getattr(self, name)) for name in self._saved}

    def restore(self) -> None:
        self._set()

    def sync(self) -> None:
        if self._saved:
            self.save()
            self._saved = self._bcast_object(self._saved)
            self._set()

    def _set(self) -> None:
        for name, value in self._saved.items():
            setattr(self, name, copy.copy(value))


class _VariablesState(ObjectState):
    """And variables of TensorFlow or Keras, from `_variables()`, which may be more when a model is built."""

    session: Any = None

    def __init__(self, **kwargs: Any) -> None:
        self._values: list[Any] = []
        super().__init__(**kwargs)
        self.save()

    def _variables(self) -> list[Any]:
        raise NotImplementedError

    def save(self) -> None:
        self._values = read(self._variables(), self.session)
        super().save()

    def restore(self) -> None:
        write(self._variables(), self._values, self.session)
        super().restore()

    def sync(self) -> None:
        found = hand_arrays(read(self._variables(), self.session), 0)
        write(self._variables(), found, self.session)
        self._values = found
        super().sync()


class TensorFlowKerasState(_VariablesState):
    """A model of Keras, its optimizer, and attributes."""

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        if not model.built:
            raise ValueError("Model must be built first. Run `model.build(input_shape)`.")
        self.model, self.optimizer = model, optimizer if optimizer is not None else getattr(model, "optimizer", None)
        super().__init__(**kwargs)

    def _variables(self) -> list[Any]:
        build(self.optimizer, self.model.trainable_variables)
        return variables_of(self.model, self.optimizer)


class KerasState(TensorFlowKerasState):
    """The same."""


class TensorFlowState(_VariablesState):
    """Variables, and attributes.

    Args:
      variables: all global ones of the graph where they are left out; session: of TensorFlow 1, in which they are.
    """

    def __init__(self, variables: Any = None, session: Any = None, **kwargs: Any) -> None:
        self.session = session
        if session is None and not tf.executing_eagerly():
            self.session = v1.get_default_session()
        self.variables = list(variables) if variables is not None else v1.global_variables()
        super().__init__(**kwargs)

    def _variables(self) -> list[Any]:
        return self.variables


# ---------------------------------------------------------------------------------------------------- variables


def variables_of(model: Any, optimizer: Any = None) -> list[Any]:
    """All that steps and callbacks change, of TensorFlow: weights, the optimizer's, and the learning rate and the like."""
    found = [raw(one) for one in model.variables]
    for one in {id(one): one for one in (*([optimizer] if optimizer is not None else []), *optimizers(model))}.values():
        found += [raw(inner) for inner in (one.variables() if _is_method(one.variables) else one.variables)]
        found += settings_of(one)
    return list({one.ref(): one for one in found}.values())


def _is_method(thing: Any) -> bool:
    return callable(thing) and not isinstance(thing, list)


def build(optimizer: Any, variables: Sequence[Any]) -> None:
    """It has its variables, as after a first step."""
    if tf.executing_eagerly() and hasattr(
        optimizer, "build"
    ):  # which does nothing the second time; older ones do it late
        optimizer.build(list(variables))


def read(variables: Sequence[Any], session: Any) -> list[Any]:
    values = (
        session.run([one.read_value() for one in variables])
        if session is not None
        else [one.numpy() for one in variables]
    )
    return [np.array(one, order="C") for one in values]


def write(variables: Sequence[Any], values: Sequence[Any], session: Any) -> None:
    for variable, value in zip(variables, values):
        if session is not None:
            variable.load(value, session)
        else:
            variable.assign(value)
