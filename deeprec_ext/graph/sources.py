"""Elastic datasets in a graph: which iterators read them, and which stages lie between.

`deeprec_ext.data.elastic_dataset` writes its name into the metadata of its first op. The steps that read an iterator are
followed by batch number, so between the source and the iterator only stages are allowed that keep the order one to one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tensorflow.core.framework import dataset_options_pb2
from tensorflow.core.framework.node_def_pb2 import NodeDef

from deeprec_ext.errors import RefusedError
from deeprec_ext.graph.index import GraphIndex
from deeprec_ext.graph.marks import RECORD, RECORDS, read_mark
from deeprec_ext.graph.marks import text_of as _text

_GETS = frozenset({"IteratorGetNext", "IteratorGetNextSync", "IteratorGetNextAsOptional"})
_ITERATORS = frozenset({"IteratorV2", "Iterator", "OneShotIterator"})
_KEEPING = frozenset(
    "PrefetchDataset OptionsDataset ModelDataset FinalizeDataset OptimizeDataset OptimizeDatasetV2 AssertNextDataset "
    "PrivateThreadPoolDataset MaxIntraOpParallelismDataset ThreadPoolDataset AssertCardinalityDataset Identity "
    "SetStatsAggregatorDataset BytesProducedStatsDataset LatencyStatsDataset".split()
)
_NEVER = frozenset({"RepeatDataset", "CacheDataset", "CacheDatasetV2"})
"""Not even with ids: they give records again that are trained already."""
_MAPS = frozenset({"MapDataset", "ParallelMapDataset", "ParallelMapDatasetV2", "ExperimentalMapDataset"})
_REMEDIES = (
    ("Shuffle", "it shuffles itself (shuffle=True, seed=)"),
    ("Repeat", "say epochs= instead (None: without end)"),
    ("Batch", "it makes batches itself (batch_size=); work on whole batches in map"),
    ("Filter", "leave records out in map, by weight 0 for example"),
    ("TakeWhile", "stop by max_steps"),
    ("Take", "stop by max_steps, or name fewer files"),
    ("Skip", "reader_options={'skip_lines': n} leaves out headers"),
    ("Shard", "it is shared among the workers already"),
    ("Cache", "its records are read anew in each epoch"),
    ("Interleave", "pass all files to one elastic_dataset"),
    ("Concatenate", "pass all files to one elastic_dataset"),
    ("Sample", "pass all files to one elastic_dataset"),
    ("DirectedInterleave", "pass all files to one elastic_dataset"),
    ("Zip", "read both from one elastic_dataset, in map"),
)


@dataclass(frozen=True)
class Feed:
    """One iterator that reads an elastic dataset."""

    iterator: str
    source: str
    with_ids: bool
    makers: frozenset[str]
    """MakeIterator ops that start it; empty for a one-shot iterator."""

    get: str = ""
    """An op that reads a batch of it and fails at the end of the data; empty: there is none."""


def _op(tensor: str) -> str:
    """The node of an input, in a graph (`a:1`) or in a function (`a:handle:0`)."""
    return tensor.lstrip("^").split(":")[0]


def _marked(node: NodeDef) -> tuple[str, bool] | None:
    """(dataset, with ids) when the node is the first op of an elastic dataset."""
    found = read_mark(node)
    return (found.dataset, found.with_ids) if found is not None else None


def feeds(index: GraphIndex) -> dict[str, Feed]:
    """By iterator. Raises RefusedError for a stage that loses the order, or a source that cannot be followed."""
    marked = {node.name for node in index.nodes.values() if node.op == "TensorDataset" and _marked(node)}
    functions = {
        name: function
        for name, function in index.functions.items()
        if any(node.op == "TensorDataset" and _marked(node) for node in function.node_def)
    }
    if not marked and not functions:
        return {}
    found: dict[str, Feed] = {}
    factories = set()
    for node in index.nodes.values():
        if node.op == "MakeIterator":
            source = _source_of(index.nodes, _op(node.input[0]))
            if source is not None:
                _add(found, _op(node.input[1]), source, node.name)
        elif node.op == "OneShotIterator":
            factory = node.attr["dataset_factory"].func.name
            if factory in functions:
                factories.add(factory)
                function = functions[factory]
                nodes = {one.name: one for one in function.node_def}
                source = _source_of(nodes, _op(next(iter(function.ret.values()))))
                if source is not None:
                    _add(found, node.name, source, None)
    inside = sorted(set(functions) - factories)
    if inside:
        source = next(s for node in functions[inside[0]].node_def if (s := _marked(node)))
        raise RefusedError(
            f"the elastic dataset {source[0]!r} is made inside another dataset's function ({inside[0]}), as interleave and "
            "flat_map do: pass all files to one elastic_dataset and use it directly"
        )
    for node in index.nodes.values():
        if node.op in _GETS and found:
            iterator = index.nodes[_through_identity(index.nodes, _op(node.input[0]))]
            if iterator.op not in _ITERATORS:
                raise RefusedError(
                    f"'{node.name}' reads a feedable iterator ({iterator.op}) in a graph with an elastic dataset: which "
                    "batch a step reads cannot be followed; use make_initializable_iterator"
                )
            if iterator.name in found and node.op != "IteratorGetNextAsOptional":
                found[iterator.name] = dataclasses.replace(found[iterator.name], get=node.name)
    readers: dict[str, str] = {}
    for feed in found.values():
        other = readers.setdefault(feed.source, feed.iterator)
        if other != feed.iterator:
            raise RefusedError(
                f"two iterators ('{other}' and '{feed.iterator}') read the elastic dataset {feed.source!r}: give each a "
                "dataset of its own, with name="
            )
    return found


def source_of_dataset(definition: Any) -> tuple[str, bool] | None:
    """(elastic dataset, with ids) from which a dataset of eager mode gets its elements; None: from none.

    Args:
      definition: its graph, as `tf.raw_ops.DatasetToGraphV2` gives it.

    Raises RefusedError for a stage that loses the order.
    """
    nodes = {node.name: node for node in definition.node}
    [last] = [node for node in definition.node if node.op == "_Retval"]
    return _source_of(nodes, _op(last.input[0]))


def _add(found: dict[str, Feed], iterator: str, source: tuple[str, bool], maker: str | None) -> None:
    before = found.get(iterator)
    if before is not None and before.source != source[0]:
        raise RefusedError(
            f"the iterator '{iterator}' is started on two elastic datasets ({before.source!r} and {source[0]!r}): use an "
            "iterator for each"
        )
    makers = (before.makers if before is not None else frozenset()) | ({maker} if maker else set())
    found[iterator] = Feed(iterator, source[0], source[1], frozenset(makers))


def pulls(index: GraphIndex, found: Mapping[str, Feed], reached: Iterable[str]) -> dict[str, int]:
    """dataset -> batches that one run of these nodes reads."""
    counts: dict[str, int] = {}
    for name in reached if found else ():
        node = index.nodes[name]
        if node.op in _GETS:
            feed = found.get(_through_identity(index.nodes, _op(node.input[0])))
            if feed is not None:
                counts[feed.source] = counts.get(feed.source, 0) + 1
    return counts


def readers(index: GraphIndex, found: Mapping[str, Feed], reached: Iterable[str]) -> dict[str, str]:
    """op that reads a batch -> its iterator, for the datasets that are not elastic, in a run of these nodes."""
    gets = {}
    for name in reached:
        node = index.nodes[name]
        if node.op in _GETS:
            iterator = _through_identity(index.nodes, _op(node.input[0]))
            if iterator not in found:
                gets[name] = iterator
    return gets


def record_tensors(
    graph: Any, index: GraphIndex, found: Mapping[str, Feed], pulled: Mapping[str, int], reached: Collection[str]
) -> tuple[tuple[str, str], ...]:
    """(dataset, tensor) that a run must fetch to know which records it trains, for the datasets with ids that it pulls.

    Raises RefusedError when an iterator does not give them.
    """
    wanted = {feed.source for feed in found.values() if feed.with_ids and feed.source in pulled}
    tensors = []
    for tensor in graph.get_collection(RECORDS) if wanted else ():
        node = index.nodes.get(tensor.op.name)
        if node is not None and node.name in reached:
            feed = found.get(_through_identity(index.nodes, _op(node.input[0])))
            if feed is not None and feed.source in wanted:
                tensors.append((feed.source, tensor.name))
    if missing := wanted - {source for source, _ in tensors}:
        raise RefusedError(
            f"the elastic dataset {min(missing)!r} has ids, but its iterator does not give the feature '{RECORD}': keep it in "
            "the features that map returns"
        )
    return tuple(tensors)


def _through_identity(nodes: Mapping[str, NodeDef], name: str) -> str:
    while nodes[name].op == "Identity" and nodes[name].input:
        name = _op(nodes[name].input[0])
    return name


def _source_of(nodes: Mapping[str, NodeDef], start: str) -> tuple[str, bool] | None:
    """The elastic dataset upstream of a dataset op, with every stage on the way checked; None: there is none."""
    upstream, stack = set(), [start]
    while stack:
        name = stack.pop()
        if name in upstream or name not in nodes:
            continue
        upstream.add(name)
        stack += [_op(tensor) for tensor in nodes[name].input]
    sources = {name: source for name in upstream if (source := _marked(nodes[name])) is not None}
    if not sources:
        return None
    name, source = next(iter(sources.items()))
    if len(sources) > 1:
        names = ", ".join(sorted(repr(one) for one, _ in sources.values()))
        raise RefusedError(f"one dataset is made of several elastic datasets ({names}): pass all files to one of them")
    behind = {name}  # the source and what comes after it
    while grown := {n for n in upstream - behind if any(_op(tensor) in behind for tensor in nodes[n].input)}:
        behind |= grown
    for stage in sorted(behind - {name}):
        if not source[1] or nodes[stage].op in _NEVER:
            _check(nodes[stage], source[0], behind, name)
    return source


def _check(node: NodeDef, dataset: str, behind: set[str], first: str) -> None:
    op = node.op
    if op == "FlatMapDataset":
        if _op(node.input[0]) == first:  # the source itself: tf.data.Dataset.from_generator
            return
        _refuse(node, dataset, "flat_map makes other elements of them; work on whole batches in map")
    if op in _MAPS:
        sloppy = ("sloppy" in node.attr and node.attr["sloppy"].b) or _text(node, "deterministic") == b"false"
        if _op(node.input[0]) in behind and not sloppy:
            return
        _refuse(node, dataset, "leave deterministic=False out")
    if op == "OptionsDataset":
        options = dataset_options_pb2.Options.FromString(_text(node, "serialized_options"))
        if options.WhichOneof("optional_deterministic") and not options.deterministic:
            _refuse(node, dataset, "leave options.deterministic = False out")
        return
    if op in _KEEPING:
        return
    remedy = next(
        (remedy for part, remedy in _REMEDIES if part.lower() in op.lower()), "let only map and prefetch follow it"
    )
    _refuse(node, dataset, remedy)


def _refuse(node: NodeDef, dataset: str, remedy: str) -> None:
    raise RefusedError(
        f"'{node.name}' ({node.op}) after the elastic dataset {dataset!r} does not keep its batches one to one and in order, "
        f"so it would not be known which records a step trained: {remedy}; or say with_ids=True, then records are followed by "
        f"their ids (the feature '{RECORD}')"
    )
