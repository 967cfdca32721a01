"""A ring of members, over real connections."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from deeprec_ext.allreduce import ring as rings
from deeprec_ext.allreduce.meeting import Listener, Waiting, join, said
from deeprec_ext.allreduce.ring import LostError, Ring
from tests.unit.allreduce.members import all_of

SECRET = b"of this generation"
DEADLINE = 20.0


def wait(over: Callable[[], bool] = lambda: False, seconds: float = DEADLINE) -> Waiting:
    return Waiting(over, seconds, "generation 1")


def ring_of(size: int, generation: int = 1) -> list[Ring]:
    listeners = [Listener() for _ in range(size)]
    addresses = [("127.0.0.1", one.port) for one in listeners]
    made = all_of([
        lambda rank=rank: join(listeners[rank], generation, rank, addresses, SECRET, wait()) for rank in range(size)
    ])  # fmt: skip
    for one in listeners:
        one.close()
    return made


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("length", [0, 1, 3, 7, 1000])
@pytest.mark.parametrize("half", [False, True])
def test_all_have_the_sum_to_the_bit(size: int, length: int, half: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rings, "PIECE_BYTES", 64)  # many pieces a segment
    given = [np.random.RandomState(rank).randn(length).astype(np.float32) for rank in range(size)]
    members, sums = ring_of(size), [one.copy() for one in given]

    def work(rank: int) -> None:
        for _ in range(3):
            np.copyto(sums[rank], given[rank])
            members[rank].sum(sums[rank], half=half)
        members[rank].leave()

    all_of([lambda rank=rank: work(rank) for rank in range(size)])
    close = {"rtol": 2.0**-11 * size, "atol": 2.0**-9 * size} if half else {"rtol": 1e-4, "atol": 1e-5}
    for one in sums:
        np.testing.assert_array_equal(one, sums[0])
        np.testing.assert_allclose(one, np.sum(given, 0, np.float64), **close)


@pytest.mark.parametrize("kind", [np.float64, np.float16, np.int64])
def test_other_numbers(kind: Any) -> None:
    members, sums = ring_of(3), [np.arange(10).astype(kind) + rank for rank in range(3)]
    all_of([lambda rank=rank: members[rank].sum(sums[rank]) for rank in range(3)])
    for one in sums:
        np.testing.assert_array_equal(one, (3 * np.arange(10) + 3).astype(kind))
    all_of([one.leave for one in members])


@pytest.mark.parametrize("source", [0, 1, 2])
def test_one_hands_on_what_it_has_and_all_hear_what_each_says(source: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rings, "PIECE_BYTES", 16)
    members, buffers = ring_of(3), [np.arange(100.0) * (rank == source) for rank in range(3)]

    def work(rank: int) -> list[bytes]:
        members[rank].hand_on(buffers[rank], source)
        said = members[rank].gather(b"rank %d" % rank * rank)
        members[rank].leave()
        return said

    heard = all_of([lambda rank=rank: work(rank) for rank in range(3)])
    assert heard == [[b"", b"rank 1", b"rank 2rank 2"]] * 3
    for one in buffers:
        np.testing.assert_array_equal(one, np.arange(100.0))


def test_who_waits_in_a_ring_that_lost_a_member_is_told() -> None:
    members, errors = ring_of(4), Errors()
    threads = [threading.Thread(target=errors.call, args=(rank, lambda one=members[rank]: one.sum(np.ones(9))))
               for rank in (0, 1, 2)]  # fmt: skip
    for thread in threads:
        thread.start()
    members[3].give_up()  # as if it was killed
    errors.until({0, 2})  # its neighbours
    for rank in (0, 2):
        members[rank].leave()  # as they do then
    errors.until({0, 1, 2})
    for thread in threads:
        thread.join()
    for one in members:
        one.leave()


class Errors:
    def __init__(self) -> None:
        self.of: dict[int, Exception] = {}

    def call(self, rank: int, work: Callable[[], Any]) -> None:
        try:
            work()
        except LostError as error:
            self.of[rank] = error

    def until(self, ranks: set[int]) -> None:
        end = time.monotonic() + DEADLINE
        while not ranks <= set(self.of):
            assert time.monotonic() < end, self.of
            time.sleep(0.01)


def test_what_a_member_that_leaves_still_owes_is_sent() -> None:
    """Its last sum is the others' last sum, though it leaves as soon as it has it."""
    members = ring_of(3)
    sums = [np.full(3_000_000, float(rank)) for rank in range(3)]

    def work(rank: int) -> None:
        members[rank].sum(sums[rank])
        members[rank].leave()

    all_of([lambda rank=rank: work(rank) for rank in range(3)])
    assert [float(one[0]) + float(one[-1]) for one in sums] == [6.0] * 3


def test_strangers_and_other_generations_are_not_let_in() -> None:
    listener = Listener()
    true = said(1, 0, SECRET)
    calls = [
        b"GET / HTTP/1.1\r\n\r\n" + bytes(len(true)),
        true[:-32] + bytes(32),  # no proof
        said(1, 0, b"of another one"),
        said(2, 0, SECRET),
        said(1, 1, SECRET),
        b"",
    ]
    callers = [socket.create_connection(("127.0.0.1", listener.port)) for _ in calls]
    for caller, text in zip(callers, calls):
        caller.sendall(text)
    with pytest.raises(LostError, match="did not come in time"):
        listener.take(1, 0, SECRET, wait(seconds=0.5))
    with pytest.raises(LostError, match="not needed any more"):
        listener.take(1, 0, SECRET, wait(over=lambda: True))
    member = socket.create_connection(("127.0.0.1", listener.port))
    member.sendall(true)
    late = socket.create_connection(("127.0.0.1", listener.port))
    late.sendall(calls[1])  # pushes nobody out
    connection = listener.take(1, 0, SECRET, wait())
    connection.sendall(b"welcome")
    assert member.recv(7) == b"welcome"
    for caller in (*callers, member, late, connection):
        caller.close()
    listener.close()
    with pytest.raises(LostError, match="closed"):
        listener.take(1, 0, SECRET, wait())
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", listener.port))


def test_a_listener_bears_that_it_cannot_let_somebody_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a process has no more threads for a moment."""
    listener, start = Listener(), threading.Thread.start
    refused: list[str] = []

    def refuses(thread: threading.Thread) -> None:
        if thread.name == "deeprec-meeting" and not refused:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuses)
    first = socket.create_connection(("127.0.0.1", listener.port))
    assert first.recv(1) == b""
    second = socket.create_connection(("127.0.0.1", listener.port))
    second.sendall(said(1, 0, SECRET))
    listener.take(1, 0, SECRET, wait()).close()
    for one in (first, second):
        one.close()
    listener.close()


def test_a_connection_whose_flow_is_dropped_is_lost_in_a_minute() -> None:
    members = ring_of(2)
    try:
        for one in members:
            for connection in (one._after, one._before):
                assert connection is not None
                assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                idle, between, count = (
                    connection.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
                    for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT")
                )
                assert idle + between * count <= 60
    finally:
        all_of([one.leave for one in members])
