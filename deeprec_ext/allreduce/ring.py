"""One generation's ring: its members sum what they have, over one connection to the next member and one from the member before.

Each buffer is cut into as many segments as there are members, and each segment goes round twice: once it is summed, once it is
handed out. So every member sends and receives 2 (n - 1) / n of it, and all have the same bits: each segment is summed once, in
the order of the ring (Patarasu and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009). A ring
that has lost a member is useless: its neighbours give it up as soon as the connection is closed, theirs do then, and so on. Of
a member that hangs nobody hears by the ring: `give_up` is to be called.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from deeprec_ext.allreduce import halves
from deeprec_ext.errors import DeepRecError

PIECE_BYTES = 1 << 20
"""A piece goes on as soon as it is summed, while the next one is on its way."""
SAID_MAX = 1 << 16
LEAVE_SECONDS = 10.0
"""For what is still to be sent, when a member leaves."""
_BYE = b"B"
_LENGTH = struct.Struct("!I")

Array = np.ndarray[Any, np.dtype[Any]]


class LostError(DeepRecError):
    """The ring has lost a member, or was given up: nothing that was under way in it counts."""


class Ring:
    """A member's place in a ring. One thread at a time sums; `give_up` may come from any.

    Args:
      rank, size: this member's, and how many there are.
      after, before: connections to the next member and from the one before; None where there is one member. Closed by `leave`.
    """

    def __init__(self, rank: int, size: int, after: socket.socket | None, before: socket.socket | None) -> None:
        self.rank, self.size = rank, size
        self._after, self._before = after, before
        self._came = np.empty(PIECE_BYTES, np.uint8)
        self._sending: queue.SimpleQueue[memoryview | threading.Event | None] = (
            queue.SimpleQueue()
        )  # one call's, at the most
        self._lost = threading.Event()
        self._threads = [threading.Thread(target=work, name="deeprec-ring", daemon=True)
                         for work in (self._send, self._watch) if size > 1]  # fmt: skip
        for one in self._threads:
            one.start()

    def sum(self, buffer: Array, *, half: bool = False, over: float = 1.0) -> None:
        """In place, over all members, who call it with buffers of one length and type. Raises LostError.

        Args:
          buffer: [n] of numbers, contiguous. It may be changed as soon as this returns.
          over: what is summed is divided by this: once, by one member, so all have the same.
          half: they travel as float16 (`halves`), alike on all members; what each gets, to the bit alike, is rounded to that.
        """
        if self.size == 1 and over != 1:
            np.divide(buffer, over, out=buffer)
        if self.size == 1 or not buffer.size:
            return
        segments = np.array_split(buffer, self.size)
        for piece in _pieces(segments[self.rank]):
            self._put(self._said(piece, half))
        last = 2 * self.size - 3
        for turn in range(last + 1):
            for piece in _pieces(segments[(self.rank - turn - 1) % self.size]):
                if turn < self.size - 1:
                    came = self._came[: piece.nbytes].view(piece.dtype)
                    self._hear(came, half)
                    np.add(came, piece, out=piece)
                    if turn == self.size - 2 and over != 1:
                        np.divide(piece, over, out=piece)
                    said = self._said(piece, half, whole=turn == self.size - 2)
                else:
                    said = self._hear(piece, half)
                if turn < last:
                    self._put(said)
        self._flush()

    def hand_on(self, buffer: Array, source: int, *, waits: bool = True) -> None:
        """What `source` has in its buffer, [n] and contiguous, to all. Raises LostError.

        Args:
          waits: the buffer may be changed as soon as this returns; else when the next call has returned that waits.
        """
        if self.size == 1:
            return
        for piece in _pieces(buffer):
            if self.rank != source:
                self._take(piece)
            if self.rank != (source - 1) % self.size:
                self._put(piece)
        if waits:
            self._flush()

    def gather(self, said: bytes) -> list[bytes]:
        """What each member says, in the order of their ranks; 64 KiB each at the most. Raises LostError."""
        if len(said) > SAID_MAX:
            raise ValueError(f"{len(said)} bytes are more than {SAID_MAX}")
        told = {self.rank: said}
        for turn in range(self.size - 1):
            sent = told[(self.rank - turn) % self.size]
            self._put(np.frombuffer(_LENGTH.pack(len(sent)) + sent, np.uint8))
            head = np.empty(_LENGTH.size, np.uint8)
            self._take(head)
            (length,) = _LENGTH.unpack(head.tobytes())
            if length > SAID_MAX:
                raise LostError(f"the member before would say {length} bytes")
            came = np.empty(length, np.uint8)
            self._take(came)
            told[(self.rank - turn - 1) % self.size] = came.tobytes()
        return [told[rank] for rank in range(self.size)]

    def give_up(self) -> None:
        """Whoever waits in it gets LostError, here and in the neighbours. From any thread, and as often as one likes."""
        self._lost.set()
        for one in filter(None, (self._after, self._before)):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def leave(self) -> None:
        """Sends what the others still need of this member, and closes its connections."""
        self._sending.put(None)
        for one in self._threads[:1]:
            one.join(LEAVE_SECONDS)
        if self._before is not None and not self._lost.is_set():
            with contextlib.suppress(OSError):
                self._before.sendall(_BYE)
        self.give_up()
        for one in self._threads:
            one.join()
        for connection in filter(None, (self._after, self._before)):
            connection.close()

    def _said(self, piece: Array, half: bool, whole: bool = False) -> Array:
        """What the next member hears of a piece. One that is whole becomes here what it will be there."""
        if not half:
            return piece
        said = np.frombuffer(halves.packed(piece), np.uint8)
        if whole:
            halves.unpack(said, piece)
        return said

    def _hear(self, piece: Array, half: bool) -> Array:
        """A piece of the member before; returns how it came."""
        if not half:
            self._take(piece)
            return piece
        said = np.empty(halves.HEAD.size + piece.nbytes, np.uint8)
        head = said[: halves.HEAD.size]
        self._take(head)
        said = said[: halves.HEAD.size + halves.length(head, piece)]
        self._take(said[halves.HEAD.size :])
        halves.unpack(said, piece)
        return said

    def _put(self, piece: Array) -> None:
        self._sending.put(_view(piece))

    def _flush(self) -> None:
        """Returns when nothing refers to the buffer any more. What is here is whole, whether or not the next member gets it."""
        sent = threading.Event()
        self._sending.put(sent)
        sent.wait()

    def _take(self, piece: Array) -> None:
        assert self._before is not None
        room = _view(piece)
        while len(room):
            try:
                count = self._before.recv_into(room)
            except OSError as error:
                raise LostError(f"the member before this one is lost: {error}") from None
            if not count:
                raise LostError("the member before this one is lost: it has closed the connection")
            room = room[count:]

    def _send(self) -> None:
        assert self._after is not None
        while (piece := self._sending.get()) is not None:
            if isinstance(piece, threading.Event):
                piece.set()
            elif not self._lost.is_set():
                try:
                    self._after.sendall(piece)
                except OSError:
                    self.give_up()  # else this member would wait for what comes round

    def _watch(self) -> None:
        """The next member says nothing but that it leaves in order: then what comes from the one before may still be whole."""
        assert self._after is not None
        try:
            said = self._after.recv(1)
        except OSError:
            said = b""
        if said != _BYE:
            self.give_up()


def _pieces(segment: Array) -> Iterator[Array]:
    count = max(1, PIECE_BYTES // segment.itemsize)
    for start in range(0, len(segment), count):
        yield segment[start : start + count]


def _view(piece: Any) -> memoryview:
    return memoryview(piece.view(np.uint8))
