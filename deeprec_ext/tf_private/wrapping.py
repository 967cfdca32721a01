"""Functions and classes of TensorFlow, exchanged in this process, for good unless it is said."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import ExitStack
from types import ModuleType
from typing import Any


def wrapper(original: Any, around: Callable[..., Any]) -> Callable[..., Any]:
    """`around(original, …)`, called with the arguments that the original was meant to get."""

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    return wrapped


def wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """A method, or a function of a module."""
    setattr(owner, name, wrapper(getattr(owner, name), around))


def wrap_within(undo: ExitStack, owner: Any, name: str, around: Callable[..., Any]) -> None:
    """The same until `undo` is left."""
    before = getattr(owner, name)
    undo.callback(setattr, owner, name, before)
    setattr(owner, name, wrapper(before, around))


def exchange(tensorflow: ModuleType, module: Any, name: str, new: object) -> None:
    """In the module that defines it, and in `tensorflow._api`, whose modules are what user code finds as `tf.compat.v1.train`
    and `tf.distribute`: they hold names of their own."""
    old = getattr(module, name)
    names = ("compat.v1.train", "compat.v1.distribute", "distribute")
    for api in (sys.modules.get(f"{tensorflow.__name__}._api.v2.{one}") for one in names):
        if api is not None and getattr(api, name, None) is old:
            setattr(api, name, new)
    setattr(module, name, new)


def seen(module: Any) -> bool:
    """Whether it has been asked of this module before: one that was there before TensorFlow comes twice."""
    before = getattr(module, "_deeprec_ext_seen", False)
    module._deeprec_ext_seen = True
    return bool(before)
