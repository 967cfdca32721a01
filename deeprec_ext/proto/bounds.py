"""The border: whether a message is within the ranges of the protocol. Pure and quick: only fields that are set are seen."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from deeprec_ext.proto import deeprec_ext_pb2 as pb

VALUE_CHARACTERS = 40
"""Of a wrong value, in a message about it."""

WHOLE, REAL, TEXT, BYTES, FLAG, ENUM, PART = "int", "real", "text", "bytes", "flag", "one-of", "message"
ANY = "any"

NAMED: dict[str, float] = {
    "AIMASTER": 2**31 - 1,  # starts of one job's AIMaster; ids of commands begin with it
    "ANY": 2**63 - 1,
    "BYTES": 2**50,  # 1 PiB: sums over 8 000 of them stay below 2^63
    "COUNT": 2**40,
    "EPOCH": 2**53,  # of views; numbers of cuts, of scalings, of events
    "FILES": 1_000_000,
    "INDEX": 999_999,  # of a role
    "INT32": 2**31 - 1,
    "LINE": 4_000,  # one line of text
    "LONG": 1_000_000,  # text of many lines
    "MANY": 100_000,
    "MEMBERS": 10_000,
    "MESSAGE": 64 * 2**20,  # what one message may hold
    "NAME": 2_000,
    "PATH": 8_192,
    "RATE": 1e12,
    "RECORDS": 2**50,  # of one file or dataset
    "SECONDS": 1e10,  # 300 years
    "SHARDS": 8_000_000,  # of one file, and damaged records of one shard: more do not fit into a message
    "SLOT": 2**16,
    "STEP": 2**53,  # exact in a double
    "TASK": 2**30,  # one for each start of a PS
    "TIME": 1e12,  # Unix seconds
}
"""The limits that several fields have."""

_TYPES = {
    FieldDescriptor.TYPE_DOUBLE: REAL, FieldDescriptor.TYPE_FLOAT: REAL, FieldDescriptor.TYPE_BOOL: FLAG,
    FieldDescriptor.TYPE_STRING: TEXT, FieldDescriptor.TYPE_BYTES: BYTES, FieldDescriptor.TYPE_ENUM: ENUM,
    FieldDescriptor.TYPE_MESSAGE: PART,
}  # fmt: skip


@dataclass(frozen=True)
class Range:
    """Of one field. `many`: a list or map of at most so many; 0: one value. `key`: characters of a map's keys."""

    type: str
    many: int = 0
    low: float = -math.inf
    high: float = math.inf
    unit: str = ""
    any: bool = False  # a real that may be NaN or infinite
    key: int = 0

    def __str__(self) -> str:
        if self.type == REAL and self.low == -math.inf:
            return "a finite number"
        return f"{_plain(self.low)} to {_plain(self.high)} {self.unit}"


@dataclass(frozen=True)
class Violation:
    """What cannot be true. `value` is cut short, and printable."""

    field: str  # heartbeat.step
    value: str
    wanted: str

    def __str__(self) -> str:
        return f"{self.field} is {self.value}, must be {self.wanted}"


def type_of(field: FieldDescriptor) -> str:
    """As the table calls it; of a map, that of its values."""
    if is_map(field):
        return type_of(field.message_type.fields_by_name["value"])
    return _TYPES.get(field.type, WHOLE)


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def is_repeated(field: FieldDescriptor) -> bool:
    """A list or a map. protobuf 7 has no `label` any more, 4 and 5 have nothing else."""
    return bool(field.is_repeated) if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED


def read_range(text: str, kind: str, *, many: bool = False) -> Range:
    """What the protocol says of a field of this kind. Raises ValueError, KeyError: none, or none that can be read."""
    match = re.fullmatch(r"(?:\*(\w+) ?)?(?:key (\w+) ?)?(?:(any|finite)|(\S+)\.\.(\S+) (.+)|(\w+))?", text)
    if match is None:
        raise ValueError(f"this range cannot be read: {text}")
    most, key, word, low, high, unit, length = match.groups()
    if kind in (TEXT, BYTES):
        low, high, unit = "0", length or ("NAME" if kind == TEXT else ""), "characters" if kind == TEXT else "bytes"
    if (kind in (WHOLE, BYTES) and not high) or (kind == REAL and not (high or word)) or many != bool(most):
        raise ValueError(f"there is no range, or no number of a list, in {text!r}")
    return Range(
        kind, int(_number(most)) if most else 0, _number(low) if low else -math.inf, _number(high) if high else math.inf,
        unit or "", word == ANY, int(_number(key)) if key else 0,
    )  # fmt: skip


def _range_of(field: FieldDescriptor) -> Range:
    text, many = field.GetOptions().Extensions[pb.range], is_repeated(field)
    try:
        return read_range(text, type_of(field), many=many)
    except (ValueError, KeyError) as error:
        raise ValueError(f"{field.full_name}: {error}") from error


def _number(word: str) -> float:
    """One of `NAMED`, or a number as it stands; whole ones exactly."""
    sign, name = (-1, word[1:]) if word.startswith("-") else (1, word)
    value = NAMED[name] if name in NAMED else int(name)
    return sign * value


def _plain(number: float) -> str:
    return f"{number:g}" if isinstance(number, float) and abs(number) >= 1e9 else f"{int(number)}"


TABLE: Mapping[str, Mapping[str, Range]] = {
    name: {field.name: _range_of(field) for field in message.fields}
    for name, message in pb.DESCRIPTOR.message_types_by_name.items()
}
"""Message → field → range."""

PREFIX = pb.DESCRIPTOR.package + "."


def of(descriptor: Descriptor) -> Mapping[str, Range]:
    """The ranges of this message's fields. Raises KeyError for one that is not in the table."""
    return TABLE[descriptor.name]


def check(message: Message, path: str = "") -> Violation | None:
    """The first thing in it that is out of its range, or None.

    Args:
        path: of the message, in what is said of it: "known." for a part of a registration.
    """
    known = TABLE[message.DESCRIPTOR.name]
    for field, value in message.ListFields():
        rule = known[field.name]
        where = path + field.name
        if rule.key:
            violation = _check_map(rule, value, where)
        elif rule.many:
            violation = _check_list(rule, field, value, where)
        elif rule.type == PART:
            violation = check(value, where + ".")
        else:
            violation = _check_one(rule, field, value, where)
        if violation is not None:
            return violation
    return None


def _check_list(rule: Range, field: FieldDescriptor, values: Sequence[Any], where: str) -> Violation | None:
    if len(values) > rule.many:
        return Violation(where, f"a list of {len(values)}", f"at most {rule.many}")
    if rule.type == PART:
        for number, value in enumerate(values):
            if (violation := check(value, f"{where}[{number}].")) is not None:
                return violation
        return None
    if rule.type == WHOLE and rule.low <= min(values) and max(values) <= rule.high:  # a million of them at C's speed
        return None
    for number, value in enumerate(values):
        if (violation := _check_one(rule, field, value, f"{where}[{number}]")) is not None:
            return violation
    return None


def _check_map(rule: Range, values: Mapping[str, Any], where: str) -> Violation | None:
    if len(values) > rule.many:
        return Violation(where, f"a map of {len(values)}", f"at most {rule.many} entries")
    for key, value in values.items():
        if len(key) > rule.key:
            return Violation(where, f"a key of {len(key)} characters", f"at most {rule.key}")
        if (violation := _check_one(rule, None, value, f"{where}[{_short(key)}]")) is not None:
            return violation
    return None


def _check_one(rule: Range, field: FieldDescriptor | None, value: Any, where: str) -> Violation | None:
    kind = rule.type
    if kind == WHOLE:
        good = rule.low <= value <= rule.high
    elif kind == REAL:
        good = rule.any or (rule.low <= value <= rule.high and math.isfinite(value))  # NaN is in no range
    elif kind in (TEXT, BYTES):
        if len(value) <= rule.high:
            return None
        return Violation(where, f"{len(value)} {rule.unit} long", f"at most {_plain(rule.high)}")
    elif kind == ENUM and field is not None:
        good = value in field.enum_type.values_by_number
        return None if good else Violation(where, str(value), f"one of {_names(field.enum_type.values)}")
    else:
        return None
    return None if good else Violation(where, _short(value), str(rule))


def _names(values: Iterable[Any]) -> str:
    return ", ".join(value.name for value in values)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= VALUE_CHARACTERS else text[: VALUE_CHARACTERS - 1] + "…"
