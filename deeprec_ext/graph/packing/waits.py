"""Waits that make a detour.

`minimize` counts the step once all updates are made: these meet in an op that does nothing, on the worker, and the count on its
PS waits for that. So every PS tells the worker, and the worker the PS that counts: here each tells that PS itself. What has to
be over before an op begins is what it was; over a network it is known half a round trip earlier.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from deeprec_ext.graph import attributes
from deeprec_ext.graph.index import GraphIndex, op_name
from deeprec_ext.graph.marks import PACKING
from deeprec_ext.graph.packing.processes import UNKNOWN, Processes
from deeprec_ext.graph.packing.sparing import cpu


def straighten(
    index: GraphIndex,
    names: Collection[str],
    processes: Processes,
    loops: Collection[str],
    targets: Collection[str] = (),
) -> int:
    """Changes the graph; how many ops wait without a detour now.

    Args:
      names: the nodes of the run.
      loops: those of them that are in a loop, where nothing is changed.
      targets: those that are run for themselves.
    """
    meetings = _Meetings(index, names, processes, loops, targets)
    return sum(map(meetings.pass_by, [name for name in index.nodes if name in names]))


class _Meetings:
    """Ops that do nothing but wait for others."""

    def __init__(
        self, index: GraphIndex, names: Collection[str], processes: Processes, loops: Collection[str],
        targets: Collection[str],
    ) -> None:  # fmt: skip
        self._index, self._names, self._processes = index, names, processes
        self._loops, self._targets = loops, targets

    def _is_meeting(self, name: str) -> bool:
        inputs = self._index.inputs(name)
        return self._index.nodes[name].op == "NoOp" and bool(inputs) and name not in self._loops

    def _met(self, name: str) -> dict[str, list[str]]:
        """What is waited for in the end, by process."""
        found: dict[str, list[str]] = {}
        stack, seen = [name], {name}
        while stack:
            for one in map(op_name, self._index.inputs(stack.pop())):
                if one not in seen:
                    seen.add(one)
                    if self._is_meeting(one):
                        stack.append(one)
                    else:
                        found.setdefault(self._processes.of(one), []).append(one)
        return found

    def pass_by(self, name: str) -> int:
        """How many ops of other processes no longer wait for this one."""
        if not self._is_meeting(name):
            return 0
        at, stays = self._processes.of(name), name in self._targets
        users: dict[str, list[tuple[str, int]]] = {}
        for node, number in self._index.consumers(name):
            if node.name in self._names:
                process = self._processes.of(node.name)
                if process == at or node.name in self._loops or self._is_meeting(node.name):
                    stays = True
                else:
                    users.setdefault(process, []).append((node.name, number))
        met = self._met(name) if users else {}
        if UNKNOWN in (at, *users, *met) or not self._pays(at, set(users), set(met), stays):
            return 0
        ends = [self._end(name, process, met[process]) for process in sorted(met)]
        for process, some in users.items():
            here = self._wait(f"{name}__packed_here", process, ends)
            for user, number in some:
                self._index.set_input(self._index.nodes[user], number, f"^{here}")
        return sum(map(len, users.values()))

    def _pays(self, at: str, users: set[str], met: set[str], stays: bool) -> bool:
        """Whether somebody is told sooner, and nobody is told more.

        Args:
          stays: whether the meeting is still needed where it is.
        """
        others = met - {at}
        before = len(others) + len(users)
        after = sum(len(met - {user}) for user in users) + (len(others) if stays else 0)
        return bool(others) and after <= before

    def _end(self, name: str, process: str, some: Sequence[str]) -> str:
        return some[0] if len(some) == 1 else self._wait(f"{name}__packed_there", process, some)

    def _wait(self, name: str, process: str, ends: Sequence[str]) -> str:
        waits = [f"^{one}" for one in ends]
        return self._index.add(name, "NoOp", cpu(process), waits, **{PACKING: attributes.flag(True)}).name
