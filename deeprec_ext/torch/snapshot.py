"""What steps of a PyTorch script leave behind, as arrays: models with their buffers, optimizers, schedules of the rate.

Optimizers have a state from their first step on, and others than tensors in it: so what is no tensor is written as JSON, with
the places of the tensors in it. Nothing is pickled, for it comes from another process.
"""

from __future__ import annotations

import json
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from deeprec_ext.allreduce.ring import Array
from deeprec_ext.errors import ProtocolError
from deeprec_ext.torch.pace import Pace

LEFT_OUT = object()
"""Of what is no number, text or tensor: each process has its own (functions, as those of LambdaLR)."""


class Snapshot:
    """The `State` of this process (`allreduce.handing`).

    Attributes:
      place: (which sampler, which pass over it): where in the script this process is.
      came: the place of the member whose state was put last; None: none was, since somebody looked.
      called: what it is in backups; as `Kept` has it.
      pace: steps and learning rates of the optimizers that are watched.
      begun: what calls before the first step came to (`beginning`); is_beginning: nothing else is put here as yet;
        they_begin: whether that is so where a state was put from last.
    """

    called = "torch"

    def __init__(self) -> None:
        self.place = (0, -1)
        self.came: tuple[int, int] | None = None
        self.begun: list[Array | None] = []
        self.is_beginning = self.they_begin = False
        self.pace = Pace(lambda: [one for model in self.models for one in model.parameters()])
        self._models: list[weakref.ref[Any]] = []
        self._watched: list[weakref.ref[Any]] = []

    def holds(self, model: Any) -> None:
        self._models.append(weakref.ref(model))

    def watch(self, one: Any) -> None:
        """Something with `state_dict` and `load_state_dict`, in the order in which all processes make it."""
        if all(known() is not one for known in self._watched):
            self._watched.append(weakref.ref(one))
            if isinstance(one, torch.optim.Optimizer):
                self.pace.watch(one)

    @property
    def models(self) -> list[Any]:
        return [one for known in self._models if (one := known()) is not None]

    def take(self) -> Sequence[Array]:
        tensors: list[Any] = []
        words = {
            "place": self.place,
            "models": [encoded(list(_tensors(one)), tensors) for one in self.models],
            "pace": self.pace.take(),
            "begins": self.is_beginning,
            "begun": encoded([None if one is None else torch.from_numpy(one) for one in self.begun], tensors),
            "watched": [[type(one).__name__, encoded(one.state_dict(), tensors)] for one in self._alive],
        }
        return [np.frombuffer(bytearray(json.dumps(words).encode()), np.uint8), *map(array_of, tensors)]

    def put(self, arrays: Sequence[Array]) -> None:
        """Raises ProtocolError where the models are not alike."""
        try:
            words = json.loads(arrays[0].tobytes())
            models, watched = self.models, self._alive
            found = [decoded(one, arrays[1:]) for one in words["models"]]
            kinds = [name for name, _ in words["watched"]]
            place, number = map(int, words["place"])
            states = [decoded(one, arrays[1:]) for _, one in words["watched"]]
            self.they_begin = bool(words.get("begins", False))  # what was kept by a release before has none of these
            if "begun" in words:
                self._hear([None if one is None else one.numpy() for one in decoded(words["begun"], arrays[1:])])
            if self.is_beginning:
                return
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RuntimeError) as error:
            raise ProtocolError(f"the state of another member cannot be read: {error}") from error
        mine = [[(one.dtype, one.shape) for one in _tensors(model)] for model in models]
        if mine != [[(one.dtype, one.shape) for one in model] for model in found]:
            raise ProtocolError("the models in DistributedDataParallel are not alike in all processes")
        if kinds != [type(one).__name__ for one in watched]:
            raise ProtocolError(
                f"optimizers and schedules are {', '.join(kinds) or 'none'} there and "
                f"{', '.join(type(one).__name__ for one in watched) or 'none'} here: each process makes the same ones"
            )
        with torch.no_grad():
            for model, values in zip(models, found):
                for own, value in zip(_tensors(model), values):
                    own.data.copy_(value)
        for one, state in zip(watched, states):
            if "param_groups" in state and hasattr(one, "param_groups"):
                own = [
                    {**group, **given} for group, given in zip(one.state_dict()["param_groups"], state["param_groups"])
                ]
                state = {**state, "param_groups": own}
            one.load_state_dict(state)
        if "pace" in words:
            self.pace.put(words["pace"])
        self.came = (place, number)

    def _hear(self, begun: Sequence[Array | None]) -> None:
        """What calls before the first step came to, there."""
        for own, other in zip(self.begun, begun):
            if own is not None and other is not None and own.tobytes() != other.tobytes():
                raise ProtocolError(
                    "what was broadcast before the first step is another thing here than in the other processes, since rank 0 "
                    "has begun again before anybody trained: this process has to begin again"
                )
        self.begun += begun[len(self.begun) :]

    @property
    def _alive(self) -> list[Any]:
        return [one for known in self._watched if (one := known()) is not None]


def _tensors(model: Any) -> list[Any]:
    return [*model.parameters(), *model.buffers()]


def encoded(value: Any, tensors: list[Any]) -> Any:
    """As JSON has it; tensors are added to the list. LEFT_OUT: it cannot be."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return {"tensor": [len(tensors) - 1, str(value.dtype).rpartition(".")[2], list(value.shape)]}
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value
    if isinstance(value, np.generic):
        return encoded(value.item(), tensors)
    if type(value) in (dict, OrderedDict, defaultdict):
        pairs = [[encoded(key, tensors), encoded(one, tensors)] for key, one in value.items()]
        return {"pairs": [pair for pair in pairs if LEFT_OUT not in pair]}
    if type(value) in (list, tuple):
        items = [encoded(one, tensors) for one in value]
        return LEFT_OUT if any(one is LEFT_OUT for one in items) else {type(value).__name__: items}
    return LEFT_OUT


def decoded(value: Any, arrays: Sequence[Array]) -> Any:
    if not isinstance(value, Mapping):
        return value
    ((kind, given),) = value.items()
    if kind == "tensor":
        number, dtype, shape = given
        return tensor_of(arrays[number], getattr(torch, dtype)).reshape(shape)
    if kind == "pairs":
        return {decoded(key, arrays): decoded(one, arrays) for key, one in given}
    items = [decoded(one, arrays) for one in given]
    return tuple(items) if kind == "tuple" else items


def array_of(tensor: Any) -> Array:
    """On the host; of a type that NumPy does not have, its bits."""
    found = tensor.detach().cpu().contiguous().reshape(-1)
    if found.dtype == torch.bfloat16:
        found = found.view(torch.int16)
    array: Array = found.numpy()
    return array


def tensor_of(array: Array, dtype: Any) -> Any:
    found = torch.from_numpy(np.array(array))
    return found.view(dtype) if found.dtype != dtype else found
