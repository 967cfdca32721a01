"""What variables that are cut begin with: values of a checkpoint, which has the whole under its name, and initial ones."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef

from deeprec_ext.graph import attributes
from deeprec_ext.graph.index import GraphIndex, on_ps, op_name, output_number
from deeprec_ext.graph.partitioning.layout import sub_slice
from deeprec_ext.graph.partitioning.parts import PartitionedVariable, constant, controls_of, data_of, strings, texts_of

_REPEATED = ("half_val", "float_val", "double_val", "int_val", "int64_val", "bool_val")


def restored_parts(index: GraphIndex, node: NodeDef, value: str, variable: PartitionedVariable) -> list[str] | None:
    """Of a value out of a checkpoint. Where PS read the whole, each reads the slices of its parts; where the chief does (of a
    saver that is not sharded), it goes on doing so, part by part: the file may be on its disk alone. None: the value comes
    from elsewhere."""
    source = value
    while index.nodes[op_name(source)].op == "Identity":
        source = data_of(index, op_name(source))[0]
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
        if node.op == "RestoreV2" and not on_ps(node.device):
            index.add_control(node, before)


def _read_less(
    index: GraphIndex, restore: NodeDef, slices_at: str, number: int, slices: list[bytes], variable: PartitionedVariable
) -> None:
    sizes = " ".join(str(size) for size in variable.layout.dimensions)
    rows = ":".join(["0,1", *(f"0,{size}" for size in variable.layout.dimensions[1:])])
    changed = [f"{sizes} {rows}".encode() if at == number else one for at, one in enumerate(slices)]
    at = index.inputs(restore.name).index(slices_at)
    index.set_input(restore, at, strings(index, f"{restore.name}__slices", restore.device, changed))


def filled_parts(index: GraphIndex, node: NodeDef, value: str, variable: PartitionedVariable) -> list[str] | None:
    """Of an initial value that is one number, as optimizers' slots have: made where the parts are. None: it is another."""
    source = value
    while index.nodes[op_name(source)].op == "Identity":
        source = data_of(index, op_name(source))[0]
    made = index.nodes[op_name(source)]
    if made.op == "Const":
        tensor = made.attr["value"].tensor
        if tensor.tensor_content or not any(len(getattr(tensor, name)) == 1 for name in _REPEATED):
            return None
        number = type(tensor)()
        number.CopyFrom(tensor)
        number.tensor_shape.Clear()  # it is one number, however often: an array of it would be the whole table
        dtype = attributes.copied(made.attr["dtype"])
    elif made.op == "Fill" and index.nodes[op_name(made.input[1])].op == "Const":
        number = index.nodes[op_name(made.input[1])].attr["value"].tensor
        dtype = attributes.copied(made.attr["T"])
    else:
        return None
    filled = []
    for part, device in enumerate(variable.devices):
        one = index.add(f"{node.name}__number_{part}", "Const", device, dtype=dtype)
        one.attr["value"].tensor.CopyFrom(number)
        sizes = constant(index, f"{node.name}__sizes_{part}", device, variable.layout.shape(part), tf.int32)
        kinds = {"T": dtype, "index_type": attributes.kind(tf.int32)}
        filled.append(index.add(f"{node.name}__fill_{part}", "Fill", device, [sizes, one.name], **kinds).name)
    return filled
