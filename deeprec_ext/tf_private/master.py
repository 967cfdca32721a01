"""A session on our own TensorFlow server through its master service: what `tf.compat.v1.Session` does not tell.

Compiled runs (callables) give no RunMetadata: TensorFlow's client throws away what the server answers. Uncompiled runs do,
but their first one places and optimises the graph while training waits. So a run that is to be traced is compiled and
called by messages of ours. Their nested messages are bytes here: the metadata need not be parsed where a step waits for it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence

import grpc
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

from deeprec_ext.tf_private.wire import fields, first_bytes, first_number, pack

v1 = tf.compat.v1
log = logging.getLogger("deeprec_ext")

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
        request = pack((1, definition.SerializeToString()), (2, config.SerializeToString()), (3, target.encode()))
        try:
            self._handle = first_bytes(self._call("CreateSession", request, PREPARE_LIMIT_SECONDS), 1)
        except BaseException:
            self._channel.close()
            raise

    def compile(self, options: config_pb2.CallableOptions) -> int:
        """A compiled run; its number for `run`."""
        request = pack((1, self._handle), (2, options.SerializeToString()))
        return int(first_number(self._call("MakeCallable", request, PREPARE_LIMIT_SECONDS), 1))

    def run(self, number: int, feeds: Sequence[bytes]) -> tuple[list[bytes], bytes]:
        """Runs it once.

        Args:
          feeds: serialised TensorProtos, in the order of the options.

        Returns: fetched TensorProtos and the RunMetadata, all serialised.
        """
        request = pack((1, self._handle), (2, number), *((3, feed) for feed in feeds))
        fetches, metadata = [], b""
        for field, value in fields(self._call("RunCallable", request, self._limit)):
            if field == 1 and isinstance(value, bytes):
                fetches.append(value)
            elif field == 2 and isinstance(value, bytes):
                metadata = value
        return fetches, metadata

    def close(self) -> bool:
        """Whether the server said in time that it is closed. Cancels a run under way."""
        try:
            self._call("CloseSession", pack((1, self._handle)), CLOSE_LIMIT_SECONDS)
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
