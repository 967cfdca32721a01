"""Dirty rows: after every write of a tracked variable, the rows it wrote are set in the variable's bitmap.

*Mark after apply.* A mark set before the update is applied could be cleared by a concurrent snapshot, and the row would
be lost; so each mark has a control dependency on its write, and whoever waits for the write waits for the mark as well.
The reader does the opposite: read marks, clear them, read rows. Writes by rows mark their indices, all others all.

A bitmap covers a variable and its optimizer slots when one op writes them at the same indices. Bitmaps live on the
variable's device, outside the user's collections, savers and initialisers; whoever tracks creates them, all True.
"""

from __future__ import annotations

import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue
from tensorflow.core.framework.node_def_pb2 import NodeDef

from deeprec_ext.graph import attributes
from deeprec_ext.graph.context import Context
from deeprec_ext.graph.index import GraphIndex
from deeprec_ext.graph.rewriting import Rewriting
from deeprec_ext.graph.writes import VariableNode, Write, find_writes, variables_on_ps

_BOOL = attributes.kind(tf.bool)
_TRUE = attributes.tensor(True)


class _Bitmap:
    """The nodes of one bitmap in one graph; the all-True value is made only if something needs it."""

    def __init__(self, index: GraphIndex, name: str, variable: VariableNode) -> None:
        self._index, self._variable = index, variable
        shape = attributes.shape([variable.rows])
        device = variable.device
        self.handle = index.add(
            variable.node.name + "__dirty",
            "VarHandleOp",
            device,
            dtype=_BOOL,
            shape=shape,
            shared_name=attributes.text(name),
            container=attributes.text(""),
        ).name
        self.true = index.add(self.handle + "_true", "Const", device, dtype=_BOOL, value=_TRUE).name
        self._all: str | None = None

    @property
    def all(self) -> str:
        if self._all is None:
            device, rows = self._variable.device, attributes.integers((self._variable.rows,), tf.int64)
            size = self._index.add(self.handle + "_rows", "Const", device, dtype=attributes.kind(tf.int64), value=rows)
            self._all = self._index.add(
                self.handle + "_all",
                "Fill",
                device,
                [size.name, self.true],
                T=_BOOL,
                index_type=attributes.kind(tf.int64),
            ).name
        return self._all


def _entered(index: GraphIndex, name: str, dtype: AttrValue, frames: tuple[str, ...]) -> str:
    """The value inside the while loops whose Enter nodes are given, outermost first; ops may not mix frames."""
    for frame in frames:
        enter = index.nodes[frame]
        name = index.add(
            f"{name}__in",
            "Enter",
            index.nodes[name].device,
            [name],
            T=dtype,
            frame_name=enter.attr["frame_name"],
            is_constant=attributes.flag(True),
            parallel_iterations=enter.attr["parallel_iterations"],
        ).name
    return name


def _mark(index: GraphIndex, write: Write, bitmap: _Bitmap, device: str) -> NodeDef:
    node = write.node
    handle = _entered(index, bitmap.handle, attributes.kind(tf.resource), write.frames)
    value = _entered(index, bitmap.true if write.by_rows else bitmap.all, _BOOL, write.frames)
    if write.by_rows:
        number = attributes.input_of(node, "indices")
        assert number is not None  # find_writes looked
        indices = index.inputs(node.name)[number]
        return index.add(
            node.name + "__mark",
            "ResourceScatterUpdate",
            device,
            [handle, indices, value, "^" + node.name],
            dtype=_BOOL,
            Tindices=node.attr["Tindices"],
        )
    inputs = [handle, value, "^" + node.name]
    return index.add(node.name + "__mark", "AssignVariableOp", device, inputs, dtype=_BOOL)


def _wait(index: GraphIndex, write: str, marks: list[str]) -> None:
    """Whoever waits for the write, by control or by what it returns, waits for its marks."""
    own = set(marks)
    for consumer in {node.name: node for node, _ in index.consumers(write)}.values():
        if consumer.name not in own:
            for mark in marks:
                index.add_control(consumer, mark)


class DirtyRows:
    """Pass 4; only while somebody reads the marks."""

    name = "dirty-rows"

    def applies(self, context: Context) -> bool:
        return bool(context.tracked) and context.slot_map is not None

    def apply(self, rewriting: Rewriting) -> tuple[int, str]:
        index, tracked = rewriting.index, rewriting.context.tracked
        variables = {k: v for k, v in variables_on_ps(index).items() if v.name in tracked}
        bitmaps: dict[tuple[str, str], _Bitmap] = {}
        by_rows = 0
        for write in find_writes(index, variables):
            marks = []
            covered = {tracked[variables[v].name]: variables[v] for v in reversed(write.variables)}
            for name, variable in reversed(covered.items()):
                key = name, variable.device
                if key not in bitmaps:
                    bitmaps[key] = _Bitmap(index, name, variable)
                marks.append(_mark(index, write, bitmaps[key], variable.device).name)
            _wait(index, write.node.name, marks)
            rewriting.marks[write.node.name] = marks
            by_rows += write.by_rows
        changed = sum(map(len, rewriting.marks.values()))
        whole = len(rewriting.marks) - by_rows
        return changed, f"{len(bitmaps)} bitmaps, {by_rows} writes by rows, {whole} of everything"
