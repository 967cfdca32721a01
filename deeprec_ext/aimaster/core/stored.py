"""What was stored is data like any other: records are made of it only where every field has its type."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, TypeVar

T = TypeVar("T")
SHOWN = 60

_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "bool": (bool,),
    "float": (float, int),
    "tuple[int, ...]": (tuple,),
    "tuple[str, ...]": (tuple,),
}
_INNER: dict[str, type] = {"tuple[int, ...]": int, "tuple[str, ...]": str}


def built(kind: type[T], values: dict[str, Any]) -> T:
    """`kind(**values)`, a dataclass. Raises TypeError, ValueError: one of `store.UNREADABLE`."""
    one = kind(**values)
    for field in dataclasses.fields(one):  # type: ignore[arg-type]
        value, wanted = getattr(one, field.name), str(field.type)
        expected = _TYPES.get(wanted)
        if expected is None:
            continue
        fits = isinstance(value, expected) and (wanted == "bool") == isinstance(value, bool)
        if fits and wanted in _INNER:
            fits = all(isinstance(part, _INNER[wanted]) and not isinstance(part, bool) for part in value)
        if not fits:
            raise TypeError(f"{field.name} is {value!r:.{SHOWN}}, no {wanted}")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{field.name} is {value}")
    return one
