"""SessionManager, by which all training sessions of `tf.compat.v1.train` are made, initialised and restored."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tensorflow.python.training import session_manager

from deeprec_ext.tf_private.wrapping import wrap


def sessions_by(make: Callable[..., Any]) -> None:
    """SessionManager calls it, with (target, graph, config), instead of `Session`, which it takes from a module of its own."""
    session_manager.session = SimpleNamespace(Session=make)


def poll_readiness(seconds: float) -> None:
    """SessionManagers look at least so often whether the model is initialised: MonitoredSession passes them 30 s."""

    def make(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self._recovery_wait_secs = min(self._recovery_wait_secs, seconds)

    wrap(session_manager.SessionManager, "__init__", make)


def wrap_manager(name: str, around: Callable[..., Any]) -> None:
    """A method of SessionManager (`wrapping.wrap`)."""
    wrap(session_manager.SessionManager, name, around)


RESTORE = "_restore_checkpoint"
"""SessionManager's method for it: nothing public tells from which checkpoint a session began."""


class Manager:
    """What a SessionManager was made with. It has no public attributes."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager
        self.graph = manager._graph

    def attaches_to(self, target: str) -> None:
        """As its own methods do first; its local initialisation looks."""
        self._manager._target = target

    @property
    def ready_for_local(self) -> Any:
        """The op that lists what is uninitialised before the local initialisation; None without one."""
        return self._manager._ready_for_local_init_op if self._manager._local_init_op is not None else None

    @property
    def ready(self) -> Any:
        """The op that lists what is uninitialised."""
        return self._manager._ready_op

    def initialise_local(self, session: Any) -> None:
        self._manager._try_run_local_init_op(session)
