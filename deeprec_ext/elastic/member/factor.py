"""How many times its learning rate a job without PS takes, whose steps have more records with more workers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from deeprec_ext.allreduce.ring import Array


class Rate:
    """The factor of the rate. It follows from what all members know of each sum, so it is the same everywhere.

    Args:
      follows: whether steps have more records with more workers.
    """

    def __init__(self, follows: bool = False) -> None:
        self.follows = follows
        self._now = np.ones(())

    def after(self, members: int, settings: Any) -> float:
        """Of the step that so many have summed.

        Args:
          settings: with `rate_scaling`, `rate_warmup_steps`.
        """
        wanted = 1.0
        if self.follows and settings.rate_scaling == "linear":
            wanted = float(members)
        elif self.follows and settings.rate_scaling == "root":
            wanted = math.sqrt(members)
        most = wanted / max(1, settings.rate_warmup_steps)
        now = float(self._now)
        self._now = np.array(now + min(wanted - now, most) if now < wanted else wanted)  # less is safe at once
        return float(self._now)

    def take(self) -> Array:
        return self._now

    def put(self, now: Array) -> None:
        self._now = now
