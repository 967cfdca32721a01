"""The one piece of state per process: whether it is elastic, and its `Trainer`.

TensorFlow itself has one runtime per process, and the hooks, the patched classes and user code must all find the same
trainer; so it is kept here, set once by `start`, and nowhere else.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading

from deeprec_ext import env
from deeprec_ext.elastic import background
from deeprec_ext.elastic.agent import Identity
from deeprec_ext.elastic.starting import setup_logging, start_server
from deeprec_ext.elastic.trainer import Trainer

log = logging.getLogger("deeprec_ext")

_lock = threading.Lock()
_trainer: Trainer | None = None
_server: object = None

EAGER = (
    "the script ended without opening a session on the parameter servers: eager TensorFlow 2 training cannot be made elastic; "
    "train with tf.estimator, tf.compat.v1.train.MonitoredTrainingSession or tf.keras.estimator.model_to_estimator"
)


def trainer() -> Trainer | None:
    """The trainer of this process; None in stock training."""
    return _trainer


def start() -> Trainer | None:
    """Makes this process a trainer of its job, once. None for an evaluator and outside a job."""
    global _trainer, _server
    with _lock:
        if _trainer is not None or not env.is_elastic_process():
            return _trainer
        env.claim_ownership()
        setup_logging()
        role = env.role()
        if role == "evaluator":
            _server, address = None, ""
        else:
            _server, address = start_server()
        identity = Identity.of_this_process(address)
        _trainer = Trainer(identity, (role, identity.index), f"grpc://{address}" if address else "")
        _trainer.start()
        atexit.register(_at_exit, _trainer)
        log.info("%s is elastic: TensorFlow server at %s", identity.name, address or "(none)")
        return _trainer


def _at_exit(one: Trainer) -> None:
    crashed = getattr(sys, "last_value", None) is not None
    expected = one.identity.role == "evaluator" or one.leaving.is_set() or one.asked_to_train or one.model_is_live
    trained_nothing = not one.had_session and not expected
    if trained_nothing and not crashed and one.refusal is None:
        one.refused(EAGER)
    one.finish()
    one.settle()
    if left := background.wait_for_threads():
        log.info("the process ends without waiting for threads in which TensorFlow ends something: %s", ", ".join(left))
        background.outlive()
    if trained_nothing and not crashed:
        print(f"deeprec-ext: {one.refusal}", file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(2)
