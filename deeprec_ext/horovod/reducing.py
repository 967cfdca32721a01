"""Horovod's operations on tensors, variables and objects: eagerly, in a `tf.function` and in graphs of TensorFlow 1."""

from __future__ import annotations

import weakref
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from deeprec_ext.allreduce.ring import Array, Ring
from deeprec_ext.elastic.member.views import LeaveError
from deeprec_ext.errors import RefusedError
from deeprec_ext.horovod.world import WORLD, depart, hand_object
from deeprec_ext.tf_private import keras_classes


class Op:
    """How numbers of all are put together."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


Average, Sum, Min, Max, Product, Adasum = map(Op, ("Average", "Sum", "Min", "Max", "Product", "Adasum"))
_TOGETHER: dict[str, Any] = {"Min": np.minimum, "Max": np.maximum, "Product": np.multiply}


class _Plain:
    """Numbers cross as they are."""

    kind: Any = None


class _Half:
    """Numbers of float32 and float64 cross in 16 bits, and are summed in them."""

    kind: Any = np.dtype(np.float16)


class Compression:
    none = _Plain
    fp16 = _Half


def refuse_others(op: Op | None = None, process_set: Any = None, average: bool | None = None) -> Op:
    """The operation that is meant. Raises RefusedError."""
    if process_set is not None and process_set is not global_process_set:
        raise RefusedError("process sets are not followed: a call is of all processes, leave process_set out")
    if average is not None:
        op = Average if average else Sum
    op = op or Average
    if op is Adasum:
        raise RefusedError(
            "Adasum is not followed: use op=hvd.Average, and scale the learning rate in a reset callback"
        )
    return op


class _AllProcesses:
    """`hvd.global_process_set`."""

    process_set_id = 0

    def size(self) -> int:
        return len(WORLD.addresses)

    def rank(self) -> int:
        return WORLD.rank

    def included(self) -> bool:
        return True


global_process_set = _AllProcesses()

# ---------------------------------------------------------------------------------------------------- of arrays


def reduce_arrays(
    arrays: Sequence[Array], op: Op, compression: Any, kind: str, name: str = "", gathers: bool = False, led: int = 0
) -> list[Array]:
    """Of all processes, shaped and typed as they were given.

    Args:
      gathers: see `World.call`; led: the last ones, so many numbers, are those of the process that leads.
    """
    arrays, settings = arrays[: len(arrays) - led], arrays[len(arrays) - led :]
    like = zlib.crc32(
        repr([(one.dtype.str, one.shape) for one in arrays] + [op.name, str(compression.kind), led]).encode()
    )

    def work(ring: Ring, weight: int) -> list[Array]:
        values = [np.array(value, one.dtype) for value, one in zip(WORLD.led, settings)]
        return [*_reduced(ring, arrays, op, compression.kind, weight), *values]

    like_all = f"{name or op.name} of {len(arrays)} ({like:08x})"
    return WORLD.call(kind, work, like_all, [float(one) for one in settings], gathers)


def _reduced(ring: Ring, arrays: Sequence[Array], op: Op, half: Any, weight: int) -> list[Array]:
    found: list[Any] = [None] * len(arrays)
    kinds = [half if half is not None and one.dtype in (np.float32, np.float64) else one.dtype for one in arrays]
    for kind in sorted(set(kinds), key=str):
        places = [at for at, one in enumerate(kinds) if one == kind]
        buffer = np.concatenate([np.asarray(arrays[at], kind).reshape(-1) for at in places])
        if op.name in _TOGETHER:
            parts = gather_arrays(ring, buffer)
            buffer = _TOGETHER[op.name].reduce(parts) if parts else buffer
        else:
            if not WORLD.counts:
                buffer[:] = 0
            divides = op is Average and weight > 1
            there = divides and np.issubdtype(buffer.dtype, np.floating)  # by one member, so all have the same bits
            ring.sum(buffer, over=weight if there else 1)
            if divides and not there:
                buffer = np.asarray(buffer / np.asarray(weight, buffer.dtype), buffer.dtype)
        at = 0
        for place in places:
            one = arrays[place]
            found[place] = buffer[at : at + one.size].reshape(one.shape).astype(one.dtype, copy=False)
            at += one.size
    return found


def gather_arrays(ring: Ring, array: Array) -> list[Array]:
    """Those of all, in the order of their ranks; of one type."""
    shapes = [_shape(one) for one in ring.gather(",".join(map(str, array.shape)).encode())]
    found = []
    for rank, shape in enumerate(shapes):
        one = np.ascontiguousarray(array) if rank == ring.rank else np.empty(shape, array.dtype)
        ring.hand_on(one.reshape(-1).view(np.uint8), rank)
        found.append(one)
    return found


def _shape(said: bytes) -> tuple[int, ...]:
    return tuple(map(int, said.decode().split(","))) if said else ()


def hand_arrays(arrays: Sequence[Array], root_rank: int, name: str = "", gathers: bool = False) -> list[Array]:
    """Those of one rank, to all."""
    like = zlib.crc32(repr([(one.dtype.str, one.shape) for one in arrays]).encode())

    def work(ring: Ring, weight: int) -> list[Array]:
        source, found = _source(ring, root_rank), []
        for one in arrays:
            room = np.array(one, order="C")
            ring.hand_on(room.reshape(-1).view(np.uint8), source)
            found.append(room)
        return found

    return WORLD.call(
        "broadcast", work, f"{name} {len(arrays)} of rank {root_rank} ({like:08x})".strip(), gathers=gathers
    )


def _source(ring: Ring, root_rank: int) -> int:
    if ring.size == 1:
        return 0
    if not 0 <= root_rank < ring.size:
        raise ValueError(f"there is no rank {root_rank} among {ring.size} processes")
    return root_rank or WORLD.root


# ---------------------------------------------------------------------------------------------------- of objects


def broadcast_object(obj: Any, root_rank: int = 0, name: str | None = None, process_set: Any = None) -> Any:
    """What `root_rank` has: numbers, texts, arrays, and lists and dicts of them (`things`)."""
    refuse_others(process_set=process_set)
    return WORLD.call(
        "broadcast_object", lambda ring, weight: hand_object(ring, obj, _source(ring, root_rank)), name or ""
    )


def broadcast_object_fn(
    root_rank: int = 0, session: Any = None, name: str | None = None, process_set: Any = None
) -> Callable[[Any], Any]:
    return lambda obj: broadcast_object(obj, root_rank, name, process_set)


def allgather_object(obj: Any, session: Any = None, name: str | None = None, process_set: Any = None) -> list[Any]:
    """What each has, in the order of their ranks."""
    refuse_others(process_set=process_set)
    return WORLD.call(
        "allgather_object", lambda ring, weight: [hand_object(ring, obj, rank) for rank in range(ring.size)], name or ""
    )


# ---------------------------------------------------------------------------------------------------- of tensors


_numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
"""Graph of TensorFlow 1 -> its calls so far: alike in all processes, as the graph is."""


def _number() -> str:
    """Of the next call in a graph of TensorFlow 1, whose calls come in any order; empty elsewhere, where they have an order."""
    if tf.executing_eagerly() or tf.inside_function():
        return ""
    graph = tf.compat.v1.get_default_graph()
    _numbers[graph] = _numbers.get(graph, 0) + 1
    return f"{_numbers[graph]:06d}"


def on_tensors(
    tensors: Sequence[Any], work: Callable[[list[Array], str], list[Array]], shapes: Sequence[Any] | None = None
) -> list[Any]:
    """What `work` makes of their values, as tensors of their types.

    Args:
      work: is given them and, in a graph of TensorFlow 1, the number of the call in it; shapes: of the results, as far as they
        are known; as the tensors' where it is left out.
    """
    tensors, number = [tf.convert_to_tensor(one) for one in tensors], _number()
    if tf.executing_eagerly():
        return [tf.constant(one, like.dtype) for one, like in zip(work([one.numpy() for one in tensors], ""), tensors)]

    def run(*values: Any) -> list[Array]:
        try:
            return work([np.asarray(one, order="C") for one in values], number)
        except LeaveError:
            assert WORLD.member is not None
            depart(WORLD.member)
        except BaseException as error:
            WORLD.failure = error
            raise

    found = tf.numpy_function(run, tensors, [one.dtype for one in tensors])
    for one, shape in zip(found, shapes or [one.shape for one in tensors]):
        one.set_shape(shape)
    return list(found)


def reduce_tensors(
    tensors: Sequence[Any], op: Op, compression: Any, kind: str, name: str = "", before: float = 1.0, after: float = 1.0,
    settings: Sequence[Any] = (),
) -> list[Any]:  # fmt: skip
    """None stays None; slices (of embeddings) become whole tensors.

    Args:
      settings: variables of TensorFlow, of one number each, that have then what the process that leads has.
    """
    there = [at for at, one in enumerate(tensors) if one is not None]
    if WORLD.is_alone and before == after == 1.0:
        return list(tensors)
    given = [tf.convert_to_tensor(tensors[at]) for at in there]
    given = [one if before == 1.0 else one * tf.cast(before, one.dtype) for one in given]
    led = [one.read_value() for one in settings] if given else []

    def work(arrays: list[Array], number: str) -> list[Array]:
        return reduce_arrays(arrays, op, compression, kind, f"{name} {number}".strip(), bool(number), len(led))

    found = on_tensors([*given, *led], work) if given else []
    found, values = found[: len(given)], found[len(given) :]
    for variable, value in zip(settings, values):
        variable.assign(value)
    found = [one if after == 1.0 else one * tf.cast(after, one.dtype) for one in found]
    whole: list[Any] = list(tensors)
    for at, one in zip(there, found):
        whole[at] = one
    return whole


def allreduce(
    tensor: Any, average: bool | None = None, device_dense: str = "", device_sparse: str = "",
    compression: Any = Compression.none, op: Op | None = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
    name: str | None = None, process_set: Any = None, ignore_name_scope: bool = False,
) -> Any:  # fmt: skip
    """The mean (or what `op` says) of all processes' tensors, which are of one shape and type."""
    return grouped_allreduce(
        [tensor], average, device_dense, device_sparse, compression, op, prescale_factor, postscale_factor, process_set,
        ignore_name_scope, name,
    )[0]  # fmt: skip


def grouped_allreduce(
    tensors: Sequence[Any], average: bool | None = None, device_dense: str = "", device_sparse: str = "",
    compression: Any = Compression.none, op: Op | None = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
    process_set: Any = None, ignore_name_scope: bool = False, name: str | None = None,
) -> list[Any]:  # fmt: skip
    """The same of several, in one call."""
    op = refuse_others(op, process_set, average)
    given = [tf.convert_to_tensor(one) for one in tensors]
    return reduce_tensors(given, op, compression, "allreduce", name or "", prescale_factor, postscale_factor)


def allgather(tensor: Any, name: str | None = None, ignore_name_scope: bool = False, process_set: Any = None) -> Any:
    """Those of all, one after the other along the first dimension, in which they may differ."""
    refuse_others(process_set=process_set)
    given = tf.convert_to_tensor(tensor)
    given = tf.reshape(given, [1]) if given.shape.rank == 0 else given

    def work(arrays: list[Array], number: str) -> list[Array]:
        (array,) = arrays
        like = f"{name or ''} {number} {array.dtype.str} {array.shape[1:]}"
        return [WORLD.call("allgather", lambda ring, weight: np.concatenate(gather_arrays(ring, array)), like,
                           gathers=bool(number))]  # fmt: skip

    return on_tensors([given], work, [tf.TensorShape([None]).concatenate(given.shape[1:])])[0]


def broadcast(
    tensor: Any, root_rank: int, name: str | None = None, ignore_name_scope: bool = False, process_set: Any = None
) -> Any:
    """The one of `root_rank`."""
    refuse_others(process_set=process_set)
    return on_tensors(
        [tensor], lambda arrays, number: hand_arrays(arrays, root_rank, f"{name or ''} {number}".strip(), bool(number))
    )[0]


def broadcast_variables(variables: Sequence[Any], root_rank: int, process_set: Any = None) -> Any:
    """All have the values of `root_rank` then. Returns an operation, in a graph of TensorFlow 1."""
    refuse_others(process_set=process_set)
    inside = [raw(one) for one in variables]
    if not inside:
        return None if tf.executing_eagerly() else tf.no_op()
    values = on_tensors(
        [one.read_value() for one in inside],
        lambda arrays, number: hand_arrays(arrays, root_rank, number, bool(number)),
    )
    writes = [one.assign(value) for one, value in zip(inside, values)]
    return None if tf.executing_eagerly() or tf.inside_function() else tf.group(*[one.op for one in writes])


def broadcast_(variables: Sequence[Any], root_rank: int, name: str | None = None, process_set: Any = None) -> Any:
    return broadcast_variables(variables, root_rank, process_set)


def broadcast_global_variables(root_rank: int) -> Any:
    """In a graph of TensorFlow 1. Raises RuntimeError elsewhere."""
    if tf.executing_eagerly():
        raise RuntimeError(
            "there are no global variables in TensorFlow 2: hvd.broadcast_variables(model.variables, root_rank)"
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


def reference(variable: Any) -> Any:
    """What it is known by."""
    return raw(variable).ref()


def raw(variable: Any) -> Any:
    """The variable of TensorFlow in one of Keras."""
    inside = keras_classes.inside(variable) if not isinstance(variable, tf.Variable) else None
    return inside if inside is not None else keras_classes.unwrapped(variable)
