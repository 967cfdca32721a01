"""The user's graph as a session sees it: exported when it has grown, what each run of it reaches, and which runs recur."""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import tensorflow as tf

from deeprec_ext import graph as passes
from deeprec_ext.elastic.session.placed import Signature
from deeprec_ext.elastic.session.probe import PLAIN
from deeprec_ext.errors import RefusedError
from deeprec_ext.graph.on_slots import OnSlots
from deeprec_ext.layout import Names

v1 = tf.compat.v1

SIGNATURES_MAX = 256
"""Signatures whose uses are remembered, least recently used first to go."""

RECURRING = 2
"""A signature used so often is a step, or belongs to one."""

OFTEN = 8
"""A run that is made so many times more seldom than the most frequent one is no part of every step."""

EXPECTED_MAX, EXPECTED_ONCE_MAX = 64, 8
"""Signatures that are compiled in advance at most, and of those at most so many that were run only once, the newest: a script
may make new fetches for ever."""

ON_SLOTS_MAX = 3
"""Such copies of one version of a graph that are kept: without marks, with those of backups, with those of what is moved."""

BEGINNINGS = frozenset((
    "Assign", "AssignVariableOp", "RestoreV2", "VarIsInitializedOp", "IsVariableInitialized", "MakeIterator",
    "InitializeTable", "InitializeTableV2", "InitializeTableFromTextFile", "InitializeTableFromTextFileV2",
    "LookupTableImport", "LookupTableImportV2",
))  # fmt: skip
"""Of what a run that is made only once begins a training."""


@dataclass(frozen=True)
class Facts:
    """What a signature reaches in the user's graph."""

    remote: bool
    one_shot: bool
    nodes: int  # reached in all
    pulls: tuple[tuple[str, int], ...] = ()  # elastic dataset, batches that a run reads
    makes: tuple[tuple[str, str], ...] = ()  # elastic dataset, MakeIterator op that starts its iterator
    records: tuple[tuple[str, str], ...] = ()  # elastic dataset, tensor that tells which records the run trains
    readers: Mapping[str, str] = field(default_factory=dict)  # op that reads a batch of any other dataset, its iterator
    rate: str = ""  # the tensor by which its learning rates are multiplied
    starts: tuple[tuple[str, str], ...] = ()  # iterator, MakeIterator op that starts it
    saves: bool = False  # it writes a checkpoint
    overwrites: passes.Overwrite | None = None
    """What of a live model it would set back."""
    begins: frozenset[str] = frozenset()
    """Ops of it that make, restore or ask for what training begins with, as far as one sees from an op alone."""


@dataclass
class Exported:
    """The user's graph at one version."""

    version: tuple[int, bool]
    """Of the user's graph; whether every op of it is there."""
    definition: v1.GraphDef
    index: passes.GraphIndex
    feeds: Mapping[str, passes.Feed]  # iterators that read elastic datasets
    cuts: passes.Partitions
    """What was cut in `definition`."""
    cut: tuple[int, str] | None = None
    """Slots, and the setting by which it was."""
    lazy: bool = False
    rate: str | None = None
    """The tensor by which learning rates are multiplied; empty: there are none, None: they are as the script has them."""
    model: passes.Model | None = None
    """Once it was asked for."""

    on_slots: OrderedDict[object, OnSlots] = field(default_factory=OrderedDict)
    """By what the views that it serves have in common, the last one used last."""
    making: threading.Lock = field(default_factory=threading.Lock)

    @cached_property
    def updates(self) -> frozenset[str]:
        """Ops that train what is on the PS: a run without one of them trains nothing."""
        return frozenset(passes.updates(self.index, passes.variables_on_ps(self.index)))

    def of_views(self, context: passes.Context) -> OnSlots | None:
        """The graph on slots, of which those of views like this one are copies; None: each is made by itself."""
        if not OnSlots.serves(context):
            return None
        key = OnSlots.key(context)
        with self.making:
            found = self.on_slots.get(key)
            if found is None:
                found = self.on_slots[key] = OnSlots(self.definition, context)
                while len(self.on_slots) > ON_SLOTS_MAX:
                    self.on_slots.popitem(last=False)
            self.on_slots.move_to_end(key)
            return found


def _remember(partitioning: passes.Partitioning, exported: Exported) -> None:
    """Whatever graph comes next, the variables are these."""
    for name, count in exported.cuts.counts.items():
        partitioning.before.setdefault(name, count)


class UserGraph:
    """Args:
    graph: the user's, which goes on growing.
    refused: is told why it cannot be made elastic, before RefusedError is raised; None: it need not be.
    names: what its devices mean; None: nothing, it is run on the spot.
    partitioning: asked, each time the graph is exported, how its variables are to be cut over slots; None: not at all.
    lazy: asked whether optimizers are to write the rows of a batch alone.
    scales: asked whether learning rates are to follow the number of trainers.
    """

    def __init__(
        self, graph: tf.Graph, refused: Callable[[str], None] | None = None, names: Callable[[], Names] | None = None,
        partitioning: Callable[[], passes.Partitioning] | None = None, lazy: Callable[[], bool] = lambda: False,
        scales: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        self.graph, self._refused, self._names, self._partitioning = graph, refused, names, partitioning
        self._lazy, self._scales = lazy, scales
        self.told = passes.told_by(graph)
        self._lock, self._counting = threading.RLock(), threading.Lock()
        self._facts: dict[Signature, Facts] = {}
        self._uses: OrderedDict[Signature, int] = OrderedDict()
        self.known: Exported | None = None
        """What was exported last; None: nothing yet."""

    def exported(self) -> Exported:
        """The GraphDef of the user's graph, again only when it grew (hooks and savers add ops). Raises RefusedError."""
        known = self.known
        if known is not None and known.version == self._version():
            return known
        with self._lock:
            shared: Exported | None = getattr(self.graph, "_deeprec_ext_exported", None)  # by an earlier session on it
            partitioning = self._partitioning() if self._partitioning is not None else None
            cut = (partitioning.slots, partitioning.mode) if partitioning is not None else None
            lazy, scales = self._lazy(), self._scales()
            if shared is not None and partitioning is not None and shared.cut == cut:
                shared = shared if passes.agree(partitioning.known, shared.cuts) else None
                if shared is not None and partitioning.known is None:
                    _remember(partitioning, shared)
            wanted = self._version(), cut, lazy, scales
            if shared is None or (shared.version, shared.cut, shared.lazy, shared.rate is not None) != wanted:
                shared = self.graph._deeprec_ext_exported = self._export(partitioning, lazy, scales)
                if partitioning is not None and partitioning.known is None:
                    _remember(partitioning, shared)
            self.known, self._facts = shared, {}
            return shared

    def _export(self, partitioning: passes.Partitioning | None, lazy: bool, scales: bool) -> Exported:
        version = self._version()
        definition = self.graph.as_graph_def()
        cuts, index = passes.Partitions(), None
        feeds: Mapping[str, passes.Feed] = {}
        rate = "" if scales else None
        if self._refused is not None:
            try:
                if self._names is not None:
                    passes.name_devices(definition, self._names())
                passes.check(definition)
                index, joined = passes.GraphIndex(definition), None
                saved = passes.saved_names(self.graph).names
                if partitioning is not None:
                    index, joined = passes.join(index, saved, partitioning, keep_all=version[1])
                if lazy:
                    passes.make_lazy(index)
                if partitioning is not None:
                    divided = passes.divided_of(saved)
                    cuts = passes.partition(index, dataclasses.replace(partitioning, divided=divided), joined)
                if scales:
                    rate = passes.follow_trainers(index, cuts.saved(dict.fromkeys(self._trainable(), ("", ""))))
                feeds = passes.feeds(index)
            except RefusedError as error:
                self._refused(str(error))
                raise
        cut = (partitioning.slots, partitioning.mode) if partitioning is not None else None
        return Exported(version, definition, index or passes.GraphIndex(definition), feeds, cuts, cut, lazy, rate)

    def _trainable(self) -> set[str]:
        """Shared names of what the script has among its trainable variables."""
        found = self.graph.get_collection(v1.GraphKeys.TRAINABLE_VARIABLES)
        ops = [one.op for one in found if getattr(one, "op", None) is not None]
        return {op.node_def.attr["shared_name"].s.decode() or op.name for op in ops}

    def _version(self) -> tuple[int, bool]:
        return self.graph.version, getattr(self.graph, "_deeprec_ext_keep_all", False)

    def facts_of(self, signature: Signature) -> Facts:
        exported = self._with_all_of(signature)
        facts = self._facts.get(signature)
        if facts is None:
            facts = self._facts[signature] = self._reached(exported, signature)
        return facts

    def _with_all_of(self, signature: Signature) -> Exported:
        """What was exported, and anew with every op once somebody asks for one that nothing else needs."""
        exported = self.exported()
        if exported.cuts.joined.left_out and signature not in self._facts:
            named = map(passes.op_name, (*signature.feeds, *signature.fetches, *signature.targets))
            if not all(name in exported.index.nodes for name in named):
                self.graph._deeprec_ext_keep_all = True
                return self.exported()
        return exported

    def _refuse_parts(self, exported: Exported, reached: Collection[str]) -> None:
        """Raises RefusedError where a run writes some of the parts that are one, and not the others."""
        for ops in exported.cuts.joined.writes:
            some = [name for name in ops if name in reached]
            if some and len(some) != len(ops):
                reason = (
                    f"a run writes a part of a variable that the script has partitioned, and not the others ('{some[0]}', "
                    f"without '{next(name for name in ops if name not in reached)}'): its parts are one variable here; "
                    "run with --setting cut=off, or write all parts in one run"
                )
                if self._refused is not None:
                    self._refused(reason)
                raise RefusedError(reason)

    def count(self, signature: Signature) -> None:
        """It is run once more."""
        with self._counting:
            self._uses[signature] = self._uses.get(signature, 0) + 1
            self._uses.move_to_end(signature)
            if len(self._uses) > SIGNATURES_MAX:
                self._uses.popitem(last=False)

    def recurring(self) -> list[Signature]:
        """What the training loop runs again and again."""
        with self._counting:
            return [signature for signature, count in self._uses.items() if count >= RECURRING]

    def expected(self) -> list[Signature]:
        """What may be run again, those first that reach a PS, and of these first what costs most (ops × uses): recurring runs,
        and the newest that were made once, but for those with which training began: they make, restore or ask for what no
        recurring run does."""
        return [signature for signature, _ in self._expected()]

    def each_step(self) -> list[Signature]:
        """Of these, in the same order, what training cannot go on without: that reaches a PS and is run in every eighth step at
        least. Of the runs of a step the one that trains is not always the most frequent: hooks read the global step."""
        expected = [(signature, uses) for signature, uses in self._expected() if self.facts_of(signature).remote]
        most = max((uses for _, uses in expected), default=0)
        return [signature for signature, uses in expected if uses * OFTEN >= most]

    def _expected(self) -> list[tuple[Signature, int]]:
        """With their uses."""
        with self._counting:
            uses = list(self._uses.items())
        chosen = {signature: count for signature, count in uses if count >= RECURRING}
        # A step may assign (a moving average, a learning rate): so does the one that writes summaries as well.
        usual = {name for signature in chosen for name in self.facts_of(signature).begins}
        once = [one for one, count in uses if count < RECURRING and self.facts_of(one).begins <= usual]
        chosen.update(dict.fromkeys(once[-EXPECTED_ONCE_MAX:], 1))

        def rank(one: tuple[Signature, int]) -> tuple[bool, int]:
            facts = self.facts_of(one[0])
            return not facts.remote, -one[1] * facts.nodes

        return sorted(chosen.items(), key=rank)[:EXPECTED_MAX]

    def costliest(self) -> Signature | None:
        """Of the recurring runs that reach a PS, the one that costs most (ops × uses since the graph has grown); None where
        there is none, or where not all that it feeds and fetches are arrays whichever way they come."""
        with self._counting:
            known = [(uses * facts.nodes, signature) for signature, uses in self._uses.items()
                     if uses >= RECURRING and (facts := self._facts.get(signature)) and facts.remote]  # fmt: skip
        if not known:
            return None
        signature = max(known)[1]
        feeds = [feed for feed in signature.feeds if self.known is None or feed != self.known.rate]
        tensors = map(self.graph.get_tensor_by_name, (*feeds, *signature.fetches))
        return signature if all(tensor.dtype.base_dtype in PLAIN for tensor in tensors) else None

    def catalogue(self) -> Any:
        """The variable catalogue of the graph, from what the training loop runs; None before it has made steps."""
        exported, recurring = self.known, self.recurring()
        if exported is None or not recurring:
            return None
        names = {name for signature in recurring for name in signature.names}
        return passes.build_catalogue(exported.definition, names, self._saved(exported))

    def described(self, records: int = 0) -> Any:
        """What the model is like (`Declaration`), before anything of it has been run; `records`: examples of a step, 0: as the
        graph tells. Raises RefusedError."""
        exported = self.exported()
        return passes.describe(self.graph, exported.index, self._saved(exported), records)

    def declared(self, exported: Exported) -> Any:
        """The variables that runs of it may make on the PS: the catalogue, before anybody knows what recurs."""
        return passes.declare(exported.index, self._saved(exported))

    def on_ps(self, operation: tf.Operation) -> tuple[str, ...]:
        """Names on the PS of the variable that this op makes: of its parts where it is cut, none where it is elsewhere."""
        exported = self.exported()
        name = operation.node_def.attr["shared_name"].s.decode() or operation.name
        there = {node.name for node in passes.variables_on_ps(exported.index).values()}
        return tuple(part for part in exported.cuts.saved({name: ("", "")}) if part in there)

    def overwrites(self, signature: Signature, spared: Collection[str] = ()) -> passes.Overwrite | None:
        """What of a live model this run would set back, but for these variables (names of their nodes)."""
        exported = self.exported()
        if exported.model is None:
            exported.model = passes.model_of(self.graph, exported.cuts)
        return passes.overwriting(exported.index, signature.fetches, signature.targets, exported.model, spared)

    def upstream(self, names: Iterable[str]) -> set[str]:
        """All ops that these need."""
        return self.exported().index.upstream(names)

    def _saved(self, exported: Exported) -> passes.Saved:
        saved = passes.saved_names(self.graph)
        state = exported.cuts.saved(dict.fromkeys(saved.state, ("", "")))
        return dataclasses.replace(saved, names=exported.cuts.saved(saved.names), state=frozenset(state))

    def trains(self) -> tuple[passes.GraphIndex, set[str]] | None:
        """The graph and the names of what recurs; None while nothing does."""
        exported, recurring = self.known, self.recurring()
        if exported is None or not recurring:
            return None
        return exported.index, {name for signature in recurring for name in signature.names}

    def _reached(self, exported: Exported, signature: Signature) -> Facts:
        index, feeds = exported.index, exported.feeds
        reached = [index.nodes[name] for name in index.upstream(signature.names) if name in index.nodes]
        names = [node.name for node in reached]
        known = set(names)
        self._refuse_parts(exported, known)
        makers = [node for node in reached if node.op == "MakeIterator"]
        pulls = passes.pulls(index, feeds, names)
        return Facts(
            remote=any(node.device.startswith("/job:ps") for node in reached),
            one_shot=any(node.op == "OneShotIterator" for node in reached),
            overwrites=self.overwrites(signature) if any(node.op in passes.ASSIGNMENTS for node in reached) else None,
            saves=any(node.op == "SaveV2" for node in reached),
            begins=frozenset(node.name for node in reached if node.op in BEGINNINGS),
            nodes=len(reached),
            pulls=tuple(pulls.items()),
            records=passes.record_tensors(self.graph, index, feeds, pulls, known),
            readers=passes.readers(index, feeds, names),
            rate=exported.rate if exported.rate and passes.op_name(exported.rate) in known else "",
            starts=tuple((node.input[1].split(":")[0], node.name) for node in makers),
            makes=tuple(
                (feed.source, node.name) for node in makers for feed in feeds.values() if node.name in feed.makers
            ),
        )
