"""How many records, and how many ids of one lookup, a step consumes, as far as the graph itself tells."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import tensorflow as tf
from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.core.framework.node_def_pb2 import NodeDef

from deeprec_ext.graph import attributes
from deeprec_ext.graph.index import GraphIndex, op_name, output_number
from deeprec_ext.graph.marks import FED, read_mark

_BATCHES = frozenset(
    "BatchDataset BatchDatasetV2 ParallelBatchDataset MapAndBatchDataset ExperimentalMapAndBatchDataset "
    "PaddedBatchDataset PaddedBatchDatasetV2".split()
)
_DEQUEUES = frozenset({"QueueDequeueManyV2", "QueueDequeueMany", "QueueDequeueUpToV2", "QueueDequeueUpTo"})


def _constant(nodes: dict[str, NodeDef], tensor: str) -> int:
    """The value of a scalar Const, also behind Identity; 0 if it is not one. Takes graph and function tensors."""
    for _ in range(8):
        node = nodes.get(tensor.split(":")[0].lstrip("^"))
        if node is None:
            return 0
        if node.op == "Const":
            value = tf.make_ndarray(node.attr["value"].tensor)
            return int(value) if value.ndim == 0 else 0
        if node.op not in ("Identity", "Cast") or not node.input:
            return 0
        tensor = node.input[0]
    return 0


def _nearest_batch(nodes: dict[str, NodeDef], start: Iterable[str]) -> int:
    """The batch size of the first batching dataset met walking upstream: the last one the records pass."""
    wave, seen = list(start), set()
    while wave:
        following = []
        for tensor in wave:
            name = tensor.split(":")[0].lstrip("^")
            node = nodes.get(name)
            if node is None or name in seen:
                continue
            seen.add(name)
            if (mark := read_mark(node)) is not None:
                return mark.batch_size
            if node.op in _BATCHES:
                number = attributes.input_of(node, "batch_size")
                if number is None:  # MapAndBatch: a list of captured inputs stands before it
                    number = 1 + len(node.attr["Targuments"].list.type)
                size = _constant(nodes, node.input[number])
                if size > 0:
                    return size
            following.extend(node.input)
        wave = following
    return 0


def _batch_in_function(index: GraphIndex, name: str) -> int:
    function = index.functions.get(name)
    return 0 if function is None else _nearest_batch({n.name: n for n in function.node_def}, function.ret.values())


def _candidates(index: GraphIndex, wanted: dict[str, list[NodeDef]]) -> Iterator[int]:
    for node in wanted.get("IteratorGetNext", ()):
        for shape in node.attr["output_shapes"].list.shape:
            if not shape.unknown_rank and len(shape.dim) > 0:
                yield shape.dim[0].size
    for node in wanted.get("MakeIterator", ()):
        dataset = index.nodes[op_name(node.input[0])]
        # A one-shot iterator that has been converted gets its dataset from a function.
        called = dataset.attr["f"].func.name if dataset.op == "StatefulPartitionedCall" else ""
        yield _batch_in_function(index, called) if called else _nearest_batch(index.nodes, [dataset.name])
    for node in wanted.get("OneShotIterator", ()):
        yield _batch_in_function(index, node.attr["dataset_factory"].func.name)
    for op in _DEQUEUES:
        for node in wanted.get(op, ()):
            yield _constant(index.nodes, node.input[1])
    for node in wanted.get("Placeholder", ()):
        yield fed_records(node)


def fed_records(node: NodeDef) -> int:
    """Records of the batch that a step is given by this node; 0: it is none of those."""
    return node.attr[FED].i if FED in node.attr else 0


def batch_size(graph_def: GraphDef | GraphIndex) -> int:
    """Records per step, of the first source that states it: iterator shapes, batching datasets, dequeues; else 0."""
    index = graph_def if isinstance(graph_def, GraphIndex) else GraphIndex(graph_def)
    kinds = {"IteratorGetNext", "MakeIterator", "OneShotIterator", "Placeholder"} | _DEQUEUES
    wanted: dict[str, list[NodeDef]] = {}
    for node in index.nodes.values():
        if node.op in kinds:
            wanted.setdefault(node.op, []).append(node)
    return next((size for size in _candidates(index, wanted) if size > 0), 0)


# Ops that make one id of each value of their first input.
_ONE_EACH = frozenset(
    "Identity Reshape Cast EnsureShape FloorMod Mod AsString Maximum Minimum StringToHashBucketFast "
    "StringToHashBucketStrong StringToHashBucket AddV2 Sub FloorDiv ExpandDims Squeeze".split()
)
_SECOND = frozenset({"LookupTableFindV2", "Select", "SelectV2"})  # the same, of their second input


def ids_per_step(index: GraphIndex, ids: str, records: int) -> int:
    """How many ids a tensor has in one step: one per record, or as many as the input's shape says; 0 if unknown.

    Args:
      records: records of one step, from `batch_size`; 0 if unknown.
    """
    parts = 1
    for _ in range(24):
        node = index.nodes[op_name(ids)]
        if node.op == "IteratorGetNext" or fed_records(node):
            shapes = [node.attr["shape"].shape] if fed_records(node) else node.attr["output_shapes"].list.shape
            number = output_number(ids)
            if number < len(shapes) and not shapes[number].unknown_rank and shapes[number].dim:
                sizes = [dim.size for dim in shapes[number].dim]
                first = sizes[0] if sizes[0] > 0 else records
                return first * math.prod(max(1, size) for size in sizes[1:]) // parts
            break
        if node.op == "DynamicPartition":
            parts *= max(1, node.attr["num_partitions"].i)
        elif node.op not in _ONE_EACH and node.op not in _SECOND:
            break
        ids = index.inputs(node.name)[1 if node.op in _SECOND else 0]
    return records // parts
