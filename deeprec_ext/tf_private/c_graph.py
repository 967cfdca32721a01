"""GraphDef → C graph, without stopping the interpreter.

`tf.graph_util.import_graph_def` wraps every node in a Python object. The C call below it does not, but it holds the
interpreter's lock: a quarter of a second for 18 000 nodes, in which no step of the training thread can begin. So large
graphs are imported in pieces, in topological order; edges between pieces go through the importer's input map.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import tensorflow as tf
from tensorflow.python.client import pywrap_tf_session as c_api
from tensorflow.python.framework import c_api_util

v1 = tf.compat.v1

PIECE_NODES = 1000
"""About 15 ms of the interpreter's lock."""


def import_definition(graph: tf.Graph, definition: v1.GraphDef, piece_nodes: int = PIECE_NODES) -> None:
    """Adds all nodes and functions to the graph; Python sees them by name only, through sessions.

    Raises tf.errors.InvalidArgumentError for a definition that is no valid graph.
    """
    pieces = _pieces(definition, piece_nodes)
    if pieces is None:
        with graph._c_graph.get() as c_graph:
            _add(c_graph, definition, _options())
        return
    piece_of = {node.name: number for number, piece in enumerate(pieces) for node in piece}
    tensors: dict[int, set[tuple[str, int]]] = defaultdict(set)  # what later pieces need of a piece
    controls: dict[int, set[str]] = defaultdict(set)
    for number, piece in enumerate(pieces):
        for node in piece:
            for name in node.input:
                source, index = _source(name)
                if piece_of[source] != number:
                    if index is None:
                        controls[piece_of[source]].add(source)
                    else:
                        tensors[piece_of[source]].add((source, index))
    outputs: dict[tuple[str, int], Any] = {}
    operations: dict[str, Any] = {}
    for number, piece in enumerate(pieces):
        part = v1.GraphDef(versions=definition.versions)
        part.node.extend(piece)
        if number == 0:
            part.library.CopyFrom(definition.library)
        scoped = _options()
        for source, index in sorted({_source(name) for node in piece for name in node.input}, key=str):
            if piece_of[source] == number:
                continue
            if index is None:
                c_api.TF_ImportGraphDefOptionsRemapControlDependency(scoped.options, source, operations[source])
            else:
                c_api.TF_ImportGraphDefOptionsAddInputMapping(scoped.options, source, index, outputs[source, index])
        wanted, awaited = sorted(tensors[number]), sorted(controls[number])
        for source, index in wanted:
            c_api.TF_ImportGraphDefOptionsAddReturnOutput(scoped.options, source, index)
        for source in awaited:
            c_api.TF_ImportGraphDefOptionsAddReturnOperation(scoped.options, source)
        with graph._c_graph.get() as c_graph:
            results = _add(c_graph, part, scoped)
        outputs.update(zip(wanted, c_api.TF_ImportGraphDefResultsReturnOutputs(results.results)))
        operations.update(zip(awaited, c_api.TF_ImportGraphDefResultsReturnOperations(results.results)))


def _options() -> Any:
    scoped = c_api_util.ScopedTFImportGraphDefOptions()
    c_api.TF_ImportGraphDefOptionsSetValidateColocationConstraints(scoped.options, False)
    return scoped


def _add(c_graph: Any, definition: v1.GraphDef, scoped: Any) -> Any:
    with c_api_util.tf_buffer(definition.SerializeToString()) as buffer:
        results = c_api.TF_GraphImportGraphDefWithResults(c_graph, buffer, scoped.options)
    return c_api_util.ScopedTFImportGraphDefResults(results)


def _source(name: str) -> tuple[str, int | None]:
    """`a:1` → (a, 1); `a` → (a, 0); `^a` → (a, None)."""
    if name.startswith("^"):
        return name[1:], None
    source, colon, index = name.rpartition(":")
    return (source, int(index)) if colon else (name, 0)


def _pieces(definition: v1.GraphDef, size: int) -> list[list[v1.NodeDef]] | None:
    """The nodes in topological order, cut; None for a small graph.

    The importer refuses a node `a` once the graph has an `a/b`, so those two stay together. What a cycle (a TF1 loop, or
    such a pair) keeps from being ordered comes last, in one piece.
    """
    nodes = definition.node
    if len(nodes) <= 2 * size:
        return None
    names = {node.name for node in nodes}
    family = {name: _oldest(name, names) for name in names}
    members: dict[str, list[v1.NodeDef]] = defaultdict(list)
    for node in nodes:
        members[family[node.name]].append(node)
    sources = {
        head: {family[_source(name)[0]] for node in of_head for name in node.input} - {head}
        for head, of_head in members.items()
    }
    consumers: dict[str, list[str]] = defaultdict(list)
    for head, of_head in sources.items():
        for source in of_head:
            consumers[source].append(head)
    waiting = {head: len(of_head) for head, of_head in sources.items()}
    ready = [head for head, count in waiting.items() if not count]
    pieces: list[list[v1.NodeDef]] = [[]]
    for head in ready:  # grows while it is read
        if len(pieces[-1]) >= size:
            pieces.append([])
        pieces[-1] += members[head]
        for consumer in consumers[head]:
            waiting[consumer] -= 1
            if not waiting[consumer]:
                ready.append(consumer)
    pieces.append([node for head, count in waiting.items() if count for node in members[head]])
    return [piece for piece in pieces if piece]


def _oldest(name: str, names: set[str]) -> str:
    """The shortest of `a`, `a/b`, `a/b/c` that is the name of a node."""
    end = name.find("/")
    while end >= 0:
        if name[:end] in names:
            return name[:end]
        end = name.find("/", end + 1)
    return name
