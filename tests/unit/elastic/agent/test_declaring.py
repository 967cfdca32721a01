"""What a trainer tells of its variables, once for each generation and fingerprint, and again where it may have been lost."""

from __future__ import annotations

import pytest

from deeprec_ext.elastic.agent.declaring import Declaring
from deeprec_ext.proto import deeprec_ext_pb2 as pb


class Stream:
    def __init__(self) -> None:
        self.generation = 1
        self.sent: list[str] = []
        self.declaring = Declaring(
            lambda message: self.sent.append(message.catalogue.fingerprint), lambda: self.generation
        )

    def registers(self, *known: str) -> None:
        reply = pb.RegisterReply(view=pb.View(generation=self.generation), catalogues=known)
        self.declaring.registered(reply)


@pytest.fixture
def stream() -> Stream:
    made = Stream()
    made.registers()
    return made


def one(fingerprint: str) -> pb.Catalogue:
    return pb.Catalogue(fingerprint=fingerprint)


def test_each_is_told_once(stream):
    for _ in range(3):
        stream.declaring.declare(one("early"))
        assert stream.declaring.complete(one("whole")) == (_ == 0)
    assert stream.sent == ["early", "whole"]


def test_what_another_trainer_has_told_is_not_told_again(stream):
    stream.registers("early")
    stream.declaring.declare(one("early"))
    stream.declaring.complete(one("whole"))
    assert stream.sent == ["whole"]


def test_after_another_registration_what_did_not_arrive_is_told_again(stream):
    stream.declaring.declare(one("early"))
    stream.declaring.complete(one("whole"))
    stream.registers("early")
    assert stream.sent == ["early", "whole", "whole"]


def test_a_model_that_begins_anew_is_told_anew_when_it_trains(stream):
    stream.declaring.complete(one("whole"))
    stream.declaring.trained()
    assert stream.sent == ["whole"]
    stream.generation = 2
    stream.declaring.trained()
    stream.declaring.trained()
    assert stream.sent == ["whole", "whole"]


def test_the_bytes_of_each_slot_are_those_of_the_graph_that_was_declared_last(stream):
    assert stream.declaring.slot_bytes() == {}
    stream.declaring.declare(pb.Catalogue(fingerprint="early", variables=[pb.Variable(name="a", slot=3, bytes=10)]))
    tables = [
        pb.Variable(name=name, slot=slot, bytes=size) for name, slot, size in (("a", 3, 10), ("b", 3, 5), ("c", 0, 7))
    ]
    stream.declaring.complete(pb.Catalogue(fingerprint="whole", variables=tables))
    assert stream.declaring.slot_bytes() == {0: 7, 3: 15}
