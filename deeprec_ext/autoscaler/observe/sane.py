"""Observations as they should be: what is no number, or impossible, becomes "not known". Limits are left as they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Any, TypeVar

from deeprec_ext.autoscaler.observe.observed import Observed, Size, Window
from deeprec_ext.options import OBJECTIVES

HUGE = 1e18
"""Nothing that is measured is larger; products of two such numbers are still finite."""

T = TypeVar("T")
_PLAIN = frozenset({int, float})
_SIGNED = frozenset({"memory_slope_bytes_per_second", "decision"})


@lru_cache(maxsize=64)
def _numbers(kind: Any) -> tuple[tuple[str, bool], ...]:
    """(name, may be negative) of the numeric fields."""
    fields = dataclasses.fields(kind)
    return tuple((field.name, field.name in _SIGNED) for field in fields if field.type in ("int", "float"))


@lru_cache(maxsize=64)
def _reader(kind: Any) -> Callable[[Any], tuple[Any, ...]]:
    """Of all numeric fields, of which every kind has several."""
    return attrgetter(*(name for name, _ in _numbers(kind)))


def sane_number(value: Any, signed: bool = False) -> bool:
    return isinstance(value, (int, float)) and (-HUGE if signed else 0) <= value <= HUGE


def sane_part(part: T) -> T:
    """The same with 0 (not known) for numbers that are none. The very same object when nothing is wrong."""
    kind: Any = type(part)
    values = _reader(kind)(part)
    if _PLAIN.issuperset(map(type, values)) and min(values) >= 0 and sum(values) <= HUGE:
        return part  # as nearly all are; a sum of which one is no number is none
    wrong = {name: 0 for name, signed in _numbers(kind) if not sane_number(getattr(part, name), signed)}
    return dataclasses.replace(part, **wrong) if wrong else part  # type: ignore[type-var]


def sane_parts(parts: Iterable[T]) -> list[T]:
    """`sane_part` of each: of all at once, where nothing is wrong with any."""
    found = list(parts)
    if len(set(map(type, found))) == 1:
        kind: Any = type(found[0])
        values = list(chain.from_iterable(map(_reader(kind), found)))
        if _PLAIN.issuperset(map(type, values)) and min(values) >= 0 and sum(values) <= HUGE:
            return found
    return [sane_part(part) for part in found]


def sane_size(size: Size) -> bool:
    """Whether a size can be: whole counts, requests that are numbers. Without PS there are 0."""
    whole = isinstance(size.ps, int) and isinstance(size.workers, int)
    return whole and 0 <= size.ps <= 10**6 and 0 <= size.workers <= 10**6 and sane_part(size) is size


def sane_window(window: Window) -> bool:
    """Whether something can be learned from it."""
    return (
        sane_number(window.start) and 0 < window.seconds <= HUGE
        and 0 < window.examples_per_second <= HUGE and sane_size(window.size)
    )  # fmt: skip


def sane(observed: Observed) -> Observed:
    """Windows that say nothing are dropped, others are in order of time; roles, hosts and slots are in order of names."""
    windows = sane_parts(window for window in observed.windows if sane_window(window))
    return dataclasses.replace(
        observed,
        time=observed.time if sane_number(observed.time) else 0.0,
        objective=observed.objective if observed.objective in OBJECTIVES else OBJECTIVES[0],
        deadline_seconds=observed.deadline_seconds if sane_number(observed.deadline_seconds) else 0.0,
        model=sane_part(observed.model),
        windows=tuple(sorted(windows, key=attrgetter("start"))),
        roles=tuple(sorted(sane_parts(observed.roles), key=attrgetter("name"))),
        hosts=tuple(sorted(sane_parts(observed.hosts), key=attrgetter("name"))),
        slots=tuple(sorted(sane_parts(observed.slots), key=attrgetter("slot"))),
        changes=tuple(sorted(sane_parts(observed.changes), key=attrgetter("time"))),
        losses=tuple(sorted(sane_parts(observed.losses), key=attrgetter("time"))),
        progress=sane_part(observed.progress),
        first=observed.first if observed.first is not None and sane_size(observed.first) else None,
    )
