"""Records are made of what was stored only where every field has its type; what is wrong is named."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field

import pytest

from deeprec_ext.aimaster.core.records import PsInfo, Scaling
from deeprec_ext.decoding import alike, built
from deeprec_ext.proto import deeprec_ext_pb2 as pb


@dataclass(frozen=True)
class Part:
    name: str
    share: float = 0.0


@dataclass(frozen=True)
class Whole:
    number: int
    part: Part
    parts: tuple[Part, ...] = ()
    counts: tuple[int, ...] = ()
    ready: bool = False
    error: float | None = None
    packed: bytes = b""
    rest: dict = field(default_factory=dict)


GOOD = {"number": 3, "part": {"name": "a"}, "parts": [{"name": "b", "share": 1}], "counts": [1, 2], "error": None}


def test_parts_are_made_too_and_numbers_stay_as_they_were_stored():
    found = built(Whole, {**GOOD, "packed": b"x", "rest": {"any": [1]}})
    assert found == Whole(3, Part("a"), (Part("b", 1),), (1, 2), packed=b"x", rest={"any": [1]})
    assert type(found.parts[0].share) is int, "a digest of it is what it was"


@pytest.mark.parametrize(
    "values, why",
    [
        ({"number": "3"}, "it.number is '3', no int"),
        ({"number": True}, "it.number is True, no int"),
        ({"number": 3.5}, "it.number is 3.5, no int"),
        ({"ready": 1}, "it.ready is 1, no bool"),
        ({"part": [1]}, r"it.part is \[1\], no Part"),
        ({"part": None}, "it.part is None, no Part"),
        ({"part": {"name": None}}, "it.part.name is None, no str"),
        ({"part": {"name": "a", "colour": 1}}, "Part has no it.part.colour"),
        ({"part": {}}, "name"),
        ({"parts": {"name": "b"}}, "it.parts is .*, no tuple"),
        ({"parts": [3]}, "it.parts is 3, no Part"),
        ({"counts": [1, "2"]}, "it.counts is '2', no int"),
        ({"counts": "12"}, "it.counts is '12', no tuple"),
        ({"error": "x"}, "it.error is 'x', no float | None"),
        ({"error": math.inf}, "it.error is inf"),
        ({"colour": 1}, "Whole has no it.colour"),
    ],
)
def test_what_is_wrong_is_named(values, why):
    with pytest.raises((TypeError, ValueError), match=why):
        built(Whole, {**GOOD, **values}, "it")


@pytest.mark.parametrize("text", ["null", "[]", "3", '"x"'])
def test_what_is_no_record_is_refused(text):
    with pytest.raises(TypeError, match="no Part"):
        built(Part, json.loads(text))


def test_a_later_version_may_have_more_fields():
    assert built(Whole, {**GOOD, "colour": 1}, newer=True).number == 3
    part = {"name": "a", "colour": 1}
    found = built(Whole, {**GOOD, "part": part, "parts": [part, part]}, newer=True)
    assert (found.part, found.parts) == (Part("a"), (Part("a"), Part("a")))
    with pytest.raises(TypeError, match=r"it\.part\.name is 3, no str"):
        built(Whole, {**GOOD, "part": {**part, "name": 3}}, "it", newer=True)


def test_what_was_measured_may_be_any_number():
    found = built(Whole, {**GOOD, "number": 2.5, "error": math.inf}, measured=True)
    assert (found.number, found.error) == (2.5, math.inf)
    with pytest.raises(TypeError, match="no int"):
        built(Whole, {**GOOD, "number": "2.5"}, measured=True)


def test_a_record_or_message_takes_over_what_its_source_has_by_the_same_names() -> None:
    scaling = Scaling(7, "scale-up", "ps", outcome="committed", pause_seconds=(0.5, 1.0))
    told = alike(pb.ScalingStatus, scaling, reason="by hand")
    assert (told.id, told.kind, list(told.pause_seconds), told.reason) == (7, "scale-up", [0.5, 1.0], "by hand")
    assert alike(PsInfo, pb.PsMember(task=1, name="ps-1"), address="a:1") == PsInfo(1, "ps-1", "a:1", "")
