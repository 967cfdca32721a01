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

from deeprec_ext.elastic.runtime.importing import import_definition
from deeprec_ext.graph.attributes import kind, tensor

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


class OwnSession(v1.Session):
    """Of this package: what scripts may not do with a session, and what is counted of theirs, does not concern it.

    It can be left behind: then its C session is never deleted, and runs under way stay safe. One with a cluster that nobody has
    closed is left behind as well: a finaliser must not wait for a PS, which may be gone.
    """

    left_behind = False

    def __del__(self) -> None:
        if not self.left_behind and (self._closed or not getattr(self, "_target", b"")):
            super().__del__()

    def _make_callable_from_options(self, options: config_pb2.CallableOptions) -> Compiled:
        self._extend_graph()
        return Compiled(self, options)


class Compiled(v1.Session._Callable):  # type: ignore[misc]
    """A compiled run. TensorFlow's own is released by its finaliser, a call to the master that may wait for a PS which is gone;
    and a failed run leaves a circle (its error holds the frames that hold the run), so the collector calls that finaliser in
    any thread, a training one too, which then stands still for good. This one ends with its session, or by `release`.
    """

    def __del__(self) -> None:
        pass

    def release(self) -> None:
        """May wait; not while it is run."""
        super().__del__()
        self._handle = None


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
        return self._session._make_callable_from_options(
            config_pb2.CallableOptions(
                feed=[_tensor(f) for f in feeds], fetch=[_tensor(f) for f in fetches], target=targets
            )
        )

    def close(self) -> None:
        self._session.close()


def _tensor(name: str) -> str:
    return name if ":" in name else name + ":0"
