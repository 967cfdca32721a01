"""Commands by their table, as trainer, PS and backup holder carry them out."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from deeprec_ext.elastic.agent.commands import carry_out
from deeprec_ext.proto import deeprec_ext_pb2 as pb


def test_a_command_of_a_later_release_is_answered_as_not_known_and_is_one_line_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    acks: list[Any] = []
    with caplog.at_level(logging.DEBUG, "deeprec_ext"):
        carry_out(
            {"leave": lambda _: None}, pb.Command(id=7, commit=pb.Commit()), "ps-1", lambda *ack: acks.append(ack)
        )
        carry_out({"leave": lambda _: None}, pb.Command(id=8), "ps-1", lambda *ack: acks.append(ack))
    said = ["ps-1 does not know the command 'commit'", "ps-1 does not know the command 'None'"]
    assert acks == [(7, said[0]), (8, said[1])]
    assert [logging.Formatter().format(record) for record in caplog.records] == said


def test_a_known_one_that_fails_is_logged_with_where(caplog: pytest.LogCaptureFixture) -> None:
    def fails(_: pb.Command) -> None:
        raise ValueError("odd")

    acks: list[Any] = []
    carry_out({"leave": fails}, pb.Command(id=7, leave=pb.Leave()), "ps-1", lambda *ack: acks.append(ack))
    assert acks == [(7, "ValueError: odd")]
    (record,) = caplog.records
    assert record.levelno == logging.ERROR and record.exc_info is not None
