"""The border has a range for every field of the protocol, and each field's edges are held. Generated from the descriptors."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from benchmarks.lies import edges as lies
from deeprec_ext.proto import bounds
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto.bounds import BYTES, ENUM, FLAG, PART, REAL, TEXT, WHOLE, Range

LIST_TRIED = 200_000
"""Lists that may be longer are tried at their bound by one test only: memory."""


def nested(message: Descriptor) -> Iterator[Descriptor]:
    yield message
    for inner in message.nested_types:
        if not inner.GetOptions().map_entry:
            yield from nested(inner)


MESSAGES = {one.name: one for top in pb.DESCRIPTOR.message_types_by_name.values() for one in nested(top)}
FIELDS = [(name, field.name) for name, message in sorted(MESSAGES.items()) for field in message.fields]
INT_TYPES = {
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1), FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1), FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
}  # fmt: skip


def inputs() -> set[str]:
    """Messages that a server of ours can be sent, whole or in part."""
    found: set[str] = set()
    waiting = [method.input_type for service in pb.DESCRIPTOR.services_by_name.values() for method in service.methods]
    while waiting:
        message = waiting.pop()
        if message.name not in found and message.file is pb.DESCRIPTOR:
            if not message.GetOptions().map_entry:
                found.add(message.name)
            waiting += [field.message_type for field in message.fields if field.message_type is not None]
    return found


def test_every_message_and_every_field_is_in_the_table_with_its_type() -> None:
    assert bounds.TABLE.keys() == MESSAGES.keys()
    for name, message in MESSAGES.items():
        assert {one.name for one in message.fields} == bounds.TABLE[name].keys(), name
        for field in message.fields:
            rule = bounds.TABLE[name][field.name]
            assert rule.type == bounds.type_of(field), (name, field.name)
            assert bool(rule.many) == bounds.is_repeated(field), (name, field.name)
            assert bool(rule.key) == bounds.is_map(field), (name, field.name)
            if rule.type == WHOLE:
                assert math.isfinite(rule.low) and math.isfinite(rule.high) and rule.unit, (name, field.name)


def test_every_message_that_a_server_reads_is_looked_at() -> None:
    assert {
        "RegisterRequest",
        "AgentMessage",
        "Known",
        "DataRequest",
        "Variable",
        "Trace",
        "ScaleRequest",
        "Pod",
    } <= inputs()
    assert inputs() <= bounds.TABLE.keys()


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_an_empty_message_is_within_its_ranges(name: str) -> None:
    assert bounds.check(GetMessageClass(MESSAGES[name])()) is None


def put(message: Message, field: FieldDescriptor, value: object, times: int = 1) -> Message:
    lies.put(message, (field,), value, times)
    return message


def edges(field: FieldDescriptor, rule: Range) -> Iterator[tuple[object, bool]]:
    """Values with whether they are within."""
    if rule.type == WHOLE:
        kind = field.message_type.fields_by_name["value"].type if bounds.is_map(field) else field.type
        least, most = INT_TYPES[kind]
        low, high = int(rule.low), int(rule.high)
        for value in {low, high, low - 1, high + 1, least, most, -1, 0}:
            if least <= value <= most:
                yield value, low <= value <= high
    elif rule.type == REAL:
        for value in (math.nan, math.inf, -math.inf, -1.0, 1e308, -1e308, 0.5):
            within = rule.any or (math.isfinite(value) and rule.low <= value <= rule.high)
            yield value, within
    elif rule.type == TEXT:
        high = int(rule.high)
        if high <= 1 << 20:
            yield "x" * high, True
            yield "ä" * (high + 1), False
        yield "\x00\x1b[2J\n", high >= 6
    elif rule.type == ENUM:
        yield 12345, False
        yield field.enum_type.values[-1].number, True
    elif rule.type == FLAG:
        yield True, True
    elif rule.type == BYTES:
        yield b"x", True


@pytest.mark.parametrize(("name", "field_name"), FIELDS)
def test_each_field_is_held_at_its_edges(name: str, field_name: str) -> None:
    message, field = MESSAGES[name], MESSAGES[name].fields_by_name[field_name]
    rule = bounds.TABLE[name][field_name]
    make = GetMessageClass(message)
    tried = 0
    for value, within in edges(field, rule):
        violation = bounds.check(put(make(), field, value))
        assert (violation is None) == within, (value, violation)
        if violation is not None:
            assert violation.field.startswith(field_name) and len(str(violation)) < 400 + 30 * len(
                str(violation.wanted)
            )
            assert len(violation.value) <= bounds.VALUE_CHARACTERS + 30
        tried += 1
    if rule.many and rule.many <= LIST_TRIED and rule.type != PART and not rule.key:
        good = next(value for value, within in edges(field, rule) if within)
        small = good if not isinstance(good, str) else "x"
        assert bounds.check(put(make(), field, small, rule.many)) is None
        assert bounds.check(put(make(), field, small, rule.many + 1)) is not None
        tried += 1
    if rule.type == PART or rule.type == bounds.BYTES:
        return
    assert tried, "no edge was tried"


def test_what_is_wrong_deep_inside_is_named_by_its_path() -> None:
    known = pb.Known(data=[pb.DataKnown(), pb.DataKnown(held=[pb.Lease(done=-4)])])
    assert str(bounds.check(pb.RegisterRequest(known=known))) == (
        "known.data[1].held[0].done is -4, must be 0 to 1125899906842624 records"
    )
    found = bounds.check(pb.AgentMessage(catalogue=pb.Catalogue(variables=[pb.Variable(name="x" * 5000)])))
    assert str(found) == "catalogue.variables[0].name is 5000 characters long, must be at most 2000"


def test_maps_have_a_bound_for_their_keys_and_their_number() -> None:
    report = pb.MetricsReport(metrics={f"m{number}": 1.0 for number in range(1001)})
    assert str(bounds.check(report)) == "metrics is a map of 1001, must be at most 1000 entries"
    assert "5000 characters" in str(bounds.check(pb.MetricsReport(metrics={"x" * 5000: 1.0})))


def test_a_metric_of_a_model_that_has_diverged_is_no_lie() -> None:
    assert bounds.check(pb.MetricsReport(metrics={"loss": math.nan, "norm": math.inf})) is None
    assert bounds.check(pb.Heartbeat(step_seconds=math.nan)) is not None


@pytest.mark.parametrize(("text", "kind", "many"), [
    ("", WHOLE, False), ("", REAL, False), ("", BYTES, False), ("finite", WHOLE, False), ("0..1", WHOLE, False),
    ("0..NOBODY n", WHOLE, False), ("NOBODY", TEXT, False), ("0..1 n", WHOLE, True), ("*5 0..1 n", WHOLE, False),
    ("*5 key", TEXT, True),
])  # fmt: skip
def test_a_field_without_a_range_or_with_one_that_cannot_be_read_is_refused(text: str, kind: str, many: bool) -> None:
    with pytest.raises((ValueError, KeyError)):
        bounds.read_range(text, kind, many=many)


def test_a_shard_of_which_every_record_is_damaged_can_be_told() -> None:
    """However large the user has made it: one that cannot be told is told again and again, and the worker is a suspect."""
    assert bounds.check(pb.LeaseProgress(lease=1, done=300_000, skipped=range(300_000))) is None
