"""What learning rates are multiplied by, and how it comes there from what it was."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from deeprec_ext.allreduce.ring import Array
from deeprec_ext.options import rate_factor

log = logging.getLogger("deeprec_ext")


class Rate:
    """The factor of the rate. In step it follows from what all members know of each sum, so it is the same everywhere.

    Args:
      follows: whether it is another with more workers.
    """

    def __init__(self, follows: bool = False) -> None:
        self.follows = follows
        self._now = np.ones(())

    def after(self, members: int, settings: Any) -> float:
        """Of the step that so many have summed, or that one of so many makes.

        Args:
          settings: with `rate_scaling`, `rate_base`, `rate_warmup_steps`.
        """
        wanted = rate_factor(settings.rate_scaling, members, settings.rate_base) if self.follows else 1.0
        most = wanted / max(1, settings.rate_warmup_steps)
        now = float(self._now)
        self._now = np.array(now + min(wanted - now, most) if now < wanted else wanted)  # less is safe at once
        return float(self._now)

    def take(self) -> Array:
        return self._now

    def put(self, now: Array) -> None:
        self._now = now


class RateOfTrainer:
    """Of a trainer with PS, which makes its updates by itself.

    Args:
      trainers: how many chief and workers there are in the present view; 0: it is not known yet.
    """

    def __init__(self, trainers: Callable[[], int]) -> None:
        self._trainers = trainers
        self._rate, self._lock = Rate(follows=True), threading.Lock()
        self._told = 1.0

    def next(self, settings: Any) -> float:
        """Of the next run that trains. Any thread."""
        trainers = max(1, self._trainers())
        with self._lock:
            now = self._rate.after(trainers, settings)
            wanted = rate_factor(settings.rate_scaling, trainers, settings.rate_base)
            told, self._told = self._told, wanted
        if wanted != told:
            by_and_by = f", by and by in {settings.rate_warmup_steps} steps" if now < wanted else ""
            log.info(
                "the learning rate is multiplied by %.4g from now on%s: %s of %d trainers",
                wanted, by_and_by, settings.rate_scaling, trainers,
            )  # fmt: skip
        return now
