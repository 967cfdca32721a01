"""A step of a Keras model as a graph: traced as a function of one batch, with all calls inlined."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from deeprec_ext.errors import RefusedError
from deeprec_ext.tf_private import eager
from deeprec_ext.units import few

v1 = tf.compat.v1


@dataclass(frozen=True)
class Captured:
    """One step. Tensors and operations are named as in the definition."""

    definition: v1.GraphDef
    feeds: Sequence[tuple[str, tf.DType, tf.TensorShape]]
    """Placeholders of the batch, in the order of its leaves."""
    variables: Mapping[str, Any]
    """Placeholder of a handle -> the eager variable."""
    constants: Mapping[str, np.ndarray]
    """Placeholder -> value of an eager tensor that the step closes over."""
    outputs: Sequence[str]
    targets: Sequence[str]
    """Operations that are run besides."""
    structure: Any
    """Of the outputs, tensors of the trace at its leaves."""
    compiled: Sequence[str] = ()
    """Functions that asked for XLA, which they are without here."""

    @cached_property
    def _leaves(self) -> tuple[Sequence[tuple[bool, Any]], bool]:
        """(whether it is a tensor, leaf) of the structure; whether there are tensors of several parts, ragged or sparse."""
        leaves = tf.nest.flatten(self.structure, expand_composites=True)
        composite = any(isinstance(one, tf.__internal__.CompositeTensor) for one in tf.nest.flatten(self.structure))
        return [(tf.is_tensor(leaf), leaf) for leaf in leaves], composite

    def pack(self, values: Sequence[Any]) -> Any:
        """The outputs, as the step gives them."""
        leaves, composite = self._leaves
        given = iter(values)
        packed = [next(given) if is_tensor else leaf for is_tensor, leaf in leaves]
        if composite:
            packed = [tf.convert_to_tensor(one) for one in packed]
        return tf.nest.pack_sequence_as(self.structure, packed, expand_composites=True)


def capture(step: Callable[[Any], Any], spec: Any, known: Callable[[], Sequence[Any]]) -> Captured:
    """
    Args:
      step: a function of one batch.
      spec: of the batch, TensorSpecs at its leaves.
      known: variables that it may use, asked once it is traced: old optimizers take handles of which a trace tells nothing.

    Raises RefusedError for a step that uses something of this process that is no variable, such as a lookup table.
    """
    concrete = _traced(step, spec)
    compiled = eager.compiled(concrete)
    definition = eager.inlined(concrete, without_xla=bool(compiled))
    variables = {id(eager.raw_handle(one)): one for one in (*eager.watched(concrete), *known()) if eager.is_eager(one)}
    handles: dict[str, Any] = {}
    constants: dict[str, np.ndarray] = {}
    inner = set()
    for outside, inside in eager.captured(concrete):
        name = inside.op.name
        inner.add(name)
        if id(outside) in variables:
            handles[name] = variables[id(outside)]
        elif outside.dtype in (tf.resource, tf.variant):
            raise RefusedError(
                f"the model uses {_kind(inside)} inside its step, which cannot move to parameter servers: do that to the "
                "records in the input, with `dataset.map(...)`"
            )
        else:
            constants[name] = outside.numpy()
    present = {node.name for node in definition.node}
    feeds = [(one.op.name, one.dtype, one.shape) for one in concrete.inputs if one.op.name not in inner]
    return Captured(
        definition, feeds, handles, constants, [one.name for one in concrete.outputs],
        [name for name in eager.control_outputs(concrete) if name in present], concrete.structured_outputs, compiled,
    )  # fmt: skip


def _traced(step: Callable[[Any], Any], spec: Any) -> Any:
    """A step that makes variables makes them in its first trace, which has their initialisation in it: a second has not."""
    made: list[str] = []

    def note(make: Callable[..., Any], **arguments: Any) -> Any:
        made.append(str(arguments.get("name")))
        return make(**arguments)

    with tf.variable_creator_scope(note):
        concrete = tf.function(step).get_concrete_function(spec)
    return tf.function(step).get_concrete_function(spec) if made else concrete


def _kind(placeholder: Any) -> str:
    """With the layers that use it, as their scopes are called."""
    users: dict[str, None] = {}
    for one in placeholder.consumers():
        scopes = [scope for scope in one.name.split("/")[:-1] if scope != "None_Lookup"]
        users[f"{one.type} of {'/'.join(scopes)}" if scopes else str(one.type)] = None
    return f"a resource of this process (for {few(sorted(users), 3)})" if users else "a resource of this process"
