"""Messages with each field of the protocol at its edges, from the descriptors and their ranges. Seeded."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from deeprec_ext.proto import bounds
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto.bounds import BYTES, ENUM, FLAG, PART, REAL, TEXT, WHOLE

DEPTH_MAX = 5
LIST_TRIED = 5_000
TEXTS = ("", "x" * 3_000, "\x1b[2J\r\n\x00", "../../etc/passwd", "\u202e\u00e4")
TEXT_TRIED = 1_100_000
_INTS = {
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1), FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1), FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
}  # fmt: skip

UNARY = {"register": pb.RegisterRequest, "missing": pb.MissingRequest}


Path = tuple[FieldDescriptor, ...]


@dataclass(frozen=True)
class Lie:
    """`kind`: of the message: a field of AgentMessage, `register` or `missing`. Made when it is told: some are large."""

    kind: str
    fields: tuple[tuple[Path, Any, int], ...]  # where, what, how often in a list
    dataset: str

    @property
    def message(self) -> Message:
        message = base(self.kind, self.dataset)
        for path, value, times in self.fields:
            put(message, path, value, times)
        return message


def paths(message: Descriptor, before: Path = ()) -> Iterator[Path]:
    """To every field that is no message, through those that are."""
    for field in message.fields:
        if bounds.type_of(field) == PART and not bounds.is_map(field):
            if len(before) < DEPTH_MAX:
                yield from paths(field.message_type, (*before, field))
        else:
            yield (*before, field)


def values(field: FieldDescriptor) -> list[Any]:
    rule = bounds.of(field.containing_type)[field.name]
    if rule.type == WHOLE:
        kind = field.message_type.fields_by_name["value"].type if bounds.is_map(field) else field.type
        least, most = _INTS[kind]
        wanted = {0, 1, -1, int(rule.low), int(rule.high), int(rule.low) - 1, int(rule.high) + 1, least, most}
        return sorted(value for value in wanted if least <= value <= most)
    if rule.type == REAL:
        return [
            0.0,
            -0.0,
            -1.0,
            0.5,
            math.nan,
            math.inf,
            -math.inf,
            1e308,
            rule.high if math.isfinite(rule.high) else 1.0,
        ]
    if rule.type == TEXT:
        longest = int(rule.high) + 1
        return [*TEXTS, *(["x" * longest] if longest < TEXT_TRIED else [])]
    if rule.type == BYTES:
        return [b"", b"\xff" * 100, b"x" * 1_000_000]
    if rule.type == ENUM:
        return [0, 1, 2, 99]
    assert rule.type == FLAG
    return [True]


def put(message: Message, path: Path, value: Any, times: int) -> None:
    """Sets the field at the end of the path; lists get one element on the way, `times` at the end."""
    for field in path[:-1]:
        if bounds.is_repeated(field):
            part = getattr(message, field.name)
            message = part[0] if len(part) else part.add()
        else:
            message = getattr(message, field.name)
            message.SetInParent()
    last = path[-1]
    if bounds.is_map(last):
        for number in range(times):
            getattr(message, last.name)[f"k{number}"] = value
    elif bounds.is_repeated(last):
        getattr(message, last.name).extend([value] * times)
    else:
        setattr(message, last.name, value)


def kinds() -> Sequence[str]:
    told = [field.name for field in pb.AgentMessage.DESCRIPTOR.fields if field.name != "hello"]
    return [*told, *UNARY]


def base(kind: str, dataset: str) -> Message:
    """What is not lied about in it: as an honest agent might say it."""
    if kind in UNARY:
        return UNARY[kind]()
    message = pb.AgentMessage()
    part = getattr(message, kind)
    part.SetInParent()
    if kind == "data":
        part.dataset, part.want = dataset, 2
    elif kind == "refusal":
        part.reason = "a lie"
    elif kind == "live":
        part.generation = 1
    return message


def lies(count: int, seed: int, dataset: str) -> list[Lie]:
    """So many: every edge of every field once, then several at once. The same for the same seed.

    Args:
        dataset: that the job trains on.
    """
    generator = random.Random(seed)
    every = []
    for kind in kinds():
        for path in paths(_descriptor(kind), _first(kind)):
            for value in values(path[-1]):
                every.append((kind, path, value))
    generator.shuffle(every)
    found: list[Lie] = []
    by_kind: dict[str, list[tuple[Path, Any]]] = {}
    for kind, path, value in every:
        by_kind.setdefault(kind, []).append((path, value))
    while len(found) < count:
        once = len(found) < len(every)
        kind = every[len(found)][0] if once else generator.choice(list(by_kind))
        chosen = [every[len(found)][1:]] if once else generator.sample(by_kind[kind], generator.randint(2, 4))
        fields = []
        for path, value in chosen:
            small = not isinstance(value, (str, bytes)) or len(value) < 100
            fields.append((path, value, generator.choice((1, 1, 3, LIST_TRIED)) if small else 1))
        found.append(Lie(kind, tuple(fields), dataset))
    return found


def _descriptor(kind: str) -> Descriptor:
    if kind in UNARY:
        return UNARY[kind].DESCRIPTOR
    return pb.AgentMessage.DESCRIPTOR.fields_by_name[kind].message_type


def _first(kind: str) -> Path:
    return () if kind in UNARY else (pb.AgentMessage.DESCRIPTOR.fields_by_name[kind],)
