"""What Keras 3 does with whole tables is done with the rows that it wants.

In one process a read of a variable is a pointer to it, so Keras 3 reads an embedding table before it looks rows up, and an
optimizer that has a gradient of rows computes with the whole of its state before it takes these rows of it
(`g / gather(sqrt(accumulator + epsilon))`). On a PS the first would be a message with the whole table, the second as much
arithmetic. Three changes, after which a step gives what it gave:

1. Rows of what is computed value by value from whole tables are computed from rows of them; and looked up where the table is.
2. A division of rows by a whole table looks for zeros and NaNs in all of the table first, since there they would come out in
   rows without a gradient. They are not looked for: a divisor without them, which all optimizers see to by an epsilon, gives
   the same.
3. A count is read, added to and assigned; two workers may do so at once, and one would be lost. It is added to in one op.

Pure: a GraphDef is changed in place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tensorflow.core.framework.graph_pb2 import GraphDef

from deeprec_ext.graph import GraphIndex, attributes
from deeprec_ext.graph.index import op_name, output_number
from deeprec_ext.graph.writes import find_writes
from deeprec_ext.keras.placing import HERE, VALUE_BY_VALUE, handle_of, is_number

Dimensions = tuple[int, ...]


def done_by_rows(
    definition: GraphDef, variables: Mapping[str, Dimensions | None], wanted: Collection[str]
) -> GraphIndex:
    """All three changes; the index of what is left of the graph.

    Args:
      variables: placeholder of a handle -> dimensions of its variable, if known.
      wanted: ops and tensors that the step is run for, and placeholders of what it is given.
    """
    index = GraphIndex(definition)
    tables = {name: shape for name, shape in variables.items() if shape}
    numbers = {name for name, shape in variables.items() if shape == ()}
    for name in numbers:
        _count_in_one_op(index, name, numbers)
    switches: list[str] = []
    for name in [one.name for one in index.nodes.values() if one.op == "Any"]:
        if _looks_for_zeros(index, name, tables, numbers):
            switches += _never(index, name)
    reads: set[str] = set()
    for name in [one.name for one in index.nodes.values() if one.op == "GatherV2"]:
        reads |= _RowsOf(index, name, tables, numbers).convert()
    _sweep(index, {*wanted, *variables})
    for name in switches:
        if index.nodes[name].op == "Const" and all(
            _only_ordered(index, user.name, wanted) for user, _ in index.consumers(name)
        ):
            _wait_no_more(index, name, wanted)
    _shorten(index, switches, wanted)
    for name in reads:
        if all(index.inputs(user.name)[number][0] == "^" for user, number in index.consumers(name)):
            drop(index, name)
    return _left(index, {*map(op_name, wanted), *variables})


def _left(index: GraphIndex, kept: Collection[str]) -> GraphIndex:
    """Without what does nothing and has nobody who waits for it."""
    found = GraphDef(versions=index.definition.versions, library=index.definition.library)
    for node in index.definition.node:
        if node.op != "NoOp" or node.input or index.consumers(node.name) or node.name in kept:
            node.attr.pop("_class", None)  # it may name what is no more
            found.node.append(node)
    return GraphIndex(found)


def _sweep(index: GraphIndex, wanted: Collection[str]) -> None:
    """What nobody is run for takes nothing any more."""
    needed = index.upstream(wanted)
    for name in set(index.nodes) - needed:
        index.replace(index.nodes[name], "NoOp", HERE, [])


def _count_in_one_op(index: GraphIndex, handle: str, numbers: Collection[str]) -> None:
    """The third change, of one variable."""
    writes = find_writes(index, [handle])
    if len(writes) != 1 or writes[0].node.op != "AssignVariableOp":
        return
    write = writes[0].node
    target, value = index.inputs(write.name)[:2]
    added = index.nodes[op_name(value)]
    if added.op not in ("AddV2", "Add", "Sub"):
        return
    one, other = (tensor for tensor in index.inputs(added.name) if tensor[0] != "^")
    if _reads(index, one, handle) and is_number(index, op_name(other), numbers):
        controls = [tensor for tensor in index.inputs(write.name) if tensor[0] == "^"]
        op = "AssignSubVariableOp" if added.op == "Sub" else "AssignAddVariableOp"
        dtype = attributes.copied(write.attr["dtype"])
        index.replace(write, op, write.device, [target, other, *controls], dtype=dtype)


def _reads(index: GraphIndex, tensor: str, handle: str) -> bool:
    node = index.nodes[op_name(tensor)]
    while node.op == "Identity":
        node = index.nodes[op_name(index.inputs(node.name)[0])]
    return node.op == "ReadVariableOp" and handle_of(index, index.inputs(node.name)[0]) == handle


class _RowsOf:
    """One look-up of rows of a value.

    Args:
      gather: the node.
      tables: placeholders of handles, dimensions of what can be looked up by rows.
      numbers: placeholders of handles of single numbers.
    """

    def __init__(
        self, index: GraphIndex, gather: str, tables: Mapping[str, Dimensions], numbers: Collection[str]
    ) -> None:
        self._index, self._gather, self._tables, self._numbers = index, index.nodes[gather], tables, numbers
        self._reads: dict[str, str] = {}
        """Read of a whole -> look-up of its rows."""
        self._done: dict[str, str] = {}

    def convert(self) -> set[str]:
        """Changes the graph; the reads of whole tables in the place of which there are look-ups now."""
        value, ids, axis = self._index.inputs(self._gather.name)[:3]
        if not is_zero(self._index, axis) or self._gather.attr["batch_dims"].i or output_number(value):
            return set()
        found = wholes_of(self._index, value, self._tables, self._numbers)
        if not found or self._waited_for_before(found, ids):
            return set()
        rows = self._rows(op_name(value), ids)
        kept = [tensor for tensor in self._index.inputs(self._gather.name) if tensor[0] == "^"]
        dtype = attributes.copied(self._gather.attr["Tparams"])
        if op_name(value) in self._reads:  # nothing is computed: the look-up takes this one's name
            self._replace(self._gather.name, rows)
        else:
            # An identity is taken out, and of `g / sqrt(x)` TensorFlow makes `g * rsqrt(x)`, with another last bit.
            self._index.replace(self._gather, "DeepCopy", self._gather.device, [rows, *kept], T=dtype)
        for read, look_up in self._reads.items():
            self._hand_over(read, self._gather.name if look_up == rows else look_up)
        return set(self._reads)

    def _waited_for_before(self, reads: Collection[str], ids: str) -> bool:
        """Whether the ids follow from an op that waits for one of the reads: it could not wait for the look-up."""
        before = self._index.upstream([ids])
        return any(
            user.name in before
            for read in reads
            for user, number in self._index.consumers(read)
            if self._index.inputs(user.name)[number][0] == "^"
        )

    def _rows(self, name: str, ids: str) -> str:
        """The same as this op's value, for these rows alone."""
        if name in self._done:
            return self._done[name]
        index, node = self._index, self._index.nodes[name]
        inputs = index.inputs(name)
        controls = [tensor for tensor in inputs if tensor[0] == "^"]
        if node.op == "ReadVariableOp":
            made = index.add(
                name + "__rows", "ResourceGather", node.device, [inputs[0], ids, *controls],
                dtype=attributes.copied(node.attr["dtype"]), Tindices=attributes.copied(self._gather.attr["Tindices"]),
                validate_indices=attributes.flag(True), batch_dims=attributes.integer(0),
            ).name  # fmt: skip
            self._reads[name] = made
        elif is_number(index, name, self._numbers):
            return name
        else:
            of_rows = [self._rows(op_name(tensor), ids) for tensor in inputs if tensor[0] != "^"]
            copied = {key: attributes.copied(value) for key, value in node.attr.items() if key != "_output_shapes"}
            made = index.add(name + "__rows", node.op, node.device, [*of_rows, *controls], **copied).name
        self._done[name] = made
        return made

    def _replace(self, name: str, by: str) -> None:
        """Gives a node the meaning of another, which is dropped."""
        index, node, new = self._index, self._index.nodes[name], self._index.nodes[by]
        controls = [tensor for tensor in index.inputs(name) if tensor[0] == "^"]
        copied = {key: attributes.copied(value) for key, value in new.attr.items()}
        index.replace(node, new.op, new.device, [*index.inputs(by), *controls], **copied)
        index.replace(new, "NoOp", HERE, [])

    def _hand_over(self, read: str, look_up: str) -> None:
        """Who waits for the read waits for the look-up too."""
        index = self._index
        for user, number in list(index.consumers(read)):
            if index.inputs(user.name)[number][0] == "^" and user.name != look_up:
                index.add_control(user, look_up)


def wholes_of(index: GraphIndex, tensor: str, tables: Mapping[str, Dimensions], numbers: Collection[str]) -> set[str]:
    """The reads of whole tables, all of the same dimensions, from which this follows value by value; empty: it does not."""
    found: set[str] = set()
    shapes: set[Dimensions] = set()
    stack, seen = [op_name(tensor)], set()
    while stack:
        name = stack.pop()
        if name in seen:
            continue
        seen.add(name)
        node = index.nodes[name]
        inputs = [one for one in index.inputs(name) if one[0] != "^"]
        if node.op == "ReadVariableOp" and (handle := handle_of(index, inputs[0])) in tables:
            found.add(name)
            shapes.add(tables[handle])
        elif is_number(index, name, numbers):
            continue
        elif node.op in VALUE_BY_VALUE and inputs and not any(map(output_number, inputs)):
            stack += map(op_name, inputs)
        else:
            return set()
    return found if len(shapes) == 1 else set()


def drop(index: GraphIndex, name: str) -> None:
    """Takes an op away whose value nobody takes; who waits for it waits for what it has waited for."""
    before = [tensor[1:] for tensor in index.inputs(name) if tensor[0] == "^"]
    for user in {user.name: user for user, _ in index.consumers(name)}.values():
        kept = [tensor for tensor in index.inputs(user.name) if tensor[0] == "^" and tensor != "^" + name]
        index.keep_controls(user, kept)
        for one in before:
            if one != user.name:
                index.add_control(user, one)
    index.replace(index.nodes[name], "NoOp", HERE, [])


def _looks_for_zeros(index: GraphIndex, name: str, tables: Mapping[str, Dimensions], numbers: Collection[str]) -> bool:
    """Whether it is `any(equal(table, 0) | is_nan(table))` of what follows from a table value by value."""
    while index.nodes[name].op in ("Any", "Identity"):
        name = op_name(index.inputs(name)[0])
    if index.nodes[name].op != "LogicalOr":
        return False
    ops = {index.nodes[op_name(tensor)].op: op_name(tensor) for tensor in index.inputs(name) if tensor[0] != "^"}
    if set(ops) != {"Equal", "IsNan"}:
        return False
    value, zero = index.inputs(ops["Equal"])[:2]
    same = op_name(index.inputs(ops["IsNan"])[0]) == op_name(value)
    return is_zero(index, zero) and same and bool(wholes_of(index, value, tables, numbers))


def is_zero(index: GraphIndex, tensor: str) -> bool:
    node = index.nodes[op_name(tensor)]
    return node.op == "Const" and not any(attributes.values(node))


def _never(index: GraphIndex, ground: str) -> list[str]:
    """Of conditions that have this ground only the other branch is left; what was a Switch."""
    grounds, stack = set(), [ground]
    while stack:
        name = stack.pop()
        grounds.add(name)
        stack += [user.name for user, _ in index.consumers(name) if user.op in ("Any", "Identity")]
    switches = [
        node for node in index.nodes.values()
        if node.op == "Switch" and op_name(index.inputs(node.name)[1]) in grounds
    ]  # fmt: skip
    names = {node.name for node in switches}
    dead = _dead(index, names)
    merges = [node for node in index.nodes.values() if node.op == "Merge" and node.name not in dead]
    merges = [one for one in merges if any(_is_dead(tensor, dead, names) for tensor in index.inputs(one.name))]
    if any(output_number(index.inputs(user.name)[n]) for one in merges for user, n in index.consumers(one.name)):
        return []  # somebody asks which branch it was
    for node in merges:
        living = [tensor for tensor in index.inputs(node.name) if not _is_dead(tensor, dead, names)]
        index.replace(node, "Identity", node.device, living, T=attributes.copied(node.attr["T"]))
    for name in dead:
        index.replace(index.nodes[name], "NoOp", HERE, [])
    for node in switches:
        inputs = index.inputs(node.name)
        controls = [tensor for tensor in inputs if tensor[0] == "^"]
        if op_name(inputs[0]) in grounds:
            false = attributes.tensor(False)
            index.replace(node, "Const", HERE, controls, dtype=attributes.kind("bool"), value=false)
        else:
            dtype = attributes.copied(node.attr["T"])
            index.replace(node, "Identity", node.device, [inputs[0], *controls], T=dtype)
    return [node.name for node in switches]


def _only_ordered(index: GraphIndex, name: str, wanted: Collection[str]) -> bool:
    """Whether it does nothing, and others wait for it at most."""
    users = index.consumers(name)
    idle = index.nodes[name].op in ("Identity", "NoOp") and name not in wanted
    return idle and all(index.inputs(user.name)[number][0] == "^" for user, number in users)


def _shorten(index: GraphIndex, names: Collection[str], wanted: Collection[str]) -> None:
    """Who takes a value from one of these, or from what hands it on, takes it from where it comes from."""
    waiting = list(names)
    while waiting:
        node = index.nodes[waiting.pop()]
        if node.op != "Identity" or len(index.inputs(node.name)) > 1:
            continue
        for user, number in list(index.consumers(node.name)):
            if index.inputs(user.name)[number][0] != "^":
                index.set_input(user, number, index.inputs(node.name)[0])
                waiting.append(user.name)
        if not index.consumers(node.name) and not {node.name, node.name + ":0"} & set(wanted):
            index.replace(node, "NoOp", HERE, [])


def _wait_no_more(index: GraphIndex, name: str, wanted: Collection[str]) -> None:
    """For a condition to be known, and for what only waits for that."""
    users = list(dict.fromkeys(user.name for user, _ in index.consumers(name)))
    controls = [tensor for tensor in index.inputs(name) if tensor[0] == "^"]
    idle = [one for one in users if _only_ordered(index, one, wanted)]
    for one in idle:  # an Identity of the condition
        own = [tensor for tensor in index.inputs(one) if tensor[0] == "^"]
        index.replace(index.nodes[one], "NoOp", HERE, own)
    index.replace(index.nodes[name], "NoOp", HERE, controls)
    drop(index, name)
    for one in idle:
        _wait_no_more(index, one, wanted)


def _dead(index: GraphIndex, switches: Collection[str]) -> set[str]:
    """What never runs when these all choose their first output."""
    found: set[str] = set()
    stack = [(name, True) for name in switches]
    while stack:
        name, is_switch = stack.pop()
        for user, number in index.consumers(name):
            tensor = index.inputs(user.name)[number]
            if user.name in found or (is_switch and (tensor[0] == "^" or output_number(tensor) != 1)):
                continue
            if user.op == "Merge" and not all(_is_dead(one, found, switches) for one in index.inputs(user.name)):
                continue
            found.add(user.name)
            stack.append((user.name, False))
    return found


def _is_dead(tensor: str, dead: Collection[str], switches: Collection[str]) -> bool:
    return op_name(tensor) in dead or (tensor[0] != "^" and op_name(tensor) in switches and output_number(tensor) == 1)
