"""Which runs would set a model back: those that initialise its variables, or restore them from a checkpoint.

Scripts run such ops through groups (`tf.global_variables_initializer()`, `Saver.restore`): the control inputs of NoOps. So what
a run would overwrite can be taken out of it, and the rest of the same groups is run: variables of the process, tables,
iterators. What needs an overwriting op in another way, as a value that is fetched after it, cannot be told apart from it.

Read from the graph after its variables have been cut: the initialiser of a whole has its name there, and is a group of those of
its parts; a restore is one of parts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from deeprec_ext.graph.index import GraphIndex, on_ps, op_name
from deeprec_ext.graph.partitioning import Partitions
from deeprec_ext.graph.writes import REFERENCE_VARIABLES, RESOURCE_VARIABLES

ASSIGNMENTS = frozenset({"Assign", "AssignVariableOp"})
_RESTORES = frozenset({"RestoreV2", "Restore", "RestoreSlice", "LoadAndRemapMatrix"})
_VARIABLES = RESOURCE_VARIABLES | REFERENCE_VARIABLES


@dataclass(frozen=True)
class Model:
    """What a GraphDef does not tell of its variables, which are called by the names of their nodes."""

    initialisers: Mapping[str, str]
    """Name of the op -> variable."""
    trained: frozenset[str]
    """What is trainable, and the global step."""
    local: frozenset[str]
    """Local variables, as metrics have: each process sets them back when it starts, on PS as well."""
    wholes: Mapping[str, str]
    """Node of a part -> the variable that was cut."""


@dataclass(frozen=True)
class Overwrite:
    """What a run would overwrite, and what it does besides."""

    restores: bool
    """From a checkpoint; else it initialises."""
    variables: tuple[str, ...]
    """Nodes of variables on PS, sorted; whole ones where they are cut."""
    targets: tuple[str, ...]
    """Ops that remain to be run."""
    entangled: tuple[str, ...] = ()
    """Of what remains, and of what is fetched, that which needs an op that overwrites."""


def model_of(graph: tf.Graph, cuts: Partitions) -> Model:
    """From the graph's collections."""
    keys = tf.compat.v1.GraphKeys
    collected = {
        key: {variable.op.name: variable for variable in graph.get_collection(key) if _is_variable(variable)}
        for key in (keys.GLOBAL_VARIABLES, keys.LOCAL_VARIABLES, keys.TRAINABLE_VARIABLES, keys.GLOBAL_STEP)
    }
    variables: dict[str, Any] = {name: one for found in collected.values() for name, one in found.items()}
    return Model(
        {one.initializer.name: name for name, one in variables.items()},
        frozenset((*collected[keys.TRAINABLE_VARIABLES], *collected[keys.GLOBAL_STEP], "global_step")),
        frozenset(collected[keys.LOCAL_VARIABLES].keys() - collected[keys.GLOBAL_VARIABLES].keys()),
        {part: one.whole.node.name for one in cuts.variables.values() for part in one.handles},
    )


def _is_variable(one: Any) -> bool:
    """Collections hold anything."""
    return getattr(one, "op", None) is not None and getattr(one, "initializer", None) is not None


def overwriting(
    index: GraphIndex, fetches: Sequence[str], targets: Sequence[str], model: Model, spared: Collection[str] = ()
) -> Overwrite | None:
    """None: the run sets nothing on a PS back that is trained.

    A run that does is held back from all global variables on PS, an optimizer's slots among them.

    Args:
      fetches, targets: tensors and ops by name.
      spared: variables that it may overwrite.
    """
    reached = index.upstream((*fetches, *targets))
    restoring = any(index.nodes[name].op in _RESTORES for name in reached)
    held: dict[str, str] = {}  # op -> variable
    restores: set[str] = set()
    for name in reached:
        variable = model.initialisers.get(name)
        if variable is None and restoring and index.nodes[name].op in ASSIGNMENTS and _restores(index, name):
            variable = _assigned(index, name)
            restores.add(name)
        if variable is None:
            continue
        variable = model.wholes.get(variable, variable)
        on = on_ps(index.nodes[variable].device) if variable in index.nodes else False
        if on and variable not in model.local and variable not in spared:
            held[name] = variable
    trained = {name for name, variable in held.items() if variable in model.trained}
    if not trained:
        return None
    remain = tuple(dict.fromkeys(one for target in targets for one in _rest(index, target, held)))
    entangled = tuple(one for one in (*fetches, *remain) if not held.keys().isdisjoint(index.upstream([one])))
    return Overwrite(bool(restores & trained), tuple(sorted(set(held.values()))), remain, entangled)


def _rest(index: GraphIndex, target: str, held: Mapping[str, str]) -> Iterable[str]:
    """What is left of a target: itself where it has nothing to do with what is held back, of a group its other members."""
    if held.keys().isdisjoint(index.upstream([target])):
        return (target,)
    kept, stack, seen = [], [target], {target}
    while stack:
        name = stack.pop()
        if name in held:
            continue
        if index.nodes[name].op != "NoOp":
            kept.append(name)
            continue
        members = [one for one in map(op_name, index.inputs(name)) if one not in seen]
        seen.update(members)
        stack += reversed(members)
    return kept


def _assigned(index: GraphIndex, name: str) -> str | None:
    """The node of the variable that an assignment sets."""
    while index.nodes[name].op not in _VARIABLES:
        inputs = [tensor for tensor in index.inputs(name) if tensor[0] != "^"]
        if not inputs or op_name(inputs[0]) not in index.nodes:
            return None
        name = op_name(inputs[0])
    return name


def _restores(index: GraphIndex, name: str) -> bool:
    """Whether the value of an assignment is what a checkpoint had, whatever became of it on the way."""
    stack = [op_name(tensor) for tensor in index.inputs(name)[1:] if tensor[0] != "^"]
    seen = set(stack)
    found = False
    while stack:
        node = index.nodes.get(stack.pop())
        if node is None:
            continue
        if node.op in _VARIABLES:
            return False  # it is computed from a variable
        if node.op in _RESTORES:
            found = True
            continue
        for tensor in index.inputs(node.name):
            before = op_name(tensor)
            if tensor[0] != "^" and before not in seen:
                seen.add(before)
                stack.append(before)
    return found
