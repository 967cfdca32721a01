"""What a model is like, read off its finalised graph before anything is initialised: from it the AIMaster decides what the job

begins with. What the graph does not tell is 0 or empty, never guessed. Only sizes of files are looked at outside of the graph.
"""

from __future__ import annotations

import glob
import itertools
import math
import os
import re
import time
from collections.abc import Collection, Iterable, Iterator

import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.core.framework.tensor_shape_pb2 import TensorShapeProto

from deeprec_ext.graph.batch import batch_size, fed_records, ids_per_step
from deeprec_ext.graph.catalogue import Saved, build_catalogue
from deeprec_ext.graph.index import GraphIndex, op_name
from deeprec_ext.graph.marks import READS, read_mark
from deeprec_ext.graph.training import updates
from deeprec_ext.graph.writes import variables_on_ps
from deeprec_ext.proto.deeprec_ext_pb2 import Declaration, ModelInput
from deeprec_ext.tf_private.operations import flops

_GATHERS = frozenset({"ResourceGather", "Gather", "GatherV2"})
_READS = frozenset({"ReadVariableOp", "Identity"})
_FORMATS = {
    "TFRecordDataset": "tfrecord", "TFRecordDatasetV2": "tfrecord", "TFRecordReader": "tfrecord",
    "TFRecordReaderV2": "tfrecord",
    "TextLineDataset": "text", "TextLineReader": "text", "TextLineReaderV2": "text", "CSVDataset": "csv", "CSVDatasetV2": "csv",
    "FixedLengthRecordDataset": "records", "FixedLengthRecordDatasetV2": "records", "GeneratorDataset": "python",
    "IO>ParquetReadableRead": "parquet", "IO>ParquetReadableInit": "parquet",
}  # fmt: skip
_GIVES_ELASTIC = frozenset({"GeneratorDataset", "TensorDataset"})  # by which the records of an elastic dataset come
_IN_MEMORY = frozenset({"TensorSliceDataset", "TensorDataset", "RangeDataset"})

_GRADIENTS = ("gradients", "gradient_tape")
_PLUMBING = frozenset({
    "Const", "Identity", "IdentityN", "NoOp", "VarHandleOp", "VariableV2", "Placeholder", "PlaceholderWithDefault",
    "ReadVariableOp", *_GATHERS,
})  # fmt: skip
_OF_INPUT = re.compile("Iterator|Dataset|Queue|Reader")

KINDS_MAX = 300

FILES_MAX, PATH_MAX, LOOK_SECONDS = 10_000, 4096, 1.0
"""Files whose sizes are looked at, before the first step: a few microseconds each, and much more on some network disks."""


def describe(graph: tf.Graph, index: GraphIndex, saved: Saved, records: int = 0) -> Declaration:
    """
    Args:
      graph: the user's, which knows shapes.
      index: of the same graph as sessions take it, with large variables cut over slots.
      saved: how its variables are called in checkpoints.
      records: examples of a step, as the user has told; 0: as the graph tells.
    """
    step_ops = updates(index, variables_on_ps(index))
    step = index.upstream(step_ops)
    records = records or batch_size(index)
    catalogue = build_catalogue(index, step_ops, saved)
    del catalogue.warnings[:]  # told when they are known for sure
    declaration = Declaration(
        catalogue=catalogue, batch_size=records, operations=len(step), input=_input(index, graph),
        computes=computes(graph, index, step),
    )  # fmt: skip
    if records:
        declaration.lookups_per_example = _lookups(index, step, records, saved.state) / records
        nodes = (index.nodes[name] for name in step)
        declaration.flops_per_example = flops(graph, nodes, records) / records
    return declaration


def computes(graph: tf.Graph, index: GraphIndex, step: Collection[str]) -> list[str]:
    """Kinds of the operations of the forward pass, sorted, each once: two models that have the same are of one family, whatever
    their sizes and optimizers. Empty: nobody knows, as where the script has written its gradients by hand.

    The forward pass is what gradients are made of: TensorFlow and Keras name their operations so.
    """
    made_of = (tensor for name in step if _is_gradient(name) for tensor in index.inputs(name))
    forward = index.upstream(tensor for tensor in made_of if not _is_gradient(op_name(tensor)))
    own = {operation.name for operation in graph.get_operations()}  # those of cut tables are ours
    kinds = {index.nodes[name].op for name in forward if name in own and not _is_gradient(name)}
    return sorted(one for one in kinds - _PLUMBING if not _OF_INPUT.search(one))[:KINDS_MAX]


def _is_gradient(name: str) -> bool:
    return any(scope.startswith(_GRADIENTS) for scope in name.split("/")[:-1])


def _lookups(index: GraphIndex, step: Collection[str], records: int, state: Collection[str]) -> int:
    """Rows of variables on PS that one step asks for, but for those that optimizers keep."""
    gathers: dict[str, str] = {}
    for variable, told in variables_on_ps(index).items():
        if told.name in state:
            continue  # an optimizer looks up what a look-up has brought
        read = [variable, *(node.name for node, _ in index.consumers(variable) if node.op in _READS)]
        for node, number in itertools.chain.from_iterable(map(index.consumers, read)):
            if node.op in _GATHERS and number == 0 and node.name in step:
                gathers[node.name] = index.inputs(node.name)[1]
    return sum(ids_per_step(index, ids, records) for ids in gathers.values())


# ------------------------------------------------------------------------------------------------ the input


def _input(index: GraphIndex, graph: tf.Graph) -> ModelInput:
    bodies = [list(index.nodes.values()), *(list(function.node_def) for function in index.functions.values())]
    nodes = list(itertools.chain.from_iterable(bodies))
    told = [text.partition(":") for text in graph.get_collection(READS)]
    ops = {node.op for node in nodes} | {name for kind, _, name in told if kind == "op"}
    if any(read_mark(node) is not None for node in nodes):
        ops -= _GIVES_ELASTIC
    found = {_FORMATS[op] for op in ops if op in _FORMATS} | {name for kind, _, name in told if kind == "format"}
    if not found and not _IN_MEMORY.isdisjoint(ops):
        found = {"memory"}
    texts = itertools.chain((os.fsencode(text) for kind, _, text in told if kind == "text"), _texts(nodes))
    sizes = [size for path in _paths(texts) if (size := _size(path)) is not None]
    columns, each = _columns(index)
    return ModelInput(
        format="+".join(sorted(found)), files=len(sizes), bytes=sum(sizes), columns=columns, bytes_per_example=each
    )


def _texts(nodes: Iterable[NodeDef]) -> Iterator[bytes]:
    """Constants of the graph."""
    for node in nodes:
        if node.op == "Const" and node.attr["dtype"].type == tf.string.as_datatype_enum:
            yield from tf.make_ndarray(node.attr["value"].tensor).ravel()[:FILES_MAX]


def _paths(texts: Iterable[bytes]) -> Iterator[str]:
    """Files of this machine that texts name, each once, by pattern too: nothing says which of them name the input, so those
    that lead to a file do. Training waits for it: a disk that takes long for each file is asked for LOOK_SECONDS."""
    seen: set[str] = set()
    deadline = time.monotonic() + LOOK_SECONDS
    for text in texts:
        path = os.fsdecode(text) if len(text) < PATH_MAX else ""
        if "/" not in path or "://" in path or "\0" in path or glob.has_magic(os.path.dirname(path)):
            continue  # whole trees of directories take minutes, also where nothing is found
        for one in glob.iglob(path) if glob.has_magic(path) else (path,):
            if one not in seen:
                seen.add(one)
                yield one
            if len(seen) >= FILES_MAX or time.monotonic() > deadline:
                return


def _size(path: str) -> int | None:
    try:
        return os.path.getsize(path) if os.path.isfile(path) else None
    except OSError:
        return None


def _columns(index: GraphIndex) -> tuple[int, float]:
    """(tensors of a batch, bytes that an example has in those of known size), of the widest iterator."""
    widest: tuple[int, float] = (0, 0.0)
    for node in index.nodes.values():
        if node.op == "IteratorGetNext":
            parts = list(zip(node.attr["output_types"].list.type, node.attr["output_shapes"].list.shape))
            widest = max(widest, (len(parts), sum(_bytes(*part) for part in parts)))
    fed = [node for node in index.nodes.values() if node.op == "Placeholder" and fed_records(node)]
    return max(widest, (len(fed), sum(_bytes(node.attr["dtype"].type, node.attr["shape"].shape) for node in fed)))


def _bytes(kind: int, shape: TensorShapeProto) -> float:
    """Of one example, in a column of this type and shape; 0: nobody knows."""
    sizes, dtype = [dim.size for dim in shape.dim[1:]], tf.as_dtype(kind)
    known = not shape.unknown_rank and all(size >= 0 for size in sizes)
    return math.prod(sizes) * dtype.size if known and dtype.is_numpy_compatible and dtype != tf.string else 0.0
