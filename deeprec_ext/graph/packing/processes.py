"""In which process an op runs, as far as that is known before TensorFlow places it."""

from __future__ import annotations

from collections.abc import Collection

from deeprec_ext.graph.dedup_gather import process_of
from deeprec_ext.graph.index import GraphIndex, op_name
from deeprec_ext.graph.packing.reaching import full_name
from deeprec_ext.graph.writes import RESOURCE_VARIABLES

UNKNOWN = ""

_HANDS_ON = frozenset({"Identity", "Enter", "Exit", "Switch", "Merge", "NextIteration"})


class Processes:
    """Args:
    names: the nodes that count.
    here: the device of this process, which is where ops without a device run.
    fed: tensors that are not computed: they come from this process, wherever the op is that would make them.
    """

    def __init__(self, index: GraphIndex, names: Collection[str], here: str, fed: Collection[str] = ()) -> None:
        self._index, self._here, self._fed = index, process_of(here), fed
        self._devices: dict[str, str] = {}
        self._known: dict[str, str] = {}
        for name in names:
            if index.nodes[name].op in RESOURCE_VARIABLES:
                self._hold(name, names)

    def _hold(self, variable: str, names: Collection[str]) -> None:
        """TensorFlow runs what takes a handle where the variable is, whatever device the op asks for; of a function that takes
        one, ops may be anywhere."""
        process = self.on(self._index.nodes[variable].device)
        stack, seen = [variable], {variable}
        while stack:
            for consumer, number in self._index.consumers(stack.pop()):
                name = consumer.name
                if name not in names or self._index.inputs(name)[number][0] == "^":
                    continue
                self._known[name] = UNKNOWN if calls(self._index, name) else process
                if consumer.op in _HANDS_ON and name not in seen:
                    seen.add(name)
                    stack.append(name)

    def on(self, device: str) -> str:
        """`/job:ps/task:1/device:CPU:0` → `/job:ps/task:1`."""
        found = self._devices.get(device)
        if found is None:
            found = process_of(device) or self._here
            found = self._devices[device] = found if found.count("/") == 2 else UNKNOWN
        return found

    def of(self, name: str) -> str:
        """UNKNOWN: TensorFlow decides."""
        found = self._known.get(name)
        if found is None:
            node = self._index.nodes[name]
            bare = not process_of(node.device) and "_class" in node.attr
            found = self._known[name] = UNKNOWN if bare else self.on(node.device)
        return found

    def source(self, tensor: str) -> str:
        """Where it comes from; UNKNOWN: TensorFlow decides."""
        return self._here if self._fed and full_name(tensor) in self._fed else self.of(op_name(tensor))

    def crosses(self, tensor: str, consumer: str) -> bool:
        """Whether it may have to be sent."""
        source, target = self.source(tensor), self.of(consumer)
        return source != target or source == UNKNOWN


def calls(index: GraphIndex, name: str) -> bool:
    """Whether the ops of an op are those of a function."""
    return any(value.HasField("func") or value.list.func for value in index.nodes[name].attr.values())
