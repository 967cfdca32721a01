"""Values that exist in parts: reads of a variable that is cut, and what a PS computes from them value by value.

Adam without a sparse form computes new moments of every row from the old ones (`m * beta1`), in each step, on the PS. Put
together for that and cut again, the whole table would cross the network several times a step; so such ops are done once per
part, beside the part. Whoever needs the whole (a worker's matrix product) gets it put together under the old name.
"""

from __future__ import annotations

from tensorflow.core.framework.node_def_pb2 import NodeDef

from deeprec_ext.graph import attributes
from deeprec_ext.graph.dedup_gather import normal
from deeprec_ext.graph.index import GraphIndex, on_ps, op_name
from deeprec_ext.graph.partitioning.parts import PartitionedVariable, attrs_of, controls_of, data_of, whole_from

VALUE_BY_VALUE = frozenset(
    "Abs Add AddN AddV2 Cast Div DivNoNan Exp Identity Log Maximum Minimum Mul MulNoNan Neg OnesLike Pow RealDiv Reciprocal "
    "Rsqrt Sigmoid Sign Sqrt Square SquaredDifference StopGradient Sub Tanh ZerosLike PreventGradient "
    "CheckNumerics".split()
)
_FAR = 24
"""Ops looked at to see that something is one number."""


class Values:
    """All values of a graph that exist in parts, by the name of the op that gives the whole."""

    def __init__(self, index: GraphIndex) -> None:
        self._index = index
        self._found: dict[str, tuple[PartitionedVariable, list[str], attributes.AttrValue]] = {}
        self._scalars: dict[str, bool] = {}

    def parts_of(self, tensor: str, like: PartitionedVariable) -> list[str] | None:
        """None: it does not exist in parts that lie as those of `like`."""
        found = self._found.get(normal(tensor))
        if found is None or found[0].alike != like.alike:
            return None
        return found[1]

    def of(self, tensor: str) -> tuple[PartitionedVariable, list[str]] | None:
        """The same of whatever lies in parts."""
        found = self._found.get(normal(tensor))
        return (found[0], found[1]) if found is not None else None

    def read(self, node: NodeDef, variable: PartitionedVariable) -> None:
        """A read of the whole."""
        index, controls = self._index, controls_of(self._index, node.name)
        parts = [
            index.add(f"{node.name}__cut_{part}", node.op, device, [handle, *controls], **attrs_of(node)).name
            for part, (handle, device) in enumerate(zip(variable.handles, variable.devices))
        ]
        self._found[node.name] = variable, parts, attributes.copied(node.attr["dtype"])

    def follow(self) -> None:
        """What PS compute from values in parts, value by value, is computed in parts."""
        waiting = list(self._found)
        while waiting:
            name = waiting.pop()
            variable = self._found[name][0]
            for consumer, _ in list(self._index.consumers(name)):
                if consumer.name not in self._found and self._divide(consumer, variable):
                    waiting.append(consumer.name)

    def _divide(self, node: NodeDef, variable: PartitionedVariable) -> bool:
        if node.op not in VALUE_BY_VALUE or not on_ps(node.device):
            return False
        index, inputs, controls = self._index, data_of(self._index, node.name), controls_of(self._index, node.name)
        per_input = [self.parts_of(tensor, variable) for tensor in inputs]
        if not any(per_input):
            return False  # it only waits for one
        if not all(parts or self._is_number(tensor) for parts, tensor in zip(per_input, inputs)):
            return False
        made = []
        for part, device in enumerate(variable.devices):
            own = [parts[part] if parts else tensor for parts, tensor in zip(per_input, inputs)]
            made.append(
                index.add(f"{node.name}__cut_{part}", node.op, device, [*own, *controls], **attrs_of(node)).name
            )
        dtype = node.attr["DstT"] if node.op == "Cast" else node.attr["T"]
        self._found[node.name] = variable, made, attributes.copied(dtype)
        return True

    def _is_number(self, tensor: str, depth: int = 0) -> bool:
        """Whether it certainly has no dimensions."""
        name = op_name(tensor)
        known = self._scalars.get(name)
        if known is None:
            self._scalars[name] = False
            known = self._scalars[name] = self._number(self._index.nodes[name], depth)
        return known

    def _number(self, node: NodeDef, depth: int) -> bool:
        if node.op == "Const":
            shape = node.attr["value"].tensor.tensor_shape
            return not shape.dim and not shape.unknown_rank
        inputs = data_of(self._index, node.name)
        if node.op == "ReadVariableOp":
            handle = self._index.nodes[op_name(inputs[0])]
            shape = handle.attr["shape"].shape
            return handle.op == "VarHandleOp" and not shape.unknown_rank and not shape.dim
        if depth > _FAR or not inputs:
            return False
        if node.op == "PlaceholderWithDefault":
            shape = node.attr["shape"].shape
            return not shape.unknown_rank and not shape.dim
        return node.op in VALUE_BY_VALUE and all(self._is_number(tensor, depth + 1) for tensor in inputs)

    def close(self) -> set[str]:
        """Who only waits for one of them waits for its parts; who needs one whole finds it under its name. Returns these."""
        for name, (_, parts, dtype) in self._found.items():
            node, users = self._index.nodes[name], []
            for consumer, number in list(self._index.consumers(name)):
                if self._index.inputs(consumer.name)[number][0] != "^":
                    users.append(consumer)
                    continue
                missing = [part for part in parts if "^" + part not in self._index.inputs(consumer.name)]
                self._index.set_input(consumer, number, "^" + missing[0] if missing else "^" + parts[0])
                for part in missing[1:]:
                    self._index.add_control(consumer, part)
            away = [user.device for user in users if not on_ps(user.device)]
            whole_from(self._index, node, away[0] if away else node.device, parts, dtype)
        return set(self._found)
