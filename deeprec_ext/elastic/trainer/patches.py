"""The classes of TensorFlow through which sessions are made, exchanged for elastic ones. Each function is called once, by

`autoload`, when its module has been imported in a process of an elastic job. Only what user code can reach stays changed:

- `SessionManager` makes `ElasticSession`s, polls for readiness every half second instead of every 30 s, and attaches a chief
  that comes back to the live model instead of restoring a checkpoint over it;
- `MonitoredSession` gets the `ElasticTrainingHook` and the `DataShardHook` if the script has not added them, and the
  `LiveHook`;
- `CheckpointSaverHook` writes the data ledger's position beside each checkpoint;
- `tf.compat.v1.train.Server` and Estimator's own server give the elastic server's target, and tell how the script calls this
  process;
- `MonitoredTrainingSession` and the SessionManager agree with the job about who its chief is;
- what would train or evaluate beside the PS is refused, watched, or put right (`beside`);
- Estimator's workers start at once, and its chief evaluates the final checkpoint when no evaluator does.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from types import ModuleType
from typing import Any

import tensorflow as tf

from deeprec_ext import env
from deeprec_ext.elastic.runtime.model_directory import share_model_directory
from deeprec_ext.elastic.session.session import ElasticSession
from deeprec_ext.elastic.trainer import beside, plain, process, sidecar
from deeprec_ext.elastic.trainer.attaching import Attaching
from deeprec_ext.elastic.trainer.beside import keras3_imported, keras_imported, keras_optimizers_imported
from deeprec_ext.elastic.trainer.calling import few_ps
from deeprec_ext.elastic.trainer.last_checkpoint import LastCheckpoint
from deeprec_ext.errors import RefusedError
from deeprec_ext.graph import TurnBySize, marks
from deeprec_ext.tf_private import estimators, servers, session_managers, training
from deeprec_ext.tf_private.wrapping import wrap

log = logging.getLogger("deeprec_ext")

READY_POLL_SECONDS = 0.5
"""How often a worker looks whether the chief has initialised the model (stock TensorFlow: 30 s)."""

LIVE_LIMIT_SECONDS = 900.0
"""How long a worker waits for the chief's word before it starts to look for itself."""


def tensorflow_imported(tensorflow: ModuleType) -> None:
    trainer = process.start()
    if trainer is None or trainer.identity.role == "evaluator":
        return
    _patch_session_manager()
    training.listen_to_checkpoints(_ledger_listener)
    last = LastCheckpoint(trainer.agent.close)
    if trainer.chief and last.install():
        training.after_steps_of_savers(last.after_step)
    patch_iterators()
    training.exchange_turns(TurnBySize)
    training.wrap_monitored_sessions(_add_hooks)
    training.exchange_monitored_training_session(tensorflow, _agree_who_is_chief)
    training.wrap_supervisor(beside.refuse_supervisor)
    beside.watch(trainer)
    servers.exchange_server(tensorflow, ElasticServer)


class ElasticServer:
    """Stands in for `tf.compat.v1.train.Server` in user code: the process's elastic server is running already.

    Raises what TensorFlow's raises for wrong arguments, and RefusedError where the script takes this process for another.
    """

    def __init__(
        self, server_or_cluster_def: Any, job_name: str | None = None, task_index: int | None = None,
        protocol: str | None = None, config: Any = None, start: bool = True,
    ) -> None:  # fmt: skip
        del start
        trainer = process.trainer()
        assert trainer is not None
        self.server_def = servers.server_def(server_or_cluster_def, job_name, task_index, protocol, config)
        try:
            names = trainer.calling.server(self.server_def)
        except RefusedError as error:
            trainer.refused(str(error))
            raise
        if (few := few_ps(names.ps, env.slots())) is not None:
            trainer.notice("few-ps", *few, mended=True)  # it trains as it was written

    @property
    def target(self) -> str:
        trainer = process.trainer()
        assert trainer is not None
        return trainer.target

    def start(self) -> None:
        """It runs."""

    def join(self) -> None:
        """For scripts that serve after training: until the job leaves this process or ends it."""
        trainer = process.trainer()
        assert trainer is not None
        trainer.leaving.wait()

    @staticmethod
    def create_local_server(config: Any = None, start: bool = True) -> Any:
        return servers.original_server_class().create_local_server(config, start)


def _session(target: str = "", graph: Any = None, config: Any = None) -> ElasticSession:
    """What SessionManager calls instead of `Session`; a target '' is evaluation or prediction on the spot."""
    trainer = process.trainer()
    if trainer is not None and not target:
        return plain.LocalSession(graph, config, trainer.plain)
    return ElasticSession(target, graph, config, trainer)


def _patch_session_manager() -> None:
    session_managers.sessions_by(_session)
    session_managers.poll_readiness(READY_POLL_SECONDS)
    for name, around in (
        ("wait_for_session", _wait_for_session), ("prepare_session", _prepare_session), ("recover_session", _recover_session),
        (session_managers.RESTORE, _restore_checkpoint),
    ):  # fmt: skip
        session_managers.wrap_manager(name, around)


def _prepare_session(prepare: Callable[..., Any], manager: Any, master: str, *args: Any, **kwargs: Any) -> Any:
    trainer = process.trainer()
    if trainer is not None and master:
        trainer.announcing.tell(session_managers.Manager(manager).graph)
        if not trainer.chief:
            log.info("the script opens a session as the chief, which this process is not: it attaches to the model")
            return manager.wait_for_session(master, kwargs.get("config"))
        session = Attaching(manager, trainer, master, kwargs.get("config")).session()
        if session is not None:
            return session
    return prepare(manager, master, *args, **kwargs)


def _recover_session(recover: Callable[..., Any], manager: Any, master: str, *args: Any, **kwargs: Any) -> Any:
    trainer = process.trainer()
    if trainer is not None and master:
        trainer.announcing.tell(session_managers.Manager(manager).graph)
    if trainer is not None and master and trainer.view.live:
        return manager.prepare_session(master, config=kwargs.get("config")), True
    return recover(manager, master, *args, **kwargs)


def _wait_for_session(wait: Callable[..., Any], manager: Any, master: str, *args: Any, **kwargs: Any) -> Any:
    trainer = process.trainer()
    if trainer is not None and master:
        trainer.announcing.tell(session_managers.Manager(manager).graph)
        if trainer.chief and not trainer.had_session and not trainer.view.live:
            _refuse_to_wait(trainer)
        trainer.wait_live(LIVE_LIMIT_SECONDS)
    return wait(manager, master, *args, **kwargs)


def _restore_checkpoint(restore: Callable[..., Any], manager: Any, master: str, *args: Any, **kwargs: Any) -> Any:
    session, restored = restore(manager, master, *args, **kwargs)
    trainer = process.trainer()
    if trainer is not None and master and trainer.chief:
        path = kwargs.get("checkpoint_filename_with_path")
        if restored and not path:
            path = tf.train.latest_checkpoint(kwargs.get("checkpoint_dir"))
        sidecar.note_restored(trainer.inputs, path if restored else None)
    return session, restored


def patch_iterators() -> None:
    """What iterators give under the name of the records' ids is noted in the graph, so that sessions can fetch it."""

    def noting(get_next: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
        element = get_next(self, *args, **kwargs)
        _note_records(element)
        return element

    wrap(tf.compat.v1.data.Iterator, "get_next", noting)


def _note_records(element: Any) -> None:
    for name, value in element.items() if isinstance(element, dict) else ():
        if name == marks.RECORD and hasattr(value, "graph"):
            value.graph.add_to_collection(marks.RECORDS, value)
        else:
            _note_records(value)
    for value in element if isinstance(element, (tuple, list)) else ():
        _note_records(value)


def _ledger_listener(path: Callable[[], str]) -> sidecar.LedgerListener | None:
    """Every CheckpointSaverHook writes the data ledger's position beside its checkpoints."""
    trainer = process.trainer()
    if trainer is None:
        return None
    return sidecar.LedgerListener(
        trainer.inputs, path, trainer.inputs.note_saved if trainer.chief else lambda step: None
    )


def _add_hooks(
    make: Callable[..., Any], self: Any, session_creator: Any, hooks: Any, *args: Any, **kwargs: Any
) -> None:
    from deeprec_ext.hooks import DataShardHook, ElasticTrainingHook, LiveHook

    hooks = list(hooks or [])
    if training.has_master(session_creator):
        if not any(isinstance(hook, ElasticTrainingHook) for hook in hooks):
            hooks.insert(0, ElasticTrainingHook())
        if not any(isinstance(hook, DataShardHook) for hook in hooks):
            hooks.append(DataShardHook())
        hooks.append(LiveHook())
        _note_plans(session_creator, hooks)
    make(self, session_creator, hooks, *args, **kwargs)


def _note_plans(session_creator: Any, hooks: list[Any]) -> None:
    """Where training will stop by itself, for the progress bar, where the chief keeps its checkpoints (Estimator: the model
    directory), for TensorBoard, and whether it writes any, for what PS need."""
    trainer, last_step = process.trainer(), training.last_steps(hooks)
    if trainer is not None and last_step is not None:
        trainer.last_step = last_step
    if trainer is not None and trainer.chief:
        trainer.checkpoints = any(isinstance(hook, tf.compat.v1.train.CheckpointSaverHook) for hook in hooks)
        trainer.gazer.model_directory = training.checkpoint_directory(session_creator)


def _agree_who_is_chief(make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Two would each initialise the model and write checkpoints; without one nobody would, and all would wait."""
    given = inspect.signature(make).bind(*args, **kwargs)
    given.apply_defaults()
    trainer = process.trainer()
    if trainer is not None and given.arguments["master"] and bool(given.arguments["is_chief"]) != trainer.chief:
        log.warning(
            "is_chief is %s in the script, but this process is %s, and the session is made so; if the script takes "
            "worker 0 for the chief, run with --layout workers",
            bool(given.arguments["is_chief"]), "the chief" if trainer.chief else "not the chief",
        )  # fmt: skip
        given.arguments["is_chief"] = trainer.chief
    return make(*given.args, **given.kwargs)


def _refuse_to_wait(trainer: Any) -> None:
    reason = (
        "the chief's session waits for a model that nobody else initialises: the script takes another process for the chief; "
        "choose is_chief by TF_CONFIG, or run with --layout workers (worker 0 is the chief) or --layout master"
    )
    trainer.refused(reason)
    raise RefusedError(reason)


def estimator_imported(module: Any) -> None:
    """`tensorflow_estimator.python.estimator.training`."""
    trainer = process.trainer()
    if trainer is None:
        return
    share_model_directory(module.estimator_lib, trainer.noticing)
    estimators.start_at_once(module)

    def start_training(start: Callable[..., Any], executor: Any, *args: Any, **kwargs: Any) -> Any:
        trainer.asked_to_train = True
        return start(executor, *args, **kwargs)

    def evaluate(evaluate_and_export: Callable[..., Any], evaluator: Any) -> Any:
        result, exports = evaluate_and_export(evaluator)
        report_evaluation(result.metrics)
        return result, exports

    def run_chief(train: Callable[..., Any], executor: Any) -> Any:
        result = train(executor)
        if not env.has_evaluator():
            log.info("evaluating the final checkpoint")
            estimators.evaluate(executor)
        return result

    estimators.wrap_training(module, start_training)
    estimators.wrap_evaluation(module, evaluate)
    estimators.wrap_chief(module, run_chief)


def report_evaluation(metrics: Any) -> None:
    """Sends the numbers of an evaluation to the AIMaster."""
    trainer = process.trainer()
    if trainer is None or not metrics:
        return
    numbers = {}
    for name, value in metrics.items():
        try:
            numbers[name] = float(value)
        except (TypeError, ValueError):
            continue
    trainer.report_metrics(numbers, int(numbers.get("global_step", 0)))


__all__ = [
    "ElasticServer", "estimator_imported", "keras3_imported", "keras_imported", "keras_optimizers_imported",
    "report_evaluation", "tensorflow_imported",
]  # fmt: skip
