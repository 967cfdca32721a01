"""`ElasticTrainingHook`: what elasticity needs to know of the training loop."""

from __future__ import annotations

import logging
from typing import Any

import tensorflow as tf

from deeprec_ext import autoload
from deeprec_ext.elastic.trainer import process
from deeprec_ext.hooks.data import DataShardHook
from deeprec_ext.tf_private.training import global_step_read

v1 = tf.compat.v1
log = logging.getLogger("deeprec_ext")


HEARD_SECONDS = 5.0
"""How long a chief waits until the AIMaster has heard that its model is live; where there is none, it trains."""


class ElasticTrainingHook(v1.train.SessionRunHook):
    """Reports steps to the agent, and ends the loop of a worker that leaves.

    Adds one fetch, the global step, which Estimator's own hooks fetch anyway; no further run. MonitoredSession gets
    this hook by itself when the process is elastic; adding it changes nothing but the options.

    Args:
      examples_per_step: records per step of one worker, for the rates shown; None: taken from the graph where it tells.
    """

    def __init__(self, examples_per_step: int | None = None) -> None:
        autoload.install()
        self._examples_per_step = examples_per_step
        self._trainer = process.trainer()
        self._global_step: Any = None

    def begin(self) -> None:
        if self._trainer is None:
            log.info("no AIMaster: ElasticTrainingHook does nothing, this is stock training")
            return
        # Now: the model is declared before there is a session.
        self._trainer.reporter.examples_given = self._examples_per_step
        variable, self._global_step = global_step_read()
        self._trainer.step_tensors = (self._global_step.name, variable.graph.as_graph_element(variable).name)

    def after_create_session(self, session: Any, coord: Any) -> None:
        trainer = self._trainer
        if trainer is None:
            return
        trainer.clock.begin_session()

    def before_run(self, run_context: Any) -> Any:
        return None if self._trainer is None else v1.train.SessionRunArgs(self._global_step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        trainer = self._trainer
        if trainer is None:
            return
        trainer.step_completed(int(run_values.results))
        if trainer.leaving.is_set():
            run_context.request_stop()

    def end(self, session: Any) -> None:
        """Not called when training ends with an error."""
        if self._trainer is not None:
            self._trainer.clock.reached(int(session.run(self._global_step)))


class LiveHook(v1.train.SessionRunHook):
    """Says that the model is live once the session of the chief is made, as the last of all hooks: others may initialise or
    restore something in their `after_create_session`. From then on trainers attach, and no script sets the model back.
    """

    def __init__(self) -> None:
        self._trainer = process.trainer()
        self._global_step: Any = None

    def begin(self) -> None:
        if self._trainer is not None:
            _, self._global_step = global_step_read()

    def after_create_session(self, session: Any, coord: Any) -> None:
        if self._trainer is not None and self._trainer.chief:
            self._trainer.model_live(int(session.run(self._global_step)))
            self._trainer.wait_live(HEARD_SECONDS)  # by then its data has gone back to where a checkpoint was made


def default_hooks() -> list[v1.train.SessionRunHook]:
    """The hooks that an elastic job wants, in their order; to be passed as `hooks=` where the script builds its own list."""
    return [ElasticTrainingHook(), DataShardHook()]
