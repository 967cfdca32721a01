"""What a script written for Horovod puts around its optimizer or its tape: what is applied is the gradients of all.

The object stays the one that it was, with its variables and its configuration, and gets a class of the same name: so what is
saved with it loads without Horovod.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from deeprec_ext.errors import RefusedError
from deeprec_ext.horovod.committed import build
from deeprec_ext.horovod.reducing import Average, Compression, Op, Sum, raw, reduce_tensors, reference, refuse_others
from deeprec_ext.horovod.words import GRADIENTS
from deeprec_ext.horovod.world import WORLD
from deeprec_ext.keras.optimizers import settings_of
from deeprec_ext.tf_private import keras_classes

v1 = tf.compat.v1


@dataclass(frozen=True)
class _Way:
    """How gradients are put together."""

    op: Op
    compression: Any
    local: frozenset[Any] = frozenset()  # references of variables whose gradients stay as they are

    def together(self, gradients: Sequence[Any], variables: Sequence[Any], settings: Sequence[Any]) -> list[Any]:
        """Of all, by the learning rates (`settings`) of the process that leads."""
        whole = list(gradients)
        places = [at for at, one in enumerate(variables) if reference(one) not in self.local]
        given = [gradients[at] for at in places]
        found = reduce_tensors(given, self.op, self.compression, GRADIENTS, settings=settings)
        for at, one in zip(places, found):
            whole[at] = one
        return whole


def _way(op: Op, compression: Any, process_set: Any) -> _Way:
    op = refuse_others(op, process_set)
    if op not in (Average, Sum):
        raise RefusedError(f"gradients are put together by hvd.Average or hvd.Sum, not by {op}")
    return _Way(op, compression)


class _Passes:
    """Gradients of some batches, added up before they are summed over all processes."""

    def __init__(self, count: int, mean: bool) -> None:
        self._count, self._mean = count, mean
        self._done: Any = None
        self._sums: list[Any] = []
        WORLD.begins_anew.append(self.clear)

    def clear(self) -> None:
        for one in [self._done, *self._sums] if self._done is not None else []:
            one.assign(tf.zeros_like(one))

    def apply(self, gradients: Sequence[Any], apply: Callable[[list[Any]], None]) -> None:
        there = [at for at, one in enumerate(gradients) if one is not None]
        given = [tf.convert_to_tensor(gradients[at]) for at in there]
        if self._done is None:
            with tf.init_scope():
                self._done = tf.Variable(0, dtype=tf.int64, trainable=False)
                self._sums = [tf.Variable(tf.zeros(one.shape, one.dtype), trainable=False) for one in given]
        for variable, one in zip(self._sums, given):
            variable.assign_add(one)
        self._done.assign_add(1)

        def all_of_them() -> Any:
            whole = list(gradients)
            for at, variable in zip(there, self._sums):
                whole[at] = variable / tf.cast(self._count, variable.dtype) if self._mean else variable.read_value()
            apply(whole)
            self.clear()
            return tf.constant(True)

        if tf.executing_eagerly():
            if int(self._done.numpy()) >= self._count:
                all_of_them()
        else:
            tf.cond(self._done >= self._count, all_of_them, lambda: tf.constant(False))


# ---------------------------------------------------------------------------------------------------- Keras, TensorFlow 1


def DistributedOptimizer(
    optimizer: Any, name: str | None = None, use_locking: bool = False, device_dense: str = "", device_sparse: str = "",
    compression: Any = Compression.none, sparse_as_dense: bool = False, backward_passes_per_step: int = 1, op: Op = Average,
    gradient_predivide_factor: float = 1.0, average_aggregated_gradients: bool = False, num_groups: int = 0, groups: Any = None,
    process_set: Any = None, scale_local_gradients: bool = True,
) -> Any:  # fmt: skip
    """The same optimizer, which applies the gradients of all from now on: of Keras 2 or 3, or of `tf.compat.v1.train`.

    Args:
      compression: how they cross; backward_passes_per_step: batches whose gradients are added up before; their mean is applied
        with `average_aggregated_gradients`.

    Raises RefusedError for what is not followed. Where gradients lie and how they are grouped is for Horovod's transports, and
    says nothing here.
    """
    way = _way(op, compression, process_set)
    if isinstance(optimizer, v1.train.Optimizer):
        if backward_passes_per_step > 1:
            raise RefusedError("backward_passes_per_step is not followed for optimizers of tf.compat.v1.train")
        return _of_tensorflow_1(optimizer, way)
    if hasattr(optimizer, "inner_optimizer"):
        raise RefusedError(
            f"{type(optimizer).__name__} leaves a step out where gradients of one process overflow, and the others would wait "
            "for it: train with mixed_bfloat16, which needs no scale"
        )
    passes = _Passes(backward_passes_per_step, average_aggregated_gradients) if backward_passes_per_step > 1 else None
    kind, method = type(optimizer), "apply" if hasattr(type(optimizer), "apply") else "apply_gradients"

    def apply_with(
        own: Any, call: Callable[[list[Any]], Any], gradients: Sequence[Any], variables: Sequence[Any]
    ) -> Any:
        with tf.init_scope():
            build(own, variables)  # before others' variables are put into it
            settings = settings_of(own)

        def together(given: Sequence[Any]) -> Any:
            means = way.together(given, variables, settings)
            with tf.control_dependencies([one for one in means if one is not None and not tf.executing_eagerly()]):
                return call(means)

        if passes is None:
            return together(gradients)
        passes.apply(gradients, together)
        return own.iterations

    def apply_gradients(self: Any, grads_and_vars: Any, *args: Any, **words: Any) -> Any:
        pairs = list(grads_and_vars)
        variables = [variable for _, variable in pairs]
        return apply_with(
            self, lambda means: kind.apply_gradients(self, list(zip(means, variables)), *args, **words),
            [one for one, _ in pairs], variables,
        )  # fmt: skip

    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        gradients = list(grads)
        variables = list(
            trainable_variables if trainable_variables is not None else keras_classes.trained_by(self.apply)
        )
        return apply_with(self, lambda means: kind.apply(self, means, variables), gradients, variables)

    body = {"apply": apply} if method == "apply" else {"apply_gradients": apply_gradients}
    optimizer.__class__ = type(
        kind.__name__,
        (kind,),
        {**body, "sums_by_itself": True, "__module__": kind.__module__, "__qualname__": kind.__qualname__},
    )
    return optimizer


def _of_tensorflow_1(optimizer: Any, way: _Way) -> Any:
    kind = type(optimizer)

    def compute_gradients(self: Any, *args: Any, **words: Any) -> Any:
        gradients, variables = zip(*kind.compute_gradients(self, *args, **words))
        return list(zip(way.together(gradients, variables, ()), variables))

    def apply_gradients(self: Any, grads_and_vars: Any, *args: Any, **words: Any) -> Any:
        pairs = list(grads_and_vars)
        with tf.control_dependencies(
            [one for one, _ in pairs if one is not None]
        ):  # it reads what may be given with them
            return kind.apply_gradients(self, pairs, *args, **words)

    own = {"compute_gradients": compute_gradients, "apply_gradients": apply_gradients}
    optimizer.__class__ = type(kind.__name__, (kind,), own)
    return optimizer


def load_model(
    filepath: Any, custom_optimizers: Any = None, custom_objects: Any = None, compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:  # fmt: skip
    """The model that is saved there, whose optimizer is a DistributedOptimizer from now on, with what it has come to."""
    objects = {one.__name__: one for one in custom_optimizers or ()}
    model = tf.keras.models.load_model(filepath, custom_objects={**objects, **(custom_objects or {})})
    if getattr(model, "optimizer", None) is not None:
        DistributedOptimizer(model.optimizer, compression=compression)
    return model


# ---------------------------------------------------------------------------------------------------- tapes


def DistributedGradientTape(
    gradtape: Any, device_dense: str = "", device_sparse: str = "", compression: Any = Compression.none,
    sparse_as_dense: bool = False, op: Op = Average, gradient_predivide_factor: float = 1.0, num_groups: int = 0,
    groups: Any = None, process_set: Any = None, scale_local_gradients: bool = True,
) -> Any:  # fmt: skip
    """The same tape, whose `gradient` gives that of all."""
    return _distributed(gradtape, _way(op, compression, process_set))


def PartialDistributedGradientTape(gradtape: Any, *args: Any, local_layers: Any = (), **words: Any) -> Any:
    """The same, but gradients of these layers' weights are each process's own, divided by the number of processes."""
    layers = local_layers if isinstance(local_layers, (list, tuple, set)) else [local_layers]
    tape = DistributedGradientTape(gradtape, *args, **words)
    for one in (weight for layer in layers for weight in layer.trainable_weights):
        tape.register_local_source(one)
    return tape


def _read_after(gradients: Sequence[Any], variables: Sequence[Any]) -> None:
    """In a function: what reads these after the tape's `gradient`, as an optimizer does, reads what others may have given this
    process in it. TensorFlow keeps that order for whatever writes them, and this could."""
    there = [one for one in gradients if one is not None]
    if not there or not variables:
        return

    def write() -> Any:
        for one in map(raw, variables):
            one.assign(one.read_value())
        return tf.constant(True)

    with tf.control_dependencies(there):
        given = tf.reshape(tf.numpy_function(lambda: np.array(WORLD.was_given), [], tf.bool), [])
    tf.cond(given, write, lambda: tf.constant(False))


def _distributed(tape: Any, way: _Way) -> Any:
    kind, local = type(tape), set[Any]()

    def register_local_source(self: Any, source: Any) -> None:
        local.add(reference(source))

    def gradient(self: Any, target: Any, sources: Any, output_gradients: Any = None, *args: Any, **words: Any) -> Any:
        found = kind.gradient(self, target, sources, output_gradients)
        gradients, variables = tf.nest.flatten(found), tf.nest.flatten(sources)
        with tf.init_scope():
            known, settings = WORLD.shared.variables(), WORLD.shared.settings()
        whole = _Way(way.op, way.compression, frozenset(local)).together(gradients, variables, settings)
        if tf.inside_function() and not WORLD.is_alone:
            _read_after(whole, known)
        if local:
            size = len(WORLD.addresses)
            whole = [one / size if one is not None and reference(variable) in local else one
                     for one, variable in zip(whole, variables)]  # fmt: skip
        return tf.nest.pack_sequence_as(sources, whole)

    tape.__class__ = type(kind.__name__, (kind,), {
        "gradient": gradient, "register_local_source": register_local_source,
    })  # fmt: skip
    return tape
