"""The AIMaster's commands in a process: a table from the kind of a command to the function that carries it out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from deeprec_ext.errors import one_line
from deeprec_ext.proto import deeprec_ext_pb2 as pb

log = logging.getLogger("deeprec_ext")

ELSEWHERE: dict[str, Any] = {}
"""Returned by who has given a command to somebody else, who answers it."""

Work = Callable[[], "Mapping[str, Any] | None"]
"""Returns further fields of the Ack."""

Table = Mapping[str, Callable[[pb.Command], "Mapping[str, Any] | None"]]


class Ack(Protocol):
    """`Agent.ack`."""

    def __call__(self, command_id: int, error: str = "", **more: Any) -> None: ...


def answered(ack: Ack, command_id: int, what: str, work: Work, told: tuple[type[Exception], ...] = ()) -> None:
    """Does the work in this thread, and answers the command with what came of it.

    Args:
      what: it is, for the log.
      told: errors whose own text says all.
    """
    try:
        more = work()
    except told as error:
        log.warning("%s: %s", what, error)
        ack(command_id, str(error)[:1000] or type(error).__name__)
    except Exception as error:
        log.exception("%s failed", what)
        ack(command_id, one_line(error))
    else:
        if more is not ELSEWHERE:
            ack(command_id, "", **(more or {}))


def carry_out(table: Table, command: pb.Command, who: str, ack: Ack, told: tuple[type[Exception], ...] = ()) -> None:
    """By the table, whose functions may raise. A command that is not in it is one of a later release."""
    kind = str(command.WhichOneof("command"))
    if kind not in table:
        error = f"{who} does not know the command {kind!r}"
        log.warning("%s", error)
        ack(command.id, error)
        return
    answered(ack, command.id, f"command {kind}", lambda: table[kind](command), told)
