"""Whether ids that were divided are the numbers of their rows: so they are where a script divides by ranges of rows
(`partition_strategy="div"`), which takes TensorFlow a dozen ops to find out, and nothing to undo.

It is not read from the ops' names but computed: what they make of every id that there is, and of some that there are not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef

from deeprec_ext.graph import attributes
from deeprec_ext.graph.dedup_gather import normal
from deeprec_ext.graph.index import GraphIndex, op_name, output_number
from deeprec_ext.graph.partitioning.parts import controls_of, data_of

_SAME = frozenset({"Cast", "Identity"})
MOST_ROWS = 1 << 18
"""Of more rows it is not computed, which would take a tenth of a second and more; six small ops are made then."""
_KNOWN_MAX = 1000
_known: dict[tuple[str, str, tuple[int, ...]], bool] = {}
"""How ids and parts are computed, rows of each part -> the answer."""
_FAR = 32

_ARITHMETIC: Mapping[str, Callable[..., Any]] = {
    "Add": np.add, "AddV2": np.add, "Sub": np.subtract, "Mul": np.multiply, "FloorDiv": np.floor_divide, "FloorMod": np.mod,
    "Maximum": np.maximum, "Minimum": np.minimum, "Less": np.less, "GreaterEqual": np.greater_equal, "Select": np.where,
    "SelectV2": np.where,
}  # fmt: skip


class RowNumbers:
    """Asked of each look-up of a graph; those that are alike are computed once."""

    def __init__(self, index: GraphIndex) -> None:
        self._index = index

    def are_alike(self, ids: str, part: str) -> bool:
        """Whether both certainly have the same dimensions."""
        return self._source((ids, part)) is not None

    def source(self, ids: str, part: str, dtype: int, sizes: tuple[int, ...]) -> str | None:
        """The tensor from which both come, if its values are the rows that they lead to; None: they are not, or it is not
        known.

        Args:
          ids: tensor of the row within its part, for each id; of type `dtype`.
          part: tensor of the number of its part.
          sizes: rows of each part.
        """
        source = self._source((ids, part))
        if source is None or sum(sizes) > MOST_ROWS:
            return None
        if attributes.output_type(self._index.nodes[op_name(source)], output_number(source)) != dtype:
            return None
        key = self._text(ids, source), self._text(part, source), sizes
        if key not in _known:
            while len(_known) >= _KNOWN_MAX:
                _known.pop(next(iter(_known)), None)
            _known[key] = self._right(ids, part, source, sizes)
        return source if _known[key] else None

    def _right(self, ids: str, part: str, source: str, sizes: tuple[int, ...]) -> bool:
        rows, size = sum(sizes), np.asarray(sizes)
        every = np.arange(rows)
        none = np.asarray(
            [-1, -2, -rows, -2 * rows - 1, rows, rows + 1, 2 * rows - 1, 2 * rows, 10 * rows + 3, 1 << 30]
        )
        found = []
        for some in (every, none):
            known = {source: some}
            with np.errstate(all="ignore"):
                within, parts = (np.asarray(self._computed(normal(tensor), known)) for tensor in (ids, part))
            if within.shape != some.shape or parts.shape != some.shape:
                return False
            there = (parts >= 0) & (parts < len(sizes))
            parts = np.where(there, parts, 0)
            there &= (within >= 0) & (within < size[parts])
            found.append((there, (np.cumsum(size) - size)[parts] + within))
        (all_there, where), (any_there, _) = found
        return bool(all_there.all() and (where == every).all() and not any_there.any())

    def _source(self, tensors: Sequence[str]) -> str | None:
        """The one tensor that these are computed from, by arithmetic and constants alone."""
        found: set[str] = set()
        stack, seen = [normal(tensor) for tensor in tensors], set()
        while stack:
            tensor = stack.pop()
            if tensor in seen:
                continue
            seen.add(tensor)
            node = self._index.nodes[op_name(tensor)]
            followed = node.op in _ARITHMETIC or node.op in _SAME
            if followed and not controls_of(self._index, node.name) and len(seen) <= _FAR:
                stack += map(normal, data_of(self._index, node.name))
            elif not self._is_constant(node):
                found.add(tensor)
        return found.pop() if len(found) == 1 else None

    def _is_constant(self, node: NodeDef) -> bool:
        """One number, whenever it is asked for."""
        if node.op != "Const" or controls_of(self._index, node.name):
            return False
        return not node.attr["value"].tensor.tensor_shape.dim

    def _text(self, tensor: str, source: str) -> str:
        """How it is computed, equal for what is computed alike."""
        if normal(tensor) == source:
            return "x"
        node = self._index.nodes[op_name(tensor)]
        if node.op == "Const":
            return str(tf.make_ndarray(node.attr["value"].tensor).tolist())
        return f"{node.op}({','.join(self._text(one, source) for one in data_of(self._index, node.name))})"

    def _computed(self, tensor: str, known: dict[str, Any]) -> Any:
        if tensor not in known:
            node = self._index.nodes[op_name(tensor)]
            if node.op == "Const":
                known[tensor] = tf.make_ndarray(node.attr["value"].tensor)
            else:
                values = [self._computed(normal(one), known) for one in data_of(self._index, node.name)]
                known[tensor] = values[0] if node.op in _SAME else _ARITHMETIC[node.op](*values)
        return known[tensor]
