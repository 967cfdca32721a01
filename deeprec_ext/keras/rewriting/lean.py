"""What a trace has and a session does not need: each message between processes costs as much as many ops.

A function returns when all of it has run, so its results wait for everything; a session is told what has to run. It also has
an order of its own for what the data orders already.
"""

from __future__ import annotations

from collections.abc import Sequence

from deeprec_ext.graph import GraphIndex
from deeprec_ext.graph.index import op_name


def make_lean(index: GraphIndex, outputs: Sequence[str], targets: Sequence[str]) -> list[str]:
    """Changes the graph; returns what has to run besides the outputs, without groups of others.

    Args:
      outputs: tensors; targets: ops that have to run.
    """
    waited_for = [one for name in dict.fromkeys(map(op_name, outputs)) for one in _free(index, name)]
    for name in list(index.nodes):
        _drop_doubles(index, name)
    return _members(index, [*targets, *waited_for])


def _free(index: GraphIndex, name: str) -> list[str]:
    """Takes away what a result waits for beside its value; returns that."""
    if index.nodes[name].op != "Identity":
        return []
    controls = [op_name(tensor) for tensor in index.inputs(name) if tensor[0] == "^"]
    index.keep_controls(index.nodes[name], ())
    return controls


def _drop_doubles(index: GraphIndex, name: str) -> None:
    """Who takes a value of an op need not wait for it besides."""
    inputs = index.inputs(name)
    taken = {op_name(tensor) for tensor in inputs if tensor[0] != "^"}
    controls = [tensor for tensor in inputs if tensor[0] == "^"]
    kept = [tensor for tensor in controls if op_name(tensor) not in taken]
    if len(kept) < len(controls):
        index.keep_controls(index.nodes[name], kept)


def _members(index: GraphIndex, targets: Sequence[str]) -> list[str]:
    """Of groups, what they wait for."""
    found, stack, seen = [], list(reversed(targets)), set()
    while stack:
        name = stack.pop()
        if name in seen:
            continue
        seen.add(name)
        if index.nodes[name].op == "NoOp":
            stack += reversed([op_name(tensor) for tensor in index.inputs(name)])
        else:
            found.append(name)
    return found
