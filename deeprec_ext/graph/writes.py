"""Which ops write which variables, and how: the ground of the dirty rows and of the catalogue.

A variable is a handle (`VarHandleOp`) or a reference (`Variable`, `VariableV2`). Its tensor is followed through the
graph; a consumer reads it, hands it on, writes some rows of it, or writes it in a way nobody can see: everything that is
not known to read counts as a write of all rows, so an unknown op costs bytes in a migration, never rows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef

from deeprec_ext.graph import attributes
from deeprec_ext.graph.index import GraphIndex, on_ps, output_number, task_of

RESOURCE_VARIABLES = frozenset({"VarHandleOp"})
REFERENCE_VARIABLES = frozenset({"VariableV2", "Variable"})

_READS = frozenset({
    "ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp", "DisableCopyOnRead",
    "IsVariableInitialized", "_ReadVariablesOp", "DestroyResourceOp", "DestroyTemporaryVariable",
})  # fmt: skip
# Ops that hand a handle or a reference on without writing it.
_HANDS_ON = frozenset({
    "Identity", "Enter", "Exit", "Switch", "Merge", "NextIteration",
    "RefIdentity", "RefEnter", "RefExit", "RefSwitch", "RefMerge", "RefNextIteration", "RefSelect",
})  # fmt: skip
_BY_ROWS = re.compile(r"(Resource)?(SparseApply\w+|Scatter(Add|Sub|Mul|Div|Min|Max|Update))$")


@lru_cache(maxsize=4096)
def writes_rows(op: str) -> bool:
    """Whether an op writes only the rows named by its input `indices`."""
    return _BY_ROWS.match(op) is not None


@dataclass(frozen=True)
class VariableNode:
    """One node that makes a variable; several nodes may make the same variable."""

    node: NodeDef
    name: str
    """The shared name: what the variable is called on the PS."""
    device: str
    slot: int
    """The task number of the device: a slot in a user's graph, a PS in a placed one."""
    reference: bool
    dimensions: tuple[int, ...] | None
    """None unless every dimension is known."""

    @property
    def rows(self) -> int:
        """The first dimension; 1 for scalars and unknown shapes."""
        return self.dimensions[0] if self.dimensions else 1


@dataclass(frozen=True)
class Write:
    """One op that writes variables."""

    node: NodeDef
    by_rows: bool
    variables: tuple[str, ...]
    """Names of the nodes of the variables it writes, in the order of its inputs."""
    frames: tuple[str, ...] = ()
    """The Enter nodes through which the variable reached it: a write inside a while loop of TensorFlow 1."""


def _variable(node: NodeDef, device: str) -> VariableNode:
    shape = node.attr["shape"].shape
    known = not shape.unknown_rank and all(d.size >= 0 for d in shape.dim)
    return VariableNode(
        node,
        node.attr["shared_name"].s.decode() or node.name,
        device,
        task_of(device),
        node.op in REFERENCE_VARIABLES,
        tuple(d.size for d in shape.dim) if known else None,
    )


def variables_on_ps(index: GraphIndex) -> dict[str, VariableNode]:
    """The variables on parameter servers, by node name."""
    found = {}
    for name, node in index.nodes.items():
        op = node.op
        if op in RESOURCE_VARIABLES or op in REFERENCE_VARIABLES:
            device = node.device
            if on_ps(device):
                found[name] = _variable(node, device)
    return found


def variable_bytes(variable: VariableNode) -> int:
    """0 when the shape or the size of an element is unknown."""
    dtype = tf.as_dtype(variable.node.attr["dtype"].type)
    if variable.dimensions is None or dtype.base_dtype in (tf.string, tf.variant, tf.resource):
        return 0
    return math.prod(variable.dimensions) * dtype.size


class _Functions:
    """Whether a library function writes through one of its arguments, remembered per (function, argument)."""

    def __init__(self, index: GraphIndex) -> None:
        self._index = index
        self._known: dict[tuple[str, int], bool] = {}

    def call_writes(self, node: NodeDef, number: int) -> bool:
        """Whether the call `node` may write the resource that is its input `number`."""
        offset = 1 if node.op in ("If", "StatelessIf", "Case", "StatelessCase") else 0
        called = [a.func.name for a in node.attr.values() if a.HasField("func")]
        called += [f.name for a in node.attr.values() if a.HasField("list") for f in a.list.func]
        return not called or any(self._writes(name, number - offset) for name in called)

    def _writes(self, name: str, argument: int) -> bool:
        key = name, argument
        if key not in self._known:
            self._known[key] = False  # a recursive call adds nothing to what the rest of the body does
            self._known[key] = self._body_writes(name, argument)
        return self._known[key]

    def _body_writes(self, name: str, argument: int) -> bool:
        function = self._index.functions.get(name)
        if function is None or argument >= len(function.signature.input_arg):
            return True
        tensors = {function.signature.input_arg[argument].name}
        grown = True
        while grown:  # bodies are not sorted; handles are rarely handed on inside
            grown = False
            for node in function.node_def:
                for number, tensor in enumerate(node.input):
                    if tensor not in tensors:
                        continue
                    if node.op in ("Identity", "Switch", "Merge"):
                        outputs = {f"{node.name}:output:0", f"{node.name}:output_false:0", f"{node.name}:output_true:0"}
                        if not outputs <= tensors:
                            tensors |= outputs
                            grown = True
                    elif not (node.op in _READS or self._nested_reads(node, number)):
                        return True
        return False

    def _nested_reads(self, node: NodeDef, number: int) -> bool:
        is_call = any(a.HasField("func") or a.list.func for a in node.attr.values())
        return is_call and not self.call_writes(node, number)


def _is_call(node: NodeDef) -> bool:
    return any(a.HasField("func") or (a.HasField("list") and a.list.func) for a in node.attr.values())


def find_writes(index: GraphIndex, variables: Iterable[str]) -> list[Write]:
    """Every op of the main graph that writes one of these variables (names of nodes), in no particular order."""
    found: dict[str, tuple[NodeDef, bool, dict[int, str], tuple[str, ...]]] = {}
    functions = _Functions(index)
    for variable in variables:
        reference = index.nodes[variable].op in REFERENCE_VARIABLES
        stack: list[tuple[str, int, tuple[str, ...]]] = [(variable, 0, ())]
        seen = {(variable, 0)}
        while stack:
            name, output, frames = stack.pop()
            for consumer, number in index.consumers(name):
                tensor = index.inputs(consumer.name)[number]
                if tensor[0] == "^" or output_number(tensor) != output:
                    continue
                op = consumer.op
                if op in _READS:
                    continue
                if reference:
                    argument = attributes.argument(consumer, number)
                    if argument is not None and not argument.is_ref:
                        continue
                within = frames
                if op in _HANDS_ON:
                    after = [(consumer.name, 0), (consumer.name, 1)] if "Switch" in op else [(consumer.name, 0)]
                    if op in ("Enter", "RefEnter"):
                        within = (*frames, consumer.name)
                    elif op in ("Exit", "RefExit"):
                        within = frames[:-1]
                elif not reference and _is_call(consumer) and not functions.call_writes(consumer, number):
                    continue
                else:
                    by_rows = writes_rows(op) and attributes.input_of(consumer, "indices") is not None
                    found.setdefault(consumer.name, (consumer, by_rows, {}, frames))[2][number] = variable
                    after = [(consumer.name, 0)] if reference else []  # Assign and its like hand the reference on
                for key in after:
                    if key not in seen:
                        seen.add(key)
                        stack.append((*key, within))
    return [
        Write(node, by_rows, tuple(dict.fromkeys(inputs[n] for n in sorted(inputs))), frames)
        for node, by_rows, inputs, frames in found.values()
    ]
