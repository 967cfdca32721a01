"""Functions and classes of TensorFlow, exchanged in this process, for good unless it is said."""

from __future__ import annotations

import functools
import sys
import threading
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


class _Within:
    """What is exchanged while some thread is within; each has its own."""

    def __init__(self, owner: Any, name: str) -> None:
        self._original = getattr(owner, name)
        self.around: list[tuple[int, Callable[..., Any]]] = []
        """(thread, around), the innermost first."""
        setattr(owner, name, wrapper(self._original, self._call))
        self.undo = functools.partial(setattr, owner, name, self._original)

    def _call(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        for thread, around in tuple(self.around):
            if thread == threading.get_ident():
                original = functools.partial(around, original)
        return original(*args, **kwargs)


_within: dict[tuple[Any, str], _Within] = {}
_within_lock = threading.Lock()


def wrap_within(undo: ExitStack, owner: Any, name: str, around: Callable[..., Any]) -> None:
    """The same until `undo` is left, and for this thread alone: others may be within at the same time, and leave before."""
    place, mine = (owner, name), (threading.get_ident(), around)

    def leave() -> None:
        with _within_lock:
            one = _within[place]
            one.around.remove(mine)
            if not one.around:
                one.undo()
                del _within[place]

    with _within_lock:
        if place not in _within:
            _within[place] = _Within(owner, name)
        _within[place].around.append(mine)
    undo.callback(leave)


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
