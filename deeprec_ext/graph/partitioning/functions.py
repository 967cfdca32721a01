"""Handles that go into the bodies of functions which only read them, as the summaries of linear models do (`If`).

The value is read outside and handed in: the function gets a variant that takes it in place of the handle. A body that does
anything else with a handle is not known here, and its variable stays whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tensorflow.core.framework.attr_value_pb2 import AttrValue
from tensorflow.core.framework.function_pb2 import FunctionDef
from tensorflow.core.framework.node_def_pb2 import NodeDef

from deeprec_ext.graph import attributes
from deeprec_ext.graph.index import GraphIndex
from deeprec_ext.graph.partitioning.parts import controls_of, data_of

_CALLS = {"If": 1, "StatelessIf": 1, "PartitionedCall": 0, "StatefulPartitionedCall": 0}
"""Ops that call functions with their inputs, from this one on."""
_READ_ONLY = "_read_only_resource_inputs"


def only_read(index: GraphIndex, node: NodeDef, number: int) -> bool:
    """Whether an op hands this input to functions that do no more than read the variable."""
    first = _CALLS.get(node.op)
    if first is None or number < first:
        return False
    return all(_reads(index, name, number - first) for _, name in _called(node))


def hand_in(index: GraphIndex, handles: Iterable[str]) -> None:
    """What takes one of these handles for its functions takes the value, which is read before it."""
    for handle in handles:
        variable = index.nodes[handle]
        dtype = attributes.copied(variable.attr["dtype"])
        for consumer, number in list(index.consumers(handle)):
            if consumer.op in _CALLS and index.inputs(consumer.name)[number][0] != "^":
                read = index.add(
                    f"{consumer.name}__value_{number}", "ReadVariableOp", variable.device,
                    [handle, *_before(index, consumer, number)], dtype=dtype,
                )  # fmt: skip
                index.set_input(consumer, number, read.name)
                _call_by_value(index, consumer, {number: dtype.type})


def _before(index: GraphIndex, node: NodeDef, number: int) -> list[str]:
    """Controls of a read that takes the place of this input: all that the op waits for, what makes its other inputs among it.
    Where one of them implies a control input, as the condition of an `If` made under it does, TensorFlow leaves that out."""
    data = [producer for place, producer in enumerate(data_of(index, node.name)) if place != number]
    made = dict.fromkeys("^" + producer.removeprefix("^").partition(":")[0] for producer in data)
    return list(dict.fromkeys([*controls_of(index, node.name), *made]))


def _called(node: NodeDef) -> Iterator[tuple[str, str]]:
    """(attribute, function)"""
    for key in ("then_branch", "else_branch", "f"):
        if key in node.attr:
            yield key, node.attr[key].func.name


def _reads(index: GraphIndex, function: str, argument: int) -> bool:
    body = index.functions.get(function)
    if body is None:
        return False
    name = body.signature.input_arg[argument].name
    uses = [(node, number) for node in body.node_def for number, tensor in enumerate(node.input) if tensor == name]
    if name in body.ret.values():
        return False
    return all(node.op == "ReadVariableOp" or only_read(index, node, number) for node, number in uses)


def _call_by_value(index: GraphIndex, node: NodeDef, types: Mapping[int, int]) -> None:
    """`types`: number of an input that is a value now -> its type."""
    first = _CALLS[node.op]
    for key, name in list(_called(node)):
        node.attr[key].func.name = _by_value(index, name, {number - first: one for number, one in types.items()})
    kinds = node.attr["Tin"].list.type
    for number, one in types.items():
        kinds[number - first] = one
    if _READ_ONLY in node.attr:
        kept = [number for number in node.attr[_READ_ONLY].list.i if number not in types]
        node.attr[_READ_ONLY].CopyFrom(AttrValue(list=AttrValue.ListValue(i=kept)))


def _by_value(index: GraphIndex, function: str, types: Mapping[int, int]) -> str:
    """The variant of a function that takes values as these arguments; its name."""
    name = "__".join([function, "value", *map(str, sorted(types))])
    if name in index.functions:
        return name
    body = FunctionDef()
    body.CopyFrom(index.functions[function])
    body.signature.name = name
    arguments = {}
    for number, one in types.items():
        argument = body.signature.input_arg[number]
        argument.type = one
        argument.ClearField("handle_data")
        arguments[argument.name] = one
        body.arg_attr.pop(number, None)  # what it says is said of a handle
    renamed = {}
    for node in body.node_def:
        taken = {number: arguments[tensor] for number, tensor in enumerate(node.input) if tensor in arguments}
        if node.op == "ReadVariableOp" and taken:
            node.op = "Identity"
            node.attr.clear()
            node.attr["T"].type = taken[0]
            renamed[f"{node.name}:value:0"] = f"{node.name}:output:0"
        elif taken:
            _call_by_value(index, node, taken)
    for node in body.node_def:
        for number, tensor in enumerate(node.input):
            node.input[number] = renamed.get(tensor, tensor)
    for key, tensor in body.ret.items():
        body.ret[key] = renamed.get(tensor, tensor)
    added = index.definition.library.function.add()
    added.CopyFrom(body)
    index.functions[name] = added
    return name
