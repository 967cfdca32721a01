"""Members of this process whose views a test announces; their agents reach nobody."""

from __future__ import annotations

from typing import Any

from deeprec_ext.allreduce.summing import Summing
from deeprec_ext.elastic.member.member import Member
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.allreduce.members import Coordinator, Told


def ringed(monkeypatch: Any, coordinator: Coordinator, index: int, state: Any) -> Member:
    """`worker-<index>`; for `announce` its port is that of its listener."""
    monkeypatch.setenv("DEEPREC_EXT_ROLE", "worker")
    monkeypatch.setenv("DEEPREC_EXT_INDEX", str(index))
    monkeypatch.delenv("DEEPREC_EXT_ADDRESS", raising=False)
    made = Member(state)
    made._summing = Summing(made._listener, Told(coordinator, made.identity.name), state)
    made.settings = pb.AgentSettings(rate_scaling="none")
    return made


def announce(coordinator: Coordinator, members: list[Member]) -> None:
    coordinator.announce({one.identity.name: one._listener.port for one in members})


def closed(coordinator: Coordinator, members: list[Member]) -> None:
    """At the end of a test, whatever has come of it."""
    coordinator.end()
    for one in members:
        one._summing.give_up()
    for one in members:
        one.part()
        one._ahead.close()
        one.close()
