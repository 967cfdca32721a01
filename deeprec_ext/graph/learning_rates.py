"""Updates whose learning rate is multiplied by a number that each run is given: it follows the number of trainers.

A gradient that is multiplied leaves Adam and Adagrad where they are; what is multiplied is the rate that their op takes
(`ApplyAdam`'s `lr`, `ResourceSparseApplyAdagrad`'s, `ResourceApplyGradientDescent`'s `alpha`). Optimizers that are written
in ops of arithmetic (Keras's, and Adam of TensorFlow 1 for rows) add to a variable, or take from it, a multiple of their
rate: there that is multiplied, and moments stay as they are. A variable that is trained in no such way is refused by name, and
so is one that is computed anew in each step, from what all steps have collected and the present rate (FTRL): another rate would
multiply the variable itself. Variables that are not trained (moments, counts, averages) are left alone.

The number is a placeholder of the trainer, so no graph is compiled anew when it is another one. A rate that comes from the
trainer is multiplied there, and crosses as before; what is computed on a PS, and a constant (of which each PS has a copy),
has a number more to be sent to each: in a packed run it rides with a gradient (`packing/riding.py`). Done to the user's graph
when it is exported, after its variables were cut, so each part has it too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef

from deeprec_ext.errors import RefusedError
from deeprec_ext.graph import attributes
from deeprec_ext.graph.index import GraphIndex, on_ps, op_name
from deeprec_ext.graph.marks import RIDES
from deeprec_ext.graph.training import ASSIGNMENTS, changes
from deeprec_ext.graph.writes import Write, find_writes, variables_on_ps
from deeprec_ext.units import few

NAME = "deeprec_ext_rate"
"""How the placeholder is called."""

_APPLIES = re.compile(r"(Resource)?(Sparse)?Apply\w+$")
_ADDS = re.compile(r"Assign(Add|Sub)(VariableOp)?$|(Resource)?Scatter(Nd)?(Add|Sub)$")
_WHOLE = re.compile(r"Ftrl|AdagradDA")
"""They set a variable by the sum of all its steps and the present rate (McMahan et al., "Ad click prediction", 2013)."""
_SINGLE = int(tf.float32.as_datatype_enum)
_FLOATS = frozenset({tf.float16, tf.bfloat16, tf.float32, tf.float64})


def follow_trainers(index: GraphIndex, trained: Collection[str]) -> str:
    """Changes a user's graph, on slots.

    Args:
      trained: shared names of the variables that are trained.

    Returns the tensor that runs have to be fed (float32, no dimensions); empty: nothing is updated.

    Raises RefusedError where a variable is trained in a way in which no rate can be found.
    """
    return _Following(index, trained).run()


class _Following:
    def __init__(self, index: GraphIndex, trained: Collection[str]) -> None:
        self._index = index
        self._variables = variables_on_ps(index)
        self._trained = {
            node for node, one in self._variables.items()
            if one.name in trained and tf.as_dtype(one.node.attr["dtype"].type).base_dtype in _FLOATS
        }  # fmt: skip
        self._fed: dict[int, str] = {}  # type -> the number in it
        self._done: set[tuple[str, int]] = set()
        self._made: dict[tuple[str, str], str] = {}  # device, tensor -> that many times as much

    def run(self) -> str:
        other: dict[str, str] = {}  # variable that is trained -> an op that changes it otherwise
        done: set[str] = set()
        for write in find_writes(self._index, self._variables):
            if self._counts(write):
                continue
            place = self._rate_of(write)
            if place is not None and not write.frames:
                self._multiply(write, *place)
                done |= set(write.variables)
                continue
            for variable in self._trained.intersection(write.variables):
                if changes(self._index, write, variable):
                    other.setdefault(variable, write.node.name)
        # Beside its optimizer, an assignment is a constraint, or an average that is put in its place.
        self._refuse({variable: op for variable, op in other.items() if variable not in done})
        return f"{self._fed[_SINGLE]}:0" if self._fed else ""

    def _counts(self, write: Write) -> bool:
        """It adds the same each time: a counter that was not said to be none of the model's."""
        number = _input_of(write.node, "value", "updates") if _ADDS.match(write.node.op) else None
        if number is None:
            return False
        inputs = self._index.inputs(write.node.name)
        return self._index.nodes[op_name(self._handed_on(inputs[number[1]]))].op == "Const"

    def _rate_of(self, write: Write) -> tuple[NodeDef, int] | None:
        """The op, and the number of its input, that is multiplied."""
        node = write.node
        if _APPLIES.match(node.op):
            return None if _WHOLE.search(node.op) else _input_of(node, "lr", "alpha")
        adds = _ADDS.match(node.op) is not None
        if self._trained.isdisjoint(write.variables) or not (adds or node.op in ASSIGNMENTS):
            return None
        if tf.as_dtype(self._kind(write)) not in _FLOATS:
            return None
        return _input_of(node, "value", "updates") if adds else self._added(write)

    def _added(self, write: Write) -> tuple[NodeDef, int] | None:
        """Of an assignment of what the variable was, and something more or less."""
        index = self._index
        value = index.nodes[op_name(self._handed_on(index.inputs(write.node.name)[1]))]
        if value.op not in ("Add", "AddV2", "Sub"):
            return None
        before = index.nodes[op_name(self._handed_on(index.inputs(value.name)[0]))]
        is_read = before.op == "ReadVariableOp" and op_name(index.inputs(before.name)[0]) in write.variables
        return (value, 1) if is_read or before.name in write.variables else None

    def _handed_on(self, tensor: str) -> str:
        while self._index.nodes[op_name(tensor)].op == "Identity":
            tensor = self._index.inputs(op_name(tensor))[0]
        return tensor

    def _kind(self, write: Write) -> int:
        attribute = "T" if "T" in write.node.attr else "dtype"
        return int(write.node.attr[attribute].type)

    def _multiply(self, write: Write, node: NodeDef, number: int) -> None:
        if (node.name, number) in self._done:
            return
        self._done.add((node.name, number))
        index, device = self._index, self._variables[write.variables[0]].device
        tensor = index.inputs(node.name)[number]
        source = index.nodes[op_name(tensor)]
        if not on_ps(source.device) and "_class" not in source.attr:
            device = source.device
        key = device, tensor
        if key not in self._made:
            kind = self._kind(write)
            inputs, dtype = [tensor, self._rate(kind)], attributes.kind(tf.as_dtype(kind))
            made = index.add(f"{node.name}/{NAME}", "Mul", device, inputs, T=dtype)
            if source.op == "Const" and not on_ps(device):
                made.attr[RIDES].b = True
            self._made[key] = made.name
        index.set_input(node, number, self._made[key])

    def _rate(self, kind: int) -> str:
        index, rides = self._index, {RIDES: attributes.flag(True)}
        if kind not in self._fed and kind == _SINGLE:
            self._fed[kind] = index.add(
                NAME, "Placeholder", "", dtype=attributes.kind(tf.float32), shape=attributes.shape([]), **rides
            ).name
        elif kind not in self._fed:
            single, wanted = attributes.kind(tf.float32), attributes.kind(tf.as_dtype(kind))
            self._fed[kind] = index.add(
                f"{NAME}/cast", "Cast", "", [self._rate(_SINGLE)], SrcT=single, DstT=wanted, **rides
            ).name
        return self._fed[kind]

    def _refuse(self, other: Mapping[str, str]) -> None:
        if not other:
            return
        first = sorted(other)[0]
        op = self._index.nodes[other[first]]
        raise RefusedError(
            f"--setting rate_scaling: the learning rate by which {few(sorted(other), 3)} is trained cannot be found "
            f"('{op.name}', {op.op}, sets the variable): take another optimizer of tf.compat.v1.train or of Keras (Ftrl and "
            "AdagradDA set variables by all their steps and the present rate), or leave rate_scaling out"
        )


def _input_of(node: NodeDef, *names: str) -> tuple[NodeDef, int] | None:
    """The first of these that it has."""
    found = (attributes.input_of(node, name) for name in names)
    return next(((node, number) for number in found if number is not None), None)
