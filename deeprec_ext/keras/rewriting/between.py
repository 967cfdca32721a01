"""What a step has just written is what it goes on with, whoever else has written it in the meantime.

Keras 2's optimizers assign an optimizer's state and read it again for the weight: `m.assign(-g * lr + m * momentum)`, then
`variable.assign_add(m)`. In one process the read gives what was written. Of two workers, one may read what the other has
written between the two ops, and then both add both: with SGD, whose `m` is the update itself, every update that meets another
one is done twice. An op of TensorFlow 1 does both at once. Two changes, after which one process gives what it gave:

1. A read after a write takes the value that was written: the assigned one, or what was read before with what was added to it.
2. SGD without momentum adds the rows of a table's gradient to zeros in `m`, and `m` to the table. It adds the rows to the
   table, and does without `m`.

A read of which rows alone are looked up (`wholes` makes a look-up of it before) stays: RMSprop divides by them. So does a read
after a scatter of rows: the value would be a copy of the whole. (Then a momentum has a little of what another
worker has just added, and an update of that is in both steps.)

Pure: a GraphDef is changed in place.
"""

from __future__ import annotations

from collections.abc import Collection

from tensorflow.core.framework.node_def_pb2 import NodeDef

from deeprec_ext.graph import GraphIndex, attributes
from deeprec_ext.graph.index import op_name
from deeprec_ext.graph.writes import find_writes
from deeprec_ext.keras.placing import uses
from deeprec_ext.keras.rewriting.wholes import drop, is_zero

_ADDS = {"AssignAddVariableOp": "AddV2", "AssignSubVariableOp": "Sub"}


def go_on_with_what_was_written(index: GraphIndex, state: Collection[str]) -> set[str]:
    """Both changes.

    Args:
      state: placeholders of handles of what optimizers keep, but for single numbers.

    Returns those of them that the step does without now.
    """
    left = set()
    for handle in state:
        one = _OfVariable(index, handle)
        if one.in_order:
            one.hand_on()
            if one.add_rows_alone():
                left.add(handle)
    return left


class _OfVariable:
    """Reads and writes of one variable, in the order in which a step does them."""

    def __init__(self, index: GraphIndex, handle: str) -> None:
        self._index, self._handle = index, handle
        use = uses(index, handle)
        self._writes = {write.node.name: write.node for write in find_writes(index, [handle])}
        self._reads = [name for name in use.takers if index.nodes[name].op == "ReadVariableOp"]
        own = {*self._writes, *self._reads}
        self._before: dict[str, set[str]] = {}
        for name in own:
            self._before[name] = self._all_before(name, own)
        self.in_order = not use.conditional and all(
            one == other or one in self._before[other] or other in self._before[one]
            for one in self._writes
            for other in own
        )

    def _all_before(self, name: str, own: Collection[str]) -> set[str]:
        """A trace makes each op on a variable wait for those before it, by an edge from one to the other."""
        found: set[str] = set()
        stack = [name]
        while stack:
            for tensor in self._index.inputs(stack.pop()):
                one = op_name(tensor)
                if one in own and one not in found:
                    found.add(one)
                    stack.append(one)
        return found

    def _written_before(self, name: str) -> set[str]:
        return self._before[name] & self._writes.keys()

    def _last(self, name: str) -> NodeDef | None:
        """The write that gave what is there before this op; None: it is what was there before the step."""
        before = self._written_before(name)
        return next((self._writes[one] for one in before if before <= {one} | self._before[one]), None)

    def hand_on(self) -> None:
        """The first change."""
        index = self._index
        for read in sorted(self._reads, key=lambda name: len(self._before[name])):
            write = self._last(read)
            value = self._value_after(write) if write is not None else None
            if value is not None:
                node = index.nodes[read]
                dtype = attributes.copied(node.attr["dtype"])
                controls = [tensor for tensor in index.inputs(read) if tensor[0] == "^"]
                index.replace(node, "Identity", "", [value, *controls], T=dtype)

    def _value_after(self, write: NodeDef) -> str | None:
        index = self._index
        inputs = index.inputs(write.name)
        if write.op == "AssignVariableOp":
            return inputs[1]
        if write.op not in _ADDS:
            return None
        before = self._written_before(write.name)
        known = [one for one in self._reads if one in self._before[write.name] and self._written_before(one) == before]
        if not known:
            return None
        dtype = attributes.copied(write.attr["dtype"])
        return index.add(write.name + "__after", _ADDS[write.op], "", [known[0], inputs[1]], T=dtype).name

    def add_rows_alone(self) -> bool:
        """The second change; whether it was made."""
        index = self._index
        scatter = next((one for one in self._writes.values() if one.op == "ResourceScatterAdd"), None)
        if scatter is None or len(self._writes) != 2:
            return False
        zeros = self._last(scatter.name)
        if zeros is None or zeros.op != "AssignVariableOp":
            return False
        product = index.nodes[op_name(index.inputs(zeros.name)[1])]
        if product.op != "Mul" or not any(is_zero(index, one) for one in index.inputs(product.name)[:2]):
            return False
        sums = [
            one for one in self._reads if index.nodes[one].op == "ReadVariableOp" and scatter.name in self._before[one]
        ]
        takers = {user.name: user for one in sums for user in _takers(index, one)}
        befores = [one for one in self._reads if one not in sums]
        alone = all(user.name == product.name for one in befores for user in _takers(index, one))
        alone = alone and all(user.name == zeros.name for user in _takers(index, product.name))
        if not takers or not alone or any(user.op != "AssignAddVariableOp" for user in takers.values()):
            return False
        ids, rows = index.inputs(scatter.name)[1:3]
        for user in takers.values():
            target, *_ = index.inputs(user.name)
            controls = [tensor for tensor in index.inputs(user.name) if tensor[0] == "^"]
            dtype, kind = attributes.copied(scatter.attr["dtype"]), attributes.copied(scatter.attr["Tindices"])
            index.replace(user, "ResourceScatterAdd", "", [target, ids, rows, *controls], dtype=dtype, Tindices=kind)
        for name in (*sums, scatter.name, zeros.name, product.name, *befores):
            drop(index, name)
        return True


def _takers(index: GraphIndex, name: str) -> list[NodeDef]:
    """Of its value."""
    return [user for user, number in index.consumers(name) if index.inputs(user.name)[number][0] != "^"]
