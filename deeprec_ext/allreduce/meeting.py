"""Where the members of a generation meet: each listens once for its whole life, and whoever calls says for which."""

from __future__ import annotations

import hmac
import socket
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

from deeprec_ext.allreduce.ring import LostError, Ring

HELLO = struct.Struct("!8sqi32s")
_MAGIC = b"deeprecR"
HELLO_SECONDS = 5.0
WAITING_MAX = 64
"""Connections that nobody has asked for yet; a generation that never came leaves one."""
BUFFER_BYTES = 4 << 20


def _proof(secret: bytes, generation: int, rank: int) -> bytes:
    return hmac.digest(secret, struct.pack("!qi", generation, rank), "sha256")


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
      host: to listen on; the port is a free one.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._server = socket.create_server((host, 0), backlog=16)
        self.port: int = self._server.getsockname()[1]
        self._came: OrderedDict[tuple[int, int], tuple[socket.socket, bytes]] = OrderedDict()
        self._changed = threading.Condition()
        self._closed = False
        threading.Thread(target=self._listen, name="deeprec-meeting", daemon=True).start()

    def take(self, generation: int, rank: int, secret: bytes, wait: Waiting) -> socket.socket:
        """The connection of the member `rank` for this generation. Raises LostError."""
        with self._changed:
            while True:
                found = self._came.pop((generation, rank), None)
                if found is not None:
                    connection, proof = found
                    if hmac.compare_digest(proof, _proof(secret, generation, rank)):
                        connection.settimeout(None)
                        return connection
                    connection.close()
                if self._closed:
                    raise LostError("the listener is closed")
                wait.look()
                self._changed.wait(0.05)

    def close(self) -> None:
        self._closed = True
        self._server.close()
        with self._changed:
            came, self._came = self._came, OrderedDict()
            self._changed.notify_all()
        for connection, _ in came.values():
            connection.close()

    def _listen(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._greet, args=(connection,), name="deeprec-meeting", daemon=True).start()

    def _greet(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(HELLO_SECONDS)
            prepare(connection)
            text = b""
            while len(text) < HELLO.size:
                more = connection.recv(HELLO.size - len(text))
                if not more:
                    raise OSError
                text += more
        except OSError:
            connection.close()
            return
        magic, generation, rank, proof = HELLO.unpack(text)
        if magic != _MAGIC:
            connection.close()
            return
        with self._changed:
            before = self._came.pop((generation, rank), None)
            self._came[generation, rank] = connection, proof
            old = self._came.popitem(last=False)[1][0] if len(self._came) > WAITING_MAX else None
            self._changed.notify_all()
        for one in (before and before[0], old):
            if one:
                one.close()


def prepare(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for which in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        connection.setsockopt(socket.SOL_SOCKET, which, BUFFER_BYTES)


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
            except OSError:
                time.sleep(0.02)  # it may be on its way here
        prepare(after)
        try:
            after.sendall(HELLO.pack(_MAGIC, generation, rank, _proof(secret, generation, rank)))
        except OSError as error:
            raise LostError(f"the next member is lost: {error}") from None
        after.settimeout(None)
        return Ring(rank, size, after, listener.take(generation, (rank - 1) % size, secret, wait))
    except LostError:
        if after is not None:
            after.close()
        raise
