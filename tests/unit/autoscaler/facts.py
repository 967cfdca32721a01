"""What a test does not speak of is not known: facts of an observation made from what the test gives, and `ABSENT`."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from deeprec_ext.autoscaler.observe.observed import Size
from deeprec_ext.autoscaler.observe.windows import Windows

T = TypeVar("T")


def fact(kind: type[T], *values: Any, **named: Any) -> T:
    """Of one of the classes of `observed.py`: `fact(Loss, 3.0, "ps-1", "oom")`, values in the order of its fields."""
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    return kind(**{**kind.ABSENT, **dict(zip(names, values)), **named})  # type: ignore[attr-defined]


def tick(windows: Windows, now: float, size: Size, examples: dict[str, int], **more: Any) -> None:
    """Of a quiet job of which nothing else is known."""
    nothing: dict[str, Any] = {
        "quiet": True, "preparing": False, "examples_per_step": 0.0, "busy_share": 0.0, "input_wait_share": 0.0,
        "trainer_cpu": {}, "ps_cpu": {}, "host_cores": 0.0, "others_cores": 0.0, "own_seconds": 0.0, "sum_seconds": 0.0,
    }  # fmt: skip
    windows.observe(now, size, examples, **{**nothing, **more})
