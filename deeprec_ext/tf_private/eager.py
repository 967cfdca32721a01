"""Eager TensorFlow: functions as one graph, and variables that tell before they are read and after they are written.

Whatever reads or writes a variable takes its `handle`; so do saving and `tf.function`, when it traces. A watched object gets
another class, a subclass of the one that it has: its identity, by which Keras and optimizers know it, stays.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Protocol

import tensorflow as tf
from tensorflow.python.data.ops import iterator_ops
from tensorflow.python.eager import context
from tensorflow.python.framework import convert_to_constants
from tensorflow.python.ops import resource_variable_ops

_DATASETS_MAX, _TEXTS_MAX = 1000, 10_000
"""Datasets of one input that are looked at, and texts of one tensor."""

_OVERWRITES = ("assign", "_restore_from_tensors")
_CHANGES = tuple(
    "assign_add assign_sub scatter_add scatter_sub scatter_max scatter_min scatter_mul scatter_div scatter_update "
    "batch_scatter_update scatter_nd_add scatter_nd_sub scatter_nd_update scatter_nd_max scatter_nd_min".split()
)


def not_converted(function: Callable[..., Any]) -> Callable[..., Any]:
    """AutoGraph leaves it as it is, but not what it calls through Keras's layers: as if it were Keras's own."""
    function.autograph_info__ = None  # type: ignore[attr-defined]
    return function


def inlined(concrete: Any) -> tf.compat.v1.GraphDef:
    """Of a concrete function: no calls, and no loops and conditions but those of TensorFlow 1 (Switch and Merge), so that
    passes see every operation and each can be placed. Names of inputs and outputs stay."""
    return convert_to_constants._run_inline_graph_optimization(
        concrete, lower_control_flow=True, aggressive_inlining=True
    )


def captured(concrete: Any) -> Sequence[tuple[Any, Any]]:
    """(tensor outside, placeholder inside) of what it takes from its surroundings."""
    return [(outside, inside) for outside, inside in concrete.graph.captures]


def watched(concrete: Any) -> Sequence[Any]:
    """The variables that it has met, as far as they live."""
    return list(concrete.graph.variables)


def control_outputs(concrete: Any) -> Sequence[str]:
    """Names of the operations that have to run besides its results."""
    return [operation.name for operation in concrete.graph.control_outputs]


def is_flat(iterator: Any) -> bool:
    """Whether it is a dataset's, whose elements are of tensors alone: none that is ragged, sparse or a dataset."""
    kinds = {type(one) for one in tf.nest.flatten(getattr(iterator, "element_spec", None))}
    return isinstance(iterator, iterator_ops.OwnedIterator) and kinds <= {tf.TensorSpec}


def next_flat(iterator: Any) -> Sequence[Any]:
    """The tensors of its next element, in the order of `tf.nest`. To make the structure takes as long as all the rest.

    Raises StopIteration.
    """
    try:
        tensors: Sequence[Any] = tf.raw_ops.IteratorGetNext(
            iterator=iterator._iterator_resource, output_types=iterator._flat_output_types,
            output_shapes=iterator._flat_output_shapes,
        )  # fmt: skip
    except tf.errors.OutOfRangeError:
        raise StopIteration from None
    return tensors


def reads(iterator: Any) -> Sequence[str]:
    """Of the datasets behind an iterator: `op:` and the name of each, in their functions too, and `text:` with each text that
    one is made of or that is constant in a function: paths are among them. Empty, where it is not a dataset's."""
    waiting, seen = [getattr(iterator, "_dataset", None)], dict[str, None]()
    for _ in range(_DATASETS_MAX):
        if not waiting:
            break
        dataset = waiting.pop()
        if not isinstance(dataset, tf.data.Dataset):
            continue
        seen[f"op:{type(dataset).__name__.lstrip('_')}"] = None
        for one in _parts(dataset):
            if tf.is_tensor(one) and one.dtype == tf.string and hasattr(one, "numpy") and tf.size(one) <= _TEXTS_MAX:
                seen.update((f"text:{os.fsdecode(text)}", None) for text in one.numpy().ravel())
        for function in dataset._functions():
            body = function.function.graph.as_graph_def()
            for node in (*body.node, *(node for called in body.library.function for node in called.node_def)):
                seen[f"op:{node.op}"] = None
                if node.op == "Const" and node.attr["dtype"].type == tf.string.as_datatype_enum:
                    values = tf.make_ndarray(node.attr["value"].tensor).ravel()[:_TEXTS_MAX]
                    seen.update((f"text:{os.fsdecode(text)}", None) for text in values)
        waiting += dataset._inputs()
    return list(seen)


def _parts(dataset: Any) -> Sequence[Any]:
    """Values that it is made of: `from_tensor_slices` of a list of paths has them as tensors."""
    return [
        part for value in vars(dataset).values() for part in (value if isinstance(value, (list, tuple)) else [value])
    ]


def first_names(dataset: Any) -> Sequence[str]:
    """What the first stages of a dataset are called, of those that have a name."""
    found, stack = [], [dataset]
    while stack:
        one = stack.pop()
        before = list(one._inputs())
        stack += before
        if not before and one._name:
            found.append(one._name)
    return found


class Watcher(Protocol):
    """Of one variable."""

    def looked_at(self) -> None:
        """It is about to be read, in eager mode or by the trace of a function."""

    def overwritten(self) -> None:
        """It is about to be written whole, in eager mode."""

    def changed(self) -> None:
        """It was written, in eager mode."""


def is_eager(variable: Any) -> bool:
    """Whether it is a variable that can be watched: no wrapper of one, and of no graph."""
    return isinstance(variable, resource_variable_ops.BaseResourceVariable) and hasattr(variable._handle, "numpy")


def watch(variable: Any, watcher: Watcher) -> None:
    """From now on."""
    variable._deeprec_ext_watcher = watcher
    kind: Any = type(variable)
    variable.__class__ = _watched(kind)


def raw_handle(variable: Any) -> Any:
    """Asked for without telling."""
    return variable._handle


def raw_value(variable: Any) -> Any:
    """Its value in this process, as an array, whatever it is elsewhere."""
    with context.eager_mode():
        return tf.raw_ops.ReadVariableOp(resource=variable._handle, dtype=variable.dtype).numpy()


def set_raw(variable: Any, value: Any) -> None:
    """Its value in this process alone."""
    with context.eager_mode():
        tf.raw_ops.AssignVariableOp(resource=variable._handle, value=tf.convert_to_tensor(value, variable.dtype))


@lru_cache(maxsize=64)
def _watched(kind: type) -> type:
    def handle(self: Any) -> Any:
        self._deeprec_ext_watcher.looked_at()
        return self._handle

    members: dict[str, Any] = {"handle": property(handle), "__module__": kind.__module__}
    for name in _OVERWRITES:
        members[name] = _telling(getattr(kind, name), before=True)
    for name in _CHANGES:
        members[name] = _telling(getattr(kind, name), before=False)
    return type(kind.__name__, (kind,), members)


def _telling(original: Callable[..., Any], before: bool) -> Callable[..., Any]:
    def write(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not tf.executing_eagerly():
            return original(self, *args, **kwargs)
        if before:
            self._deeprec_ext_watcher.overwritten()
        result = original(self, *args, **kwargs)
        self._deeprec_ext_watcher.changed()
        return result

    return write
