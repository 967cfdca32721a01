"""MonitoredSession, its hooks, and what they know and tell nobody; eager updates of variables."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops
from tensorflow.python.training import device_setter, monitored_session, supervisor, training_util

from deeprec_ext.tf_private.wrapping import exchange, wrap, wrapper

v1 = tf.compat.v1


def wrap_monitored_sessions(around: Callable[..., Any]) -> None:
    """The constructor of all MonitoredSessions, Estimator's too: their base class is private."""
    wrap(monitored_session._MonitoredSession, "__init__", around)


def exchange_turns(strategy: Callable[[int], Callable[[Any], int]]) -> None:
    """What `replica_device_setter` places variables by where nothing else is given, Estimator's too; made with how many PS."""
    device_setter._RoundRobinStrategy = strategy  # type: ignore[misc, assignment]


def has_master(session_creator: Any) -> bool:
    """Whether it makes sessions on a cluster."""
    return bool(getattr(session_creator, "_master", ""))


def checkpoint_directory(session_creator: Any) -> str:
    return str(getattr(session_creator, "_checkpoint_dir", None) or "")


def last_steps(hooks: list[Any]) -> Callable[[], int] | None:
    """The step at which StopAtStepHooks will stop training, once they know it, and tell nobody; None without such hooks."""
    stops = [hook for hook in hooks if hasattr(hook, "_last_step") and hasattr(hook, "_num_steps")]
    return (lambda: max((int(hook._last_step or 0) for hook in stops), default=0)) if stops else None


def exchange_monitored_training_session(tensorflow: ModuleType, around: Callable[..., Any]) -> None:
    """The function MonitoredTrainingSession, wherever it is found."""
    original = monitored_session.MonitoredTrainingSession
    exchange(tensorflow, monitored_session, "MonitoredTrainingSession", wrapper(original, around))


def listen_to_checkpoints(listener: Callable[[Callable[[], str]], Any]) -> None:
    """Every CheckpointSaverHook gets a listener, before its others, made with a function that gives its path."""

    def make(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        one = listener(lambda: str(self._save_path))
        self._listeners = [*([one] if one is not None else []), *self._listeners]

    wrap(v1.train.CheckpointSaverHook, "__init__", make)


def after_steps_of_savers(tell: Callable[[Callable[[], Any]], None]) -> None:
    """Of every CheckpointSaverHook: when it has done its part after a step; given is what writes a checkpoint of that step."""

    def after_run(original: Any, self: Any, run_context: Any, run_values: Any) -> None:
        original(self, run_context, run_values)

        def save() -> None:
            session = run_context.session
            self._save(session, int(session.run(v1.train.get_global_step(session.graph))))

        tell(save)

    wrap(v1.train.CheckpointSaverHook, "after_run", after_run)


def wrap_supervisor(around: Callable[..., Any]) -> None:
    """`prepare_or_wait_for_session` where it is defined: `tf.compat.v1.train.Supervisor` warns when it is looked up."""
    wrap(supervisor.Supervisor, "prepare_or_wait_for_session", around)


def wrap_variable_updates(around: Callable[..., Any]) -> None:
    """Eager `assign_sub` and `assign_add` of the class of all variables that are resources, which has no public name."""
    for name in ("assign_sub", "assign_add"):
        wrap(resource_variable_ops.ResourceVariable, name, around)


def global_step_read() -> tuple[Any, Any]:
    """The global step, made where there is none, and the tensor by which training reads it: hooks that fetch the one that
    TensorFlow's own hooks fetch cost no second read, and see the step of the same moment."""
    variable = training_util.get_or_create_global_step()
    return variable, training_util._get_or_create_global_step_read()
