"""Runs of one placed session that have sessions of their own, on the part of the graph that they reach.

They share everything that outlives a session with the others (variables, named iterators and tables), as sessions of different
views do. Of a run there may be two: one that was made in haste, and one that took TensorFlow's optimiser the time it takes.
What becomes of a run's graph is in `making`.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import Counter
from collections.abc import Callable
from typing import Protocol

import tensorflow as tf

from deeprec_ext.elastic.agent.background import at_usual_priority
from deeprec_ext.elastic.session.making import Own
from deeprec_ext.graph import Report, Run, Seeded, is_of_packing, seed_apart
from deeprec_ext.tf_private.c_graph import import_definition
from deeprec_ext.tf_private.sessions import OwnSession

v1 = tf.compat.v1
log = logging.getLogger("deeprec_ext")

OWN_MAX = 16
"""Sessions of each of the two kinds beside a placed one: the steps, with and without summaries, and some more."""

LEFT_ALONE_MAX = 128
"""Runs of which it is remembered that they have none: a script that makes new ones for ever must not fill the memory."""

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


class Maker(Protocol):
    """Makes the graphs of runs (`RunMaker`)."""

    def in_haste(self, run: Run, packs: bool) -> Own | None: ...
    def settled(self, definition: Callable[[], v1.GraphDef], run: Run) -> Own | None: ...


class OwnRuns:
    """Args:
    definition: makes the graph of the view.
    target: of their sessions.
    config: what the script gave its session, for the view; `quick`: without TensorFlow's optimiser.
    earlier: sessions of the same view in which their runs have drawn random numbers.
    """

    def __init__(
        self, definition: Callable[[], v1.GraphDef], target: str, config: v1.ConfigProto, quick: v1.ConfigProto,
        maker: Maker, earlier: int = 0,
    ) -> None:  # fmt: skip
        self._definition, self._target, self._maker = definition, target, maker
        self._config, self._quick = config, quick
        self._lock, self._seeding = threading.Lock(), threading.Lock()
        self._making: dict[tuple[Run, bool], threading.Lock] = {}  # held for long: who needs one waits for no other
        self._sessions: dict[tuple[Run, bool], OwnSession] = {}
        self._refused: list[OwnSession] = []
        self._left_alone: dict[tuple[Run, bool], None] = {}  # in the order in which they came
        self._packed: dict[Run, tuple[bytes, Report]] = {}  # in haste, until they are optimised
        self._earlier, self._drawn = earlier, Counter[Seeded]()
        self._ended = False
        self.report: Report | None = None
        """Of the run that was packed with the most gain."""

    def session(self, run: Run, *, hasty: bool, packs: bool = True) -> OwnSession | None:
        """Where it is to be compiled; None: where the others are. Slow when it is asked for the first time.

        Args:
          packs: what crosses in it, if that pays.
        """
        key = run, hasty
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            found = self._sessions.get(key)
            if found is None and key not in self._left_alone:
                found = self._kept(key, self._make(run, hasty, packs))
            with self._lock:
                self._making.pop(key, None)
            return found

    def _kept(self, key: tuple[Run, bool], made: OwnSession | None) -> OwnSession | None:
        with self._lock:
            refused = self._ended or key in self._left_alone  # perhaps meanwhile
            if made is not None and not refused:
                self._sessions[key] = made
                return made
            self._leave_alone(key)
        if made is not None:
            made.leave_behind()  # nothing has opened it
        return None

    def refuse(self, run: Run) -> None:
        """It could not be compiled, or failed, and is run with the others. Its sessions end with them: that may take long."""
        with self._lock:
            for key in ((run, False), (run, True)):
                session = self._sessions.pop(key, None)
                self._leave_alone(key)
                if session is not None:
                    self._refused.append(session)

    def __len__(self) -> int:
        return len(self._sessions) + len(self._refused)

    def has(self, run: Run, *, hasty: bool) -> bool:
        return (run, hasty) in self._sessions

    def _last(self) -> list[OwnSession]:
        """All; no more are made. Waits for nobody who is making one."""
        with self._lock:
            self._ended = True
            self._packed.clear()
            return [*self._sessions.values(), *self._refused]

    def _leave_alone(self, key: tuple[Run, bool]) -> None:
        self._left_alone[key] = None
        if len(self._left_alone) > LEFT_ALONE_MAX:
            del self._left_alone[next(iter(self._left_alone))]

    def _make(self, run: Run, hasty: bool, packs: bool) -> OwnSession | None:
        if self._ended or sum(kind == hasty for _, kind in list(self._sessions)) >= OWN_MAX:
            return None
        try:
            own = self._maker.in_haste(run, packs) if hasty else self._settled(run)
            if own is None:
                return None
            with self._lock:
                if own.report is not None and (self.report is None or own.report.changed > self.report.changed):
                    self.report = own.report
            made = own
            graph = at_usual_priority(lambda: self._graph(run, made, hasty))
        except Exception:  # a mistake of ours: the step can be made all the same
            log.exception("a run has no session of its own")
            return None
        return OwnSession(self._target, graph=graph, config=self._quick if hasty else self._config)

    def _graph(self, run: Run, own: Own, hasty: bool) -> tf.Graph:
        if hasty and own.report is not None and own.report.changed:
            self._packed[run] = own.definition.SerializeToString(), own.report
        with self._seeding:
            seed_apart(own.definition, self._drawn, self._earlier)
        graph = tf.Graph()
        import_definition(graph, own.definition)
        return graph

    def _settled(self, run: Run) -> Own | None:
        if run in self._packed:  # it takes as long as all the rest
            text, report = self._packed.pop(run)
            return Own(v1.GraphDef.FromString(text), report)
        return self._maker.settled(self._definition, run)

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
