"""Runs of one placed session that are packed: each has a session of its own, on the part of the graph that it reaches.

They share everything that outlives a session with the others (variables, named iterators and tables), as sessions of different
views do. What a graph pass does to a run of one view is in `graph/packing`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Optional

import tensorflow as tf

from deeprec_ext.graph import Packed, Report, Run, seed_apart
from deeprec_ext.tf_private.c_graph import import_definition
from deeprec_ext.tf_private.sessions import OwnSession

v1 = tf.compat.v1
log = logging.getLogger("deeprec_ext")

PACKED_MAX = 4
"""Sessions of that kind beside a placed one: the step, with and without summaries, and two more. Others run as they are."""

LEFT_ALONE_MAX = 128
"""Runs of which it is remembered that they are not packed: a script that makes new ones for ever must not fill the memory."""

REFUSED = (
    tf.errors.InvalidArgumentError, tf.errors.NotFoundError, tf.errors.InternalError, tf.errors.UnimplementedError,
)  # fmt: skip
"""What TensorFlow says of a graph that it cannot compile; never of a PS that is gone."""

Packer = Callable[[bytes, Run], Optional[Packed]]
"""Packs one run of a placed graph (serialised); None: it is not worth looking at."""


class PackedRuns:
    """Args:
    definition: of the placed graph; kept serialised until there are as many as there may be.
    target, config: of their sessions.
    """

    def __init__(self, definition: v1.GraphDef, target: str, config: v1.ConfigProto, packer: Packer) -> None:
        self._target, self._config, self._packer = target, config, packer
        self._definition: bytes | None = definition.SerializeToString()
        self._lock = threading.Lock()
        self._sessions: dict[Run, OwnSession] = {}
        self._left_alone: dict[Run, None] = {}  # in the order in which they came
        self.report: Report | None = None
        """Of the run that was packed with the most gain."""

    def session(self, run: Run) -> OwnSession | None:
        """Where it is to be compiled; None: where the others are. Slow when it is asked for the first time."""
        with self._lock:
            found = self._sessions.get(run)
            if found is None and run not in self._left_alone:
                found = self._make(run)
                if found is None:
                    self._leave_alone(run)
                else:
                    self._sessions[run] = found
            return found

    def refuse(self, run: Run) -> None:
        """It could not be compiled, and is run as it is."""
        with self._lock:
            session = self._sessions.pop(run, None)
            self._leave_alone(run)
        if session is not None:
            session.close()

    def has(self, run: Run) -> bool:
        return run in self._sessions

    def _last(self) -> list[OwnSession]:
        """All; no more are made."""
        with self._lock:
            self._definition = None
            return list(self._sessions.values())

    def _leave_alone(self, run: Run) -> None:
        self._left_alone[run] = None
        if len(self._left_alone) > LEFT_ALONE_MAX:
            del self._left_alone[next(iter(self._left_alone))]

    def _make(self, run: Run) -> OwnSession | None:
        if self._definition is None or len(self._sessions) >= PACKED_MAX:
            self._definition = None
            return None
        try:
            packed = self._packer(self._definition, run)
        except Exception:  # a mistake of ours: the step can be made all the same
            log.exception("a run is not packed")
            return None
        if packed is None:
            return None
        if self.report is None or packed.report.changed > self.report.changed:
            self.report = packed.report
        if packed.definition is None:
            return None
        if self._sessions:
            seed_apart(packed.definition, len(self._sessions))
        graph = tf.Graph()
        try:
            import_definition(graph, packed.definition)
        except REFUSED as error:
            log.warning("a run is not packed, since TensorFlow does not take its graph: %s", str(error)[:500])
            return None
        return OwnSession(self._target, graph=graph, config=self._config)

    def close(self) -> None:
        """May block where a PS is gone."""
        for one in self._last():
            try:
                one.close()
            except tf.errors.OpError as error:
                log.debug("closing a session: %s", error)

    def leave_behind(self) -> None:
        for one in self._last():
            one.leave_behind()
