"""What in a script would train or evaluate beside the PS: refused by name, watched, or given what it lacks.

- `tf.compat.v1.train.Supervisor` and a raw session on the server's target are refused;
- Keras' `fit` gets the PS (`deeprec_ext.keras`);
- sessions on the spot, Keras in a graph and eager updates are watched (`plain`).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from deeprec_ext.elastic.trainer import plain, process
from deeprec_ext.errors import RefusedError
from deeprec_ext.tf_private import imports, keras_classes
from deeprec_ext.tf_private.wrapping import seen

if TYPE_CHECKING:
    from deeprec_ext.elastic.trainer.trainer import Trainer


def watch(trainer: Trainer) -> None:
    """Of everything that can train without the PS; refuses raw sessions on the cluster that the script sees."""
    cluster = {trainer.target, *(f"grpc://{address}" for address in _addresses())}
    plain.watch_sessions(trainer.plain, cluster.__contains__, trainer.refused)
    plain.watch_optimizer(tf.compat.v1.train.Optimizer, trainer.plain)
    plain.watch_variables(trainer.plain)
    for name, patch in KERAS.items():  # TensorFlow may have imported it, before this process was a trainer
        if name in sys.modules:
            patch(sys.modules[name])


def _addresses() -> list[str]:
    """Of the cluster that the script sees."""
    try:
        cluster = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster") or {}
        return [address for some in cluster.values() for address in some]
    except (ValueError, AttributeError, TypeError):
        return []  # the script has changed it


def refuse_supervisor(prepare: Callable[..., Any], supervisor: Any, master: str = "", *args: Any, **kwargs: Any) -> Any:
    """Nobody would say that the model is live, and workers would wait for that word for a quarter of an hour."""
    trainer = process.trainer()
    if trainer is None or not master:
        return prepare(supervisor, master, *args, **kwargs)
    reason = (
        "tf.train.Supervisor cannot be made elastic, since nothing tells of its steps: use "
        "tf.compat.v1.train.MonitoredTrainingSession, which replaced it, with the same server.target"
    )
    trainer.refused(reason)
    raise RefusedError(reason)


def keras_optimizers_imported(module: Any) -> None:
    """One of `imports.KERAS_OPTIMIZERS`."""
    trainer = process.trainer()
    if trainer is None or trainer.identity.role == "evaluator" or seen(module):
        return
    for kind, method in keras_classes.optimizers(module):
        plain.watch_optimizer(kind, trainer.plain, method)


def keras_imported(module: Any) -> None:
    """One of `imports.KERAS_MODELS`: what its models make steps with is made for parameter servers."""
    _keras_imported(module, 2)


def keras3_imported(module: Any) -> None:
    """`imports.KERAS3_MODELS`: the same."""
    _keras_imported(module, 3)


def _keras_imported(module: Any, generation: int) -> None:
    trainer = process.trainer()
    if trainer is None or trainer.identity.role == "evaluator" or seen(module):
        return
    from deeprec_ext.keras import entry  # above this package, and only where a script has Keras

    entry.install(module, trainer, generation)


KERAS = {
    **dict.fromkeys(imports.KERAS_MODELS, keras_imported), imports.KERAS3_MODELS: keras3_imported,
    **dict.fromkeys(imports.KERAS_OPTIMIZERS, keras_optimizers_imported),
}  # fmt: skip
"""Module -> what is done when it is there."""
