"""Lazy updates: an optimizer that writes every row of a table in each step writes those of the batch alone.

Adam lets all moments decay and moves all rows by them, whether a row is in the batch or not; so do momentum, RMSProp and their
like. Of a table that is hundreds of megabytes a step, and nothing is left that could be copied row by row before a change. What
LazyAdam does, done to any of them: where the gradient of a table comes as rows (`ResourceScatterAdd` of unique ids, or rows put
into a whole of zeros), the arithmetic around it is value by value, so it gives the same for these rows if it is done to them
alone. Reads of the whole become look-ups of the rows, assignments become scatters of them; the arithmetic stays. Keras 3
puts a row into the whole for each time that its id is in the batch: these are added up first, as the whole would do it.

Rows that a batch does not have keep their values and moments, which is where the model differs from the one that the plain
optimizer trains. Only with `--setting lazy=on`. Done to the user's graph when it is exported, so that the catalogue, marks,
migration and backups see updates by rows.

A table for which any op of its update is something else is left as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue
from tensorflow.core.framework.node_def_pb2 import NodeDef

from deeprec_ext.graph import attributes
from deeprec_ext.graph.index import GraphIndex, op_name, output_number
from deeprec_ext.graph.marks import BATCH_ROWS
from deeprec_ext.graph.writes import RESOURCE_VARIABLES, VariableNode, Write, find_writes, variables_on_ps

_SCATTERS = {
    "AssignAddVariableOp": "ResourceScatterAdd", "AssignSubVariableOp": "ResourceScatterSub",
    "AssignVariableOp": "ResourceScatterUpdate",
}  # fmt: skip
_VALUE_BY_VALUE = frozenset(
    "Abs Add AddV2 Cast DeepCopy Div DivNoNan Identity Maximum Minimum Mul MulNoNan Neg Pow RealDiv Reciprocal Rsqrt Sign Sqrt "
    "Square SquaredDifference Sub ZerosLike OnesLike Select SelectV2 Greater GreaterEqual Less LessEqual Equal NotEqual "
    "LogicalAnd LogicalOr LogicalNot".split()
)
_FLAT = frozenset({"Reshape", "ConcatV2"})
"""What makes the ids of a gradient of look-ups, of one or of several: they have one dimension."""
_FAR = 24
"""Ops looked at to see that something is one number, or that ids are unique."""


@dataclass
class _Chain:
    """What is computed from whole tables on the way to one assignment."""

    reads: set[str] = field(default_factory=set)
    arithmetic: set[str] = field(default_factory=set)
    wholes: set[str] = field(default_factory=set)
    """Ops that make a whole of rows, with zeros for all others."""
    strange: bool = False
    """Not value by value, or not from whole tables alone."""


@dataclass(frozen=True)
class _Update:
    """An assignment of a whole table that follows from whole tables."""

    node: NodeDef
    variable: str
    chain: _Chain


def make_lazy(index: GraphIndex) -> list[str]:
    """Changes the graph; shared names of the variables that are written by rows now and were not, sorted."""
    nodes = {
        name: one for name, one in variables_on_ps(index).items() if one.node.op in RESOURCE_VARIABLES and one.rows > 1
    }
    writes = find_writes(index, nodes)
    changed = [name for group in _groups(index, nodes, writes) if group.convert() for name in group.names]
    return sorted(changed)


def _groups(index: GraphIndex, nodes: dict[str, VariableNode], writes: Iterable[Write]) -> list[_Group]:
    """Tables that are updated together: by rows of the same ids, or one from the other."""
    scatters: dict[str, list[Write]] = {}
    updates: list[_Update] = []
    unknown: set[str] = set()
    for write in writes:
        if write.by_rows and len(write.variables) == 1 and not write.frames:
            scatters.setdefault(write.variables[0], []).append(write)
        elif write.node.op in _SCATTERS and not write.frames:
            chain = _follow(index, write.node, nodes)
            if chain.strange or chain.reads or chain.wholes:  # not what initialises or restores it
                updates.append(_Update(write.node, write.variables[0], chain))
        else:
            unknown.update(write.variables)
    joined = _Joined(nodes)
    for update in updates:
        if update.chain.strange:
            unknown.add(update.variable)
        for read in update.chain.reads:
            joined.join(update.variable, op_name(index.inputs(read)[0]))
    by_ids: dict[str, str] = {}
    for update in updates:
        for whole in update.chain.wholes:
            joined.join(update.variable, by_ids.setdefault(_plain(index.inputs(whole)[1]), update.variable))
    for variable, some in scatters.items():
        for write in some:
            joined.join(variable, by_ids.setdefault(_ids(write.node), variable))
    found = []
    for members in joined.groups():
        mine = [update for update in updates if update.variable in members]
        ids = {_ids(write.node) for variable in members for write in scatters.get(variable, ())}
        ids |= {_plain(index.inputs(whole)[1]) for update in mine for whole in update.chain.wholes}
        if mine and len(ids) == 1 and not members & unknown:
            scattered = any(update.variable in scatters for update in mine)
            group = _Group(index, nodes, members, mine, next(iter(ids)), scattered)
            if group.possible():
                found.append(group)
    return found


class _Joined:
    """Sets of names that grow together."""

    def __init__(self, names: Iterable[str]) -> None:
        self._of = {name: {name} for name in names}

    def join(self, one: str, other: str) -> None:
        if one in self._of and other in self._of and self._of[one] is not self._of[other]:
            whole = self._of[one] | self._of[other]
            for name in whole:
                self._of[name] = whole

    def groups(self) -> list[set[str]]:
        return list({id(one): one for one in self._of.values()}.values())


class _Group:
    def __init__(
        self, index: GraphIndex, nodes: dict[str, VariableNode], members: set[str], updates: list[_Update], ids: str,
        scattered: bool,
    ) -> None:  # fmt: skip
        self._index, self._nodes, self._members, self._updates, self._ids = index, nodes, members, updates, ids
        self._between = {name for update in updates for name in update.chain.arithmetic}
        self._reads = {name for update in updates for name in update.chain.reads}
        self._wholes = {name for update in updates for name in update.chain.wholes}
        self._assigns = {update.node.name for update in updates}
        self._unique = _unique(index, ids)
        """Whether no id is there twice."""
        self._mergeable = not scattered and index.nodes[op_name(ids)].op in _FLAT
        """Whether rows of the same id can be added up before."""
        self.names = sorted({nodes[update.variable].name for update in updates})

    def possible(self) -> bool:
        """Whether nobody else uses what would be rows, and all that is added to rows is one number."""
        index = self._index
        if not self._unique and not self._mergeable:
            return False
        shapes = {self._nodes[name].dimensions for name in self._members}
        if len(shapes) > 1 or None in shapes or len({self._nodes[name].slot for name in self._members}) > 1:
            return False
        for name in self._between | self._reads | self._wholes:
            for consumer, number in index.consumers(name):
                tensor = index.inputs(consumer.name)[number]
                known = consumer.name in self._between or consumer.name in self._assigns
                if tensor[0] != "^" and not known and not self._takes_rows(consumer, number):
                    return False
        return all(
            op_name(tensor) in self._between | self._reads | self._wholes or _is_number(index, op_name(tensor))
            for name in self._between
            for tensor in index.inputs(name)
            if tensor[0] != "^"
        )

    def _takes_rows(self, node: NodeDef, number: int) -> bool:
        """`tf.gather(table, ids)` of the same ids."""
        inputs = self._index.inputs(node.name)
        return self._unique and node.op in ("GatherV2", "Gather") and number == 0 and _plain(inputs[1]) == self._ids

    def convert(self) -> bool:
        index = self._index
        kind = self._kind_of_ids()
        if not self._unique:
            self._merge(kind)
        takers = {
            consumer.name
            for name in self._between | self._reads
            for consumer, number in index.consumers(name)
            if self._takes_rows(consumer, number)
        }
        for name in takers:
            node = index.nodes[name]
            dtype = attributes.copied(node.attr["Tparams"])
            index.replace(node, "Identity", node.device, [index.inputs(name)[0], *_controls(index, name)], T=dtype)
        for name in self._wholes if self._unique else ():
            node = index.nodes[name]
            dtype = attributes.copied(node.attr["T"])
            index.replace(node, "Identity", node.device, [index.inputs(name)[0], *_controls(index, name)], T=dtype)
        for name in self._reads:
            node = index.nodes[name]
            handle = index.inputs(name)[0]
            index.replace(
                node, "ResourceGather", node.device, [handle, self._ids, *_controls(index, name)],
                dtype=attributes.copied(node.attr["dtype"]), Tindices=kind, validate_indices=attributes.flag(True),
                batch_dims=attributes.integer(0),
            )  # fmt: skip
        for update in self._updates:
            node, dtype = update.node, attributes.copied(update.node.attr["dtype"])
            handle, value = index.inputs(node.name)[:2]
            index.replace(
                node, _SCATTERS[node.op], node.device, [handle, self._ids, value, *_controls(index, node.name)],
                dtype=dtype, Tindices=kind,
            )  # fmt: skip
        for name in self._reads | self._between | self._wholes:
            index.nodes[name].attr[BATCH_ROWS].b = True
        self._drop_idle_reads()
        return True

    def _merge(self, kind: AttrValue) -> None:
        """The rows of each id are added up, where a whole was made of them."""
        index, number = self._index, attributes.kind(tf.int32)
        device = index.nodes[op_name(self._ids)].device
        unique = index.add(op_name(self._ids) + "__unique", "Unique", device, [self._ids], T=kind, out_idx=number).name
        size = index.add(unique + "__size", "Size", device, [unique], T=kind, out_type=number).name
        for name in self._wholes:
            node = index.nodes[name]
            dtype = attributes.copied(node.attr["T"])
            inputs = [index.inputs(name)[0], unique + ":1", size, *_controls(index, name)]
            index.replace(
                node, "UnsortedSegmentSum", node.device, inputs, T=dtype, Tindices=number, Tnumsegments=number
            )  # fmt: skip
        self._ids = unique

    def _drop_idle_reads(self) -> None:
        """Reads of the whole whose value nobody takes, but which others wait for: of a table that is written by rows each is a
        copy of all of it."""
        index = self._index
        for member in self._members:
            for node, _ in list(index.consumers(member)):
                users = index.consumers(node.name)
                waits = [index.inputs(user.name)[number][0] == "^" for user, number in users]
                if node.op == "ReadVariableOp" and waits and all(waits):
                    index.replace(node, "NoOp", node.device, _controls(index, node.name))

    def _kind_of_ids(self) -> AttrValue:
        takers = [consumer for member in self._members for consumer, _ in self._index.consumers(member)]
        takers += [self._index.nodes[name] for name in self._wholes]
        kinds = [
            one.attr["Tindices"] for one in takers if self._ids in map(_plain, one.input) and "Tindices" in one.attr
        ]
        return attributes.copied(kinds[0])  # a group has a scatter, or a whole that is made of rows


def _ids(node: NodeDef) -> str:
    number = attributes.input_of(node, "indices")
    assert number is not None
    return _plain(node.input[number])


def _plain(tensor: str) -> str:
    return tensor[:-2] if tensor.endswith(":0") else tensor


def _controls(index: GraphIndex, name: str) -> list[str]:
    return [tensor for tensor in index.inputs(name) if tensor[0] == "^"]


def _follow(index: GraphIndex, node: NodeDef, nodes: Collection[str]) -> _Chain:
    """What an assignment's value follows from."""
    chain, stack, seen, strange = _Chain(), [op_name(index.inputs(node.name)[1])], set(), []
    while stack:
        name = stack.pop()
        if name in seen:
            continue
        seen.add(name)
        one = index.nodes[name]
        if one.op == "ReadVariableOp" and op_name(index.inputs(name)[0]) in nodes:
            chain.reads.add(name)
        elif _is_number(index, name):
            continue
        elif one.op == "UnsortedSegmentSum":
            chain.wholes.add(name)
        elif one.op in _VALUE_BY_VALUE:
            chain.arithmetic.add(name)
            stack += [op_name(tensor) for tensor in index.inputs(name) if tensor[0] != "^"]
        else:
            strange.append(name)
    upstream = index.upstream(strange)
    if upstream & set(nodes):
        chain.strange = True
        wholes = (name for name in upstream if index.nodes[name].op == "ReadVariableOp")
        chain.reads.update(name for name in wholes if op_name(index.inputs(name)[0]) in nodes)
    return chain


def _is_number(index: GraphIndex, name: str, depth: int = 0) -> bool:
    """Whether it certainly has no dimensions."""
    node = index.nodes[name]
    if node.op == "Const":
        shape = node.attr["value"].tensor.tensor_shape
        return not shape.dim and not shape.unknown_rank
    inputs = [tensor for tensor in index.inputs(name) if tensor[0] != "^"]
    if node.op == "ReadVariableOp":
        shape = index.nodes[op_name(inputs[0])].attr["shape"].shape
        return index.nodes[op_name(inputs[0])].op == "VarHandleOp" and not shape.unknown_rank and not shape.dim
    if node.op in ("Placeholder", "PlaceholderWithDefault"):
        shape = node.attr["shape"].shape
        return not shape.unknown_rank and not shape.dim
    if depth > _FAR or not inputs or node.op not in _VALUE_BY_VALUE:
        return False
    return all(_is_number(index, op_name(tensor), depth + 1) for tensor in inputs)


def _unique(index: GraphIndex, ids: str) -> bool:
    """Whether no id can be there twice: a scatter would then add twice what an assignment adds once."""
    for _ in range(_FAR):
        node = index.nodes[op_name(ids)]
        if node.op in ("Unique", "UniqueV2"):
            return output_number(ids) == 0
        if node.op not in ("Identity", "IdentityN", "Cast"):
            return False
        ids = index.inputs(node.name)[output_number(ids) if node.op == "IdentityN" else 0]
    return False
