"""Numbers that are known before a step and needed by its updates alone travel with a gradient, which these need anyway.

By itself such a number is ready first, with nothing else to go with, and would be a message of its own. It is made to wait
for a small gradient that goes the same way: these are put together last (`readiness.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import tensorflow as tf

from deeprec_ext.graph import attributes
from deeprec_ext.graph.index import GraphIndex, on_ps, op_name, output_number
from deeprec_ext.graph.marks import RIDES
from deeprec_ext.graph.packing.crossings import Crossing, Way
from deeprec_ext.graph.packing.sparing import cpu, instead, use_instead


def ride(
    index: GraphIndex, crossings: dict[Way, Crossing], kind: Callable[[Crossing], Hashable | None],
    *gradients: Callable[[Crossing], bool],
) -> int:  # fmt: skip
    """Changes the graph; how many travel with others.

    Args:
      kind: type and cases in which a crossing is there; None: it travels alone.
      gradients: what they travel with, the best first: whether a crossing is such a one.
    """
    riders = [one for one in crossings.values() if _rides(index, one)]
    rode = 0
    for rider in riders:
        of_it = kind(rider)
        others = [
            one for one in crossings.values()
            if of_it is not None and one not in riders and _same_way(one, rider) and kind(one) == of_it
        ]  # fmt: skip
        users = {name for name, _ in rider.uses}
        found = next(
            (
                one for fits in gradients for one in others
                if fits(one) and users.isdisjoint(index.upstream([one.op]))  # else it would wait for itself
            ), None,
        )  # fmt: skip
        if found is not None:
            waiting = index.add(
                instead(rider.op, "rides"), "Identity", cpu(rider.source), [rider.way.tensor, f"^{found.op}"],
                T=attributes.kind(tf.as_dtype(attributes.output_type(index.nodes[rider.op], output_number(rider.way.tensor)))),
            )  # fmt: skip
            use_instead(index, rider, waiting.name)
            rode += 1
    return rode


def _same_way(one: Crossing, other: Crossing) -> bool:
    return (one.source, one.way.target, one.way.tensor[0] == "^") == (other.source, other.way.target, False)


def _rides(index: GraphIndex, one: Crossing) -> bool:
    return (
        one.known and one.way.tensor[0] != "^" and RIDES in index.nodes[op_name(one.way.tensor)].attr
        and on_ps(one.way.target) and not on_ps(one.source)
    )  # fmt: skip
