"""One private copy of a user's graph, placed on one cluster view: a session and its compiled callables.

The copy never becomes Python operations: the rewritten GraphDef goes straight into a C graph, and everything is
addressed by name. So preparing the next session costs the training thread next to nothing, and no garbage collection.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

from deeprec_ext.elastic.agent.background import at_usual_priority, without_collections
from deeprec_ext.elastic.runtime.trimming import trim_later
from deeprec_ext.elastic.session.making import RunMaker
from deeprec_ext.elastic.session.packed import GONE, OwnRuns, PackedRunError, is_ours
from deeprec_ext.elastic.session.probe import Probe
from deeprec_ext.graph import Report, Run
from deeprec_ext.tf_private.c_graph import import_definition
from deeprec_ext.tf_private.sessions import Compiled, OwnSession, add_python_operations

v1 = tf.compat.v1
log = logging.getLogger("deeprec_ext")

CALLABLES_MAX = 128
"""Compiled signatures kept per session: a script that makes new fetches for ever must not fill the memory."""

RETIRE_LIMIT_SECONDS = 5.0
"""How long the runs of an exchanged session may take to end before it is closed or left behind."""

EACH_SECONDS = 0.2
"""So much longer for each session of a run."""

PROBE_LIMIT_SECONDS = 5.0
"""How long the end of a probe waits for the runs under way, and the end of its session for it."""


class Signature(NamedTuple):
    """What one run feeds and asks for, by name."""

    feeds: tuple[str, ...]
    fetches: tuple[str, ...]
    targets: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Every node that the run has to reach."""
        return (*(fetch.split(":")[0] for fetch in self.fetches), *self.targets)


class Copy(Protocol):
    """A rewritten copy of the user's graph: `Rewritten`, or one that is made when it is asked for."""

    @property
    def definition(self) -> v1.GraphDef: ...
    @property
    def drops(self) -> list[str]: ...
    @property
    def initializers(self) -> list[str]: ...
    @property
    def marks(self) -> dict[str, list[str]]: ...
    @property
    def reports(self) -> list[Report]: ...


class ExchangedError(Exception):
    """The run came too late: the session has been exchanged. Nothing was run; it belongs into the present one."""


class PlacedSession:
    """A session on a rewritten graph, and those of runs that have one of their own.

    The graph is made and imported when the first run needs it that has none.

    Args:
      key: what it was made for (placement, marks, version of the user's graph); compared, never interpreted.
      rewritten: result of the graph passes.
      target, config: as for `tf.compat.v1.Session`.
      left_behind: set when the session is forgotten instead of closed: its kernels then hold the iterators for ever.
      quick: the runs that have no session of their own are compiled without TensorFlow's graph optimiser.
      maker: makes the graphs of such as have; None: none has.
      later: by `pack`, what is compiled in haste, or as it is, meanwhile; else at once.
      often: whether a run is made in every step: only such are packed in haste.
    """

    def __init__(
        self, key: object, rewritten: Copy, target: str, config: v1.ConfigProto, left_behind: threading.Event,
        *, quick: bool = False, maker: RunMaker | None = None, later: bool = False,
        often: Callable[[Signature], bool] = lambda signature: True,
    ) -> None:  # fmt: skip
        self.key, self.quick, self._rewritten = key, quick, rewritten
        self._later, self._maker, self._often = later, maker, often
        self._looked_at: set[Signature] = set()  # whether they are to be packed
        self.is_unpacked = later and maker is not None
        """None of its runs has been looked at to the end."""
        self._left_behind = left_behind
        self.probe: Probe | None = None  # traces a step now and then
        self._probes = True  # it may get one
        self._ending: threading.Thread | None = None  # closes the probe
        self.late = 0  # runs that were compiled when they were to be made, not in advance
        self.compile_seconds = 0.0  # the longest that compiling a run took
        self.pinned = False  # an iterator was initialised here: closing it would be a segmentation fault
        self.closed = False
        self.opened = False  # the session of the whole graph, on the PS that it names
        self._wrapped = False
        self._running = 0
        self._shut = False  # no run begins any more
        self._lock, self._importing = threading.Lock(), threading.Lock()
        self._callables: OrderedDict[Signature, Compiled] = OrderedDict()
        self._graph = tf.Graph()
        self._imported = False
        self._session = OwnSession(target, graph=self._graph, config=_quick(config) if quick else config)
        self._own = (
            OwnRuns(lambda: rewritten.definition, target, config, _without_optimiser(config), maker, int(later))
            if maker is not None
            else None
        )

    @property
    def drops(self) -> list[str]:
        return self._rewritten.drops

    @property
    def initializers(self) -> list[str]:
        return self._rewritten.initializers

    @property
    def reports(self) -> list[Report]:
        """Of the passes that made it, of the optimiser, and of packing once a run was packed, or was not worth it."""
        optimiser = self._maker.report if self._maker is not None else None
        packed = self._own.report if self._own is not None else None
        return [*self._rewritten.reports, *(one for one in (optimiser, packed) if one is not None)]

    @property
    def optimise_seconds(self) -> float:
        """What TensorFlow's optimiser took for the largest run, once for all sessions: not in `compile_seconds`."""
        optimiser = self._maker.report if self._maker is not None else None
        return optimiser.seconds if optimiser is not None else 0.0

    def callable(self, signature: Signature) -> Compiled:
        """The compiled run: placed, optimised, partitioned and registered, but not run."""
        with self._lock:
            found = self._callables.get(signature)
            if found is not None:
                self._callables.move_to_end(signature)
                return found
        began = time.monotonic()
        made = self._compile(signature, self._options(signature))
        with self._lock:
            self.compile_seconds = max(self.compile_seconds, time.monotonic() - began)
            self._callables[signature] = made
            one_too_many = self._callables.popitem(last=False)[1] if len(self._callables) > CALLABLES_MAX else None
        if one_too_many is not None:
            one_too_many.release()
        return made

    def _options(self, signature: Signature) -> Any:
        return config_pb2.CallableOptions(
            feed=signature.feeds, fetch=signature.fetches, target=[*signature.targets, *self.marks_of(signature)]
        )

    def _compile(self, signature: Signature, options: Any) -> Compiled:
        made = (
            self._compile_own(signature, options, hasty=self._is_hasty(signature)) if self._has_own(signature) else None
        )
        if made is not None:
            return made
        self._open()
        return self._session.compile(options)

    def _has_own(self, signature: Signature) -> bool:
        """Whether it is to be compiled in a session of its own, so far."""
        return self._own is not None and (
            not self._later or self.is_packed(signature) or self._is_hasty(signature)
        )  # fmt: skip

    def _is_hasty(self, signature: Signature) -> bool:
        return (
            self._later and not self.is_packed(signature)
            and self._maker is not None and self._maker.is_ready(self.run_of(signature))
        )  # fmt: skip

    def _compile_own(self, signature: Signature, options: Any, *, hasty: bool) -> Compiled | None:
        """None: it is run with the others."""
        run = self.run_of(signature)
        if self._own is None:
            return None
        session = self._own.session(run, hasty=hasty, packs=not hasty or self._often(signature))
        if session is None:
            return None
        try:
            return session.compile(options)
        except GONE:
            raise
        except tf.errors.OpError as error:
            log.warning("a run has no session of its own, since TensorFlow does not compile it: %s", str(error)[:500])
            self._own.refuse(run)
            return None

    def learn(self, signatures: Iterable[Signature]) -> None:
        """Has the runs optimised, once for all views, so that they can be compiled in haste. Slow the first time."""
        if self._maker is not None:
            self._maker.learn(map(self.run_of, signatures))

    def is_to_learn(self, signature: Signature) -> bool:
        return self._maker is not None and self._maker.is_to_learn(self.run_of(signature))

    def is_to_be_packed(self, signature: Signature) -> bool:
        """Whether `pack` may have it run in a better way."""
        return (
            self._later and self._own is not None and signature in self._callables and signature not in self._looked_at
        )

    def pack(self, signature: Signature) -> None:
        """Compiles it once more, packed where that pays, and has it run so from then on. Slow; runs nothing.

        What it was compiled to before ends with the session: a run may be about to begin in it.
        """
        self._looked_at.add(signature)
        try:
            self.learn([signature])
            made = self._compile_own(signature, self._options(signature), hasty=False)
        except GONE as error:  # with its PS, and soon another session has its place
            log.debug("packing a run: %s", error)
            return
        finally:
            self.is_unpacked = False
        with self._lock:
            if made is None or self._shut or signature not in self._callables:
                return
            self._callables[signature] = made
            self._trace_no_more(signature)
        report = self._own.report if self._own is not None else None
        log.info("what crosses in a step is packed from now on: %s", report.detail if report is not None else "")

    def run_of(self, signature: Signature) -> Run:
        """With the marks that belong to it."""
        return Run(signature.feeds, signature.fetches, (*signature.targets, *self.marks_of(signature)))

    def is_packed(self, signature: Signature) -> bool:
        """Whether it has a session of its own, made with the time that it takes."""
        return self._own is not None and self._own.has(self.run_of(signature), hasty=False)

    def is_optimised(self, signature: Signature) -> bool:
        """Whether TensorFlow's optimiser has seen the run."""
        hasty = self._own is not None and self._own.has(self.run_of(signature), hasty=True)
        return not self.quick or hasty or self.is_packed(signature)

    @property
    def usable(self) -> bool:
        """Whether some run is compiled; the first is the one that costs most."""
        return bool(self._callables)

    def is_compiled(self, signature: Signature) -> bool:
        return signature in self._callables

    def open(self, signature: Signature | None = None) -> None:
        """What the run needs, or the session of the whole graph. TensorFlow does that at the first use, on all PS that the
        session names: for ever, where one of them dies then."""
        with self._lock:
            if self._shut:
                raise ExchangedError
            self._running += 1
        try:
            if signature is not None and self._has_own(signature):
                self.callable(signature)
            else:
                self._open()
        finally:
            with self._lock:
                self._running -= 1

    def is_open(self, signature: Signature | None = None) -> bool:
        """Whether the run opens no session on PS, as far as is known; None: any run."""
        if signature is None:
            return self.opened
        return signature in self._callables or (self.opened and not self._has_own(signature))

    def _open(self) -> None:
        """The session of the whole graph."""
        self._import()
        self._session.open()
        self.opened = True

    def _import(self) -> None:
        with self._importing:
            if not self._imported:
                with without_collections():
                    at_usual_priority(lambda: import_definition(self._graph, self._rewritten.definition))
                self._imported = True

    def run(self, signature: Signature, values: Sequence[Any]) -> list[Any]:
        with self._lock:  # before it is compiled: that takes long enough to be closed meanwhile
            if self._shut:
                raise ExchangedError
            self._running += 1
        made = None
        try:
            made = self.callable(signature)
            probe = self.probe
            if probe is not None and probe.armed and signature == probe.signature:
                return probe.run(made, values)
            return made(*values) or []
        except tf.errors.OpError as error:
            if made is None or made.session is self._session or not is_ours(error):
                raise
            self._unpack(signature, error)
            raise PackedRunError(None, None, error.message) from error
        finally:
            with self._lock:
                self._running -= 1

    def _unpack(self, signature: Signature, error: tf.errors.OpError) -> None:
        """It is compiled again as it is, and no more traced."""
        log.warning("a run is not packed any more, since it failed in what packs it: %s", str(error)[:500])
        assert self._own is not None
        self._own.refuse(self.run_of(signature))
        with self._lock:
            self._callables.pop(signature, None)
            self._trace_no_more(signature)

    def _trace_no_more(self, signature: Signature) -> None:
        """What would be traced is no longer what is run."""
        if self.probe is not None and self.probe.signature == signature:
            self.probe.armed, self.probe.broken = False, True

    def attach(self, probe: Probe) -> bool:
        """Whether the session takes it; it does not when its end has begun."""
        with self._lock:
            if self._probes:
                self.probe = probe
            return self._probes

    def _detach(self) -> Probe | None:
        """The probe, if there is one; there will be no other."""
        with self._lock:
            self._probes = False
            probe, self.probe = self.probe, None
            return probe

    def end_probe(self) -> None:
        """Closes the probe once no run is under way, in a thread. For a session that will not be run again."""
        probe = self._detach()

        def work(one: Probe) -> None:
            if not self.wait_idle(PROBE_LIMIT_SECONDS) or not one.close():
                self._left_behind.set()  # its kernels hold the iterators

        if probe is not None:
            self._ending = threading.Thread(target=work, args=(probe,), name="deeprec-close", daemon=True)
            self._ending.start()

    def wait_idle(self, timeout_seconds: float, *, shut: bool = False) -> bool:
        """Whether, within the time, no run is under way in this session any more. `shut`: then none begins any more."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            with self._lock:
                if self._running == 0:
                    self._shut = self._shut or shut
                    return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.005)

    def traced(self, signature: Signature, values: Sequence[Any], options: Any, metadata: Any) -> list[Any]:
        """A run with RunOptions and RunMetadata, which callables do not give; needs the nodes as Python operations."""
        self._open()
        with self._lock:
            if not self._wrapped:
                add_python_operations(self._graph)
                self._wrapped = True
        wanted = [*signature.fetches, *signature.targets, *self.marks_of(signature)]
        results = self._session.run(wanted, dict(zip(signature.feeds, values)), options, metadata)
        return results[: len(signature.fetches)]

    def marks_of(self, signature: Signature) -> list[str]:
        """The marks of writes that are run or fetched directly: they have no consumer that would wait for them."""
        marks = self._rewritten.marks
        return [mark for name in signature.names for mark in marks.get(name, ())] if marks else []

    def close(self, timeout_seconds: float = 2.0) -> bool:
        """Closes the session in a thread of its own, since that blocks where a PS is gone; then the session is left behind.

        Returns whether it ended in time.
        """
        with self._lock:
            if self.closed:
                return True
            self.closed = True
        session = self._session
        self.end_probe()

        def work() -> None:
            try:
                if self._ending is not None:  # first: its kernels may hold an iterator of this session
                    self._ending.join(PROBE_LIMIT_SECONDS)
                    if self.pinned and (self._left_behind.is_set() or self._ending.is_alive()):
                        self.leak()
                        return
                with self._lock:
                    self._callables.clear()
                if self._own is not None:
                    self._own.close()  # first: their kernels may hold an iterator of the other
                session.close()
            except tf.errors.OpError as error:
                log.debug("closing a session: %s", error)

        thread = threading.Thread(target=work, name="deeprec-close", daemon=True)
        thread.start()
        thread.join(timeout_seconds + (EACH_SECONDS * len(self._own) if self._own is not None else 0.0))
        if thread.is_alive():
            log.info(
                "closing a session that nobody uses any more takes more than %.0f s (a PS of it does not answer, or its input "
                "does not end): it is left behind, and training goes on", timeout_seconds
            )  # fmt: skip
            self.leak()
            return False
        return True

    def leak(self) -> None:
        """Forgets the C session without deleting it: deleting would block (dead PS) or crash (live iterators).

        A thread that hangs in it, or still compiles for it, may come back and run: it must find a session.
        """
        self.closed = self._shut = True
        self._left_behind.set()
        self._detach()
        self._session.leave_behind()
        if self._own is not None:
            self._own.leave_behind()
        with self._lock:
            self._callables.clear()


def _quick(given: v1.ConfigProto) -> v1.ConfigProto:
    """Compiling takes a third of the processor time then or less, and steps up to 1.5 times as much."""
    config = _without_optimiser(given)
    config.graph_options.optimizer_options.opt_level = v1.OptimizerOptions.L0
    return config


def _without_optimiser(given: v1.ConfigProto) -> v1.ConfigProto:
    config = v1.ConfigProto()
    config.CopyFrom(given)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return config


def retire(sessions: Sequence[PlacedSession]) -> None:
    """Closes sessions that were exchanged, once the runs in them have ended."""
    for placed in sessions:
        if placed.pinned:
            placed.leak()
        elif not placed.wait_idle(RETIRE_LIMIT_SECONDS, shut=True):
            log.info(
                "a run went on for %.0f s in a session that was exchanged; it is left behind", RETIRE_LIMIT_SECONDS
            )
            placed.leak()
        else:
            placed.close()
    if sessions:
        trim_later()  # a session is tens of megabytes in thousands of pieces, and later ones would not fit into the holes
