"""The forward half of dedup: lookups on a PS of ids from a worker, and the unique ids both halves share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue
from tensorflow.core.framework.node_def_pb2 import NodeDef

from deeprec_ext.graph import attributes
from deeprec_ext.graph.index import GraphIndex, on_ps, op_name, output_number
from deeprec_ext.graph.writes import VariableNode

_GATHERS = frozenset({"ResourceGather", "GatherV2", "Gather"})
_INT32 = attributes.kind(tf.int32)
# Ops between a `Unique` and a lookup that keep unique ids unique: reshaping, and splitting a table over its parts.
_KEEP_UNIQUE = frozenset(
    "Identity Reshape Cast DynamicPartition Select SelectV2 Maximum Minimum Sub FloorDiv FloorMod AddV2 Mul "
    "ExpandDims Squeeze".split()
)
_KEEP_COUNTING = frozenset("Identity Reshape Sub DynamicPartition".split())
# Of their first input: rows from one to another, and what of them belongs to a part.
_PROCESS = re.compile(r"/(?:job|task):[^/]*")
_FAR_ENOUGH = 24  # nodes looked at in the search for a Unique; the arithmetic of a partitioned lookup has about 15


@dataclass(frozen=True)
class Lookup:
    """One gather of rows of a variable, on the variable's device."""

    node: NodeDef
    variable: VariableNode
    ids: str
    """The tensor of ids."""
    worker: str
    """The process that makes the ids, as a device."""


@dataclass(frozen=True)
class Uniques:
    """The unique values of one tensor of ids, on the worker."""

    ids: str
    """Unique ids, in order of first occurrence."""
    positions: str
    """For each id, flattened, its place among them (int32)."""
    shaped: dict[str, str]
    """The same in the shape of each tensor of ids that asked for it (they differ in shape only)."""


def normal(tensor: str) -> str:
    """`a:0` and `a` are the same tensor."""
    return tensor[:-2] if tensor.endswith(":0") else tensor


def base_of(index: GraphIndex, tensor: str) -> str:
    """The tensor before any flattening on a worker; flattened, both have the same values in the same order."""
    for _ in range(8):
        node = index.nodes[op_name(tensor)]
        if node.op not in ("Reshape", "Identity") or on_ps(node.device):
            break
        tensor = index.inputs(node.name)[0]
    return normal(tensor)


def process_of(device: str) -> str:
    """`/job:worker/replica:0/task:1/device:CPU:0` -> `/job:worker/task:1`."""
    return "".join(_PROCESS.findall(device))


def unique_already(index: GraphIndex, tensor: str) -> bool:
    """Whether these ids come out of a `Unique`, or are counted."""
    if _counted(index, tensor):
        return True
    stack = [tensor]
    seen: set[str] = set()
    while stack and len(seen) < _FAR_ENOUGH:
        current = stack.pop()
        name = op_name(current)
        if name in seen:
            continue
        seen.add(name)
        op = index.nodes[name].op
        if op in ("Unique", "UniqueV2", "UniqueWithCounts") and output_number(current) == 0:
            return True
        if op in _KEEP_UNIQUE:
            stack.extend(i for i in index.inputs(name) if i[0] != "^")
    return False


def _counted(index: GraphIndex, tensor: str) -> bool:
    for _ in range(8):
        node = index.nodes[op_name(tensor)]
        if node.op == "Range":
            return True
        if node.op not in _KEEP_COUNTING:
            return False
        tensor = index.inputs(node.name)[0]
    return False


def _variable_behind(index: GraphIndex, tensor: str, variables: Mapping[str, VariableNode]) -> VariableNode | None:
    """The variable whose handle, reference or value (read on its PS) a tensor is."""
    for _ in range(4):
        name = op_name(tensor)
        if name in variables:
            return variables[name]
        node = index.nodes[name]
        if node.op not in ("Identity", "ReadVariableOp") or not on_ps(node.device):
            return None
        tensor = index.inputs(name)[0]
    return None


def _along_rows(index: GraphIndex, node: NodeDef) -> bool:
    if node.attr["batch_dims"].i:
        return False
    if node.op != "GatherV2":
        return True
    axis = index.nodes[op_name(index.inputs(node.name)[2])]
    return axis.op == "Const" and int(tf.make_ndarray(axis.attr["value"].tensor)) == 0


def find_lookups(index: GraphIndex, variables: Mapping[str, VariableNode], here: str = "") -> list[Lookup]:
    """Gathers of a variable's rows on a PS whose ids come from a worker and may repeat, and whose rows no PS consumes.

    Args:
      here: the device of this process, which is where ops without a device run.
    """
    found = []
    for name, node in index.nodes.items():
        if node.op not in _GATHERS or not on_ps(node.device):
            continue
        params, ids = index.inputs(name)[:2]
        worker = process_of(index.nodes[op_name(ids)].device or here)
        if not worker.startswith("/job:") or on_ps(worker):
            continue
        variable = _variable_behind(index, params, variables)
        if variable is None or not variable.dimensions or not _along_rows(index, node):
            continue
        followers = [consumer for consumer, _ in index.consumers(name)] + index.colocated_with(name)
        if any(on_ps(follower.device) for follower in followers) or unique_already(index, ids):
            continue
        found.append(Lookup(node, variable, ids, worker))
    return found


def _constant(index: GraphIndex, name: str, device: str, value: int | tuple[int, ...], beside: str) -> str:
    """A Const in the while loop of `beside`, if that is in one: ops may not mix frames."""
    control = ["^" + op_name(beside)] if index.has_frames else []
    return index.add(name, "Const", device, control, dtype=_INT32, value=attributes.integers(value, tf.int32)).name


def add_uniques(index: GraphIndex, ids: str, kind: AttrValue, device: str) -> Uniques:
    """Adds the ops that find the unique ids of a tensor, on the worker."""
    name = op_name(ids) + "__unique"
    minus = _constant(index, name + "_minus", device, (-1,), ids)
    flat = index.add(name + "_flat", "Reshape", device, [ids, minus], T=kind, Tshape=_INT32).name
    unique = index.add(name, "Unique", device, [flat], T=kind, out_idx=_INT32).name
    return Uniques(unique, unique + ":1", {})


def positions_like(index: GraphIndex, uniques: Uniques, ids: str, kind: AttrValue, device: str) -> str:
    """The positions in the shape of one tensor of ids."""
    found = uniques.shaped.get(normal(ids))
    if found is None:
        name = op_name(ids) + "__positions"
        shape = index.add(name + "_shape", "Shape", device, [ids], T=kind, out_type=_INT32).name
        found = index.add(name, "Reshape", device, [uniques.positions, shape], T=_INT32, Tshape=_INT32).name
        uniques.shaped[normal(ids)] = found
    return found


def look_up_unique(index: GraphIndex, lookup: Lookup, uniques: Uniques) -> None:
    """The PS gathers unique rows under a new name; the node itself becomes the gather on the worker that expands them.

    So whoever consumes or fetches the node gets what it got before.
    """
    node = lookup.node
    inputs = list(index.inputs(node.name))
    inputs[1] = uniques.ids
    rows = index.add(node.name + "__rows", node.op, node.device, inputs, **dict(node.attr.items()))
    dtype = attributes.copied(node.attr["dtype" if node.op == "ResourceGather" else "Tparams"])
    positions = positions_like(index, uniques, lookup.ids, attributes.copied(node.attr["Tindices"]), lookup.worker)
    taken = [rows.name, positions, _constant(index, node.name + "__axis", lookup.worker, 0, lookup.ids)]
    index.replace(node, "GatherV2", lookup.worker, taken, Tparams=dtype, Tindices=_INT32, Taxis=_INT32)
