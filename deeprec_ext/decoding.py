"""Records from what was stored or told: data like any other, of which a record is made only where every field has its type.

By the types as they are written in the class (`float | None`, `tuple[Part, ...]`), of which Python 3.9 cannot evaluate all.
Values stay as they were stored, an int in a float's place too.

A class whose records outlive releases says what they lack: `ABSENT`, name → value of fields that were not always written, and
`GONE`, names that are written no more.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from functools import lru_cache
from typing import Any, TypeVar

T = TypeVar("T")
SHOWN = 60

_PLAIN: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "bool": (bool,), "float": (float, int)}


def alike(kind: type[T], source: object, **others: Any) -> T:
    """A dataclass or message with what `source` has by the names of its fields, and with these others."""
    of_kind: Any = kind
    fields = of_kind.DESCRIPTOR.fields if hasattr(kind, "DESCRIPTOR") else dataclasses.fields(of_kind)
    names = (field.name for field in fields if field.name not in others and hasattr(source, field.name))
    return kind(**{name: getattr(source, name) for name in names}, **others)


def built(kind: type[T], values: Any, where: str = "", *, newer: bool = False, measured: bool = False) -> T:
    """A dataclass, and the dataclasses in it, from what JSON gives. Raises TypeError, ValueError: which field is what.

    Args:
        where: what the values are, for messages.
        newer: fields that the classes do not have are left out: a later version may have written them.
        measured: numbers may have a fraction where an int is due, and need not be finite.
    """
    if not isinstance(values, dict):
        raise TypeError(f"{where or 'this'} is {values!r:.{SHOWN}}, no {kind.__name__}")
    of_kind: Any = kind
    readers, before = _fields(of_kind), where and f"{where}."
    given, gone = dict(getattr(kind, "ABSENT", {})), getattr(kind, "GONE", ())
    for name, value in values.items():
        if name in readers:
            given[name] = _read(readers[name], value, f"{before}{name}", newer, measured)
        elif not newer and name not in gone:
            raise TypeError(f"{kind.__name__} has no {before}{name:.{SHOWN}}")
    return kind(**given)


@dataclasses.dataclass(frozen=True)
class _Type:
    written: str
    kinds: tuple[type, ...]  # that it may have; empty: any
    part: Any = None  # a dataclass
    each: _Type | None = None  # of a tuple
    optional: bool = False


@lru_cache(maxsize=64)
def _fields(kind: Any) -> dict[str, _Type]:
    return {one.name: _type(str(one.type), sys.modules[kind.__module__]) for one in dataclasses.fields(kind)}


def _type(written: str, module: Any) -> _Type:
    bare = written[: -len(" | None")] if written.endswith(" | None") else written
    if bare.startswith("tuple[") and bare.endswith(", ...]"):
        each = _type(bare[len("tuple[") : -len(", ...]")], module)
        return _Type(written, (list, tuple), each=each, optional=bare != written)
    found = getattr(module, bare, None)
    part = found if dataclasses.is_dataclass(found) else None
    return _Type(written, (dict,) if part else _PLAIN.get(bare, ()), part, optional=bare != written)


def _read(wanted: _Type, value: Any, place: str, newer: bool, measured: bool) -> Any:
    if value is None and wanted.optional:
        return None
    kinds = _PLAIN["float"] if measured and wanted.kinds == _PLAIN["int"] else wanted.kinds
    if kinds and (not isinstance(value, kinds) or isinstance(value, bool) != (kinds == _PLAIN["bool"])):
        raise TypeError(f"{place} is {value!r:.{SHOWN}}, no {wanted.written}")
    if wanted.part is not None:
        return built(wanted.part, value, place, newer=newer, measured=measured)
    if wanted.each is not None:
        return tuple([_read(wanted.each, one, place, newer, measured) for one in value])
    if isinstance(value, float) and not measured and not math.isfinite(value):
        raise ValueError(f"{place} is {value}")
    return value
