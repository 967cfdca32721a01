"""What variables that are cut begin with: values of a checkpoint, which has the whole under its name, rows of another file,
and initial values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.core.framework.tensor_pb2 import TensorProto

from deeprec_ext.graph import attributes
from deeprec_ext.graph.index import GraphIndex, on_ps, op_name, output_number
from deeprec_ext.graph.marks import ROWS, ROWS_BY_PART
from deeprec_ext.graph.partitioning.layout import sub_slice
from deeprec_ext.graph.partitioning.parts import (
    PartitionedVariable,
    attrs_of,
    constant,
    controls_of,
    data_of,
    handed_on,
    strings,
    texts_of,
)

PIECE_BYTES, LEAST_PIECE_BYTES = 32 << 20, 8 << 20
"""What a process reads of its file at once for all variables together, and for one at the least."""

_REPEATED = ("half_val", "float_val", "double_val", "int_val", "int64_val", "bool_val")


def restored_parts(index: GraphIndex, node: NodeDef, value: str, variable: PartitionedVariable) -> list[str] | None:
    """Of a value out of a checkpoint. Where PS read the whole, each reads the slices of its parts; where the chief does (of a
    saver that is not sharded), it goes on doing so, part by part: the file may be on its disk alone. None: the value comes
    from elsewhere."""
    source = handed_on(index, value)
    restore, number = index.nodes[op_name(source)], output_number(source)
    if restore.op != "RestoreV2":
        return None
    prefix, names_at, slices_at = data_of(index, restore.name)
    names, slices = texts_of(index, names_at), texts_of(index, slices_at)
    if names is None or slices is None:
        return None
    kind, made, layout = attributes.kinds([restore.attr["dtypes"].list.type[number]]), [], variable.layout
    whole = slices[number].decode()
    for part, owner in enumerate(variable.devices):
        device = owner if on_ps(restore.device) else restore.device
        name = strings(index, f"{node.name}__name_{part}", device, [names[number]])
        wanted = strings(index, f"{node.name}__slice_{part}", device, [sub_slice(whole, layout, part).encode()])
        inputs = [prefix, name, wanted, *controls_of(index, restore.name)]
        made.append(index.add(f"{node.name}__restore_{part}", "RestoreV2", device, inputs, dtypes=kind).name)
    # Nobody else takes it: the op shall not read it, and gives one row.
    if len(index.consumers(op_name(value))) <= 1 and not whole:
        _read_less(index, restore, slices_at, number, slices, variable)
    return made


def one_after_the_other(index: GraphIndex, values: Sequence[str], assigned: Sequence[str]) -> None:
    """Where not PS read them, a part is read when the one before is on its PS: no process has to hold the whole."""
    for value, before in zip(values[1:], assigned):
        node = index.nodes[value]
        if node.op in ("RestoreV2", "PyFunc") and not on_ps(node.device):
            index.add_control(node, before)


def _read_less(
    index: GraphIndex, restore: NodeDef, slices_at: str, number: int, slices: list[bytes], variable: PartitionedVariable
) -> None:
    sizes = " ".join(str(size) for size in variable.layout.dimensions)
    rows = ":".join(["0,1", *(f"0,{size}" for size in variable.layout.dimensions[1:])])
    changed = [f"{sizes} {rows}".encode() if at == number else one for at, one in enumerate(slices)]
    at = index.inputs(restore.name).index(slices_at)
    index.set_input(restore, at, strings(index, f"{restore.name}__slices", restore.device, changed))


def given_parts(index: GraphIndex, node: NodeDef, value: str, variable: PartitionedVariable) -> list[str] | None:
    """Of rows in a file of a process (`marks.ROWS`), which never has the whole. What a variable begins with it reads in
    pieces, each when the one before is on its PS; the PS puts them together. What a variable is assigned later
    (`marks.ROWS_BY_PART`) it reads a part at a time: those ops stay in the graph. None: the value comes from elsewhere."""
    source = handed_on(index, value)
    given = index.nodes[op_name(source)]
    if not _gives_rows(given):
        return None
    layout, controls = variable.layout, controls_of(index, given.name)
    if _by_part(given):
        ends = [(layout.begin(part), layout.begin(part) + layout.size(part)) for part in range(layout.count)]
        return [_read(index, given, f"{node.name}__given_{part}", *both, controls) for part, both in enumerate(ends)]
    dtype = tf.as_dtype(given.attr["Tout"].list.type[0])
    readers = sum(_gives_rows(one) and not _by_part(one) for one in index.nodes.values())
    size = max(LEAST_PIECE_BYTES, PIECE_BYTES // readers)
    step = max(1, size // (dtype.size * math.prod(layout.dimensions[1:])))
    kind, before = attributes.kind(dtype), controls
    parts: list[str] = []
    for part, device in enumerate(variable.devices):
        end = layout.begin(part) + layout.size(part)
        pieces: list[str] = []
        for begin in range(layout.begin(part), end, step):
            name = f"{node.name}__given_{part}_{len(pieces)}"
            read = _read(index, given, name, begin, min(begin + step, end), before)
            there = index.add(f"{name}_there", "Identity", device, [read], T=kind).name
            pieces.append(there)
            before = [f"^{there}"]
        if len(pieces) > 1:
            axis = constant(index, f"{node.name}__given_{part}_axis", device, 0, tf.int32)
            kinds = {"T": kind, "N": attributes.integer(len(pieces)), "Tidx": attributes.kind(tf.int32)}
            pieces = [index.add(f"{node.name}__given_{part}", "ConcatV2", device, [*pieces, axis], **kinds).name]
        parts += pieces
    return parts


def _gives_rows(node: NodeDef) -> bool:
    return node.op == "PyFunc" and node.name.rpartition("/")[2].startswith(ROWS)


def _by_part(node: NodeDef) -> bool:
    return node.name.rpartition("/")[2].startswith(ROWS_BY_PART)


def _read(index: GraphIndex, given: NodeDef, name: str, begin: int, end: int, controls: Sequence[str]) -> str:
    ends = [
        constant(index, f"{name}_{text}", given.device, row, tf.int64) for text, row in (("from", begin), ("to", end))
    ]
    return index.add(name, given.op, given.device, [*ends, *controls], **attrs_of(given)).name


def filled_parts(index: GraphIndex, node: NodeDef, value: str, variable: PartitionedVariable) -> list[str] | None:
    """Of an initial value that is one number, as optimizers' slots have: made where the parts are. None: it is another."""
    found = one_number(index, value)
    if found is None:
        return None
    number, dtype = found
    filled = []
    for part, device in enumerate(variable.devices):
        one = index.add(f"{node.name}__number_{part}", "Const", device, dtype=dtype)
        one.attr["value"].tensor.CopyFrom(number)
        sizes = constant(index, f"{node.name}__sizes_{part}", device, variable.layout.shape(part), tf.int32)
        kinds = {"T": dtype, "index_type": attributes.kind(tf.int32)}
        filled.append(index.add(f"{node.name}__fill_{part}", "Fill", device, [sizes, one.name], **kinds).name)
    return filled


def one_number(index: GraphIndex, value: str) -> tuple[TensorProto, AttrValue] | None:
    """The number that all elements of an initial value are, and its type. None: they are not, or it is not known."""
    source = handed_on(index, value)
    made = index.nodes[op_name(source)]
    number = TensorProto()
    if made.op == "Const":
        tensor = made.attr["value"].tensor
        if tensor.tensor_content or not any(len(getattr(tensor, name)) == 1 for name in _REPEATED):
            return None
        number.CopyFrom(tensor)
        number.tensor_shape.Clear()  # it is one number, however often: an array of it would be the whole table
        return number, attributes.copied(made.attr["dtype"])
    if made.op == "Fill" and index.nodes[op_name(made.input[1])].op == "Const":
        number.CopyFrom(index.nodes[op_name(made.input[1])].attr["value"].tensor)
        return number, attributes.copied(made.attr["T"])
    return None
