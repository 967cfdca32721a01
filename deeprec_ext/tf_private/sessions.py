"""`tf.compat.v1.Session` below `run`: how runs are diverted, compiled and watched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import session as session_lib

from deeprec_ext.tf_private.wrapping import wrap

v1 = tf.compat.v1


MET_MAX = 4096
"""Elements of a graph that a session remembers to have run: a script that makes new ones for ever must not fill the memory."""


_STAY = ("GetSessionHandle", "GetSessionHandleV2")
"""Ops of tensors that stay in the session: TensorFlow gives them in a form of its own."""


class _Met(NamedTuple):
    """A tensor or an operation that was in a run."""

    element: Any
    """Kept, since its identity is its key."""
    name: str
    is_operation: bool
    dtype: Any = None
    """NumPy's, of a tensor that was fed."""
    shape: tuple[int | None, ...] | None = None
    """As far as it is known."""

    def takes(self, value: Any) -> bool:
        if not isinstance(value, (np.ndarray, np.generic)) or self.dtype != value.dtype:
            return False
        known, shape = self.shape, value.shape
        return known is None or (len(known) == len(shape) and all(a is None or a == b for a, b in zip(known, shape)))


class _Known:
    """What TensorFlow has found to be good in runs of one session."""

    def __init__(self) -> None:
        self._met: dict[int, _Met] = {}

    def feeds(self, leaves: Sequence[Any], given: Any) -> dict[str, Any] | None:
        """Arrays by the names of their tensors, if all of this run was in one before; None: it was not."""
        wanted = {id(leaf) for leaf in leaves}
        if not wanted <= self._met.keys() or type(given) is not dict:
            return None
        feeds = {}
        for tensor, value in given.items():
            met = self._met.get(id(tensor))
            if met is None or id(tensor) in wanted or not met.takes(value):
                return None
            feeds[met.name] = np.asarray(value)
        return feeds

    def wanted(self, leaves: Iterable[Any]) -> tuple[tuple[str, ...], dict[int, str]]:
        """Names of operations, and of tensors by their identity; each once."""
        met = {id(leaf): self._met[id(leaf)] for leaf in leaves}
        tensors = {identity: one.name for identity, one in met.items() if not one.is_operation}
        return tuple(one.name for one in met.values() if one.is_operation), tensors

    def note(self, leaves: Iterable[Any], given: Iterable[Any]) -> None:
        if len(self._met) > MET_MAX:
            self._met.clear()
        for one in leaves:
            if isinstance(one, tf.Operation) or (isinstance(one, tf.Tensor) and one.op.type not in _STAY):
                self._met.setdefault(id(one), _Met(one, one.name, isinstance(one, tf.Operation)))
        for one in given:
            if isinstance(one, tf.Tensor):
                shape = None if one.shape.rank is None else tuple(one.shape.as_list())
                self._met[id(one)] = _Met(one, one.name, False, np.dtype(one.dtype.as_numpy_dtype), shape)


def _leaves(fetches: Any, found: list[Any]) -> list[Any]:
    """What is in dicts, lists and tuples; anything else is taken for one."""
    if type(fetches) in (list, tuple, dict):
        for one in fetches.values() if type(fetches) is dict else fetches:
            _leaves(one, found)
    else:
        found.append(fetches)
    return found


def _packed(fetches: Any, values: Mapping[int, Any]) -> Any:
    """As they were given; None for an operation."""
    if type(fetches) is dict:
        return {key: _packed(one, values) for key, one in fetches.items()}
    if type(fetches) in (list, tuple):
        return type(fetches)(_packed(one, values) for one in fetches)
    return values.get(id(fetches))


class DivertedSession(v1.Session):
    """A session in whose own C session nothing ever runs: its runs come to `run_names`.

    Flattening, feeding and error texts are TensorFlow's (`_run`, `_do_call`); only the last step, `_do_run`, is ours. There is
    no public place between the two, and `run` itself would have to do all of theirs again. That takes the time of many ops, so
    a run of what TensorFlow has looked at once is flattened here; whatever is new, or is no plain array, goes through it.
    """

    def __init__(self, target: str, graph: Any = None, config: Any = None) -> None:
        super().__init__("", graph, config)
        self._target = (
            target.encode()
        )  # as which the session is known (`sess_str`); one that is given would be connected to
        self.known = _Known()

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        leaves, given = _leaves(fetches, []), feed_dict or {}
        feeds = None if self.closed else self.known.feeds(leaves, given)
        if feeds is None:
            results = self._run(
                None, fetches, feed_dict, options, run_metadata
            )  # its `run` makes C buffers of the last two
            self.known.note(leaves, given)
            return results
        targets, names = self.known.wanted(leaves)
        found = self.run_names(feeds, targets, tuple(names.values()), options, run_metadata) if leaves else ()
        return _packed(fetches, dict(zip(names, found)))

    def _do_run(
        self, handle: Any, target_list: Any, fetch_list: Any, feed_dict: Any, options: Any, run_metadata: Any
    ) -> Any:
        feeds = {reference.deref().name: value for reference, value in feed_dict.items()}
        return self.run_names(feeds, *_names(target_list, fetch_list), options, run_metadata)

    def run_names(
        self, feeds: dict[str, Any], targets: tuple[str, ...], fetches: tuple[str, ...], options: Any, metadata: Any
    ) -> Any:
        """Values of the fetches, in their order.

        Args:
          feeds: tensor → array.
          targets, fetches: operations and tensors.
        """
        raise NotImplementedError

    def with_messages(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The call, with errors that say which operation of the script they are of."""
        return self._do_call(function, *arguments)

    @property
    def closed(self) -> bool:
        return bool(self._closed)


class OwnSession(v1.Session):
    """Of this package: what scripts may not do with a session, and what is counted of theirs, does not concern it.

    It can be left behind: then its C session is never deleted, and runs under way stay safe. One with a cluster that nobody has
    closed is left behind as well: a finaliser must not wait for a PS, which may be gone.
    """

    left_behind = False

    def __del__(self) -> None:
        if not self.left_behind and (self._closed or not getattr(self, "_target", b"")):
            super().__del__()

    def compile(self, options: config_pb2.CallableOptions) -> Compiled:
        """A compiled run by names: `make_callable`, which is public, wants Python operations, of which our graphs have none."""
        self.open()
        return Compiled(self, options)

    def open(self) -> None:
        """On all processes that it names, which TensorFlow does at the first run: `_extend_graph`."""
        self._extend_graph()

    def leave_behind(self) -> None:
        """Nothing is to delete its C session any more; not `close` either."""
        self.left_behind = self._closed = True

    def _make_callable_from_options(self, options: config_pb2.CallableOptions) -> Compiled:
        return self.compile(options)  # not the watched one, which `watch_sessions` puts into the base class


class Compiled(v1.Session._Callable):  # type: ignore[misc]
    """A compiled run. TensorFlow's own is released by its finaliser, a call to the master that may wait for a PS which is gone;
    and a failed run leaves a circle (its error holds the frames that hold the run), so the collector calls that finaliser in
    any thread, a training one too, which then stands still for good. This one ends with its session, or by `release`.
    """

    def __del__(self) -> None:
        pass

    @property
    def session(self) -> OwnSession:
        """Where it is compiled."""
        return self._session

    def release(self) -> None:
        """May wait; not while it is run."""
        super().__del__()
        self._handle = None


def watch_sessions(
    opens: Callable[[str], None], ran: Callable[[tf.Graph, Iterable[str]], None],
    called: Callable[[tf.Graph, Iterable[str]], None],
) -> None:  # fmt: skip
    """All sessions but `OwnSession`s, in their base class, since Keras and scripts make them by names of their own.

    Args:
      opens: is called with a target before a session on it is made; may raise.
      ran: with graph and names of what a run reaches, before it; `called`: of a callable that Keras makes.
    """

    def make(original: Any, self: Any, target: Any = "", *args: Any, **kwargs: Any) -> None:
        if target and not isinstance(self, OwnSession):
            self._session = None  # its finaliser looks, if this raises
            opens(target if isinstance(target, str) else target.decode())
        original(self, target, *args, **kwargs)

    def run(original: Any, self: Any, handle: Any, target_list: Any, fetch_list: Any, *args: Any) -> Any:
        if not isinstance(self, OwnSession):
            targets, fetches = _names(target_list, fetch_list)
            ran(self.graph, (*targets, *fetches))
        return original(self, handle, target_list, fetch_list, *args)

    def make_callable(original: Any, self: Any, options: Any) -> Any:
        function, graph, names = original(self, options), self.graph, (*options.target, *options.fetch)

        def call(*args: Any, **kwargs: Any) -> Any:
            called(graph, names)
            return function(*args, **kwargs)

        return call

    wrap(session_lib.BaseSession, "__init__", make)
    wrap(session_lib.BaseSession, "_do_run", run)
    wrap(session_lib.BaseSession, "_make_callable_from_options", make_callable)


def add_python_operations(graph: tf.Graph) -> None:
    """Python objects for nodes that were added in C (`c_graph`): `_add_new_tf_operations`. Runs with RunMetadata need them."""
    graph._add_new_tf_operations(compute_devices=False)


def _names(targets: Sequence[Any], fetches: Sequence[Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple(operation.name for operation in targets), tuple(tensor.name for tensor in fetches)
