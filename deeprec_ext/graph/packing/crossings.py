"""What is sent from one process to another in a run.

TensorFlow sends each tensor once to each process that needs it, and each wait (`^op`) likewise. Each of them is one request.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from deeprec_ext.graph.index import GraphIndex, op_name
from deeprec_ext.graph.packing.processes import UNKNOWN, Processes
from deeprec_ext.graph.packing.reaching import Run, executed_and_given, full_name


class Way(NamedTuple):
    """What is sent where."""

    tensor: str
    """`a:0`, or `^a`."""
    target: str
    """The process; UNKNOWN: TensorFlow decides."""


@dataclass
class Crossing:
    """One request."""

    way: Way
    source: str
    """The process; UNKNOWN: TensorFlow decides."""
    uses: list[tuple[str, int]] = field(default_factory=list)
    """(node, number of its input)."""

    @property
    def op(self) -> str:
        return op_name(self.way.tensor)

    @property
    def known(self) -> bool:
        return UNKNOWN not in (self.source, self.way.target)


def find_crossings(
    index: GraphIndex, names: Collection[str], processes: Processes, run: Run, executed: Collection[str] | None = None
) -> dict[Way, Crossing]:
    """All that may be sent, in the order of the graph.

    Args:
      names: nodes that the run executes, and those whose outputs it is fed: what these would need is not sent.
      executed: the first of them, where they are known.
    """
    found: dict[Way, Crossing] = {}
    if executed is None:
        executed, _ = executed_and_given(index, run)
    for name in index.nodes:
        if name not in executed:
            continue
        for number, tensor in enumerate(index.inputs(name)):
            if op_name(tensor) in names and processes.crosses(tensor, name):
                way = Way(full_name(tensor), processes.of(name))
                if way not in found:
                    found[way] = Crossing(way, processes.source(tensor))
                found[way].uses.append((name, number))
    return found


def certain(crossings: dict[Way, Crossing]) -> int:
    """How many tensors are sent, as far as it is known where ops run."""
    return sum(one.known and one.way.tensor[0] != "^" for one in crossings.values())
