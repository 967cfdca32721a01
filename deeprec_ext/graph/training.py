"""Which trainable variables a run trains, and whether they are on parameter servers.

To train a variable is to change it by what it was: an optimizer's op, or an assignment of a value that was computed from it. An
initialiser, a restore or a loaded array is none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from deeprec_ext.graph.index import GraphIndex, on_ps, op_name
from deeprec_ext.graph.writes import REFERENCE_VARIABLES, RESOURCE_VARIABLES, Write, find_writes

ASSIGNMENTS = frozenset({"Assign", "AssignVariableOp"})


@dataclass(frozen=True)
class Training:
    """What some runs train."""

    on_ps: tuple[str, ...]
    beside: tuple[str, ...]
    """Names of the nodes of variables, sorted."""


def training(index: GraphIndex, runs: Iterable[str], trainable: Collection[str]) -> Training:
    """
    Args:
      runs: names of ops and tensors that are run.
      trainable: names of the nodes of trainable variables; those that the graph does not have do not count.
    """
    variables = [
        name for name in trainable
        if name in index.nodes and index.nodes[name].op in RESOURCE_VARIABLES | REFERENCE_VARIABLES
    ]  # fmt: skip
    reached = index.upstream(runs)
    trained = {
        variable
        for write in find_writes(index, variables)
        if write.node.name in reached
        for variable in write.variables
        if changes(index, write, variable)
    }
    served = {name for name in trained if on_ps(index.nodes[name].device)}
    return Training(tuple(sorted(served)), tuple(sorted(trained - served)))


def updates(index: GraphIndex, variables: Iterable[str]) -> list[str]:
    """Ops by which training changes these variables (names of nodes), whichever run makes them: before any run was made."""
    return sorted(
        write.node.name
        for write in find_writes(index, variables)
        if any(changes(index, write, variable) for variable in write.variables)
    )


def changes(index: GraphIndex, write: Write, variable: str) -> bool:
    """Whether the op changes the variable by what it was, as training does."""
    if write.node.op not in ASSIGNMENTS:
        return True
    values = [tensor for tensor in index.inputs(write.node.name)[1:] if tensor[0] != "^"]
    return op_name(variable) in index.upstream(values)
