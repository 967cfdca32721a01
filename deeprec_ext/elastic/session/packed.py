"""Runs of one placed session that are packed: each has a session of its own, on the part of the graph that it reaches.

They share everything that outlives a session with the others (variables, named iterators and tables), as sessions of different
views do. What a graph pass does to a run of one view is in `graph/packing`.
"""

from __future__ import annotations

import logging
import re
import threading
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Optional

import tensorflow as tf

from deeprec_ext.elastic.agent.background import at_usual_priority
from deeprec_ext.graph import Packed, Report, Run, Seeded, is_of_packing, seed_apart
from deeprec_ext.tf_private.c_graph import import_definition
from deeprec_ext.tf_private.sessions import OwnSession

v1 = tf.compat.v1
log = logging.getLogger("deeprec_ext")

PACKED_MAX = 4
"""Sessions of that kind beside a placed one: the step, with and without summaries, and two more. Others run as they are."""

LEFT_ALONE_MAX = 128
"""Runs of which it is remembered that they are not packed: a script that makes new ones for ever must not fill the memory."""

GONE = (
    tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError, tf.errors.DeadlineExceededError,
)  # fmt: skip
"""What TensorFlow says when it is not the graph that it cannot compile: a process is gone, or the session is being closed."""

_OP_OF_ERROR = re.compile(r"\{\{node ([^}]+)\}\}")


class PackedRunError(tf.errors.AbortedError):  # type: ignore[misc]
    """An op of packing has failed, in a step that goes well without it. It is made again, as it is."""


def is_ours(error: tf.errors.OpError) -> bool:
    """Whether a run failed in ops of packing alone: a script has told TensorFlow what is not true of a tensor."""
    found = _OP_OF_ERROR.findall(error.message or "")
    return bool(found) and not isinstance(error, GONE) and all(is_of_packing(name) for name in found)


Packer = Callable[[bytes, Run], Optional[Packed]]
"""Packs one run of a placed graph (serialised); None: it is not worth looking at."""


class PackedRuns:
    """Args:
    definition: of the placed graph; kept compressed until there are as many as there may be.
    target, config: of their sessions.
    earlier: sessions of the same view in which their runs have drawn random numbers.
    """

    def __init__(
        self, definition: v1.GraphDef, target: str, config: v1.ConfigProto, packer: Packer, earlier: int = 0
    ) -> None:
        self._target, self._config, self._packer = target, config, packer
        self._definition: bytes | None = zlib.compress(definition.SerializeToString(), 1)
        self._making, self._lock = threading.Lock(), threading.Lock()  # in this order; the first one is held for long
        self._sessions: dict[Run, OwnSession] = {}
        self._refused: list[OwnSession] = []
        self._left_alone: dict[Run, None] = {}  # in the order in which they came
        self._earlier, self._drawn = earlier, Counter[Seeded]()
        self._ended = False
        self.report: Report | None = None
        """Of the run that was packed with the most gain."""

    def session(self, run: Run) -> OwnSession | None:
        """Where it is to be compiled; None: where the others are. Slow when it is asked for the first time."""
        with self._making:
            found = self._sessions.get(run)
            if found is not None or run in self._left_alone:
                return found
            made = self._make(run)
            with self._lock:
                if made is not None and not self._ended:
                    self._sessions[run] = made
                    return made
                self._leave_alone(run)
            if made is not None:
                made.leave_behind()  # nothing has opened it
            return None

    def refuse(self, run: Run) -> None:
        """It could not be compiled, or failed, and is run as it is. Its session ends with the others: that may take long."""
        with self._lock:
            session = self._sessions.pop(run, None)
            self._leave_alone(run)
            if session is not None:
                self._refused.append(session)

    def has(self, run: Run) -> bool:
        return run in self._sessions

    def _last(self) -> list[OwnSession]:
        """All; no more are made. Waits for nobody who is packing."""
        with self._lock:
            self._ended = True
            self._definition = None
            return [*self._sessions.values(), *self._refused]

    def _leave_alone(self, run: Run) -> None:
        self._left_alone[run] = None
        if len(self._left_alone) > LEFT_ALONE_MAX:
            del self._left_alone[next(iter(self._left_alone))]

    def _make(self, run: Run) -> OwnSession | None:
        definition = self._definition
        if definition is None or len(self._sessions) >= PACKED_MAX:
            self._definition = None
            return None
        try:
            graph = at_usual_priority(lambda: self._graph(definition, run))
        except Exception:  # a mistake of ours: the step can be made all the same
            log.exception("a run is not packed")
            return None
        if graph is None:
            return None
        return OwnSession(self._target, graph=graph, config=self._config)

    def _graph(self, definition: bytes, run: Run) -> tf.Graph | None:
        """None: it is not packed."""
        packed = self._packer(zlib.decompress(definition), run)
        if packed is None:
            return None
        if self.report is None or packed.report.changed > self.report.changed:
            self.report = packed.report
        if packed.definition is None:
            return None
        seed_apart(packed.definition, self._drawn, self._earlier)
        graph = tf.Graph()
        import_definition(graph, packed.definition)
        return graph

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
