"""Where the members of a generation meet: each listens once for its whole life, and whoever calls says for which."""

from __future__ import annotations

import contextlib
import hmac
import logging
import socket
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from deeprec_ext.allreduce.ring import LostError, Ring

_HELLO, _MAGIC = struct.Struct("!8sqi32s"), b"deeprecR"
HELLO_SECONDS = 5.0
GREETED_MAX = 64
"""Who has connected and not yet said who it is."""
WAITING_MAX = 64
"""Connections that nobody has asked for yet; a generation that never came leaves one."""

KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 60_000}
"""Seconds, a count, and milliseconds in which what was sent has to be taken: who gets a state may take long to read on."""

log = logging.getLogger(__name__)


def read(address: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`; an address of IPv6 stands in brackets there. Raises ValueError."""
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def written(host: str, port: int) -> str:
    """What `read` reads."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True)
class Generation:
    """The members of one ring.

    Attributes:
      number: grows; rank: this member's place; addresses: host and port of all, in the order of the ring; secret: what only
        members know; names: of all, each of one process that lives; empty: they have none.
    """

    number: int
    rank: int
    addresses: tuple[tuple[str, int], ...]
    secret: bytes
    names: tuple[str, ...] = ()


class Generations(Protocol):
    """Where generations come from."""

    def after(self, number: int, trouble: str) -> Generation:
        """The newest that this member is in, once there is one that is newer. Raises DeepRecError where none will come.

        Args:
          trouble: why the one of that number is of no use here any more; empty at the beginning.
        """

    def over(self, number: int) -> bool:
        """Whether there is a newer one."""

    def watch(self, told: Callable[[], None]) -> None:
        """`told` is called, in whatever thread, when there is a newer one."""


class Waiting:
    """Something to wait for, until it is over or too late.

    Args:
      over: whether nobody needs to wait any more; seconds: at the most; what: is awaited, for the message.
    """

    def __init__(self, over: Callable[[], bool], seconds: float, what: str) -> None:
        self._over, self._end, self._what = over, time.monotonic() + seconds, what

    def look(self) -> None:
        """Raises LostError where waiting is of no use any more."""
        if self._over():
            raise LostError(f"{self._what}: not needed any more")
        if time.monotonic() > self._end:
            raise LostError(f"{self._what}: did not come in time")


class Listener:
    """Takes connections of members before this one, of whatever generation.

    Args:
      host, port: to listen on; port 0: a free one.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._server = socket.create_server((host, port), family=family, backlog=GREETED_MAX)
        self.port: int = self._server.getsockname()[1]
        self._came: OrderedDict[bytes, socket.socket] = OrderedDict()  # by what they said, proof and all
        self._changed = threading.Condition()
        self._greeting = threading.Semaphore(GREETED_MAX)
        self._closed = False
        self._thread = threading.Thread(target=self._listen, name="deeprec-meeting", daemon=True)
        self._thread.start()

    def take(self, generation: int, rank: int, secret: bytes, wait: Waiting) -> socket.socket:
        """The connection of the member `rank` for this generation. Raises LostError."""
        hello = said(generation, rank, secret)
        with self._changed:
            while (found := self._came.pop(hello, None)) is None:
                if self._closed:
                    raise LostError("the listener is closed")
                wait.look()
                self._changed.wait(0.05)
        found.settimeout(None)
        return found

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # closing alone would not wake who accepts
        self._server.close()
        self._thread.join()
        with self._changed:
            came, self._came = self._came, OrderedDict()
            self._changed.notify_all()
        for connection in came.values():
            connection.close()

    def _listen(self) -> None:
        while not self._closed:
            connection = None
            try:
                connection, _ = self._server.accept()
                self._greeting.acquire()  # who says nothing is in the way for no longer than HELLO_SECONDS
                threading.Thread(target=self._greet, args=(connection,), name="deeprec-meeting", daemon=True).start()
            except (OSError, RuntimeError) as error:  # no more files, or threads, at the moment
                if connection is not None:
                    self._greeting.release()
                    connection.close()
                if not self._closed:
                    log.warning("a member could not be let in: %s", error)
                    time.sleep(0.05)

    def _greet(self, connection: socket.socket) -> None:
        hello, end, old = b"", time.monotonic() + HELLO_SECONDS, None
        try:
            prepare(connection)
            while len(hello) < _HELLO.size:
                connection.settimeout(max(0.001, end - time.monotonic()))
                more = connection.recv(_HELLO.size - len(hello))
                if not more:
                    break
                hello += more
        except OSError:
            hello = b""
        finally:
            self._greeting.release()
        with self._changed:
            if self._closed or len(hello) < _HELLO.size or not hello.startswith(_MAGIC) or hello in self._came:
                old = connection
            else:
                self._came[hello] = connection
                old = self._came.popitem(last=False)[1] if len(self._came) > WAITING_MAX else None
                self._changed.notify_all()
        if old is not None:
            old.close()


def said(generation: int, rank: int, secret: bytes) -> bytes:
    """By the member `rank` to the next one: that it belongs to this generation, and the proof."""
    proof = hmac.digest(secret, struct.pack("!qi", generation, rank), "sha256")
    return _HELLO.pack(_MAGIC, generation, rank, proof)


def prepare(connection: socket.socket) -> None:
    """One whose flow is dropped on its way (a firewall that forgets it) is lost in a minute, not in a quarter of an hour."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def join(
    listener: Listener, generation: int, rank: int, addresses: Sequence[tuple[str, int]], secret: bytes, wait: Waiting
) -> Ring:
    """This member's place in the ring of a generation. Raises LostError.

    Args:
      rank: this member's place in `addresses`, which are host and port of each member, in the order of the ring.
      secret: of the generation; who does not know it is not let in.
    """
    size = len(addresses)
    if size == 1:
        return Ring(0, 1, None, None)
    after: socket.socket | None = None
    try:
        while after is None:
            wait.look()
            try:
                after = socket.create_connection(addresses[(rank + 1) % size], timeout=HELLO_SECONDS)
                prepare(after)
                after.sendall(said(generation, rank, secret))
            except OSError:
                if after is not None:
                    after.close()
                after = None
                time.sleep(0.02)  # it may be on its way here
        after.settimeout(None)
        return Ring(rank, size, after, listener.take(generation, (rank - 1) % size, secret, wait))
    except BaseException:
        if after is not None:
            after.close()
        raise
