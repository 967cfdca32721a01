"""Seeds: a random op with a fixed seed restarts its sequence in each new session, unless the swap count is mixed in.

Without it, dropout masks and sampled negatives of the first steps would be drawn again after each change. Stateless ops
and dataset functions are left alone: their sequences live outside the session.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import lru_cache

from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.core.framework.node_def_pb2 import NodeDef

from deeprec_ext.graph.context import Context
from deeprec_ext.graph.rewriting import Rewriting
from deeprec_ext.tf_private.operations import op_def

_GOLDEN = 0x9E3779B1  # Knuth's multiplicative hash: consecutive swap counts get far-apart seeds
_LARGEST = 0x7FFFFFFF

Seeded = tuple[str, int, int]
"""Of a random op: what it is, and its seeds."""


@lru_cache(maxsize=4096)
def seeded(op: str) -> bool:
    """Whether an op has the attributes seed and seed2."""
    definition = op_def(op)
    return definition is not None and {"seed", "seed2"} <= {attribute.name for attribute in definition.attr}


def mixed(seed2: int, swaps: int) -> int:
    """A seed2 for the session number `swaps`; never 0, which would mean "no seed"."""
    return ((seed2 + swaps * _GOLDEN) & _LARGEST) or 1


class Seeds:
    """Pass 3; ops without a seed draw a fresh one per session anyhow."""

    name = "seeds"

    def applies(self, context: Context) -> bool:
        return context.swaps > 0

    def apply(self, rewriting: Rewriting) -> tuple[int, str]:
        swaps = rewriting.context.swaps
        return mix(rewriting.definition, swaps), f"swap {swaps}"


def mix(definition: GraphDef, swaps: int) -> int:
    """Changes the graph: it draws as the session of this number; returns how many ops do."""
    return _mix(definition, lambda node: swaps)


def seed_apart(definition: GraphDef, before: Counter[Seeded], earlier: int = 0) -> None:
    """Changes the graph: so that several sessions of one view, which have generators of their own, do not draw the same.

    Args:
      before: how many such graphs had ops of a kind and seeds (an op may have another name in each); counts this one.
      earlier: sessions that have all of them, before the first of these graphs. What nobody has drawn from draws as the graph
        says.
    """
    had = Counter(before)
    before.update({_key(node) for node in definition.node if seeded(node.op)})
    _mix(definition, lambda node: (had[_key(node)] + earlier) << 16)  # no job has so many swaps


def _key(node: NodeDef) -> Seeded:
    return node.op, node.attr["seed"].i, node.attr["seed2"].i


def _mix(definition: GraphDef, number: Callable[[NodeDef], int]) -> int:
    changed = 0
    for node in definition.node:
        if seeded(node.op):
            seed, seed2 = node.attr["seed"].i, node.attr["seed2"].i
            if (seed or seed2) and (swaps := number(node)):
                node.attr["seed2"].i = mixed(seed2, swaps)
                changed += 1
    return changed
