"""Large tables that this process has not made: it knows their shape, and the graph that would make their first values.

Keras makes and fills each variable when its layer is built, and an optimizer as many more of the same size: on every process of
a job, before anybody knows that they lie on parameter servers. A large one is made without storage instead, and what fills it
is kept as a graph, from which the PS make it (`stepgraph`). Whoever looks at one before, or writes it, gets it with storage,
filled as Keras would have filled it: nothing but memory shows the difference. What a script loads into one stays in its file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import tensorflow as tf

from deeprec_ext.keras.files.rows import Rows, fitting
from deeprec_ext.keras.placing import VALUE_BY_VALUE
from deeprec_ext.tf_private import eager, keras_classes, operations

v1 = tf.compat.v1

LARGE_BYTES = 16 << 20
"""Smaller ones are made as always: they are looked at more often than they are worth."""

CONSTANT_BYTES = 1 << 20
"""What is filled from an array of more is made as always: the array is there anyway, and a graph would have it once more."""

_silent = threading.local()


def is_large(variable: Any) -> bool:
    """Whether it is better not here; of numbers that NumPy knows too, and with rows."""
    sized = variable.shape.rank and _bytes(variable.shape, variable.dtype) >= LARGE_BYTES
    return bool(sized) and np.dtype(variable.dtype.as_numpy_dtype).kind in "fiub"


class First:
    """The first values of one variable. It watches the variable until it has them, or others."""

    def __init__(self, variable: Any, definition: v1.GraphDef, name: str) -> None:
        self.variable, self.definition, self._name = variable, definition, name
        self._lock = threading.RLock()
        self._writer = 0
        self.loaded: Rows | None = None
        """What it has instead, since a script has loaded it."""
        eager.watch(variable, self)

    def looked_at(self) -> None:
        if eager.in_scratch_graph() or self._writer == threading.get_ident():
            return
        if tf.executing_eagerly() or not getattr(_silent, "depth", 0):
            self.make()

    def overwritten(self) -> None:
        self._writer = threading.get_ident()

    def changed(self) -> None:
        """Of a write of a part, it was looked at before."""
        if self._writer:
            eager.forget_watcher(self.variable)

    def not_overwritten(self) -> None:
        self._writer = 0

    def rows(self) -> None: ...

    def takes(self, value: Any) -> bool:
        with self._lock:
            rows = fitting(value, self.variable) if first_of(self.variable) is self else None
            if rows is not None:
                self.loaded = rows
            return rows is not None

    def make(self) -> None:
        with self._lock:
            if first_of(self.variable) is self:
                if self.loaded is not None:
                    eager.set_raw(self.variable, np.asarray(self.loaded))
                else:
                    with tf.Graph().as_default(), v1.Session() as session:
                        eager.set_raw(self.variable, session.run(self.again("")))
                eager.forget_watcher(self.variable)

    def again(self, name: str) -> Any:
        """The tensor of these values in the graph that is built now."""
        return v1.import_graph_def(self.definition, return_elements=[self._name], name=name)[0]


def first_of(variable: Any) -> First | None:
    """None: it has storage."""
    watcher = eager.watcher_of(variable)
    return watcher if isinstance(watcher, First) else None


def make_loaded(variables: Iterable[Any]) -> int:
    """Those get storage that a script has loaded; how many."""
    loaded = [first for one in variables if (first := first_of(one)) is not None and first.loaded is not None]
    for first in loaded:
        first.make()
    return len(loaded)


@contextmanager
def silence() -> Iterator[None]:
    """Within, tracing a step is no look."""
    _silent.depth = getattr(_silent, "depth", 0) + 1
    try:
        yield
    finally:
        _silent.depth -= 1


class Filling(tf.Graph):
    """Of what fills variables. Optimizers put theirs beside the variables that they are of, which are of no graph."""

    @contextmanager
    def colocate_with(self, op: Any, ignore_existing: bool = False) -> Iterator[None]:
        yield


def begin() -> Callable[[], None]:
    """Large tables are left unmade from now on. Returns what undoes it."""
    made, filled = eager.variables_by(create), keras_classes.fill_late()

    def undo() -> None:
        made()
        filled()

    return undo


def create(make: Callable[..., Any], **words: Any) -> Any:
    """A variable, for `eager.variables_by`."""
    first, graph = words.get("initial_value"), v1.get_default_graph()
    if words.get("distribute_strategy") is not None:
        return make(**words)
    if isinstance(graph, Filling) and not tf.executing_eagerly():
        value = tf.convert_to_tensor(first() if callable(first) else first, dtype=words.get("dtype"))
        made = _waiting(value, words)
        if made is not None:
            return made
        with v1.Session(graph=graph) as session:
            filled = session.run(value)
        with eager.eagerly():
            return make(**{**words, "initial_value": filled})
    made = _of_keras(first, words) if tf.executing_eagerly() else None
    return make(**words) if made is None else made


def _of_keras(first: Any, words: dict[str, Any]) -> Any:
    """A variable without storage, of one of Keras's own initializers; None: made as always."""
    shape, dtype = keras_classes.first_shape(first), words.get("dtype")
    if shape is None or _bytes(tf.TensorShape(shape), tf.as_dtype(dtype or tf.float32)) < LARGE_BYTES:
        return None
    try:
        with Filling().as_default():
            value = tf.convert_to_tensor(first(), dtype=dtype)
        return _waiting(value, words)
    except Exception:  # what it cannot do in a graph it does as ever
        return None


@contextmanager
def building(
    optimizers: Iterable[Any], plain: Callable[[Any], Any], within: Callable[[], AbstractContextManager[Any]]
) -> Iterator[None]:
    """Within, an optimizer that makes what it keeps of tables without storage does it in a context of its own.

    Args:
      plain: TensorFlow's variable in one that the optimizer is given.
      within: the context.
    """
    held = [one for one in optimizers if hasattr(one, "build")]

    def own(original: Callable[..., Any]) -> Callable[..., Any]:
        def build(*args: Any, **kwargs: Any) -> Any:
            variables = next(iter((*args, *kwargs.values())), ())
            large = any(first_of(plain(one)) is not None for one in variables)
            with within() if large else nullcontext():
                return original(*args, **kwargs)

        return build

    for one in held:
        one.build = own(one.build)
    try:
        yield
    finally:
        for one in held:
            del one.build


@contextmanager
def outside() -> Iterator[None]:
    """Ops are run at once, and variables made as if no function were traced: its way of making them has their values in it."""
    with tf.Graph().as_default(), eager.eagerly():
        yield


def _waiting(value: tf.Tensor, words: dict[str, Any]) -> Any:
    """A variable without storage; None: these values are made as always.

    They are where they are small, where another run would draw other numbers, and where they come from an array.
    """
    if _bytes(value.shape, value.dtype) < LARGE_BYTES:
        return None
    definition = v1.graph_util.extract_sub_graph(value.graph.as_graph_def(), [value.op.name])
    known = [operations.op_def(node.op) for node in definition.node]
    if any(one is None or one.is_stateful for one in known):
        return None
    if sum(node.ByteSize() for node in definition.node if node.op == "Const") >= CONSTANT_BYTES:
        return None
    number = _one_number(definition, value.name)
    if number is not None:
        with tf.Graph().as_default() as graph:
            value = tf.fill(value.shape, number)
            definition = graph.as_graph_def()
    with eager.eagerly():
        variable = eager.without_storage(
            value.shape, value.dtype,
            **{name: words.get(name) for name in ("trainable", "name", "synchronization", "aggregation", "constraint")},
        )  # fmt: skip
        First(variable, definition, value.name)
    return variable


_REPEATING = {"Fill": 1, "BroadcastTo": 0}
"""Op → its input that is repeated."""


def _one_number(given: v1.GraphDef, name: str) -> Any:
    """What all values of a tensor are; None: not known. A session that has to fold `0.1 * ones(shape)` would make both whole,
    in the chief."""
    definition = v1.GraphDef()
    definition.CopyFrom(given)
    for node in definition.node:
        if node.op in _REPEATING:
            repeated, kind = node.input[_REPEATING[node.op]], node.attr["T"].type
            node.CopyFrom(type(node)(op="Identity", name=node.name, input=[repeated]))
            node.attr["T"].type = kind
        elif node.op not in VALUE_BY_VALUE and node.op != "Const":
            return None
    with tf.Graph().as_default(), v1.Session() as session:
        value = v1.import_graph_def(definition, return_elements=[name], name="")[0]
        return session.run(value) if value.shape == [] else None


def _bytes(shape: tf.TensorShape, dtype: tf.DType) -> int:
    return (shape.num_elements() or 0) * (dtype.size or 1)
