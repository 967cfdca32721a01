"""What need not be sent: constants, and one tensor under two names.

Several waits of one op are made one by TensorFlow's optimiser itself.
"""

from __future__ import annotations

from deeprec_ext.graph import attributes
from deeprec_ext.graph.index import GraphIndex, op_name
from deeprec_ext.graph.packing.conditions import Conditions
from deeprec_ext.graph.packing.crossings import Crossing, Way
from deeprec_ext.graph.packing.processes import Processes
from deeprec_ext.graph.packing.reaching import Run, full_name
from deeprec_ext.graph.packing.shapes import Shapes

CONSTANT_BYTES_MAX = 64 * 1024
"""Larger ones are not kept twice."""

_FAR = 8


def cpu(process: str) -> str:
    return process + "/device:CPU:0"


def instead(name: str, what: str) -> str:
    """The name of an op that takes the place of another: among all names, but those with a `-`, it stands where that stood."""
    return f"{name}-{what}"


def use_instead(index: GraphIndex, crossing: Crossing, tensor: str) -> None:
    """Whoever took what was sent takes this."""
    for name, number in crossing.uses:
        index.set_input(index.nodes[name], number, tensor)


def copy_constants(index: GraphIndex, crossings: dict[Way, Crossing], run: Run) -> int:
    """Who needs a constant of another process has it; how many were sent before."""
    copied = 0
    for one in crossings.values():
        node = index.nodes[one.op]
        if node.op != "Const" or not one.known or one.way.tensor[0] == "^" or index.inputs(node.name):
            continue
        if one.way.tensor in run.fed or node.attr["value"].tensor.ByteSize() > CONSTANT_BYTES_MAX:
            continue
        kept = {key: attributes.copied(node.attr[key]) for key in ("dtype", "value")}
        use_instead(index, one, index.add(instead(node.name, "copy"), "Const", cpu(one.way.target), **kept).name)
        copied += 1
    return copied


class Aliases:
    """Tensors that are the same under another name: the ids of an update are those of the look-up, made flat once more."""

    def __init__(
        self, index: GraphIndex, processes: Processes, shapes: Shapes, conditions: Conditions, run: Run
    ) -> None:
        self._index, self._processes, self._shapes = index, processes, shapes
        self._conditions, self._run = conditions, run

    def send_once(self, crossings: dict[Way, Crossing]) -> int:
        """How many were sent under another name before."""
        same: dict[Way, list[Crossing]] = {}
        for one in crossings.values():
            if one.known and one.way.tensor[0] != "^":
                same.setdefault(Way(self._first(one.way.tensor), one.way.target), []).append(one)
        spared = 0
        for (tensor, _), some in same.items():
            if len(some) > 1:
                for one in some:
                    if one.way.tensor != tensor:
                        use_instead(self._index, one, tensor)
                spared += len(some) - 1
        return spared

    def _first(self, tensor: str) -> str:
        """What it is called where it is first the same, in the same process."""
        for _ in range(_FAR):
            node = self._index.nodes[op_name(tensor)]
            inputs = self._index.inputs(node.name)
            if (
                node.op not in ("Identity", "Reshape")
                or any(one[0] == "^" for one in inputs)
                or tensor in self._run.fed
            ):
                break
            before = full_name(inputs[0])
            if self._processes.source(before) != self._processes.of(node.name):
                break
            if self._shapes.dtype(before) is None:  # a reference: what is read now may be another value later
                break
            if node.op == "Reshape" and not (self._flat(before) and self._flat(tensor)):
                break
            if self._conditions.of(before) is None or self._conditions.of(before) != self._conditions.of(tensor):
                break
            tensor = before
        return tensor

    def _flat(self, tensor: str) -> bool:
        shape = self._shapes.of(tensor)
        return shape is not None and len(shape) == 1
