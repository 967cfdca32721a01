"""A session on our own TensorFlow server through its master service: what `tf.compat.v1.Session` does not tell.

Compiled runs (callables) give no RunMetadata: TensorFlow's client throws away what the server answers. Uncompiled runs do,
but their first one places and optimises the graph while training waits. So a run that is to be traced is compiled and
called by messages of ours. Their nested messages are bytes here: the metadata need not be parsed where a step waits for it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence

import grpc
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

v1 = tf.compat.v1
log = logging.getLogger("deeprec_ext")

SERVICE = "/tensorflow.MasterService/"

PREPARE_LIMIT_SECONDS = 120.0
"""How long opening a session and compiling a run may take."""

CLOSE_LIMIT_SECONDS = 2.0
"""How long closing may take: where a PS is gone it never ends."""

_OPTIONS = (
    ("grpc.max_send_message_length", -1),  # what is fed and fetched is as large as in any run
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_http_proxy", 0),
)

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class MasterSession:
    """A session of its own on a definition, as `tf.compat.v1.Session` would open it.

    Args:
      target: `grpc://host:port` of the server of this process.
      definition, config: of the session.

    Every method raises the tf.errors.OpError that a session would raise.
    """

    def __init__(self, target: str, definition: v1.GraphDef, config: v1.ConfigProto) -> None:
        self._limit = config.operation_timeout_in_ms / 1000 or None
        self._channel = grpc.insecure_channel(target.removeprefix("grpc://"), options=_OPTIONS)
        request = _pack((1, definition.SerializeToString()), (2, config.SerializeToString()), (3, target.encode()))
        try:
            self._handle = _first(self._call("CreateSession", request, PREPARE_LIMIT_SECONDS), 1)
        except BaseException:
            self._channel.close()
            raise

    def compile(self, options: config_pb2.CallableOptions) -> int:
        """A compiled run; its number for `run`."""
        request = _pack((1, self._handle), (2, options.SerializeToString()))
        return int(_number(self._call("MakeCallable", request, PREPARE_LIMIT_SECONDS), 1))

    def run(self, number: int, feeds: Sequence[bytes]) -> tuple[list[bytes], bytes]:
        """Runs it once.

        Args:
          feeds: serialised TensorProtos, in the order of the options.

        Returns: fetched TensorProtos and the RunMetadata, all serialised.
        """
        request = _pack((1, self._handle), (2, number), *((3, feed) for feed in feeds))
        fetches, metadata = [], b""
        for field, value in _fields(self._call("RunCallable", request, self._limit)):
            if field == 1 and isinstance(value, bytes):
                fetches.append(value)
            elif field == 2 and isinstance(value, bytes):
                metadata = value
        return fetches, metadata

    def close(self) -> bool:
        """Whether the server said in time that it is closed. Cancels a run under way."""
        try:
            self._call("CloseSession", _pack((1, self._handle)), CLOSE_LIMIT_SECONDS)
        except tf.errors.OpError as error:
            log.debug("closing a session: %s", error)
            return False
        finally:
            self._channel.close()
        return True

    def _call(self, method: str, request: bytes, limit_seconds: float | None) -> bytes:
        try:
            return bytes(self._channel.unary_unary(SERVICE + method)(request, timeout=limit_seconds))
        except ValueError as error:  # the channel was closed meanwhile
            raise tf.errors.CancelledError(None, None, str(error)) from error
        except grpc.RpcError as error:
            code, details = error.code().value[0], error.details() or ""
            with contextlib.suppress(KeyError):
                raise v1.errors.exception_type_from_error_code(code)(None, None, details) from error
            raise tf.errors.UnknownError(None, None, details) from error


# The wire format of protocol buffers. TensorFlow brings no Python classes for the messages of its master service
# (master.proto); of each we need one or two fields.


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _pack(*fields: tuple[int, bytes | int]) -> bytes:
    """A message of these (number, value) fields."""
    parts = []
    for number, value in fields:
        if isinstance(value, int):
            parts.append(_varint(number << 3 | _VARINT) + _varint(value & 0xFFFFFFFFFFFFFFFF))
        else:
            parts += [_varint(number << 3 | _BYTES) + _varint(len(value)), value]
    return b"".join(parts)


def _fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    """(number, value) of each field. Raises tf.errors.AbortedError for what is no message."""
    at, end = 0, len(message)

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while at < end and shift < 70:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise tf.errors.AbortedError(None, None, "the TensorFlow server answered something that is no message")

    while at < end:
        key = varint()
        kind = key & 7
        if kind == _VARINT:
            yield key >> 3, varint()
            continue
        size = varint() if kind == _BYTES else {_FIXED64: 8, _FIXED32: 4}.get(kind, end)
        if at + size > end:
            raise tf.errors.AbortedError(None, None, "the TensorFlow server answered a message that is cut off")
        yield key >> 3, message[at : at + size]
        at += size


def _first(message: bytes, number: int) -> bytes:
    return next((value for field, value in _fields(message) if field == number and isinstance(value, bytes)), b"")


def _number(message: bytes, number: int) -> int:
    return next((value for field, value in _fields(message) if field == number and isinstance(value, int)), 0)
