"""The session in which captured steps are run: a MonitoredTrainingSession, as of any script of TensorFlow 1.

So all that is done for those holds here: the chief initialises or restores, others wait and attach, sessions are exchanged
while PS come and go, one that is lost is made again, steps are told to the AIMaster, a worker that leaves is told to stop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import tensorflow as tf

from deeprec_ext.hooks import ElasticTrainingHook

v1 = tf.compat.v1

SAVE_SECONDS, SAVE_SMALL_SECONDS = 600.0, 60.0
"""Between two checkpoints; of a model that is written in a moment."""

SMALL_BYTES = 256 << 20


class StepSession(Protocol):
    """What `door.Door` wants of a session."""

    @property
    def should_stop(self) -> bool:
        """Whether this process leaves the job."""

    def train(self, fetches: Sequence[Any], feeds: Mapping[Any, Any]) -> Sequence[Any]:
        """A training step, which counts."""

    def run(self, fetches: Sequence[Any], feeds: Mapping[Any, Any]) -> Sequence[Any]:
        """Any other run."""

    def close(self) -> None: ...


class Monitored:
    """Args:
    trainer: of this process.
    graph: to be run; it may grow, but for variables.
    directory: where the chief keeps checkpoints and finds the one to begin with; None: nowhere.
    examples: records of a step, for the rates shown.
    """

    def __init__(self, trainer: Any, graph: tf.Graph, directory: str | None, examples: int | None) -> None:
        self._graph = graph
        with graph.as_default():
            everything = v1.global_variables()
            self._session = v1.train.MonitoredTrainingSession(
                master=trainer.target,
                is_chief=trainer.chief,
                checkpoint_dir=directory if trainer.chief else None,
                scaffold=v1.train.Scaffold(
                    init_op=v1.variables_initializer(everything),
                    ready_op=v1.report_uninitialized_variables(everything),
                    ready_for_local_init_op=v1.report_uninitialized_variables(everything),
                    local_init_op=tf.no_op(),
                    saver=v1.train.Saver(everything, sharded=True),
                ),
                hooks=[ElasticTrainingHook(examples_per_step=examples)],
                save_checkpoint_secs=save_seconds(everything),
                save_summaries_steps=None,
                save_summaries_secs=None,
                log_step_count_steps=None,
            )

    @property
    def should_stop(self) -> bool:
        return bool(self._session.should_stop())

    def train(self, fetches: Sequence[Any], feeds: Mapping[Any, Any]) -> Sequence[Any]:
        with self._graph.as_default():  # where hooks look, and TensorFlow is not eager
            results: Sequence[Any] = self._session.run(fetches, feeds)
        return results

    def run(self, fetches: Sequence[Any], feeds: Mapping[Any, Any]) -> Sequence[Any]:
        with self._graph.as_default():
            results: Sequence[Any] = self._session.run_step_fn(
                lambda step_context: step_context.session.run(fetches, feeds)
            )
        return results

    def close(self) -> None:
        with self._graph.as_default():
            self._session.close()


def save_seconds(variables: Sequence[Any]) -> float:
    """Between two checkpoints: who presses Ctrl-C, or loses all copies of a PS, goes back as far at most."""
    sizes = [(one.shape.num_elements() or 0) * one.dtype.size for one in variables]
    return SAVE_SMALL_SECONDS if sum(sizes) <= SMALL_BYTES else SAVE_SECONDS
