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

import functools
import inspect
import logging
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

from deeprec_ext import env
from deeprec_ext.elastic.runtime.starting import original_server_class
from deeprec_ext.elastic.session.session import ElasticSession
from deeprec_ext.elastic.trainer import beside, plain, process, sidecar
from deeprec_ext.elastic.trainer.attaching import Attaching
from deeprec_ext.elastic.trainer.beside import keras_imported, keras_optimizers_imported
from deeprec_ext.elastic.trainer.calling import few_ps
from deeprec_ext.errors import RefusedError
from deeprec_ext.graph import marks

log = logging.getLogger("deeprec_ext")

READY_POLL_SECONDS = 0.5
"""How often a worker looks whether the chief has initialised the model (stock TensorFlow: 30 s)."""

LIVE_LIMIT_SECONDS = 900.0
"""How long a worker waits for the chief's word before it starts to look for itself."""


def tensorflow_imported(tensorflow: ModuleType) -> None:
    trainer = process.start()
    if trainer is None or trainer.identity.role == "evaluator":
        return
    from tensorflow.python.data.ops import iterator_ops
    from tensorflow.python.training import (
        basic_session_run_hooks,
        monitored_session,
        server_lib,
        session_manager,
        supervisor,
    )

    _patch_session_manager(session_manager)
    _patch_checkpoints(basic_session_run_hooks)
    patch_iterators(iterator_ops)
    _patch_monitored_session(monitored_session)
    _agree_who_is_chief(monitored_session, tensorflow)
    beside.refuse_supervisor(supervisor)
    beside.watch(trainer)
    server_lib._deeprec_ext_original = server_lib.Server
    _exchange(tensorflow, server_lib, "Server", ElasticServer)


def _exchange(tensorflow: ModuleType, module: Any, name: str, new: object) -> None:
    """Also where user code finds it."""
    old = getattr(module, name)
    names = ("compat.v1.train", "compat.v1.distribute", "distribute")
    for api in (sys.modules.get(f"{tensorflow.__name__}._api.v2.{one}") for one in names):
        if api is not None and getattr(api, name, None) is old:
            setattr(api, name, new)
    setattr(module, name, new)


class ElasticServer:
    """Stands in for `tf.compat.v1.train.Server` in user code: the process's elastic server is running already.

    Raises what TensorFlow's raises for wrong arguments, and RefusedError where the script takes this process for another.
    """

    def __init__(
        self, server_or_cluster_def: Any, job_name: str | None = None, task_index: int | None = None,
        protocol: str | None = None, config: Any = None, start: bool = True,
    ) -> None:  # fmt: skip
        del start
        from tensorflow.python.training import server_lib

        trainer = process.trainer()
        assert trainer is not None
        self.server_def = server_lib._make_server_def(server_or_cluster_def, job_name, task_index, protocol, config)
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
        return original_server_class().create_local_server(config, start)  # type: ignore[attr-defined]


def _session(target: str = "", graph: Any = None, config: Any = None) -> ElasticSession:
    """What SessionManager calls instead of `Session`; a target '' is evaluation or prediction on the spot."""
    trainer = process.trainer()
    if trainer is not None and not target:
        return plain.LocalSession(graph, config, trainer.plain)
    return ElasticSession(target, graph, config, trainer)


def _patch_session_manager(module: Any) -> None:
    manager = module.SessionManager
    module.session = SimpleNamespace(Session=_session)
    make, prepare, wait = manager.__init__, manager.prepare_session, manager.wait_for_session
    recover, restore = manager.recover_session, manager._restore_checkpoint

    @functools.wraps(make)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        self._recovery_wait_secs = min(self._recovery_wait_secs, READY_POLL_SECONDS)

    @functools.wraps(prepare)
    def prepare_session(self: Any, master: str, *args: Any, **kwargs: Any) -> Any:
        trainer = process.trainer()
        if trainer is not None and master and not trainer.chief:
            log.info("the script opens a session as the chief, which this process is not: it attaches to the model")
            return wait_for_session(self, master, kwargs.get("config"))
        if trainer is not None and master:
            session = Attaching(self, trainer, master, kwargs.get("config")).session()
            if session is not None:
                return session
        return prepare(self, master, *args, **kwargs)

    @functools.wraps(recover)
    def recover_session(self: Any, master: str, *args: Any, **kwargs: Any) -> Any:
        trainer = process.trainer()
        if trainer is not None and master and trainer.view.live:
            return prepare_session(self, master, config=kwargs.get("config")), True
        return recover(self, master, *args, **kwargs)

    @functools.wraps(wait)
    def wait_for_session(self: Any, master: str, *args: Any, **kwargs: Any) -> Any:
        trainer = process.trainer()
        if trainer is not None and master:
            if trainer.chief and not trainer.had_session and not trainer.view.live:
                _refuse_to_wait(trainer)
            trainer.wait_live(LIVE_LIMIT_SECONDS)
        return wait(self, master, *args, **kwargs)

    @functools.wraps(restore)
    def restore_checkpoint(self: Any, master: str, *args: Any, **kwargs: Any) -> Any:
        session, restored = restore(self, master, *args, **kwargs)
        trainer = process.trainer()
        if trainer is not None and master and trainer.chief:
            path = kwargs.get("checkpoint_filename_with_path")
            if restored and not path:
                path = module.checkpoint_management.latest_checkpoint(kwargs.get("checkpoint_dir"))
            sidecar.note_restored(trainer.inputs, path if restored else None)
        return session, restored

    manager._restore_checkpoint = restore_checkpoint
    manager.__init__, manager.prepare_session = __init__, prepare_session
    manager.wait_for_session, manager.recover_session = wait_for_session, recover_session


def patch_iterators(module: Any) -> None:
    """What iterators give under the name of the records' ids is noted in the graph, so that sessions can fetch it."""
    iterator = module.Iterator
    get_next = iterator.get_next

    @functools.wraps(get_next)
    def noting(self: Any, *args: Any, **kwargs: Any) -> Any:
        element = get_next(self, *args, **kwargs)
        _note_records(element)
        return element

    iterator.get_next = noting


def _note_records(element: Any) -> None:
    for name, value in element.items() if isinstance(element, dict) else ():
        if name == marks.RECORD and hasattr(value, "graph"):
            value.graph.add_to_collection(marks.RECORDS, value)
        else:
            _note_records(value)
    for value in element if isinstance(element, (tuple, list)) else ():
        _note_records(value)


def _patch_checkpoints(module: Any) -> None:
    """Every CheckpointSaverHook writes the data ledger's position beside its checkpoints."""
    hook = module.CheckpointSaverHook
    make = hook.__init__

    @functools.wraps(make)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        trainer = process.trainer()
        if trainer is not None:
            saved = trainer.inputs.note_saved if trainer.chief else (lambda step: None)
            listener = sidecar.LedgerListener(trainer.inputs, lambda: self._save_path, saved)
            self._listeners = [listener, *self._listeners]

    hook.__init__ = __init__


def _patch_monitored_session(module: Any) -> None:
    base = module._MonitoredSession
    make = base.__init__

    @functools.wraps(make)
    def __init__(self: Any, session_creator: Any, hooks: Any, *args: Any, **kwargs: Any) -> None:
        from deeprec_ext.hooks import DataShardHook, ElasticTrainingHook, LiveHook

        hooks = list(hooks or [])
        trains = bool(getattr(session_creator, "_master", ""))
        if trains and not any(isinstance(hook, ElasticTrainingHook) for hook in hooks):
            hooks.insert(0, ElasticTrainingHook())
        if trains and not any(isinstance(hook, DataShardHook) for hook in hooks):
            hooks.append(DataShardHook())
        if trains:
            hooks.append(LiveHook())
            _note_last_step(hooks)
            _note_model_directory(session_creator)
        make(self, session_creator, hooks, *args, **kwargs)

    base.__init__ = __init__


def _agree_who_is_chief(module: Any, tensorflow: ModuleType) -> None:
    """Two would each initialise the model and write checkpoints; without one nobody would, and all would wait."""
    make = module.MonitoredTrainingSession
    signature = inspect.signature(make)

    @functools.wraps(make)
    def MonitoredTrainingSession(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
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

    _exchange(tensorflow, module, "MonitoredTrainingSession", MonitoredTrainingSession)


def _refuse_to_wait(trainer: Any) -> None:
    reason = (
        "the chief's session waits for a model that nobody else initialises: the script takes another process for the chief; "
        "choose is_chief by TF_CONFIG, or run with --layout workers (worker 0 is the chief) or --layout master"
    )
    trainer.refused(reason)
    raise RefusedError(reason)


def _note_last_step(hooks: list[Any]) -> None:
    """Where training will stop by itself, for the progress bar."""
    trainer = process.trainer()
    stops = [hook for hook in hooks if hasattr(hook, "_last_step") and hasattr(hook, "_num_steps")]
    if trainer is not None and stops:
        trainer.last_step = lambda: max((int(hook._last_step or 0) for hook in stops), default=0)


def _note_model_directory(session_creator: Any) -> None:
    """Where the chief keeps its checkpoints (Estimator: the model directory), for TensorBoard."""
    trainer = process.trainer()
    if trainer is not None and trainer.chief:
        trainer.gazer.model_directory = str(getattr(session_creator, "_checkpoint_dir", None) or "")


def estimator_imported(module: Any) -> None:
    """`tensorflow_estimator.python.estimator.training`."""
    trainer = process.trainer()
    if trainer is None:
        return
    beside.share_model_directory(module.estimator_lib, trainer.noticing)
    executor = module._TrainingExecutor
    module._DELAY_SECS_PER_WORKER = module._MAX_DELAY_SECS = 0
    executor._start_std_server = lambda self, config: None
    start_training = executor._start_distributed_training

    @functools.wraps(start_training)
    def start_distributed_training(self: Any, *args: Any, **kwargs: Any) -> Any:
        trainer.asked_to_train = True
        return start_training(self, *args, **kwargs)

    executor._start_distributed_training = start_distributed_training
    evaluate = executor._Evaluator.evaluate_and_export

    @functools.wraps(evaluate)
    def evaluate_and_export(self: Any) -> Any:
        result, exports = evaluate(self)
        report_evaluation(result.metrics)
        return result, exports

    executor._Evaluator.evaluate_and_export = evaluate_and_export
    train = executor.run_chief

    @functools.wraps(train)
    def run_chief(self: Any) -> Any:
        result = train(self)
        if not env.has_evaluator():
            log.info("evaluating the final checkpoint")
            executor._Evaluator(self._estimator, self._eval_spec, self._train_spec.max_steps).evaluate_and_export()
        return result

    executor.run_chief = run_chief


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
    "ElasticServer", "estimator_imported", "keras_imported", "keras_optimizers_imported", "report_evaluation",
    "tensorflow_imported",
]  # fmt: skip
