"""A session on our own TensorFlow server through its master service: what `tf.compat.v1.Session` does not tell.

Compiled runs (callables) give no RunMetadata: TensorFlow's client throws away what the server answers. Uncompiled runs do,
but their first one places and optimises the graph while training waits. So a run that is to be traced is compiled and
called by messages of ours (tf_services.proto).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from typing import Any

import grpc
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import config_pb2

from deeprec_ext.tf_private import tf_services_pb2 as services

v1 = tf.compat.v1
log = logging.getLogger("deeprec_ext")

BAD = "the TensorFlow server answered something that is no message, or cut off"
BAD_STRINGS = "the TensorFlow server answered something that is no tensor of strings, or cut off"

SERVICE = "/tensorflow.MasterService/"

PREPARE_LIMIT_SECONDS = 120.0
"""How long opening a session and compiling a run may take."""

CLOSE_LIMIT_SECONDS = 2.0
"""How long closing may take: where a PS is gone it never ends."""

OPTIONS = (
    ("grpc.max_send_message_length", -1),  # what is fed and fetched is as large as in any run
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_http_proxy", 0),
)


class MasterSession:
    """A session of its own on a definition, as `tf.compat.v1.Session` would open it.

    Args:
      target: `grpc://host:port` of the server of this process.
      definition, config: of the session.

    Every method raises the tf.errors.OpError that a session would raise.
    """

    def __init__(self, target: str, definition: v1.GraphDef, config: v1.ConfigProto) -> None:
        self._limit = config.operation_timeout_in_ms / 1000 or None
        self._channel = grpc.insecure_channel(target.removeprefix("grpc://"), options=OPTIONS)
        request = services.CreateSessionRequest(
            graph_def=definition.SerializeToString(), config=config.SerializeToString(), target=target.encode()
        )
        try:
            self._handle = self._call("CreateSession", request, PREPARE_LIMIT_SECONDS).session_handle
        except BaseException:
            self._channel.close()
            raise

    def compile(self, options: config_pb2.CallableOptions) -> int:
        """A compiled run; its number for `run`."""
        request = services.MakeCallableRequest(session_handle=self._handle, options=options.SerializeToString())
        return int(self._call("MakeCallable", request, PREPARE_LIMIT_SECONDS).handle)

    def run(self, number: int, feeds: Sequence[bytes]) -> tuple[list[bytes], bytes]:
        """Runs it once.

        Args:
          feeds: serialised TensorProtos, in the order of the options.

        Returns: fetched TensorProtos and the RunMetadata, all serialised.
        """
        request = services.RunCallableRequest(session_handle=self._handle, handle=number, feed=feeds)
        reply = self._call("RunCallable", request, self._limit)
        return list(reply.fetch), reply.metadata

    def close(self) -> bool:
        """Whether the server said in time that it is closed. Cancels a run under way."""
        try:
            self._call("CloseSession", services.CloseSessionRequest(session_handle=self._handle), CLOSE_LIMIT_SECONDS)
        except tf.errors.OpError as error:
            log.debug("closing a session: %s", error)
            return False
        finally:
            self._channel.close()
        return True

    def _call(self, method: str, request: Any, limit_seconds: float | None) -> Any:
        """The reply: the message of that name. One that is none can be retried, like a connection that broke."""
        try:
            reply = self._channel.unary_unary(SERVICE + method)(request.SerializeToString(), timeout=limit_seconds)
            return getattr(services, method + "Response").FromString(reply)
        except DecodeError as error:
            raise tf.errors.AbortedError(None, None, BAD) from error
        except ValueError as error:  # the channel was closed meanwhile
            raise tf.errors.CancelledError(None, None, str(error)) from error
        except grpc.RpcError as error:
            code, details = error.code().value[0], error.details() or ""
            with contextlib.suppress(KeyError):
                raise v1.errors.exception_type_from_error_code(code)(None, None, details) from error
            raise tf.errors.UnknownError(None, None, details) from error


def split_strings(content: bytes, count: int) -> list[bytes]:
    """Of a tensor as servers send it, which `tf.make_ndarray` does not read: all lengths, as varints, then all bytes.

    Raises tf.errors.AbortedError for what is none.
    """
    sizes: list[int] = []
    at = 0
    while len(sizes) < count and at < len(content):
        size = shift = 0
        for byte in content[at : at + 10]:
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        at += shift // 7
        sizes.append(size)
    if len(sizes) < count or at + sum(sizes) != len(content):
        raise tf.errors.AbortedError(None, None, BAD_STRINGS)
    strings = []
    for size in sizes:
        strings.append(content[at : at + size])
        at += size
    return strings
