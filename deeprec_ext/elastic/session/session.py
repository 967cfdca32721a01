"""ElasticSession: a `tf.compat.v1.Session` that runs a private, placed copy of the user's graph.

The user's graph stays on slots and is never changed. Each run passes the gate, goes to the session that was placed on the
present cluster view, and, when the view changed or a PS was lost meanwhile, waits for the next view and is run again.
Flattening, feeding and error texts are the base class's; only the last step, `run_names`, is ours.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from deeprec_ext import graph as passes
from deeprec_ext.elastic.agent.causes import COMPILING, INPUT, SAVING, STEP, causes
from deeprec_ext.elastic.session.feeding import Feeding, Run
from deeprec_ext.elastic.session.host import SessionHost, Wanted
from deeprec_ext.elastic.session.iterators import Iterators
from deeprec_ext.elastic.session.overwriting import restrained
from deeprec_ext.elastic.session.packed import PackedRunError
from deeprec_ext.elastic.session.placed import ExchangedError, PlacedSession, Signature
from deeprec_ext.elastic.session.pool import SessionPool
from deeprec_ext.elastic.session.probe import TraceFailedError
from deeprec_ext.elastic.session.runner import AbandonedError
from deeprec_ext.elastic.session.usergraph import Exported, Facts, UserGraph
from deeprec_ext.errors import RefusedError
from deeprec_ext.tf_private.sessions import DivertedSession

v1 = tf.compat.v1
log = logging.getLogger("deeprec_ext")

LOST = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError, AbandonedError)
"""What a run ends with when a PS is gone."""

STALE = (tf.errors.FailedPreconditionError, tf.errors.NotFoundError, tf.errors.InvalidArgumentError)
"""What a run ends with when its variables have moved away: never a lost write."""


TWICE = "request was received twice"
"""TensorFlow numbers the requests of a step at random so that none is executed twice, and a worker refuses a number that is
among the last 100 000. Each step runs in a new thread, whose generator is seeded with 32 bits (tensorflow/core/
distributed_runtime/request_id.cc, tsl/platform/random.cc): about once in 43 000 steps two of them have the same number. The PS
that says so has executed nothing then, and the step is run again at once."""

TWICE_MAX = 5
"""One after the other: chance does not do that."""


_AGAIN = object()
"""Instead of a result: the run has to be made again."""


@dataclass
class _Call:
    """A run that the script has asked for, until it has its answer."""

    facts: Facts
    signature: Signature
    values: list[Any]
    options: Any
    metadata: Any
    tracing: bool
    feeding: Run | None = None
    placed: PlacedSession | None = None
    """Where it was tried last, and for what that was made."""
    made_for: Wanted | None = None
    followed: tuple[type[Exception], ...] = ()
    """Errors that may come of the view, while it is where it reaches PS; others are the script's."""
    refused: int = 0


def _partitioning(host: SessionHost) -> passes.Partitioning:
    """No method of the session: what it is made of must not hold it, or it is not dropped when its script drops it."""
    context = host.wanted().context
    return passes.Partitioning(
        len(context.slot_map or ()), context.cut, passes.told_cuts(context.cut_by_chief), context.cut_before
    )  # fmt: skip


def _is_lazy(host: SessionHost) -> bool:
    return host.wanted().context.lazy == "on"


def _scales(host: SessionHost) -> bool:
    return host.wanted().context.rate not in ("", "none")


def _end_input(pool: SessionPool, feeding: Feeding | None) -> None:
    if feeding is not None:
        feeding.close()  # or an iterator that waits for data could not be destroyed
    pool.drop_iterators()


def _end(pool: SessionPool, feeding: Feeding | None) -> None:
    _end_input(pool, feeding)
    pool.close()


class ElasticSession(DivertedSession):
    """See the module. `host` None: a session on the spot (evaluation, prediction), without a cluster.

    Raises RefusedError, at the first run, for graphs that cannot be elastic.
    """

    _dropped = False  # its finaliser runs

    def __init__(
        self, target: str = "", graph: Any = None, config: Any = None, host: SessionHost | None = None
    ) -> None:
        super().__init__(host.wanted().target if host else target, graph, config)
        self._host = host
        self._generation = host.generation if host is not None else 0
        if host is not None:
            asked = partial(_partitioning, host), partial(_is_lazy, host), partial(_scales, host)
            self._user = UserGraph(self.graph, host.refused, host.names, *asked)
        else:
            self._user = UserGraph(self.graph)
        self.pool = SessionPool(self._user, host, config)
        self._iterators = Iterators()
        self._declared: Exported | None = None
        self._ordered = False  # what is run overwrites by order
        self._feeding = Feeding(host.inputs) if host is not None else None
        if host is not None:
            host.opened(self)

    # -- the session's interface

    def initialise(self, variables: Iterable[Any]) -> None:
        """By order: also in a model that lives."""
        self._ordered = True
        try:
            self.run([variable.initializer for variable in variables])
        finally:
            self._ordered = False

    def make_callable(self, fetches: Any, feed_list: Any = None, accept_options: bool = False) -> Callable[..., Any]:
        del accept_options
        feeds = list(feed_list or ())
        return lambda *values, **keywords: self.run(fetches, dict(zip(feeds, values)), **keywords)

    def partial_run_setup(self, *_: Any, **__: Any) -> Any:
        raise RefusedError(
            "partial_run is not elastic: a run that is half done cannot be moved; use run or make_callable"
        )

    def close(self) -> None:
        """Destroys the named iterators, then closes; never blocks for long, whatever became of the PS."""
        if self.closed:
            return
        if self._dropped:
            super().close()  # of its own C session, in which nothing ever runs
            return
        _end_input(self.pool, self._feeding)
        super().close()
        if self._host is not None:
            self._host.closed(self)
        self.pool.close()

    def __del__(self) -> None:
        """Whoever drops a session without closing it may be any thread at any moment, the interpreter's last one too: nothing
        is started and nobody waited for here. What is to be closed goes to the process, which does it beside training."""
        pool, host = getattr(self, "pool", None), getattr(self, "_host", None)
        if host is not None and pool is not None and not self.closed:
            host.dropped(partial(_end, pool, self._feeding))
        self._dropped = True
        super().__del__()

    # -- running

    def run_names(
        self, feeds: dict[str, Any], targets: tuple[str, ...], fetches: tuple[str, ...], options: Any, metadata: Any
    ) -> Any:
        signature, values = Signature(tuple(feeds), fetches, targets), list(feeds.values())
        # MonitoredSession passes empty RunOptions and a RunMetadata to every run; only real options are worth a slow run.
        tracing = options is not None and options.ByteSize() > 0
        if self._host is None:
            call = _Call(Facts(False, False, 0), signature, values, options, metadata, tracing)
            return self._execute(call, self.pool.current(), None)
        facts = self._user.facts_of(signature)
        if facts.overwrites is not None and not self._ordered and self._host.model_lives:
            self._check_generation()
            left = restrained(facts.overwrites, signature, self._user, self._host, self._ask)
            if not left.fetches and not left.targets:
                return []
            given = dict(zip(signature.feeds, values))
            signature, values, facts = left, [given[feed] for feed in left.feeds], self._user.facts_of(left)
        if facts.remote:
            self._declare()
        with causes.during(SAVING if facts.saves else STEP):
            return self._run_placed(facts, signature, values, options, metadata, tracing)

    def _run_placed(
        self, facts: Facts, signature: Signature, values: list[Any], options: Any, run_metadata: Any, tracing: bool
    ) -> Any:
        """A run in the session of the present view, and again where the view changes under it."""
        if facts.records:
            signature = signature._replace(fetches=(*signature.fetches, *(tensor for _, tensor in facts.records)))
        if facts.rate and self._host is not None:
            signature = signature._replace(feeds=(*signature.feeds, facts.rate))
            values = [*values, np.array(self._host.rate(), np.float32)]
        self._user.count(signature)
        call = _Call(facts, signature, values, options, run_metadata, tracing)
        if self._feeding is not None and (facts.pulls or facts.makes):
            call.feeding = self._feeding.run(facts.pulls, facts.makes, facts.records, signature, values)
        while True:
            self._check_generation()
            if call.feeding is not None:
                with causes.during(INPUT):
                    call.feeding.wait(self._check_open)  # for the next batch; never inside the run
            call.followed = ()
            try:
                result = self._run_on_ps(call) if facts.remote else self._run_here(call)
            except (ExchangedError, tf.errors.OutOfRangeError, *LOST, *STALE) as error:
                if not self._made_again(call, error):
                    raise
                continue
            if result is not _AGAIN:
                return result

    def _run_on_ps(self, call: _Call) -> Any:
        assert self._host is not None
        with self._host.gate.passing():
            if call.feeding is not None and not call.feeding.valid:
                return _AGAIN
            placed, made_for = self._take_present(call)
            assert made_for is not None
            gone = partial(self._host.dead, made_for)
            call.followed = (*LOST, *STALE)
            try:
                self._open(placed, call, gone)
                self._before(placed, call)
                result = self._execute(call, placed, gone)
                self._iterators.trust(call.facts)
                self._host.ran(call.signature.fetches, result)
                return result
            except (tf.errors.OutOfRangeError, *LOST, *STALE) as error:
                if not self._iterators.interrupted(call.facts, error):
                    raise
                if not placed.is_open():
                    self._host.runner.call(placed.open, hopeless=gone)
                call.followed = ()
                self._iterators.start_again(placed, call.facts)
                return _AGAIN

    def _run_here(self, call: _Call) -> Any:
        """It reaches no PS; its session names some, and has to be opened on them."""
        assert self._host is not None
        placed, made_for = self._take_present(call)
        if made_for is not None and not self._is_open(placed, call):
            with self._host.gate.passing():
                call.followed = LOST
                self._open(placed, call, partial(self._host.dead, made_for))
                call.followed = ()
        self._before(placed, call)
        return self._execute(call, placed, None)

    def _take_present(self, call: _Call) -> tuple[PlacedSession, Wanted | None]:
        call.placed = self.pool.current()
        call.made_for = self.pool.made_for
        return call.placed, call.made_for

    # -- what follows when a run has failed

    def _made_again(self, call: _Call, error: Exception) -> bool:
        """Whether the run is to be made again; else the error is the script's. It is not raised here: an error for which a
        frame of its own traceback has a name lives until the next garbage collection, and the session with it."""
        if not isinstance(error, (ExchangedError, tf.errors.OutOfRangeError, *call.followed)):
            return False
        return any(isinstance(error, errors) and again(self, call, error) for errors, again in self._OUTCOMES)

    def _exchanged(self, call: _Call, error: Exception) -> bool:
        if self.closed or call.placed is self.pool.present:
            raise tf.errors.CancelledError(None, None, "Session has been closed.") from None
        return True

    def _data_goes_on(self, call: _Call, error: Exception) -> bool:
        return call.feeding is not None and call.feeding.goes_on

    def _refused_by_number(self, call: _Call, error: Exception) -> bool:
        if TWICE not in str(error) or call.refused >= TWICE_MAX:
            return False
        call.refused += 1
        log.info("TensorFlow refused a step by the number of its request; it is run again")
        self._iterators.suspect(call.facts)
        return True

    def _failed_beside(self, call: _Call, error: Exception) -> bool:
        """The ordinary way tells whether a PS is gone."""
        log.info("a traced or packed step failed (%s); it is run again as it is", str(error)[:200])
        self._iterators.suspect(call.facts)
        return True

    def _another_view(self, call: _Call, error: Exception) -> bool:
        assert self._host is not None and call.made_for is not None
        self._iterators.suspect(call.facts)
        if not self.closed and self._host.next_view(error, call.made_for):
            log.info("a step is run again in another view, after %s: %s", type(error).__name__, str(error)[:200])
            return True
        if isinstance(error, AbandonedError):
            raise tf.errors.AbortedError(None, None, str(error)) from None
        return False

    _OUTCOMES = (
        ((ExchangedError,), _exchanged),
        ((tf.errors.OutOfRangeError,), _data_goes_on),
        ((tf.errors.AbortedError,), _refused_by_number),
        ((TraceFailedError, PackedRunError), _failed_beside),
        ((*LOST, *STALE), _another_view),
    )
    """What a run ended with, and whether it is made again, asked in this order."""

    def _ask(self, tensors: Sequence[str]) -> Any:
        """Their values."""
        signature = Signature((), tuple(tensors), ())
        return self._run_placed(self._user.facts_of(signature), signature, [], None, None, False)

    def _is_open(self, placed: PlacedSession, call: _Call) -> bool:
        """Whether what the run and what comes before it need is: iterators are started, and steps profiled, in the session of
        the whole graph."""
        restarts = call.feeding is not None and call.feeding.restarts
        whole = call.tracing or restarts or self._iterators.starts(placed, call.facts)
        return placed.is_open(call.signature) and (not whole or placed.is_open())

    def _open(self, placed: PlacedSession, call: _Call, gone: Callable[[], bool]) -> None:
        """Calls of their own, that can be given up, before anything is run in the session by this thread itself."""
        if self._host is None or self._is_open(placed, call):
            return
        if not placed.is_open(call.signature):
            self._host.runner.call(placed.open, call.signature, hopeless=gone)
        if not self._is_open(placed, call):
            self._host.runner.call(placed.open, hopeless=gone)

    def _declare(self) -> None:
        """Before any run can make a variable on a PS the AIMaster is told of it: a change would not move it else."""
        known = self._user.known
        if known is not None and known is not self._declared and self._host is not None:
            self._host.declare(self._user.declared(known))
            self._declared = known

    def _execute(self, call: _Call, placed: PlacedSession, gone: Callable[[], bool] | None) -> Any:
        """`gone`: of a run on PS, whether one that it needs is; such a run can be given up."""
        function: Callable[..., Any]
        arguments: tuple[Any, ...]
        if call.tracing:
            function, arguments = placed.traced, (call.signature, call.values, call.options, call.metadata)
        else:
            function, arguments = placed.run, (call.signature, call.values)
        compiles = not call.tracing and not placed.is_compiled(call.signature)
        placed.late += compiles
        if gone is not None and self._host is not None:
            runner = partial(self._host.runner.call, hopeless=gone)
            function, arguments = _abandonable, (runner, placed if compiles else None, function, *arguments)
        if call.feeding is None:
            return self.with_messages(function, *arguments)
        with call.feeding:
            return call.feeding.without_records(self.with_messages(function, *arguments))

    def _check_open(self) -> None:
        """While a run waits for data: another thread may close the session, or a PS with its variables be lost."""
        if self.closed:
            raise tf.errors.CancelledError(None, None, "Session has been closed.")
        self._check_generation()

    def _check_generation(self) -> None:
        if self._host is not None and self._generation != self._host.generation:
            raise tf.errors.AbortedError(None, None, "variables were lost with a PS: the session has to be recovered")

    def _before(self, placed: PlacedSession, call: _Call) -> None:
        """Iterators live in the devices of the session that initialises them: that session is kept until the end."""
        known = self._user.known
        if call.feeding is not None:
            call.feeding.restart(placed, known.feeds if known is not None else {})
        self._iterators.before(placed, call.facts, call.signature, call.values)

    # -- called by the agent's threads, while training goes on

    def cut(self) -> Iterable[str]:
        """The variables that were cut over slots, as `told_cuts` reads them."""
        return passes.tell_cuts(self._user.known.cuts) if self._user.known is not None else ()

    def on_ps(self, operation: tf.Operation) -> tuple[str, ...]:
        """Under which names a variable of the user's graph lies on PS; none: it does not."""
        return self._user.on_ps(operation)

    def catalogue(self) -> Any:
        """The variable catalogue of the graph, from what the training loop runs; None before it has made steps."""
        return self._user.catalogue()

    def trains(self) -> tuple[passes.GraphIndex, set[str]] | None:
        """The user's graph and the names of what the training loop runs of it; None before it has made steps."""
        return self._user.trains()

    def batch_size(self) -> int:
        """Records per step, 0 if unknown."""
        return passes.batch_size(self._user.exported().definition)

    def reports(self) -> list[passes.Report]:
        """Of the passes that made the present session."""
        return self.pool.present.reports if self.pool.present is not None else []


def _abandonable(
    call: Callable[..., Any],
    to_compile: PlacedSession | None,
    function: Callable[..., Any],
    signature: Signature,
    *arguments: Any,
) -> Any:
    """A run that can be given up. Compiling it first is a call of its own: who is given up while it compiles, which takes
    seconds, must not run after all. It would take a batch from the run that is repeated.
    """
    if to_compile is not None:
        with causes.during(COMPILING):
            call(to_compile.callable, signature)
    return call(function, signature, *arguments)
