"""TensorFlow's element types by number, without TensorFlow: what a file has to know is the size of an element."""

from __future__ import annotations

STRING = 7

_TYPES: dict[int, tuple[str, int]] = {
    1: ("float32", 4), 2: ("float64", 8), 3: ("int32", 4), 4: ("uint8", 1), 5: ("int16", 2), 6: ("int8", 1),
    7: ("string", 0), 8: ("complex64", 8), 9: ("int64", 8), 10: ("bool", 1), 11: ("qint8", 1), 12: ("quint8", 1),
    13: ("qint32", 4), 14: ("bfloat16", 2), 15: ("qint16", 2), 16: ("quint16", 2), 17: ("uint16", 2),
    18: ("complex128", 16), 19: ("float16", 2), 22: ("uint32", 4), 23: ("uint64", 8),
    24: ("float8_e5m2", 1), 25: ("float8_e4m3fn", 1),
}  # fmt: skip


def known(dtype: int) -> bool:
    """Whether variables of this type can be written to a backup (resources and variants cannot)."""
    return dtype in _TYPES


def name_of(dtype: int) -> str:
    return _TYPES[dtype][0] if dtype in _TYPES else f"type {dtype}"


def number_of(name: str) -> int:
    """Of a type by its name. Raises ValueError for what cannot be written."""
    for number, (known_name, _) in _TYPES.items():
        if known_name == name:
            return number
    raise ValueError(f"numbers of type {name} cannot be written to a backup")


def size_of(dtype: int) -> int:
    """Bytes of an element; 0 for strings. Raises KeyError for what cannot be written."""
    return _TYPES[dtype][1]
