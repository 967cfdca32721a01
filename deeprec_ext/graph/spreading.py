"""On which slot a new variable lies, where its script leaves that to `replica_device_setter`.

TensorFlow deals slots out in turn, whatever is dealt. A script that makes a wide and a deep table for each field has all deep
ones on every other slot then. Here each size has its turn of its own. As there, it depends on nothing but the order in which
a graph is built: all roles come to the same.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef


class TurnBySize:
    """As TensorFlow's own strategy: called with the op that makes a variable, it returns the number of a PS."""

    def __init__(self, num_tasks: int) -> None:
        self._count = num_tasks
        self._all = [0] * num_tasks
        self._of_size: dict[int, list[int]] = defaultdict(lambda: [0] * num_tasks)

    def __call__(self, op: Any) -> int:
        return self.among(range(self._count), _bytes(op if isinstance(op, NodeDef) else op.node_def))

    def among(self, tasks: Sequence[int], size: int) -> int:
        """The one of these whose turn it is to have so many bytes."""
        alike = self._of_size[size.bit_length()]
        task = min(tasks, key=lambda one: (alike[one], self._all[one]))
        alike[task] += 1
        self._all[task] += 1
        return task


def _bytes(node: NodeDef) -> int:
    """0: it has no shape, or not a known one."""
    if "shape" not in node.attr or "dtype" not in node.attr or node.attr["shape"].shape.unknown_rank:
        return 0
    sizes = [one.size for one in node.attr["shape"].shape.dim]
    return max(0, math.prod(sizes)) * tf.as_dtype(node.attr["dtype"].type).size if min(sizes, default=0) >= 0 else 0
