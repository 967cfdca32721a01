"""What no finished job has: records of the history come from a disk or a network, and are computed with. Pure."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from deeprec_ext.bounds import MOST

WINDOWS_MAX = 40
"""Of one job: the sizes it had longest."""

TEXT_MAX = 253
"""Characters of a name, as Kubernetes has them."""

BELOW_0 = ("brought.saved_seconds", "brought.gained")
"""What changes have brought may be a loss."""

PS, ALLREDUCE = "ps", "allreduce"
"""Strategies of jobs that are kept."""

COEFFICIENTS_MAX, COMPUTES_MAX = 32, 300
FIGURE_MAX = 1e18
"""Byte-seconds of a job of a thousand processes over a month are a thousandth of it. Sums of them stay exact enough."""


def complaint(job: Any) -> str:
    """What no job has; empty: all of it may be so.

    Args:
      job: a `history.Finished`, whose file needs this one.
    """
    if len(job.windows) > WINDOWS_MAX:
        return f"it has {len(job.windows)} windows; the most are {WINDOWS_MAX}"
    if len(job.computes) > COMPUTES_MAX:
        return f"it computes {len(job.computes)} kinds of operations"
    if len(job.fitted.coefficients) > COEFFICIENTS_MAX:
        return f"its model has {len(job.fitted.coefficients)} coefficients"
    for name, value in _leaves(dataclasses.asdict(job), ""):
        if isinstance(value, str):
            if len(value) > TEXT_MAX:
                return f"{name} has {len(value):,} characters; the most are {TEXT_MAX}"
            if "\0" in value or value != value.encode(errors="ignore").decode():
                return f"{name} has characters that no text has"
        elif not isinstance(value, bool) and value is not None:
            if not math.isfinite(value) or abs(value) > FIGURE_MAX:
                return f"{name} is {value}"
            if value < 0 and name not in BELOW_0:
                return f"{name} is {value}: below 0"
    if job.finished > 100 * MOST["seconds"]:
        return f"it ended {job.finished:.0f} seconds after 1970"
    if job.strategy not in (PS, ALLREDUCE):
        return f"its strategy is {job.strategy!r}"
    for window in job.windows:
        without = window.size.ps < 1
        if window.size.ps > MOST["PS"] or window.size.workers > MOST["workers"] or without is not job.sums:
            return f"it had {window.size.ps} PS and {window.size.workers} workers"
    return ""


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _leaves(one, f"{name}.{key}" if name else key)
    elif isinstance(value, (list, tuple)):
        for number, one in enumerate(value):
            yield from _leaves(one, f"{name}[{number}]")
    else:
        yield name, value
