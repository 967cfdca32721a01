"""Under which conditions a tensor has a value: what comes out of a `Switch` has none on the branch that is not taken.

A message of which one tensor has none has none at all. So only tensors travel together that have a value in the same cases.
A loop is one unit here, with those that are in it: the nodes between its `Enter`s and its `Exit`s, of which nothing is packed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

from deeprec_ext.graph.index import GraphIndex, op_name, output_number
from deeprec_ext.graph.packing.reaching import Run, full_name

_LOOP = "^loop"
"""With its name: the unit of the nodes of a loop; no node has such a name."""

_ENTERS, _EXITS = frozenset({"Enter", "RefEnter"}), frozenset({"Exit", "RefExit"})
_SWITCHES = frozenset({"Switch", "RefSwitch"})
_MERGES = frozenset({"Merge", "RefMerge"})
_FAR = 8
_ALWAYS: frozenset[tuple[str, int]] = frozenset()

Cases = frozenset[tuple[str, int]]
"""All of them must hold: (tensor of a condition, branch), or (a `Merge` that has a value, -1)."""


class Units:
    """The nodes of a run in an order in which each comes after what it needs, each loop as one.

    Args:
      names: those that it executes (`executed`), and those whose outputs it is fed.
    """

    def __init__(self, index: GraphIndex, names: Collection[str], executed: Collection[str], run: Run) -> None:
        self._index, self._names, self._executed, self._run = index, names, executed, run
        self.loops: dict[str, str] = {}
        """Nodes that are in a loop, and their units."""
        self._members: dict[str, list[str]] = {}
        frames = self._frames()
        for name in sorted(frames):
            unit = self.loops[name] = _LOOP + frames[name][0]  # the outermost one
            self._members.setdefault(unit, []).append(name)

    def _frames(self) -> dict[str, tuple[str, ...]]:
        """Of each node in a loop: names of the loops that it is in, from the outermost on."""
        index, names = self._index, self._names
        found: dict[str, tuple[str, ...]] = {}
        stack = [name for name in names if index.nodes[name].op in _ENTERS]
        while stack:
            name = stack.pop()
            node = index.nodes[name]
            around = max((self._leaves(tensor, found) for tensor in index.inputs(name)), key=len, default=())
            frame = (*around, node.attr["frame_name"].s.decode()) if node.op in _ENTERS else around
            if len(frame) > len(found.get(name, ())):
                found[name] = frame
                stack.extend(consumer.name for consumer, _ in index.consumers(name) if consumer.name in names)
        return found

    def _leaves(self, tensor: str, frames: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
        """The loops in which a tensor is."""
        name = op_name(tensor)
        frame = frames.get(name, ()) if name in self._names and full_name(tensor) not in self._run.fed else ()
        return frame[:-1] if self._index.nodes[name].op in _EXITS else frame

    def of(self, name: str) -> str:
        return self.loops.get(name, name)

    def members(self, unit: str) -> Sequence[str]:
        """Its nodes."""
        return self._members.get(unit) or (unit,)

    def inputs(self, name: str) -> list[str]:
        """Of a node, without what is fed; none of a node whose outputs are."""
        fed, names = self._run.fed, self._names
        if name not in self._executed:
            return []
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

    @property
    def ordered(self) -> bool:
        """Whether there is such an order; else nothing can be said of the run."""
        return len(self.order) == len({self.of(name) for name in self._names})


class Conditions:
    def __init__(self, index: GraphIndex, units: Units, run: Run) -> None:
        self._index, self._units, self._fed = index, units, run.fed
        self._known: dict[str, Cases | None] = {}
        for unit in units.order:
            self._known[unit] = self._of_loop(unit) if is_loop(unit) else self._of_node(unit)

    def of(self, tensor: str) -> Cases | None:
        """None: nobody knows."""
        if full_name(tensor) in self._fed:
            return _ALWAYS
        name = op_name(tensor)
        unit = self._units.of(name)
        known = self._known.get(unit)
        node = self._index.nodes[name]
        if known is None or tensor[0] == "^" or is_loop(unit) or node.op not in _SWITCHES:
            return known
        return known | {(self._condition(self._index.inputs(name)[1]), output_number(tensor))}

    def _condition(self, tensor: str) -> str:
        """`tf.cond` hands its condition on before most of its switches take it."""
        for _ in range(_FAR):
            node = self._index.nodes[op_name(tensor)]
            if node.op != "Identity" or full_name(tensor) in self._fed:
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

    def _of_loop(self, unit: str) -> Cases | None:
        """What comes out of a loop is there if all that goes in is, and nothing in it depends on anything but the loop."""
        for name in self._units.members(unit):
            node = self._index.nodes[name]
            if node.op in _SWITCHES and self._index.nodes[op_name(self._index.inputs(name)[1])].op != "LoopCond":
                return None
            for tensor in self._units.inputs(name):
                if self._units.of(op_name(tensor)) != unit and self.of(tensor) != _ALWAYS:
                    return None
        return _ALWAYS


def is_loop(unit: str) -> bool:
    """Or a node."""
    return unit[0] == "^"


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
