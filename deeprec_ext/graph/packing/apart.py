"""Names of a packed run that TensorFlow's importer can take in pieces.

It refuses an op `a` once the graph has an `a/b`, so `tf_private/c_graph.py` keeps the two in one piece: an op that is called as
the scope that it ends (`embedding_lookup_sparse(name="C1")`, what `minimize` gives) ties together all that is in the scope. A
message ties together what it is made of and what is made of it. With both, nearly all of a run is one piece. So such ops get
another name here; where somebody asks for one by its name, what is in its scope does. Nothing does by which TensorFlow knows
what it keeps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache

from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.core.framework.types_pb2 import DT_RESOURCE

from deeprec_ext.graph.index import op_name
from deeprec_ext.graph.packing.reaching import Run
from deeprec_ext.graph.packing.sparing import instead
from deeprec_ext.tf_private.operations import op_def

_COLOCATED = b"loc:@"


def name_apart(definition: GraphDef, run: Run) -> int:
    """Changes the definition; returns how many ops have another name now."""
    ops = {node.name: node.op for node in definition.node}
    scopes: dict[str, list[str]] = defaultdict(list)
    for name in ops:
        for scope in _above(name):
            if scope in ops:
                scopes[scope].append(name)
    kept = {op_name(one) for one in (*run.feeds, *run.fetches, *run.targets)}
    given: dict[str, str] = {}
    for scope, inside in sorted(scopes.items()):
        if scope not in kept:
            if not _is_known_by_name(ops[scope]):
                given[scope] = instead(given.get(scope, scope), "itself")
        elif kept.isdisjoint(inside) and not any(_is_known_by_name(ops[name]) for name in inside):
            for name in inside:
                given[name] = instead(scope, "within") + given.get(name, name)[len(scope) :]
    if set(given.values()) & ops.keys():
        return 0  # a script that calls its ops so
    _rename(definition, given)
    return len(given)


def _rename(definition: GraphDef, given: Mapping[str, str]) -> None:
    for node in definition.node:
        node.name = given.get(node.name, node.name)
        for number, tensor in enumerate(node.input):
            if (name := op_name(tensor)) in given:
                node.input[number] = tensor.replace(name, given[name], 1)
        if "_class" in node.attr:
            told = node.attr["_class"].list.s
            told[:] = [_colocated(one, given) for one in told]


@lru_cache(maxsize=4096)
def _is_known_by_name(op: str) -> bool:
    """What it gives may be a variable, a table or an iterator that is kept under its name."""
    known = op_def(op)
    if known is None:
        return True
    gives = any(one.is_ref or one.type == DT_RESOURCE or one.type_list_attr for one in known.output_arg)
    return known.is_stateful and gives


def _above(name: str) -> Iterable[str]:
    """`a`, `a/b` of `a/b/c`."""
    end = name.find("/")
    while end >= 0:
        yield name[:end]
        end = name.find("/", end + 1)


def _colocated(told: bytes, given: Mapping[str, str]) -> bytes:
    name = told[len(_COLOCATED) :].decode() if told.startswith(_COLOCATED) else ""
    return _COLOCATED + given[name].encode() if name in given else told
