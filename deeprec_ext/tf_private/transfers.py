"""The record of what PS receive from a trainer, switched on for one step.

TensorFlow switches it on for a traced step too, but does not wait: tensors that come before its message has arrived are
missing. So it is done here as well, before the step, and waited for.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import grpc

from deeprec_ext.tf_private.master import OPTIONS
from deeprec_ext.tf_private.tf_services_pb2 import LoggingRequest

log = logging.getLogger("deeprec_ext")

METHOD = "/tensorflow.WorkerService/Logging"
BEGIN_LIMIT_SECONDS = 0.2
"""How long a step waits for it: a PS that does not answer in time is gone, or costs some records."""

CONNECT_LIMIT_SECONDS = 5.0


class Transfers:
    """Nothing here raises.

    Args:
      addresses: host:port of the TensorFlow servers of the PS.
    """

    def __init__(self, addresses: Iterable[str]) -> None:
        self._channels = [grpc.insecure_channel(address, options=OPTIONS) for address in addresses]
        self._calls = [channel.unary_unary(METHOD) for channel in self._channels]
        self._ending: list[Any] = []  # a call that nobody holds is cancelled

    def connect(self) -> None:
        """So that no step waits for a connection."""
        self._wait(
            self._ask(LoggingRequest(fetch_step_id=[1]), CONNECT_LIMIT_SECONDS)
        )  # asks for nothing, changes nothing

    def begin(self) -> None:
        self._wait(self._ask(LoggingRequest(enable_rpc_logging=True), BEGIN_LIMIT_SECONDS))

    def end(self) -> None:
        """Does not wait. What was recorded and not asked for is forgotten."""
        self._ending = self._ask(LoggingRequest(disable_rpc_logging=True, clear=True), CONNECT_LIMIT_SECONDS)

    def close(self) -> None:
        for channel in self._channels:
            channel.close()

    def _ask(self, request: LoggingRequest, limit_seconds: float) -> list[Any]:
        try:
            return [call.future(request.SerializeToString(), timeout=limit_seconds) for call in self._calls]
        except ValueError as error:  # closed
            log.debug("no record of transfers: %s", error)
            return []

    @staticmethod
    def _wait(answers: list[Any]) -> None:
        for answer in answers:
            error = answer.exception()
            if error is not None:
                log.debug("a PS does not record what it receives: %s", error)
