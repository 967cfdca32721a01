"""One training step of many, traced: the same run, compiled once more in a session of its own.

A probe belongs to a `PlacedSession` and ends with it. It waits, disarmed, until the sampler arms it; then the next few
ordinary runs are timed, and the one after them is the traced one. That is a training step like any other: same feeds, same
fetches, same marks, same variables and iterators (all of which outlive sessions, as they do when the view changes).
"""

from __future__ import annotations

import logging
import math
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2, types_pb2

from deeprec_ext.graph import Site
from deeprec_ext.tf_private.master import MasterSession, split_strings
from deeprec_ext.tf_private.transfers import Transfers

log = logging.getLogger("deeprec_ext")

TIMED_RUNS = 3
"""Ordinary runs that are timed before the traced one, so that its own cost is known."""

FEED_BYTES_MAX = 16 << 20
"""A run that feeds more is not traced: feeds are copied once more than usual."""

METADATA_BYTES_MAX = 64 << 20

PLAIN = frozenset({
    tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32,
    tf.uint64, tf.bool, tf.complex64, tf.complex128, tf.string,
})  # fmt: skip
"""Types that are the same array whichever way they come."""

_GONE = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)
"""What the traced way itself may fail with, or a step that lost a PS; everything else is an answer of the step."""


class TraceFailedError(tf.errors.AbortedError):
    """The traced run did not end: the step is to be run again, untraced, which shows whether a PS is gone."""


@dataclass(frozen=True)
class Recorded:
    """One traced step."""

    metadata: bytes
    """Serialised RunMetadata."""
    known: Mapping[str, Site]
    seconds: float
    """Of the run."""
    ordinary_seconds: float
    """Of the ordinary runs before it, the median."""


class Probe:
    """Args:
    signature: of the run that is traced (`placed.Signature`).
    session, number: where it is compiled.
    transfers: of the PS it needs.
    known: what its ops are for.
    record: takes what was recorded; must not block.
    """

    def __init__(
        self, signature: tuple[Any, ...], session: MasterSession, number: int, transfers: Transfers,
        known: Mapping[str, Site], record: Callable[[Recorded], None],
    ) -> None:  # fmt: skip
        self.signature = signature
        self.armed = False
        self.broken = False
        self._session, self._number, self._transfers = session, number, transfers
        self._known, self._record = known, record
        self._lock = threading.Lock()
        self._times: list[float] = []

    def arm(self) -> None:
        """One of the next runs is traced."""
        with self._lock:
            self._times = []
            self.armed = not self.broken

    def run(self, ordinary: Callable[..., list[Any]], values: Sequence[Any]) -> list[Any]:
        """A run of the signature while armed. Raises what an ordinary run raises, or TraceFailedError."""
        with self._lock:
            traced, usual = self.armed and len(self._times) >= TIMED_RUNS, 0.0
            if traced:
                self.armed, usual = False, statistics.median(self._times)
        feeds = self._packed(values) if traced else None
        if feeds is not None:
            return self._traced(feeds, usual)
        began = time.perf_counter()
        results = ordinary(*values) or []
        self._times.append(time.perf_counter() - began)
        return results

    def _traced(self, feeds: list[bytes], usual: float) -> list[Any]:
        began = time.perf_counter()
        try:
            self._transfers.begin()
            fetches, metadata = self._session.run(self._number, feeds)
            results = [array(fetch) for fetch in fetches]
        except _GONE as error:
            self.broken = True
            raise TraceFailedError(None, None, error.message) from error
        except tf.errors.OpError:
            raise  # an answer of the step
        except Exception as error:  # never seen; better a step twice than a training that ends
            self.broken = True
            log.exception("a traced step is run again")
            raise TraceFailedError(None, None, f"{type(error).__name__}: {error}") from error
        finally:
            self._transfers.end()
        seconds = time.perf_counter() - began
        if len(metadata) <= METADATA_BYTES_MAX:
            try:
                self._record(Recorded(metadata, self._known, seconds, usual))
            except Exception:
                self.broken = True
                log.exception("a trace is lost")
        return results

    def _packed(self, values: Sequence[Any]) -> list[bytes] | None:
        """The feeds as serialised TensorProtos; None where they are too large, or no plain arrays: then nothing is traced."""
        plain = all(isinstance(value, np.ndarray) for value in values)
        if not plain or sum(value.nbytes for value in values) > FEED_BYTES_MAX:
            return None
        try:
            return [tf.make_tensor_proto(value).SerializeToString() for value in values]
        except Exception:
            self.broken = True
            log.exception("a step is not traced")
            return None

    def close(self) -> bool:
        """While no run is under way. Whether the server has closed the session."""
        self.armed, self.broken = False, True
        self._transfers.close()
        return self._session.close()


def array(serialised: bytes) -> Any:
    """What a compiled run returns for a tensor: an array, or a scalar."""
    proto = tensor_pb2.TensorProto.FromString(serialised)
    if proto.dtype == types_pb2.DT_STRING and proto.tensor_content:
        shape = [dimension.size for dimension in proto.tensor_shape.dim]
        texts = np.empty(math.prod(shape), dtype=object)
        texts[:] = split_strings(proto.tensor_content, len(texts))
        return texts.reshape(shape)[()]
    return tf.make_ndarray(proto)[()]
