"""Addresses of IPv6: in brackets wherever a port follows, and without them where a socket is made."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from deeprec_ext import env
from deeprec_ext.allreduce import meeting
from deeprec_ext.elastic.member.views import Views
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.allreduce.members import all_of


@pytest.mark.parametrize(("given", "expected"), [
    ("fd00::5:2222", "[fd00::5]:2222"), ("[fd00::5]:2222", "[fd00::5]:2222"), ("::1:0", "[::1]:0"),
    ("10.0.0.1:2222", "10.0.0.1:2222"), ("node-1:0", "node-1:0"), ("", None),
])  # fmt: skip
def test_the_address_of_a_pod_gets_its_brackets(
    monkeypatch: pytest.MonkeyPatch, given: str, expected: str | None
) -> None:
    monkeypatch.setenv("DEEPREC_EXT_ADDRESS", given)
    assert env.address() == expected


@pytest.mark.parametrize(("host", "port", "address"), [
    ("fd00::5", 2222, "[fd00::5]:2222"), ("10.0.0.1", 1, "10.0.0.1:1"), ("node-1", 65535, "node-1:65535"),
])  # fmt: skip
def test_what_is_written_is_read(host: str, port: int, address: str) -> None:
    assert meeting.written(host, port) == address and meeting.read(address) == (host, port)


def test_a_view_has_addresses_of_both_kinds() -> None:
    views = Views("worker-0", "of worker-0", lambda epoch, why: None)
    views.secret = b"of the job"
    addresses = ("[fd00::5]:2222", "10.0.0.1:2222")
    workers = [pb.WorkerMember(name=f"worker-{at}", incarnation=f"of worker-{at}", address=one)
               for at, one in enumerate(addresses)]  # fmt: skip
    views.take(pb.View(epoch=1, workers=workers))
    assert views.after(-1, "").addresses == (("fd00::5", 2222), ("10.0.0.1", 2222))


@pytest.fixture
def _ipv6() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")


@pytest.mark.usefixtures("_ipv6")
def test_members_meet_at_addresses_of_ipv6() -> None:
    listeners = [meeting.Listener("::1"), meeting.Listener("::1")]
    places = [meeting.read(meeting.written("::1", one.port)) for one in listeners]
    wait: Any = SimpleNamespace(look=lambda: None)
    rings = all_of([
        lambda at=at: meeting.join(listeners[at], 1, at, places, b"secret", wait) for at in range(2)  # type: ignore[misc]
    ])  # fmt: skip
    try:
        sums = [np.full(9, at + 1.0, np.float32) for at in range(2)]
        all_of([lambda at=at: rings[at].sum(sums[at]) for at in range(2)])  # type: ignore[misc]
        assert [one.tolist() for one in sums] == [[3.0] * 9] * 2
    finally:
        for ring in rings:
            ring.give_up()
        for listener in listeners:
            listener.close()


@pytest.mark.usefixtures("_ipv6")
def test_a_member_in_a_pod_says_where_it_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    from deeprec_ext.elastic.member.member import Member

    monkeypatch.setenv("DEEPREC_EXT_ROLE", "worker")
    monkeypatch.setenv("DEEPREC_EXT_INDEX", "0")
    monkeypatch.setenv("DEEPREC_EXT_ADDRESS", "::1:0")
    member = Member(SimpleNamespace(take=list, put=lambda arrays: None))  # type: ignore[arg-type]
    try:
        assert member.address == f"[::1]:{member._listener.port}" and member._listener.port
        socket.create_connection(meeting.read(member.address), 5).close()
    finally:
        member._ahead.close()
        member.close()
