"""Whether what was read from a file has the types that its fields say: a dataclass takes anything."""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from typing import Any

_NUMBER = (int, float)
_KINDS: dict[str, Any] = {
    "int": _NUMBER, "float": _NUMBER, "float | None": (int, float, type(None)), "str": str, "bool": bool
}  # fmt: skip
_MANY = "tuple["


@lru_cache(maxsize=64)
def _fields(kind: Any) -> tuple[tuple[str, str], ...]:
    """(name, type as written) of the fields."""
    return tuple((field.name, str(field.type)) for field in dataclasses.fields(kind))


def check_types(part: Any, where: str) -> None:
    """Also of its parts. Raises ValueError that names the first field with a value of another type."""
    kind: Any = type(part)
    for name, written in _fields(kind):
        value, place = getattr(part, name), f"{where}.{name}"
        if written.startswith(_MANY):
            _check(value, tuple, place)
            for one in value:
                _check_one(one, written[len(_MANY) : -len(", ...]")], place)
        else:
            _check_one(value, written, place)


def _check_one(value: Any, written: str, place: str) -> None:
    if written in _KINDS:
        _check(value, _KINDS[written], place)
    else:
        check_types(value, place)


def _check(value: Any, kind: Any, place: str) -> None:
    if not isinstance(value, kind):
        raise ValueError(f"{place} is {value!r:.50}")
