"""The process of a `fit` in step, as `keras.leased` wants one: it joins its job when it has something to train."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deeprec_ext import env
from deeprec_ext.allreduce.ring import Array
from deeprec_ext.elastic.agent.rate import Rate
from deeprec_ext.elastic.member import joined
from deeprec_ext.elastic.member.member import Member
from deeprec_ext.errors import UsageError
from deeprec_ext.hooks.summed import SUMS


class Model:
    """The `State` of whatever model is trained now: models come one after the other."""

    def __init__(self) -> None:
        self.of: Any = None
        self.rate = Rate()
        self.version = 0
        """Another one with each step that is applied, and with each state that is put."""
        self.site = 0
        """Of the next sum: where in a step its result is applied."""
        self.called = ""
        """What is trained, in backups: as `Kept` has it."""

    @property
    def between(self) -> bool:
        """Some of a step is applied, and some is not."""
        return bool(self.site)

    def names(self) -> list[str]:
        return [*(self.of.names() if self.of is not None else []), "__site", "__rate"]

    def take(self) -> Sequence[Array]:
        return [*(self.of.take() if self.of is not None else []), np.array(self.site), self.rate.take()]

    def put(self, arrays: Sequence[Array]) -> None:
        *arrays, site, rate = arrays
        self.version += 1
        if self.of is not None:
            self.of.put(arrays)
        self.rate.put(rate)
        self.site = int(site)


class _Leaving:
    """A `threading.Event` of a process that may not have joined yet."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def is_set(self) -> bool:
        return self._home.joined is not None and self._home.joined.leaving.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        if self._home.joined is not None:
            return self._home.joined.leaving.wait(timeout)
        time.sleep(timeout or 0)
        return False


class Home:
    """See `keras.leased.epochs.Home`."""

    generation = 0  # a model without PS does not go back while somebody has it
    runs_repeated = 0

    def __init__(self) -> None:
        self.state = Model()
        self.joined: Member | None = None
        self.chief = env.role() == "chief"
        self.leaving: Any = _Leaving(self)
        self.asked_to_train = False

    @property
    def sums_by_itself(self) -> bool:
        """The script has joined, and trains beside its sums as it likes."""
        return self.joined is None and joined.member() is not None and SUMS.member is None

    @property
    def member(self) -> Member:
        if self.joined is None:
            one = joined.join(self.state, may_begin=self.chief)
            if not isinstance(one, Member):
                raise UsageError(
                    "a process that a role has started trains by itself: call fit in the role's own process"
                )
            self.joined = one
        return self.joined

    @property
    def inputs(self) -> Any:
        return self.member.inputs

    def wait_live(self, timeout_seconds: float) -> bool:
        return True  # each process has the model

    def notice(self, code: str, text: str, remedy: str, *, mended: bool = False) -> None:
        self.member.notice(code, text, remedy, mended=mended)

    def refused(self, reason: str) -> None:
        self.member.refused(reason)

    def report_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        self.member.report_metrics(metrics, step)
