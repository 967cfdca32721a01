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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import tensorflow as tf

from deeprec_ext import graph as passes
from deeprec_ext.elastic.background import GivenUpError, politely, without_collections
from deeprec_ext.elastic.feeding import Feeding, Run
from deeprec_ext.elastic.gate import Gate
from deeprec_ext.elastic.inputs import Inputs
from deeprec_ext.elastic.placed import Placed, Signature
from deeprec_ext.elastic.probe import PLAIN, TraceFailedError
from deeprec_ext.elastic.runner import AbandonedError, Runner
from deeprec_ext.elastic.tracing import Traceable
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
distributed_runtime/request_id.cc, tsl/platform/random.cc): about once in 43 000 steps two of them have the same number. Nothing
has been executed then, and the step is run again at once."""

TWICE_MAX = 5
"""One after the other: chance does not do that."""

SUSPECT_RUNS = 100
"""Batches that a pipeline may have prefetched before a failed run broke it."""

DROP_SECONDS, DROP_PATIENCE_SECONDS = 2.0, 20.0
"""How long closing waits until iterators are gone: where the session names a dead PS, which may keep it for ever, and where it
does not. Then the only reason is a busy machine, and giving up costs a crash: an iterator that outlives its session."""


@dataclass(frozen=True)
class Wanted:
    """What sessions are to be made for. Two equal ones need no exchange."""

    placement: object
    context: passes.Context
    config: Callable[[v1.ConfigProto | None], v1.ConfigProto]
    target: str

    @property
    def key(self) -> object:
        return self.placement, frozenset(self.context.tracked.items())

    @property
    def tasks(self) -> frozenset[int]:
        """Of the PS that the session names."""
        return frozenset(self.context.slot_map or ())


class Home(Protocol):
    """The process that an elastic session lives in (`Trainer`)."""

    gate: Gate
    runner: Runner
    inputs: Inputs

    @property
    def generation(self) -> int:
        """Grows when variables were lost: older sessions end with AbortedError, and MonitoredSession makes a new one."""

    def wanted(self) -> Wanted:
        """For the present view; waits, with a deadline, until every slot has a PS."""

    def next_view(self, error: Exception, failed: Wanted) -> bool:
        """A run failed with LOST or STALE. Waits for another view; True: run it again, False: raise the error."""

    def dead(self, wanted: Wanted) -> bool:
        """Whether a PS that it names is known to be gone for good: no session can be made for it any more."""

    def opened(self, session: ElasticSession) -> None: ...

    def closed(self, session: ElasticSession) -> None: ...

    def retire(self, sessions: list[Placed]) -> None:
        """Closes sessions that are no longer used, beside training."""

    def refused(self, reason: str) -> None:
        """The graph cannot be made elastic."""


@dataclass(frozen=True)
class _Facts:
    """What a signature reaches in the user's graph."""

    remote: bool
    one_shot: bool
    nodes: int  # reached in all
    pulls: tuple[tuple[str, int], ...] = ()  # elastic dataset, batches that a run reads
    makes: tuple[tuple[str, str], ...] = ()  # elastic dataset, MakeIterator op that starts its iterator
    records: tuple[tuple[str, str], ...] = ()  # elastic dataset, tensor that tells which records the run trains
    readers: Mapping[str, str] = field(default_factory=dict)  # op that reads a batch of any other dataset, its iterator
    starts: tuple[tuple[str, str], ...] = ()  # iterator, MakeIterator op that starts it


@dataclass
class _Exported:
    """The user's graph at one version."""

    version: int
    definition: v1.GraphDef
    index: passes.GraphIndex
    feeds: Mapping[str, passes.Feed]  # iterators that read elastic datasets


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
        self._exported: _Exported | None = None
        self._facts: dict[Signature, _Facts] = {}
        self._uses: OrderedDict[Signature, int] = OrderedDict()
        self._building = threading.RLock()
        self._initialized: set[str] = set()
        self._suspects: dict[str, int] = {}  # iterators that a failed run has read, runs until they are trusted again
        self._started: dict[str, tuple[Signature, list[Any]]] = {}  # how each iterator was started
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
                except tf.errors.OpError as error:
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
        facts = self._facts_of(signature)
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
                            if self._suspects:
                                self._trust(facts)
                            return result
                        except (tf.errors.OutOfRangeError, *LOST, *STALE) as error:
                            if self._interrupted(facts, error):
                                self._start_again(placed, facts)
                                continue
                            if isinstance(error, tf.errors.OutOfRangeError):
                                raise
                            if (
                                isinstance(error, tf.errors.AbortedError)
                                and TWICE in str(error)
                                and refused < TWICE_MAX
                            ):
                                refused += 1
                                self._suspect(facts)
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
            assert made_for is not None
            self._suspect(facts)
            if isinstance(failure, TraceFailedError):
                continue  # the ordinary way tells whether a PS is gone
            if self._closed or not self._home.next_view(failure, made_for):
                if isinstance(failure, AbandonedError):
                    raise tf.errors.AbortedError(None, None, str(failure))
                raise failure

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

    def _suspect(self, facts: _Facts) -> None:
        """A run has failed: what it read from may be broken."""
        self._suspects.update(dict.fromkeys(facts.readers.values(), SUSPECT_RUNS))

    def _trust(self, facts: _Facts) -> None:
        """A run has succeeded; but its batch may have been prefetched before."""
        for iterator in set(facts.readers.values()):
            left = self._suspects.pop(iterator, 0)
            if left > 1:
                self._suspects[iterator] = left - 1

    def _interrupted(self, facts: _Facts, error: Exception) -> bool:
        """Whether a run failed because one shortly before it broke the input.

        TensorFlow cancels an iterator for good when a run fails while it reads; it then says that its data has ended, at
        once or when what it has prefetched is used up. The true end cannot be told from that; stock TensorFlow would have
        begun the data again when the PS was lost.
        """
        kinds = (tf.errors.OutOfRangeError, tf.errors.CancelledError)
        return (
            isinstance(error, kinds)
            and any(iterator in self._suspects for iterator in facts.readers.values())
            and any(name in str(error) for name in facts.readers)
        )

    def _start_again(self, placed: Placed, facts: _Facts) -> None:
        for iterator in sorted(set(facts.readers.values())):
            self._suspects.pop(iterator, None)
            log.warning(
                "a failed run interrupted the input '%s': it begins again, as after any restart of stock TensorFlow; "
                "deeprec_ext.data.elastic_dataset would go on at this batch",
                iterator,
            )
            if iterator in self._started:
                placed.pinned = True
                placed.run(*self._started[iterator])
            else:
                self._initialized.discard(iterator + "__make")

    def _before(
        self, placed: Placed, facts: _Facts, feeding: Run | None, signature: Signature, values: list[Any]
    ) -> None:
        """Iterators live in the devices of the session that initialises them: that session is kept until the end."""
        if feeding is not None and feeding.restart(placed, self._exported.feeds if self._exported else {}):
            placed.pinned = True
        if facts.one_shot:
            for name in placed.initializers:
                if name not in self._initialized:
                    placed.pinned = True
                    placed.run(Signature((), (), (name,)), ())
                    self._initialized.add(name)
        for iterator, maker in facts.starts:
            placed.pinned = True
            self._started[iterator] = Signature(signature.feeds, (), (maker,)), values

    def _count(self, signature: Signature) -> None:
        with self._building:
            self._uses[signature] = self._uses.get(signature, 0) + 1
            self._uses.move_to_end(signature)
            if len(self._uses) > SIGNATURES_MAX:
                self._uses.popitem(last=False)

    def _facts_of(self, signature: Signature) -> _Facts:
        exported = self._export()
        facts = self._facts.get(signature)
        if facts is None:
            nodes = exported.index.nodes
            reached = [nodes[name] for name in exported.index.upstream(signature.names) if name in nodes]
            ops = {node.op for node in reached}
            feeds = exported.feeds
            pulls = passes.pulls(exported.index, feeds, [node.name for node in reached])
            facts = self._facts[signature] = _Facts(
                remote=any(node.device.startswith("/job:ps") for node in reached),
                one_shot="OneShotIterator" in ops,
                nodes=len(reached),
                pulls=tuple(pulls.items()),
                records=passes.record_tensors(self.graph, exported.index, feeds, pulls, {node.name for node in reached}),
                readers=passes.readers(exported.index, feeds, [node.name for node in reached]),
                starts=tuple(
                    (node.input[1].split(":")[0], node.name) for node in reached if node.op == "MakeIterator"
                ),
                makes=tuple(
                    (feed.source, node.name)
                    for node in reached if node.op == "MakeIterator"
                    for feed in feeds.values() if node.name in feed.makers
                ),
            )  # fmt: skip
        return facts

    # -- sessions

    def _export(self) -> _Exported:
        """The GraphDef of the user's graph, again only when it grew (hooks and savers add ops)."""
        exported = self._exported
        if exported is None or exported.version != self.graph.version:
            with self._building:
                shared = getattr(self.graph, "_deeprec_ext_exported", None)  # by an earlier session on this graph
                if shared is not None and shared.version == self.graph.version:
                    self._exported, self._facts = shared, {}
                    return shared
                version = self.graph.version
                definition = self.graph.as_graph_def()
                index = passes.GraphIndex(definition)
                feeds: Mapping[str, passes.Feed] = {}
                if self._home is not None:
                    try:
                        passes.check(definition)
                        feeds = passes.feeds(index)
                    except RefusedError as error:
                        self._home.refused(str(error))
                        raise
                exported = _Exported(version, definition, index, feeds)
                self.graph._deeprec_ext_exported = exported
                self._exported, self._facts = exported, {}
        return exported

    def _current(self) -> Placed:
        """The session for the present view; built here and now when nobody prepared it."""
        exported = self._export()
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

    def _build(self, wanted: Wanted, exported: _Exported) -> Placed:
        context = dataclasses.replace(wanted.context, swaps=self._swaps, iterator_scope=self._scope)
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
            self._made_version = self._exported.version if self._exported is not None else -1
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
            placed, wanted, exported = self._placed, self._made_for, self._exported
            if placed is None or wanted is None or exported is None or placed.key != (wanted.key, exported.version):
                return None
            known = [(uses * facts.nodes, signature) for signature, uses in self._uses.items()
                     if uses >= RECURRING and (facts := self._facts.get(signature)) and facts.remote]  # fmt: skip
            if not known or not self._is_plain(signature := max(known)[1]):
                return None
            context = dataclasses.replace(wanted.context, swaps=self._swaps, iterator_scope=self._scope)
            self._swaps += 1
        config = wanted.config(self._given)
        return Traceable(placed, signature, exported.definition, exported.index, context, wanted.target, config)

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
        exported = self._export()
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
        return (wanted.key, self._export().version) in self._standby

    def drop_standby(self, keep: Iterable[Wanted]) -> list[Placed]:
        """Forgets the standby sessions but for these views (and the present graph); to be closed by the caller."""
        with self._building:
            version = self._exported.version if self._exported is not None else -1
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
            exported = self._exported
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
        exported, recurring = self._exported, self.recurring()
        if exported is None or not recurring:
            return None
        names = {name for signature in recurring for name in signature.names}
        return passes.build_catalogue(exported.definition, names, passes.saved_names(self.graph))

    def batch_size(self) -> int:
        """Records per step, 0 if unknown."""
        return passes.batch_size(self._export().definition)

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
