"""The process's own variables in one step: resources of the trainer that get their values before it and are asked after it.

Nothing of them outlives a run: a step that is repeated, in another session or after a failure, begins with the same values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deeprec_ext.graph import GraphIndex, attributes
from deeprec_ext.graph.index import on_ps
from deeprec_ext.graph.writes import find_writes
from deeprec_ext.keras.placing import HANDS_ON, HERE, uses


@dataclass(frozen=True)
class Given:
    """One variable. Names of nodes."""

    variable: Any
    value: str
    """The placeholder of what it begins with."""
    after: str
    """The read that gives its value after the step; empty: the step does not write it."""


def give(index: GraphIndex, local: Mapping[str, Any], targets: Sequence[str], scope: str) -> list[Given]:
    """Puts variables into the graph where there are placeholders of their handles.

    Args:
      local: placeholder -> variable.
      targets: what a run of the step runs besides its results.
      scope: put before shared names; of this step alone.
    """
    return [_give(index, inside, variable, targets, scope) for inside, variable in local.items()]


def _give(index: GraphIndex, inside: str, variable: Any, targets: Sequence[str], scope: str) -> Given:
    taken, written = uses(index, inside), bool(find_writes(index, [inside]))
    dtype, shape = attributes.kind(variable.dtype), attributes.shape(variable.shape)
    direct = {consumer.name: consumer for consumer, _ in index.consumers(inside)}
    index.replace(
        index.nodes[inside],
        "VarHandleOp",
        HERE,
        [],
        dtype=dtype,
        shape=shape,
        shared_name=attributes.text(scope + inside),
    )
    value = index.add(f"{inside}__value", "Placeholder", HERE, [], dtype=dtype, shape=shape)
    begin = index.add(f"{inside}__begin", "AssignVariableOp", HERE, [inside, value.name], dtype=dtype)
    for consumer in direct.values():
        index.add_control(consumer, begin.name)
    if not written:
        _send_once(index, [name for name in taken.takers if index.nodes[name].op == "ReadVariableOp"], value.name)
        return Given(variable, value.name, "")
    last = [name for name in taken.takers if index.nodes[name].op not in HANDS_ON]
    if taken.conditional:  # what is behind a condition may never run: the step as a whole does
        last = [name for name in last if name in direct] + [name for name in targets if name not in last]
    waits = [f"^{name}" for name in (begin.name, *last)]
    after = index.add(f"{inside}__after", "ReadVariableOp", HERE, [inside, *waits], dtype=dtype)
    return Given(variable, value.name, after.name)


def _send_once(index: GraphIndex, reads: Sequence[str], value: str) -> None:
    """What a step only reads travels to each PS once, however often it is read. Here each read stays one of its own:
    TensorFlow's graph optimiser would rearrange arithmetic that has a factor in common, and the last bit with it."""
    for read in reads:
        for consumer, number in list(index.consumers(read)):
            if on_ps(consumer.device) and index.inputs(consumer.name)[number][0] != "^":
                index.set_input(consumer, number, value)


def fix(index: GraphIndex, constants: Mapping[str, np.ndarray]) -> None:
    """Puts constants where there are placeholders of them."""
    for inside, value in constants.items():
        dtype = attributes.copied(index.nodes[inside].attr["dtype"])
        index.replace(index.nodes[inside], "Const", HERE, [], dtype=dtype, value=attributes.tensor(value))
