"""ElasticSession: a `tf.compat.v1.Session` that runs a private, placed copy of the user's graph.

The user's graph stays on slots and is never changed. Each run passes the gate, goes to the session that was placed on the
present cluster view, and, when the view changed or a PS was lost meanwhile, waits for the next view and is run again.
Flattening, feeding and error texts are the base class's; only the last step, `_do_run`, is ours.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from deeprec_ext import graph as passes
from deeprec_ext.elastic.background import GivenUpError, politely, without_collections
from deeprec_ext.elastic.feeding import Feeding, Run
from deeprec_ext.elastic.home import Home, Wanted
from deeprec_ext.elastic.iterators import Iterators
from deeprec_ext.elastic.placed import ExchangedError, Placed, Signature
from deeprec_ext.elastic.probe import PLAIN, TraceFailedError
from deeprec_ext.elastic.runner import AbandonedError, Runner
from deeprec_ext.elastic.tracing import Traceable
from deeprec_ext.elastic.usergraph import Exported, Facts, UserGraph
from deeprec_ext.errors import RefusedError

v1 = tf.compat.v1
log = logging.getLogger("deeprec_ext")

SIGNATURES_MAX = 256
"""Signatures remembered, least recently used first to go."""

RECURRING = 2
"""A signature used so often is a step (or belongs to one) and is compiled in advance; initialisers are run once."""

LOST = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError, AbandonedError)
"""What a run ends with when a PS is gone."""

STALE = (tf.errors.FailedPreconditionError, tf.errors.NotFoundError, tf.errors.InvalidArgumentError)
"""What a run ends with when its variables have moved away: never a lost write."""


_numbers = itertools.count()

TWICE = "request was received twice"
"""TensorFlow numbers the requests of a step at random so that none is executed twice, and a worker refuses a number that is
among the last 100 000. Each step runs in a new thread, whose generator is seeded with 32 bits (tensorflow/core/
distributed_runtime/request_id.cc, tsl/platform/random.cc): about once in 43 000 steps two of them have the same number. The PS
that says so has executed nothing then, and the step is run again at once."""

TWICE_MAX = 5
"""One after the other: chance does not do that."""

DROP_SECONDS, DROP_PATIENCE_SECONDS = 2.0, 20.0
"""How long closing waits until iterators are gone: where the session names a dead PS, which may keep it for ever, and where it
does not. Then the only reason is a busy machine, and giving up costs a crash: an iterator that outlives its session."""


class ElasticSession(v1.Session):
    """See the module. `home` None: a session on the spot (evaluation, prediction), without a cluster.

    Raises RefusedError, at the first run, for graphs that cannot be elastic.
    """

    def __init__(self, target: str = "", graph: Any = None, config: Any = None, home: Home | None = None) -> None:
        super().__init__("", graph, config)
        self._home = home
        self._target = (home.wanted().target if home else target).encode()
        self._given = config
        self._placed: Placed | None = None
        self._made_for: Wanted | None = None
        self._made_version = -1
        self._generation = home.generation if home is not None else 0
        self._prepared: dict[object, Placed] = {}
        self._standby: dict[object, Placed] = {}  # for views that come only when a PS dies
        self._kept: list[Placed] = []  # sessions in which an iterator was initialised
        self._left_behind = threading.Event()  # some session could not be closed
        self._user = UserGraph(self.graph, home.refused if home is not None else None)
        self._iterators = Iterators()
        self._uses: OrderedDict[Signature, int] = OrderedDict()
        self._building = threading.RLock()
        self._swaps = 0
        self._feeding = Feeding(home.inputs) if home is not None else None
        self._scope = f"deeprec_ext/{next(_numbers)}/"  # two graphs of a process may call their iterators alike
        if home is not None:
            home.opened(self)

    # -- the session's interface

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        return self._run(None, fetches, feed_dict, options, run_metadata)

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
        if self._closed:
            return
        placed = self._placed
        if self._feeding is not None:
            self._feeding.close()  # or an iterator that waits for data could not be destroyed
        if placed is not None and placed.drops and self._home is not None:
            self._drop_iterators(placed)
        super().close()
        if self._home is not None:
            self._home.closed(self)
        if placed is not None and placed.pinned:
            self._kept.append(placed)
            placed = None
        for one in [*self.drop_prepared(), *self.drop_standby(()), *([placed] if placed is not None else [])]:
            one.close()
        # An iterator holds the devices of the session that started it, and the kernels of every session hold the iterator:
        # that session goes last. Of two such sessions (one started the input again) neither can, or the process crashes.
        stay = self._left_behind.is_set() or len(self._kept) > 1
        for one in self._kept:
            if stay:
                one.leak()
            else:
                one.close()
        self._kept.clear()

    def _drop_iterators(self, placed: Placed) -> None:
        """An iterator that is still there when its session is closed crashes the process later."""
        done = threading.Event()

        def work() -> None:
            for drop in placed.drops:
                if placed.closed:
                    return  # left behind meanwhile: there is no session any more
                try:
                    placed.run(Signature((), (), (drop,)), ())
                except (tf.errors.OpError, ExchangedError) as error:
                    log.debug("dropping an iterator: %s", error)
            done.set()

        threading.Thread(target=work, name="deeprec-drop", daemon=True).start()
        began = time.monotonic()
        while not done.wait(min(DROP_SECONDS, 0.5)):
            waited = time.monotonic() - began
            if waited >= DROP_PATIENCE_SECONDS or (waited >= DROP_SECONDS and self._hopeless()):
                for one in [*self._kept, placed]:
                    one.leak()
                return

    def _hopeless(self) -> bool:
        """Whether the present session names a PS that is gone."""
        return self._home is None or self._made_for is None or self._home.dead(self._made_for)

    # -- running

    def _do_run(
        self, handle: Any, target_list: Any, fetch_list: Any, feed_dict: Any, options: Any, run_metadata: Any
    ) -> Any:
        signature = Signature(
            tuple(reference.deref().name for reference in feed_dict),
            tuple(tensor.name for tensor in fetch_list),
            tuple(operation.name for operation in target_list),
        )
        values = list(feed_dict.values())
        # MonitoredSession passes empty RunOptions and a RunMetadata to every run; only real options are worth a slow run.
        tracing = options is not None and options.ByteSize() > 0
        if self._home is None:
            return self._execute(self._current(), signature, values, options, run_metadata, tracing, None)
        facts = self._user.facts_of(signature)
        if facts.records:
            signature = signature._replace(fetches=(*signature.fetches, *(tensor for _, tensor in facts.records)))
        self._count(signature)
        feeding: Run | None = None
        if self._feeding is not None and (facts.pulls or facts.makes):
            feeding = self._feeding.run(facts.pulls, facts.makes, facts.records, signature, values)
        refused = 0
        while True:
            self._check_generation()
            if feeding is not None:
                feeding.wait(self._check_generation)  # for the next batch; never inside the run
            try:
                if facts.remote:
                    with self._home.gate.passing():
                        if feeding is not None and not feeding.valid:
                            continue
                        placed = self._current()
                        made_for = self._made_for
                        try:
                            self._before(placed, facts, feeding, signature, values)
                            result = self._execute(
                                placed, signature, values, options, run_metadata, tracing, self._home.runner, feeding
                            )
                            self._iterators.trust(facts)
                            self._home.ran(signature.fetches, result)
                            return result
                        except (tf.errors.OutOfRangeError, *LOST, *STALE) as error:
                            if self._iterators.interrupted(facts, error):
                                self._iterators.start_again(placed, facts)
                                continue
                            if isinstance(error, tf.errors.OutOfRangeError):
                                raise
                            if (
                                isinstance(error, tf.errors.AbortedError)
                                and TWICE in str(error)
                                and refused < TWICE_MAX
                            ):
                                refused += 1
                                log.info("TensorFlow refused a step by the number of its request; it is run again")
                                self._iterators.suspect(facts)
                                continue
                            failure: Exception = error
                else:
                    placed, made_for = self._current(), self._made_for
                    self._before(placed, facts, feeding, signature, values)
                    return self._execute(placed, signature, values, options, run_metadata, tracing, None, feeding)
            except tf.errors.OutOfRangeError:
                if feeding is None or not feeding.goes_on:
                    raise
                continue
            except ExchangedError:
                if self._closed or placed is self._placed:
                    raise tf.errors.CancelledError(None, None, "Session has been closed.") from None
                continue
            assert made_for is not None
            self._iterators.suspect(facts)
            if isinstance(failure, TraceFailedError):
                log.info("a traced step failed (%s); it is run again", failure.message[:200])
                continue  # the ordinary way tells whether a PS is gone
            if self._closed or not self._home.next_view(failure, made_for):
                if isinstance(failure, AbandonedError):
                    raise tf.errors.AbortedError(None, None, str(failure))
                raise failure
            log.info("a step is run again in another view, after %s: %s", type(failure).__name__, str(failure)[:200])

    def _execute(
        self, placed: Placed, signature: Signature, values: list[Any], options: Any, metadata: Any, tracing: bool,
        runner: Runner | None, feeding: Run | None = None,
    ) -> Any:  # fmt: skip
        function: Callable[..., Any]
        arguments: tuple[Any, ...]
        if tracing:
            function, arguments = placed.traced, (signature, values, options, metadata)
        else:
            function, arguments = placed.run, (signature, values)
        if runner is not None:
            compiles = not tracing and not placed.is_compiled(signature)
            function, arguments = _abandonable, (runner, placed if compiles else None, function, *arguments)
        if feeding is None:
            return self._do_call(function, *arguments)
        with feeding:
            return feeding.without_records(self._do_call(function, *arguments))

    def _check_generation(self) -> None:
        if self._home is not None and self._generation != self._home.generation:
            raise tf.errors.AbortedError(None, None, "variables were lost with a PS: the session has to be recovered")

    def _before(
        self, placed: Placed, facts: Facts, feeding: Run | None, signature: Signature, values: list[Any]
    ) -> None:
        """Iterators live in the devices of the session that initialises them: that session is kept until the end."""
        known = self._user.known
        if feeding is not None and feeding.restart(placed, known.feeds if known is not None else {}):
            placed.pinned = True
        self._iterators.before(placed, facts, signature, values)

    def _count(self, signature: Signature) -> None:
        with self._building:
            self._uses[signature] = self._uses.get(signature, 0) + 1
            self._uses.move_to_end(signature)
            if len(self._uses) > SIGNATURES_MAX:
                self._uses.popitem(last=False)

    # -- sessions

    def _current(self) -> Placed:
        """The session for the present view; built here and now when nobody prepared it."""
        exported = self._user.exported()
        placed = self._placed
        wanted = self._home.wanted() if self._home is not None else _ON_THE_SPOT
        if placed is not None and (self._made_for is wanted and self._made_version == exported.version):
            return placed
        with self._building:
            placed = self._placed
            if placed is not None and placed.key == (wanted.key, exported.version):
                self._made_for, self._made_version = wanted, exported.version
                return placed
            fresh = self._take_prepared((wanted.key, exported.version))
            if fresh is None:
                started = time.monotonic()
                fresh = self._build(wanted, exported)
                if self._placed is not None:
                    log.info("built a session between two runs, in %.2f s", time.monotonic() - started)
            old = self._install(fresh, wanted)
        if old is not None and self._home is not None:
            self._home.retire([old])
        return fresh

    def _build(self, wanted: Wanted, exported: Exported) -> Placed:
        context = dataclasses.replace(wanted.context, swaps=self._swaps, resource_scope=self._scope)
        with without_collections():
            rewritten = passes.rewrite(exported.definition, context)
            self._swaps += 1
            return Placed(
                (wanted.key, exported.version), rewritten, wanted.target, wanted.config(self._given), self._left_behind
            )

    def _install(self, fresh: Placed, wanted: Wanted) -> Placed | None:
        """Makes `fresh` the session of the next run; returns the one that may be closed now."""
        with self._building:
            old, self._placed, self._made_for = self._placed, fresh, wanted
            self._made_version = self._user.known.version if self._user.known is not None else -1
            if old is not None and old is not fresh and old.pinned:
                old.end_probe()
                self._kept.append(old)
                old = None
            return old if old is not fresh else None

    # -- called by the agent's threads, while training goes on

    def recurring(self) -> list[Signature]:
        """What the training loop runs again and again."""
        with self._building:
            return [signature for signature, count in self._uses.items() if count >= RECURRING]

    def traceable(self) -> Traceable | None:
        """The run that costs most of the recurring ones (ops × uses), and what it takes to compile it once more."""
        with self._building:
            placed, wanted, exported = self._placed, self._made_for, self._user.known
            if placed is None or wanted is None or exported is None or placed.key != (wanted.key, exported.version):
                return None
            known = [(uses * facts.nodes, signature) for signature, uses in self._uses.items()
                     if uses >= RECURRING and (facts := self._user.known_facts(signature)) and facts.remote]  # fmt: skip
            if not known or not self._is_plain(signature := max(known)[1]):
                return None
            context = dataclasses.replace(wanted.context, swaps=self._swaps, resource_scope=self._scope)
            self._swaps += 1
        config = wanted.config(self._given)
        return Traceable(placed, signature, exported.definition, exported.index, context, wanted, config)

    def _is_plain(self, signature: Signature) -> bool:
        """Whether all that is fed and fetched are arrays whichever way they come."""
        tensors = (*signature.feeds, *signature.fetches)
        return all(self.graph.get_tensor_by_name(name).dtype.base_dtype in PLAIN for name in tensors)

    @property
    def placed(self) -> Placed | None:
        """The session of the next run, as far as nothing changes."""
        return self._placed

    def prepare(self, wanted: Wanted, *, standby: bool = False) -> None:
        """Builds the session for another view and compiles the recurring signatures. Slow; runs nothing.

        `standby`: for a view that may never come; kept until `drop_standby`.
        """
        exported = self._user.exported()
        key = (wanted.key, exported.version)
        where = self._standby if standby else self._prepared
        if key not in where:
            fresh, home = self._build(wanted, exported), self._home
            try:
                politely(
                    lambda: [fresh.callable(signature) for signature in self.recurring()],
                    give_up=lambda: home is not None and home.dead(wanted),
                )
            except GivenUpError:
                fresh.leak()
                raise
            where[key] = fresh

    def has_standby(self, wanted: Wanted) -> bool:
        return (wanted.key, self._user.exported().version) in self._standby

    def drop_standby(self, keep: Iterable[Wanted]) -> list[Placed]:
        """Forgets the standby sessions but for these views (and the present graph); to be closed by the caller."""
        with self._building:
            version = self._user.known.version if self._user.known is not None else -1
            kept = {(wanted.key, version) for wanted in keep}
            return [self._standby.pop(key) for key in list(self._standby) if key not in kept]

    def _take_prepared(self, key: object) -> Placed | None:
        found = self._prepared.pop(key, None)
        return found if found is not None else self._standby.pop(key, None)

    def exchange(self, wanted: Wanted) -> list[Placed]:
        """From the next run on, the session that was prepared for `wanted`; if there is none it is built by that run.

        Returns sessions that nobody needs any more; to be closed once no run is under way in them.
        """
        with self._building:
            exported = self._user.known
            fresh = self._take_prepared((wanted.key, exported.version)) if exported is not None else None
            if fresh is None:
                return []
            old = self._install(fresh, wanted)
            return [old] if old is not None else []

    def drop_prepared(self) -> list[Placed]:
        """Forgets what was prepared; to be closed by the caller."""
        with self._building:
            dropped = list(self._prepared.values())
            self._prepared.clear()
            return dropped

    def catalogue(self) -> Any:
        """The variable catalogue of the graph, from what the training loop runs; None before it has made steps."""
        exported, recurring = self._user.known, self.recurring()
        if exported is None or not recurring:
            return None
        names = {name for signature in recurring for name in signature.names}
        return passes.build_catalogue(exported.definition, names, passes.saved_names(self.graph))

    def batch_size(self) -> int:
        """Records per step, 0 if unknown."""
        return passes.batch_size(self._user.exported().definition)

    def reports(self) -> list[passes.Report]:
        return self._placed.reports if self._placed is not None else []


def _local_config(base: v1.ConfigProto | None) -> v1.ConfigProto:
    return base if base is not None else v1.ConfigProto()


def _abandonable(
    runner: Runner, to_compile: Placed | None, function: Callable[..., Any], signature: Signature, *arguments: Any
) -> Any:
    """A run that can be given up. Compiling it first is a call of its own: who is given up while it compiles, which takes
    seconds, must not run after all. It would take a batch from the run that is repeated.
    """
    if to_compile is not None:
        runner.call(to_compile.callable, signature)
    return runner.call(function, signature, *arguments)


_ON_THE_SPOT = Wanted(None, passes.Context(slot_map=None, tracked={}), _local_config, "")
