"""`tf.compat.v1.Session` below `run`: how runs are diverted, compiled and watched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import session as session_lib

from deeprec_ext.tf_private.wrapping import wrap

v1 = tf.compat.v1


class DivertedSession(v1.Session):
    """A session in whose own C session nothing ever runs: its runs come to `run_names`.

    Flattening, feeding and error texts are TensorFlow's (`_run`, `_do_call`); only the last step, `_do_run`, is ours. There is
    no public place between the two, and `run` itself would have to do all of theirs again.
    """

    def __init__(self, target: str, graph: Any = None, config: Any = None) -> None:
        super().__init__("", graph, config)
        self._target = (
            target.encode()
        )  # as which the session is known (`sess_str`); one that is given would be connected to

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        return self._run(
            None, fetches, feed_dict, options, run_metadata
        )  # TensorFlow's makes C buffers of the last two

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
