"""The variable catalogue: what lies on the slots, how large it is and how training updates it.

`ROWS` (pre-copied by rows while training runs) is what no op of the training step writes as a whole; every other write,
a restore for example, marks all rows. `DENSE` is copied in the pause, so it had better be small: large tables among it
are named in a warning with the remedy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from deeprec_ext.graph.index import GraphIndex, op_name
from deeprec_ext.graph.marks import STATE
from deeprec_ext.graph.writes import VariableNode, Write, find_writes, variable_bytes, variables_on_ps
from deeprec_ext.proto.deeprec_ext_pb2 import Catalogue, Variable
from deeprec_ext.tf_private.operations import is_variable, save_slice
from deeprec_ext.units import few

SMALLEST_TABLE_BYTES = 64 * 1024
"""Below this a bitmap and row copies cost more than copying the variable whole in the pause."""

SLOW_TABLE_BYTES = 10_000_000
"""Of tables and slots that each step writes whole: from there on it takes much of its time, and the user is told."""

_SLOW = " (which makes steps slow)"

BITMAP_SUFFIX = "@dirty"
_GATHERS = frozenset({"ResourceGather", "Gather", "GatherV2"})


@dataclass(frozen=True)
class _Facts:
    """What the step does to one variable (all nodes of one shared name)."""

    node: VariableNode
    bytes: int
    dense: bool
    by_rows: bool
    looked_up: bool

    @property
    def tracked(self) -> bool:
        return not self.dense and self.bytes >= SMALLEST_TABLE_BYTES and bool(self.node.dimensions)


def _looked_up(index: GraphIndex, variable: str, upstream: Collection[str]) -> bool:
    """Whether the step gathers rows of it, directly or from a read of it."""
    names = [variable]
    for consumer, _ in index.consumers(variable):
        if consumer.op in ("ReadVariableOp", "Identity"):
            names.append(consumer.name)
    return any(
        consumer.op in _GATHERS and number == 0 and consumer.name in upstream
        for name in names
        for consumer, number in index.consumers(name)
    )


def _facts(
    index: GraphIndex, upstream: Collection[str], writes: list[Write], nodes: dict[str, VariableNode]
) -> dict[str, _Facts]:
    dense: set[str] = set()
    by_rows: set[str] = set()
    for write in writes:
        if write.node.name in upstream:
            (by_rows if write.by_rows else dense).update(nodes[v].name for v in write.variables)
    looked_up = {variable.name for node, variable in nodes.items() if _looked_up(index, node, upstream)}
    return {
        v.name: _Facts(v, variable_bytes(v), v.name in dense, v.name in by_rows, v.name in looked_up)
        for v in nodes.values()
    }


def _bitmaps(facts: dict[str, _Facts], writes: list[Write], nodes: dict[str, VariableNode]) -> dict[str, str]:
    """variable -> bitmap: optimizer slots share their table's when one op updates both at the same rows."""
    owner: dict[str, str] = {}
    for write in sorted(writes, key=lambda w: w.node.name):
        names = [name for name in dict.fromkeys(nodes[v].name for v in write.variables) if facts[name].tracked]
        if write.by_rows and names:
            table = owner.get(names[0], names[0])
            for name in names:
                one, other = facts[name].node, facts[table].node
                if one.rows == other.rows and one.slot == other.slot:
                    owner.setdefault(name, table)
    return {name: owner.get(name, name) + BITMAP_SUFFIX for name, fact in facts.items() if fact.tracked}


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


def _warnings(facts: dict[str, _Facts]) -> list[str]:
    found = []
    unknown = sorted(name for name, f in facts.items() if f.bytes == 0 and f.node.dimensions is None)
    if unknown:
        found.append(
            f"the shape of {few(unknown)} is not known before the run: "
            "copied whole while training pauses, and not counted when slots are balanced; declare the shape"
        )
    tables = [f for f in facts.values() if f.dense and (f.by_rows or f.looked_up) and f.bytes >= SMALLEST_TABLE_BYTES]
    if tables:
        tables.sort(key=lambda f: (-f.bytes, f.node.name))
        named = few([f"{f.node.name} ({_megabytes(f.bytes)})" for f in tables])
        whole = sum(f.bytes for f in tables)
        found.append(
            f"every row of these tables and slots is written in each step{_SLOW if whole >= SLOW_TABLE_BYTES else ''}, by an "
            f"optimizer like Adam, or since the loss reads the whole table (an l2_loss of it): {named}; {_megabytes(whole)} "
            "are copied while training pauses. "
            "Use a lazy Adam or Adagrad, or run with --setting lazy=on, and regularise the rows that were looked up: what is "
            "updated by rows is copied before the pause"
        )
    return found


def is_slow(warning: str) -> bool:
    """Whether what a catalogue warns of makes each step slow, and not a pause longer alone."""
    return _SLOW in warning


@dataclass(frozen=True)
class Saved:
    """How a graph's variables are called in its checkpoints: what a GraphDef does not tell."""

    names: Mapping[str, tuple[str, str]]
    """Shared name -> (name in a checkpoint, `shape_and_slice` of a part of a partitioned variable or empty)."""
    global_step: str = ""
    """Shared name of the global step; empty when the graph has none."""
    state: frozenset[str] = frozenset()
    """Shared names of those that an optimizer keeps, where their names do not tell."""


def saved_names(graph: tf.Graph) -> Saved:
    """From the graph's collections: all global variables, as a Saver without arguments saves them."""
    names = {}
    for variable in graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES):
        operation = _operation(variable)
        if operation is not None:
            info = save_slice(variable)
            name, part = (info.full_name, info.spec) if info is not None else (operation.name, "")
            names[_shared_name(operation)] = name, part
    steps = graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_STEP)
    step = _operation(steps[0]) if steps else None
    return Saved(names, _shared_name(step) if step is not None else "", frozenset(graph.get_collection(STATE)))


def _operation(variable: Any) -> Any:
    """The op that makes a variable; None for what is no variable of this graph (collections hold anything)."""
    tensor = getattr(variable, "handle", variable)
    return getattr(tensor, "op", None) if is_variable(variable) else None


def _shared_name(operation: Any) -> str:
    return operation.node_def.attr["shared_name"].s.decode() or operation.name


def build_catalogue(
    graph_def: tf.compat.v1.GraphDef | GraphIndex, step_targets: Collection[str], saved: Saved | None = None
) -> Catalogue:
    """The variables on /job:ps of a user's graph.

    Args:
      graph_def: the graph on slots, as the user built it, or an index of it.
      step_targets: names of the ops that one training step runs (the train op); what is upstream of them is "the step".
      saved: names in a checkpoint; without them every variable is taken to be saved, whole, under its shared name.
    """
    index = graph_def if isinstance(graph_def, GraphIndex) else GraphIndex(graph_def)
    nodes = variables_on_ps(index)
    writes = find_writes(index, nodes)
    facts = _facts(index, index.upstream(map(op_name, step_targets)), writes, nodes)
    bitmaps = _bitmaps(facts, writes, nodes)
    step = saved.global_step if saved is not None else ""
    catalogue = Catalogue(global_step=step or ("global_step" if "global_step" in facts else ""))
    for name in sorted(facts):
        fact = facts[name]
        variable = _described(fact.node, saved)
        variable.update = Variable.ROWS if name in bitmaps else Variable.DENSE
        variable.bitmap = bitmaps.get(name, "")
        catalogue.variables.append(variable)
    _sign(catalogue)
    catalogue.warnings.extend(_warnings(facts))
    return catalogue


def declare(index: GraphIndex, saved: Saved) -> Catalogue:
    """The same before anybody knows what a step is: which variables the graph may make on the PS, and where."""
    nodes = {node.name: node for node in variables_on_ps(index).values()}
    catalogue = Catalogue(global_step=saved.global_step)
    catalogue.variables.extend(_described(nodes[name], saved) for name in sorted(nodes))
    _sign(catalogue)
    return catalogue


def _described(node: VariableNode, saved: Saved | None) -> Variable:
    saved_as, part = saved.names.get(node.name, ("", "")) if saved is not None else (node.name, "")
    return Variable(
        name=node.name,
        container=node.node.attr["container"].s.decode(),
        dtype=node.node.attr["dtype"].type,
        shape=node.dimensions or (),
        slot=node.slot,
        reference=node.reference,
        bytes=variable_bytes(node),
        saved_name=saved_as,
        slice=part,
        state=saved is not None and node.name in saved.state,
    )


def _sign(catalogue: Catalogue) -> None:
    digest = hashlib.sha256()
    for variable in catalogue.variables:
        digest.update(variable.SerializeToString(deterministic=True))
    digest.update(catalogue.global_step.encode())
    catalogue.fingerprint = digest.hexdigest()
