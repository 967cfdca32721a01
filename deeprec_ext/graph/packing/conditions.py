"""Under which conditions a tensor has a value: what comes out of a `Switch` has none on the branch that is not taken.

A message of which one tensor has none has none at all. So only tensors travel together that have a value in the same cases.
Loops are one unit here: all nodes between an `Enter` and an `Exit`, which nothing is packed into.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

from deeprec_ext.graph.index import GraphIndex, op_name, output_number
from deeprec_ext.graph.packing.reaching import Run, full_name

LOOPS = "^loops"
"""The unit of all nodes of loops; no node has such a name."""

_SWITCHES = frozenset({"Switch", "RefSwitch"})
_MERGES = frozenset({"Merge", "RefMerge"})
_FAR = 8
_ALWAYS: frozenset[tuple[str, int]] = frozenset()

Cases = frozenset[tuple[str, int]]
"""All of them must hold: (tensor of a condition, branch), or (a `Merge` that has a value, -1)."""


class Units:
    """The nodes of a run in an order in which each comes after what it needs, loops as one."""

    def __init__(self, index: GraphIndex, names: Collection[str], run: Run) -> None:
        self._index, self._names, self._run = index, names, run
        self.loops = self._in_loops()

    def _in_loops(self) -> set[str]:
        index, names = self._index, self._names
        enters = [name for name in names if index.nodes[name].op in ("Enter", "RefEnter")]
        if not enters:
            return set()
        ends = ("Exit", "RefExit", "NextIteration", "RefNextIteration")
        upstream = index.upstream(name for name in names if index.nodes[name].op in ends)
        stack, inside = list(enters), set(enters)
        while stack:
            for consumer, _ in index.consumers(stack.pop()):
                if consumer.name in upstream and consumer.name in names and consumer.name not in inside:
                    inside.add(consumer.name)
                    stack.append(consumer.name)
        return inside

    def of(self, name: str) -> str:
        return LOOPS if name in self.loops else name

    def inputs(self, name: str) -> list[str]:
        """Of a node, without what is fed."""
        fed, names = self._run.fed, self._names
        return [
            tensor for tensor in self._index.inputs(name) if full_name(tensor) not in fed and op_name(tensor) in names
        ]

    @cached_property
    def order(self) -> list[str]:
        """Of units."""
        units = {self.of(name) for name in self._names}
        waiting: dict[str, int] = dict.fromkeys(units, 0)
        following: dict[str, list[str]] = {}
        for name in self._names:
            unit = self.of(name)
            for tensor in self.inputs(name):
                before = self.of(op_name(tensor))
                if before != unit:
                    waiting[unit] += 1
                    following.setdefault(before, []).append(unit)
        ready = sorted(unit for unit, count in waiting.items() if not count)
        for unit in ready:  # grows while it is read
            for after in following.get(unit, ()):
                waiting[after] -= 1
                if not waiting[after]:
                    ready.append(after)
        return ready


class Conditions:
    def __init__(self, index: GraphIndex, units: Units) -> None:
        self._index, self._units = index, units
        self._known: dict[str, Cases | None] = {}
        for unit in units.order:
            self._known[unit] = self._of_loops() if unit == LOOPS else self._of_node(unit)

    def of(self, tensor: str) -> Cases | None:
        """None: nobody knows."""
        name = op_name(tensor)
        unit = self._units.of(name)
        known = self._known.get(unit, _ALWAYS)  # what is fed is there
        node = self._index.nodes[name]
        if known is None or tensor[0] == "^" or unit == LOOPS or node.op not in _SWITCHES:
            return known
        return known | {(self._condition(self._index.inputs(name)[1]), output_number(tensor))}

    def _condition(self, tensor: str) -> str:
        """`tf.cond` hands its condition on before most of its switches take it."""
        for _ in range(_FAR):
            node = self._index.nodes[op_name(tensor)]
            if node.op != "Identity":
                break
            tensor = self._index.inputs(node.name)[0]
        return full_name(tensor)

    def _of_node(self, name: str) -> Cases | None:
        inputs = self._units.inputs(name)
        node = self._index.nodes[name]
        values = [self.of(tensor) for tensor in inputs if tensor[0] != "^" or node.op not in _MERGES]
        found = _all(values)
        if node.op not in _MERGES or found is None or not values:
            return found
        merged = _merged([one for one in values if one is not None], name)
        waits = _all([self.of(tensor) for tensor in inputs if tensor[0] == "^"])
        return merged | waits if waits is not None else None

    def _of_loops(self) -> Cases | None:
        """What comes out of loops is there if all that goes in is, and nothing in them depends on anything but the loop."""
        for name in self._units.loops:
            node = self._index.nodes[name]
            if node.op in _SWITCHES and self._index.nodes[op_name(self._index.inputs(name)[1])].op != "LoopCond":
                return None
            for tensor in self._units.inputs(name):
                if self._units.of(op_name(tensor)) != LOOPS and self.of(tensor) != _ALWAYS:
                    return None
        return _ALWAYS


def _all(parts: Sequence[Cases | None]) -> Cases | None:
    found = _ALWAYS
    for part in parts:
        if part is None:
            return None
        if part:
            found = found | part
    return found


def _merged(parts: Sequence[Cases], name: str) -> Cases:
    """A `Merge` has a value if one of its inputs has."""
    common = frozenset.intersection(*parts)
    rest = [part - common for part in parts]
    if not all(rest):
        return common
    if len(rest) == 2 and len(rest[0]) == len(rest[1]) == 1:
        (one, branch), (other, opposite) = *rest[0], *rest[1]
        if one == other and {branch, opposite} == {0, 1}:
            return common
    return common | {(name, -1)}
