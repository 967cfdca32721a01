"""The user's graph as a session sees it: exported when it has grown, and what each run of it reaches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import tensorflow as tf

from deeprec_ext import graph as passes
from deeprec_ext.elastic.placed import Signature
from deeprec_ext.errors import RefusedError

v1 = tf.compat.v1


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
    starts: tuple[tuple[str, str], ...] = ()  # iterator, MakeIterator op that starts it


@dataclass
class Exported:
    """The user's graph at one version."""

    version: int
    definition: v1.GraphDef
    index: passes.GraphIndex
    feeds: Mapping[str, passes.Feed]  # iterators that read elastic datasets


class UserGraph:
    """Args:
    graph: the user's, which goes on growing.
    refused: is told why it cannot be made elastic, before RefusedError is raised; None: it need not be.
    """

    def __init__(self, graph: tf.Graph, refused: Callable[[str], None] | None) -> None:
        self._graph, self._refused = graph, refused
        self._lock = threading.RLock()
        self._facts: dict[Signature, Facts] = {}
        self.known: Exported | None = None
        """What was exported last; None: nothing yet."""

    def exported(self) -> Exported:
        """The GraphDef of the user's graph, again only when it grew (hooks and savers add ops). Raises RefusedError."""
        known = self.known
        if known is not None and known.version == self._graph.version:
            return known
        with self._lock:
            shared: Exported | None = getattr(self._graph, "_deeprec_ext_exported", None)  # by an earlier session on it
            if shared is None or shared.version != self._graph.version:
                shared = self._graph._deeprec_ext_exported = self._export()
            self.known, self._facts = shared, {}
            return shared

    def _export(self) -> Exported:
        version = self._graph.version
        definition = self._graph.as_graph_def()
        index = passes.GraphIndex(definition)
        feeds: Mapping[str, passes.Feed] = {}
        if self._refused is not None:
            try:
                passes.check(definition)
                feeds = passes.feeds(index)
            except RefusedError as error:
                self._refused(str(error))
                raise
        return Exported(version, definition, index, feeds)

    def facts_of(self, signature: Signature) -> Facts:
        exported = self.exported()
        facts = self._facts.get(signature)
        if facts is None:
            facts = self._facts[signature] = self._reached(exported, signature)
        return facts

    def known_facts(self, signature: Signature) -> Facts | None:
        """None: it was not asked for since the graph has grown."""
        return self._facts.get(signature)

    def _reached(self, exported: Exported, signature: Signature) -> Facts:
        index, feeds = exported.index, exported.feeds
        reached = [index.nodes[name] for name in index.upstream(signature.names) if name in index.nodes]
        names = [node.name for node in reached]
        makers = [node for node in reached if node.op == "MakeIterator"]
        pulls = passes.pulls(index, feeds, names)
        return Facts(
            remote=any(node.device.startswith("/job:ps") for node in reached),
            one_shot=any(node.op == "OneShotIterator" for node in reached),
            nodes=len(reached),
            pulls=tuple(pulls.items()),
            records=passes.record_tensors(self._graph, index, feeds, pulls, set(names)),
            readers=passes.readers(index, feeds, names),
            starts=tuple((node.input[1].split(":")[0], node.name) for node in makers),
            makes=tuple(
                (feed.source, node.name) for node in makers for feed in feeds.values() if node.name in feed.makers
            ),
        )
