"""What a script decides by counts of its own: when an optimizer makes its step, and with which learning rate.

A process that begins again counts from its own beginning. So each sum carries, besides gradients, how many steps optimizers
have made and the learning rates: all make a step with the same rates, and where steps of optimizers come apart the script is
told.

What is told has to come out of a mean, by records, exactly: numbers below 16, with their squares. Where the mean of the squares
is the square of the mean all have given the same, and everybody knows that, also who has given nothing.
"""

from __future__ import annotations

import weakref
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from deeprec_ext.allreduce.ring import Array
from deeprec_ext.elastic.agent.rate import Rate
from deeprec_ext.tf_private.wrapping import wrap

TOLERANCE = 1e-3
"""Of means of numbers below 16: what floating point makes of them, and less than what one of a thousand workers does."""

STEPS_DIFFER = (
    "optimizers have made other steps here than in the other processes: a script that decides by a count of its own when "
    "optimizer.step() is called counts from its own beginning in a process that begins again; gather gradients in "
    "model.no_sync() instead, where only the last backward pass of a step is a sum"
)
RATES_DIFFER = (
    "a step was made with another learning rate here than in the other processes: a script that sets it by a count of its own, "
    "between backward() and optimizer.step(), counts from its own beginning in a process that begins again; set it before "
    "backward(), or take a schedule of torch.optim.lr_scheduler, which is handed on"
)


@dataclass(frozen=True)
class Told:
    """What all have given for a sum.

    Attributes:
      alike: of each number, whether all gave the same; whole: those numbers, below 16; rates: the mean learning rates.
    """

    alike: Array
    whole: Array
    rates: Array


class Pace:
    """Of this process.

    Attributes:
      since: sums since the last step of an optimizer.
      members: of the last sum; settings: of the job, None before there is one.
    """

    def __init__(self, trained: Callable[[], Sequence[Any]] = tuple) -> None:
        self._trained = trained  # all parameters that are summed
        self._known: list[weakref.ref[Any]] = []
        self._steps: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._used: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._agreed: weakref.WeakKeyDictionary[Any, list[tuple[float, float]]] = weakref.WeakKeyDictionary()
        self._within: Any = None
        self.factor = Rate(follows=True)
        self.since = self.members = 0
        self.settings: Any = None

    def watch(self, optimizer: Any) -> None:
        """Its class's `step` is this one's business from now on."""
        self._known.append(weakref.ref(optimizer))
        kind = type(optimizer)
        if not getattr(kind.step, "_deeprec_ext_paced", False):
            wrap(kind, "step", step)
            kind.step._deeprec_ext_paced = True
        optimizer._deeprec_ext_pace = weakref.ref(self)

    @property
    def optimizers(self) -> list[Any]:
        """Those of models that are summed, in the order in which all processes make them."""
        summed = {id(one) for one in self._trained()}
        return [
            one for known in self._known if (one := known()) is not None
            and any(id(parameter) in summed for group in one.param_groups for parameter in group["params"])
        ]  # fmt: skip

    # ------------------------------------------------------------------------------------------------ sums

    def given(self, dtype: Any) -> Array:
        """For a sum: [n] of that type."""
        optimizers = self.optimizers
        rates = _rates(optimizers)
        whole = self._whole(optimizers, rates)
        return np.concatenate([whole, whole * whole, rates]).astype(dtype)

    def came(self, mean: Array) -> str:
        """The mean of what all have given. What has come apart, in words; empty: nothing."""
        optimizers = self.optimizers
        rates = _rates(optimizers)
        own = self._whole(optimizers, rates)
        told = read(mean, len(own))
        self.since += 1
        same = told.alike & (np.abs(told.whole - own) <= TOLERANCE)
        counts = len(optimizers)
        if not same[:counts].all():
            return STEPS_DIFFER
        if not same[counts : 5 * counts].all():
            return RATES_DIFFER
        common = _numbers(told.whole[5 * counts :]) if told.alike[5 * counts :].all() else told.rates
        at = 0
        for one in optimizers:
            groups = len(one.param_groups)
            self._agreed[one] = list(zip(rates[at : at + groups].tolist(), common[at : at + groups].tolist()))
            at += groups
        return ""

    @property
    def rates_differ(self) -> bool:
        """Whether this process has another learning rate than the step has."""
        return any(own != common for agreed in self._agreed.values() for own, common in agreed)

    def _whole(self, optimizers: Sequence[Any], rates: Array) -> Array:
        """First steps, then what was used, then rates: numbers below 16."""
        steps = [self._steps.get(one, 0) % 16 for one in optimizers]
        used = np.array([self._used.get(one, 0) for one in optimizers], np.uint16)
        return np.concatenate([np.array(steps, np.float64), _halves(used), _halves(rates)])

    # ------------------------------------------------------------------------------------------------ steps

    def stepping(self, optimizer: Any) -> Callable[[], None]:
        """Before its step: the rates are those of all. Returns what is to be called after it."""
        if all(one is not optimizer for one in self.optimizers):
            return lambda: None
        if self.since:
            self.since = 0
            if self.settings is not None:
                self.factor.after(self.members, self.settings)
        agreed = self._agreed.get(optimizer, [])
        own, used = [], []
        for at, group in enumerate(optimizer.param_groups):
            rate = _rate(group)
            if at < len(agreed) and agreed[at][0] == rate:  # else the script has set it since
                rate = agreed[at][1]
            used.append(rate)
            rate *= float(self.factor.take())
            if group.get("lr") is not None and rate != float(group["lr"]):
                before = group["lr"]
                group["lr"] = before.clone().fill_(rate) if isinstance(before, torch.Tensor) else rate
                own.append((group, before, group["lr"]))

        def after() -> None:
            for group, before, set_here in own:
                if group["lr"] is set_here:  # else the step itself has set another
                    group["lr"] = before
            self._steps[optimizer] = self._steps.get(optimizer, 0) + 1
            self._used[optimizer] = zlib.crc32(np.array(used, np.float64).tobytes()) & 0xFFFF

        return after

    # ------------------------------------------------------------------------------------------------ newcomers

    def take(self) -> dict[str, Any]:
        """For a newcomer, as JSON has it."""
        optimizers = self.optimizers
        return {
            "steps": [self._steps.get(one, 0) for one in optimizers],
            "used": [self._used.get(one, 0) for one in optimizers],
            "factor": float(self.factor.take()),
        }

    def put(self, words: dict[str, Any]) -> None:
        for one, steps, used in zip(self.optimizers, words["steps"], words["used"]):
            self._steps[one], self._used[one] = int(steps), int(used)
        self.factor.put(np.array(float(words["factor"])))


def step(original: Callable[..., Any], optimizer: Any, *args: Any, **words: Any) -> Any:
    """`Optimizer.step`."""
    known = getattr(optimizer, "_deeprec_ext_pace", None)
    pace = known() if known is not None else None
    if pace is None or pace._within is optimizer:
        return original(optimizer, *args, **words)
    before, pace._within = pace._within, optimizer
    after = pace.stepping(optimizer)
    try:
        return original(optimizer, *args, **words)
    finally:
        pace._within = before
        after()


def read(mean: Array, count: int) -> Told:
    """What was `given`, of which so many numbers are whole."""
    found = mean.astype(np.float64)
    whole, squares = found[:count], found[count : 2 * count]
    return Told(np.abs(squares - whole * whole) <= TOLERANCE, whole, found[2 * count :])


def _rates(optimizers: Sequence[Any]) -> Array:
    return np.array([_rate(group) for one in optimizers for group in one.param_groups], np.float64)


def _rate(group: Any) -> float:
    """0 where the optimizer finds its rates itself (`lr` is None, or missing)."""
    rate = group.get("lr")
    return float(rate) if rate is not None else 0.0


def _halves(numbers: Array) -> Array:
    """The halves of their bytes."""
    data = numbers.view(np.uint8)
    return np.concatenate([data >> 4, data & 15]).astype(np.float64)


def _numbers(halves: Array) -> Array:
    """What `_halves` were of: of float64."""
    whole = np.rint(halves).astype(np.uint8)
    high, low = np.split(whole, 2)
    found: Array = (high << 4 | low).view(np.float64)
    return found
