"""What a model is like, read off its finalised graph before anything is initialised: from it the AIMaster decides what the job

begins with. What the graph does not tell is 0 or empty, never guessed. Only sizes of files are looked at outside of the graph.
"""

from __future__ import annotations

import glob
import itertools
import math
import os
from collections.abc import Collection, Iterable, Iterator

import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef

from deeprec_ext.graph.batch import batch_size, ids_per_step
from deeprec_ext.graph.catalogue import Saved, build_catalogue
from deeprec_ext.graph.index import GraphIndex
from deeprec_ext.graph.marks import read_mark
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
_IN_MEMORY = frozenset({"TensorSliceDataset", "TensorDataset", "RangeDataset"})

FILES_MAX, PATH_MAX = 10_000, 4096
"""Files whose sizes are looked at: a few microseconds each, before the first step."""


def describe(graph: tf.Graph, index: GraphIndex, saved: Saved) -> Declaration:
    """
    Args:
      graph: the user's, which knows shapes.
      index: of the same graph as sessions take it, with large variables cut over slots.
      saved: how its variables are called in checkpoints.
    """
    step_ops = updates(index, variables_on_ps(index))
    step = index.upstream(step_ops)
    records = batch_size(index)
    catalogue = build_catalogue(index, step_ops, saved)
    del catalogue.warnings[:]  # told when they are known for sure
    declaration = Declaration(catalogue=catalogue, batch_size=records, operations=len(index.nodes), input=_input(index))
    if records:
        declaration.lookups_per_example = _lookups(index, step, records) / records
        nodes = (index.nodes[name] for name in step)
        declaration.flops_per_example = flops(graph, nodes, records) / records
    return declaration


def _lookups(index: GraphIndex, step: Collection[str], records: int) -> int:
    """Rows of variables on PS that one step asks for."""
    gathers: dict[str, str] = {}
    for variable in variables_on_ps(index):
        read = [variable, *(node.name for node, _ in index.consumers(variable) if node.op in _READS)]
        for node, number in itertools.chain.from_iterable(map(index.consumers, read)):
            if node.op in _GATHERS and number == 0 and node.name in step:
                gathers[node.name] = index.inputs(node.name)[1]
    return sum(ids_per_step(index, ids, records) for ids in gathers.values())


# ------------------------------------------------------------------------------------------------ the input


def _input(index: GraphIndex) -> ModelInput:
    bodies = [list(index.nodes.values()), *(list(function.node_def) for function in index.functions.values())]
    nodes = list(itertools.chain.from_iterable(bodies))
    found = {_FORMATS[node.op] for node in nodes if node.op in _FORMATS and read_mark(node) is None}
    if not found and any(node.op in _IN_MEMORY for node in nodes):
        found = {"memory"}
    sizes = [size for path in _paths(nodes) if (size := _size(path)) is not None]
    columns, each = _columns(index)
    return ModelInput(
        format="+".join(sorted(found)), files=len(sizes), bytes=sum(sizes), columns=columns, bytes_per_example=each
    )


def _paths(nodes: Iterable[NodeDef]) -> Iterator[str]:
    """Files of this machine that constants of the graph name, each once, by pattern too: nothing says which texts name the
    input, so those that lead to a file do."""
    texts = (
        text for node in nodes if node.op == "Const" and node.attr["dtype"].type == tf.string.as_datatype_enum
        for text in tf.make_ndarray(node.attr["value"].tensor).ravel()[:FILES_MAX]
    )  # fmt: skip
    seen: set[str] = set()
    for text in texts:
        path = os.fsdecode(text) if len(text) < PATH_MAX else ""
        if "/" not in path or "://" in path or "\0" in path:
            continue
        for one in glob.iglob(path) if glob.has_magic(path) else (path,):
            if one not in seen:
                seen.add(one)
                yield one
            if len(seen) >= FILES_MAX:
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
            kinds, shapes = node.attr["output_types"].list.type, node.attr["output_shapes"].list.shape
            each = 0.0
            for kind, shape in zip(kinds, shapes):
                sizes, dtype = [dim.size for dim in shape.dim[1:]], tf.as_dtype(kind)
                known = not shape.unknown_rank and all(size >= 0 for size in sizes)
                if known and dtype.is_numpy_compatible and dtype != tf.string:
                    each += math.prod(sizes) * dtype.size
            widest = max(widest, (len(kinds), each))
    return widest
