"""A small graph of ours as a GraphDef: what the migration runs on the PS.

TensorFlow's Python wrappers cost about 0.1 ms an op; a migration of a model with a thousand variables has ten thousand
ops and builds them beside training. Here a node is one protobuf message, and the import is one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue
from tensorflow.core.protobuf import config_pb2

from deeprec_ext.graph.attributes import kind, tensor
from deeprec_ext.tf_private.c_graph import import_definition
from deeprec_ext.tf_private.sessions import OwnSession

v1 = tf.compat.v1
INT64, BOOL = kind(tf.int64), kind(tf.bool)


class Ops:
    """Collects nodes; every method returns the name of the new one."""

    def __init__(self, prefix: str = "n") -> None:
        self.definition = v1.GraphDef()
        self._prefix = prefix
        self._count = 0

    def add(
        self, op: str, inputs: Sequence[str] = (), device: str = "", after: Sequence[str] = (), **attributes: AttrValue
    ) -> str:
        """A node; `after` are names of ops to wait for."""
        self._count += 1
        name = f"{self._prefix}{self._count}"
        node = self.definition.node.add(name=name, op=op, device=device)
        node.input.extend(inputs)
        node.input.extend(f"^{other}" for other in after)
        for key, value in attributes.items():
            node.attr[key].CopyFrom(value)
        return name

    def constant(self, value: Any, dtype: tf.DType, device: str) -> str:
        return self.add("Const", device=device, dtype=kind(dtype), value=tensor(value, dtype))

    def binary(self, op: str, left: str, right: str, device: str) -> str:
        """Of two int64 values."""
        return self.add(op, [left, right], device, T=INT64)


class Program:
    """Compiled runs on a cluster, over one session. Grappler is off: these graphs are as they should be run."""

    def __init__(self, target: str, config: v1.ConfigProto) -> None:
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        self.loads = 0
        self._graph = tf.Graph()
        self._session = OwnSession(target, graph=self._graph, config=config)

    def load(self, ops: Ops) -> None:
        """Adds nodes; their names must be new (another prefix)."""
        self.loads += 1
        import_definition(self._graph, ops.definition)

    def compile(self, targets: Sequence[str] = (), fetches: Sequence[str] = (), feeds: Sequence[str] = ()) -> Any:
        """A function of the fed values that runs the targets and returns the fetched arrays."""
        return self._session.compile(
            config_pb2.CallableOptions(
                feed=[_tensor(f) for f in feeds], fetch=[_tensor(f) for f in fetches], target=targets
            )
        )

    def run(self, ops: Ops, targets: Sequence[str]) -> None:
        """Adds nodes and runs these of them once; nothing where there are no targets."""
        if targets:
            self.load(ops)
            self.compile(targets=targets)()

    def close(self) -> None:
        self._session.close()


def _tensor(name: str) -> str:
    return name if ":" in name else name + ":0"
