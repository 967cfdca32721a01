"""Which tensors are ready together.

A tensor has waited for messages that came from other processes, and for input. Two tensors that have waited for the same may
travel together: the network keeps neither longer than it did. Level by level: what has crossed nothing before is put together
first; then it is known which messages there are, and what has waited for the same of these is the second level; and so on. A
message never waits for itself, since all it waits for is of lower levels.

Nor does a tensor wait for work that takes longer than a message (a large matrix product, code of the user): what has waited for
other work of that kind travels by itself. The exception is a small gradient, for which nothing waits but its own update.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from deeprec_ext.graph.index import GraphIndex, op_name
from deeprec_ext.graph.packing.conditions import Units, is_loop
from deeprec_ext.graph.packing.crossings import Crossing, Way
from deeprec_ext.graph.packing.processes import Processes, calls
from deeprec_ext.graph.packing.reaching import full_name

_BLOCKING = frozenset(
    "IteratorGetNext IteratorGetNextSync IteratorGetNextAsOptional OptionalGetValue QueueDequeueV2 QueueDequeueManyV2 "
    "QueueDequeueUpToV2 ReaderReadV2 ReaderReadUpToV2 ReadFile PyFunc PyFuncStateless EagerPyFunc Unstage MapUnstage "
    "OrderedMapUnstage StackPopV2 Barrier BarrierTakeMany AccumulatorTakeGradient ResourceAccumulatorTakeGradient".split()
)
"""These wait for somebody, or run code of which nobody knows how long it takes."""

_HEAVY = frozenset(
    "Conv2D Conv3D DepthwiseConv2dNative Conv2DBackpropInput Conv2DBackpropFilter Conv3DBackpropInputV2 "
    "Conv3DBackpropFilterV2 CudnnRNN CudnnRNNV2 CudnnRNNV3 CudnnRNNBackprop Einsum ParseExample ParseExampleV2 "
    "ParseSequenceExample ParseSequenceExampleV2 DecodeCSV DecodeJSONExample".split()
)
"""These take longer than a message, whatever their size."""


def unfused(op: str) -> str:
    """What TensorFlow's optimiser makes of a product and what follows it (`_FusedMatMul`) takes as long as the product."""
    return op.removeprefix("_Fused")


class Readiness:
    """Args:
    heavy: whether an op takes longer than a message.
    """

    def __init__(
        self, index: GraphIndex, units: Units, processes: Processes, crossings: dict[Way, Crossing],
        heavy: Callable[[str], bool] = lambda name: False,
    ) -> None:  # fmt: skip
        self._index, self._units, self._processes, self._crossings = index, units, processes, crossings
        self._heavy = heavy
        self._inputs: dict[str, list[tuple[str, Way | None]]] = {}  # unit -> units before it, and what crosses between
        self._waits: dict[str, int] = {}  # unit -> a bit for each thing that it has waited for
        self._network: dict[str, int] = {}  # the same without work
        self._messages: dict[Way, tuple[int, int]] = {}  # both of a message
        self._bits = 0

    def together(
        self, kind: Callable[[Crossing], Hashable | None], patient: Callable[[Crossing], bool] = lambda crossing: False
    ) -> list[list[Crossing]]:
        """
        Args:
          kind: of what may be packed; only what is of one kind travels together. None: it travels alone.
          patient: whether it may wait for work (never for the network).
        """
        levels = self._levels()
        sources: dict[int, list[Crossing]] = {}
        for one in self._crossings.values():
            sources.setdefault(levels[self._units.of(one.op)][0], []).append(one)
        by_level: dict[int, list[str]] = {}
        for unit, (level, _) in levels.items():
            by_level.setdefault(level, []).append(unit)
        found = []
        for level in sorted(by_level):
            for unit in by_level[level]:
                self._waits[unit], self._network[unit] = self._waited(unit)
            groups: dict[Hashable, list[Crossing]] = {}
            for one in sources.get(level, ()):
                groups.setdefault(self._key(one, kind(one), patient(one)), []).append(one)
            for group in groups.values():
                self._send(group)
                found.append(group)
        return found

    def _key(self, one: Crossing, kind: Hashable | None, patient: bool) -> Hashable:
        unit = self._units.of(one.op)
        waits, network = self._waits[unit], self._network[unit]
        patient = patient and waits != network  # it has something to wait for
        return one.way if kind is None else (one.source, one.way.target, kind, patient, network if patient else waits)

    def _levels(self) -> dict[str, tuple[int, int]]:
        """Of each unit, in order: how often anything crosses on the longest way to it."""
        for name in self._units.order:
            self._inputs[name] = list(self._edges(name))
        found: dict[str, tuple[int, int]] = {}
        for number, unit in enumerate(self._units.order):
            level = max((found[before][0] + (way is not None) for before, way in self._inputs[unit]), default=0)
            found[unit] = level, number
        return found

    def _edges(self, unit: str) -> Iterable[tuple[str, Way | None]]:
        for name in self._units.members(unit):
            for tensor in self._units.inputs(name):
                before = self._units.of(op_name(tensor))
                if before != unit:
                    crosses = self._processes.crosses(tensor, name)
                    yield before, Way(full_name(tensor), self._processes.of(name)) if crosses else None

    def _waited(self, unit: str) -> tuple[int, int]:
        waits = network = 0
        for before, way in self._inputs[unit]:
            some, other = (self._waits[before], self._network[before]) if way is None else self._messages[way]
            waits, network = waits | some, network | other
        if is_loop(unit) or self._index.nodes[unit].op in _BLOCKING:
            bit = self._bit()
            return waits | bit, network | bit
        return waits | self._bit() if self._takes_long(unit) else waits, network

    def _takes_long(self, name: str) -> bool:
        return unfused(self._index.nodes[name].op) in _HEAVY or calls(self._index, name) or self._heavy(name)

    def _send(self, group: list[Crossing]) -> None:
        """As one message."""
        waits = network = self._bit()
        for one in group:
            unit = self._units.of(one.op)
            waits, network = waits | self._waits[unit], network | self._network[unit]
        self._messages.update((one.way, (waits, network)) for one in group)

    def _bit(self) -> int:
        self._bits += 1
        return 1 << self._bits


def answered(index: GraphIndex, units: Units, processes: Processes) -> set[str]:
    """Nodes of which something follows that crosses to another process. An update is the end: what waits for it needs no
    value of it."""
    found: set[str] = set()
    for unit in reversed(units.order):
        names = units.members(unit)
        values = [(name, tensor) for name in names for tensor in units.inputs(name) if tensor[0] != "^"]
        crossing = {tensor for name, tensor in values if processes.crosses(tensor, name)}
        if not found.isdisjoint(names) or (is_loop(unit) and crossing):
            crossing.update(tensor for _, tensor in values)
        found.update(map(op_name, crossing))
    return found
