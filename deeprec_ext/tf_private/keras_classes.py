"""Keras 2 and 3: their modules are passed in when they are imported (`imports`), as a script may never do."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from deeprec_ext.tf_private.eager import raw_value
from deeprec_ext.tf_private.wrapping import wrap, wrapper

_APPLIES = {"_BaseOptimizer": "apply_gradients", "OptimizerV2": "apply_gradients", "BaseOptimizer": "apply"}
"""Base classes of optimizers: Keras 2's new and old, Keras 3's, and what all their steps go through."""

MAKES = {"train": "make_train_function", "test": "make_test_function", "predict": "make_predict_function"}
"""Methods of `Model` that make what it calls for each batch."""


def optimizers(module: Any) -> Iterator[tuple[Any, str]]:
    """(class, method that applies gradients) of those that a module defines."""
    for name, method in _APPLIES.items():
        kind = getattr(module, name, None)
        if method in vars(kind or object):
            yield kind, method


def wrap_model(module: Any, name: str, around: Callable[..., Any]) -> None:
    """A method of `Model`."""
    wrap(module.Model, name, around)


def wrap_saving(module: Any, name: str, around: Callable[..., Any]) -> None:
    """A function of what `Model` is saved with, under each name that Keras gives it for scripts."""
    saving = getattr(module, "saving_api", None)
    old = getattr(saving, name, None)
    if old is None:
        return
    new = wrapper(old, around)
    for one in list(sys.modules.values()):
        of_keras = str(getattr(one, "__name__", "")).startswith(("keras.", "tf_keras.", "tensorflow.keras"))
        if of_keras and vars(one).get(name) is old:
            setattr(one, name, new)


def is_own(thing: Any) -> bool:
    """Whether Keras itself has made the class or the function."""
    return str(getattr(thing, "__module__", "")).partition(".")[0] in ("keras", "tf_keras")


def first_shape(value: Any) -> tuple[int, ...] | None:
    """Of what fills a new variable, where it is one of Keras's own initializers that draws or repeats numbers. None: it is
    something else, which may not bear to be called twice."""
    if isinstance(value, functools.partial):  # of Keras 2, and what `fill_late` makes
        made, shape = value.func, value.args[0] if value.args else None
    else:  # a lambda of a variable of Keras 3
        inside = dict(
            zip(getattr(getattr(value, "__code__", None), "co_freevars", ()), getattr(value, "__closure__", None) or ())
        )
        if set(inside) != {"initializer", "self"} or not is_own(value):
            return None
        made, shape = inside["initializer"].cell_contents, getattr(inside["self"].cell_contents, "_shape", None)
    if not is_own(type(made)) or shape is None or np.ndim(getattr(made, "value", 0)):
        return None
    sizes = tuple(shape)
    return sizes if all(isinstance(one, int) for one in sizes) else None


class _Late:
    """An initializer of Keras 3 before 3.5, which fills a variable before TensorFlow is asked for one: while it is `late`, it
    gives what TensorFlow can call instead."""

    def __init__(self, initializer: Any) -> None:
        self.initializer, self.late = initializer, False

    def __call__(self, shape: Any, dtype: Any = None) -> Any:
        if self.late:
            return functools.partial(self.initializer, shape, dtype=dtype)
        return self.initializer(shape, dtype=dtype)


def fill_late() -> Callable[[], None]:
    """Keras 3 has TensorFlow fill its variables from now on, as it does by itself since 3.5: `first_shape` knows of which then.
    Returns what undoes it."""
    kind = getattr(sys.modules.get("keras.src.backend"), "Variable", None)
    if kind is None or hasattr(kind, "_initialize_with_initializer") or not hasattr(kind, "_deferred_initialize"):
        return lambda: None
    before = {name: vars(kind).get(name) for name in ("__init__", "_deferred_initialize")}

    def init(original: Callable[..., Any], variable: Any, initializer: Any, *args: Any, **words: Any) -> None:
        own = _Late(initializer) if is_own(type(initializer)) and callable(initializer) else None
        with _late(own):
            original(variable, own or initializer, *args, **words)

    def deferred(original: Callable[..., Any], variable: Any) -> None:
        with _late(getattr(variable, "_initializer", None)):
            original(variable)

    def undo() -> None:
        for name, method in before.items():
            if method is None:
                delattr(kind, name)
            else:
                setattr(kind, name, method)

    wrap(kind, "__init__", init)
    wrap(kind, "_deferred_initialize", deferred)
    return undo


@contextlib.contextmanager
def _late(initializer: Any) -> Iterator[None]:
    """Within, if it is one of ours."""
    if not isinstance(initializer, _Late):
        yield
        return
    initializer.late = True
    try:
        yield
    finally:
        initializer.late = False


def stores() -> Iterator[Any]:
    """Classes of those Kerases that are loaded, each of which writes weights into an HDF5 file, or one in an archive. They have
    `archive`, `mode`, `h5_file`, `io_file`, and the name of the file as `path_or_io` or `root_path`."""
    for name in ("keras.src.saving.saving_lib", "tf_keras.src.saving.saving_lib"):
        store = getattr(sys.modules.get(name), "H5IOStore", None)
        if "close" in vars(store or object):
            yield store


def has_datasets(store: Any) -> bool:
    """Whether it gives arrays: others give what h5py does."""
    return "__getitem__" in vars(store)


def dataset_of(store: Any, key: str) -> Any:
    """What such a store would make an array of, in the group that it was asked for last. None: it has none, or would refuse
    it, as what is in another file."""
    group = getattr(store, "_h5_entry_group", None)
    if not group or "/" in key or key not in group:
        return None
    return group[key] if group.get(key, getclass=True, getlink=True).__name__ == "HardLink" else None


def askers_for_memory() -> Iterator[tuple[Any, str]]:
    """(module, function) by which Keras 3 decides whether it reads all weights of a `.keras` file at once, or unpacks them."""
    saving = sys.modules.get("keras.src.saving.saving_lib")
    if hasattr(saving, "is_memory_sufficient"):
        yield saving, "is_memory_sufficient"


def kinds_of_variables() -> Iterator[Any]:
    """Of Keras 3: the class that assigns."""
    backend = sys.modules.get("keras.src.backend")
    yield from (kind for kind in getattr(backend, "Variable", object).__mro__[:-1] if "assign" in vars(kind))


def converters() -> Iterator[tuple[Any, str]]:
    """(module, function) by which Keras 3 makes an array of what it saves."""
    backend = sys.modules.get("keras.src.backend")
    if hasattr(backend, "convert_to_numpy"):
        yield backend, "convert_to_numpy"


COUNTERS = {"train": "_train_counter", "test": "_test_counter", "predict": "_predict_counter"}
"""Attributes of a model: its batches, in this process."""


def counter(model: Any, kind: str) -> Any:
    return getattr(model, COUNTERS[kind])


def steps_per_execution(model: Any) -> int:
    variable = model._steps_per_execution
    return int(raw_value(variable)) if variable is not None else 1


@contextlib.contextmanager
def without_xla(model: Any, optimizers: Sequence[Any]) -> Iterator[None]:
    """Its compiled pieces nobody could place."""
    held = [one for one in optimizers if getattr(one, "jit_compile", False)]
    compiled, model._jit_compile = getattr(model, "_jit_compile", None), False
    for one in held:
        one.jit_compile = False
    try:
        yield
    finally:
        model._jit_compile = compiled
        for one in held:
            one.jit_compile = True


def unwrapped(variable: Any) -> Any:
    """The variable of TensorFlow: Keras wraps it for mixed precision."""
    return getattr(variable, "_variable", variable)


def value(variable: Any) -> Any:
    """The variable of TensorFlow in one of Keras 3, as it is: its `value` may be a cast of it. None: it is not made yet."""
    return variable._value


def inside(thing: Any) -> Any:
    """The same; None also where it is no such variable."""
    return getattr(thing, "_value", None)


def trained_by(method: Any) -> Any:
    """The variables that an optimizer of Keras 3 was built for; given is a method of it."""
    return method.__self__._trainable_variables


def kept_of(optimizer: Any) -> Iterator[tuple[Any, Any]]:
    """(variable, weight that it is of) of one of Keras 3, which keeps lists with one for each weight."""
    weights = getattr(optimizer, "_trainable_variables", None) or ()
    lists = (one for one in vars(optimizer).values() if isinstance(one, (list, tuple)) and len(one) == len(weights))
    for kept in lists:
        for one, weight in zip(kept, weights):
            mine, theirs = tuple(getattr(one, "shape", ())), tuple(weight.shape)
            if one is not weight and hasattr(one, "path") and mine[:1] == theirs[:1] != ():
                yield one, weight


def layers(model: Any) -> Iterator[Any]:
    """Of Keras 3, the model itself and all that are in others."""
    yield from model._flatten_layers()
