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

import tensorflow as tf

from deeprec_ext import env
from deeprec_ext.elastic import background
from deeprec_ext.elastic.agent import Identity
from deeprec_ext.elastic.ops import Ops, Program
from deeprec_ext.elastic.trainer import Trainer
from deeprec_ext.elastic.view import elastic_config

v1 = tf.compat.v1
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


def start_server() -> tuple[object, str]:
    """An elastic server: it knows nobody, membership comes with each session. Returns it and its host:port."""
    server_class = _original_server_class()
    server = server_class({"localhost": [env.address() or "127.0.0.1:0"]}, job_name="localhost", task_index=0)
    address = server.target.removeprefix("grpc://")
    _start_threads(server.target, address)
    return server, address


def _start_threads(target: str, address: str) -> None:
    """Opens a session, at the usual priority. With its first one TensorFlow starts the threads that take what other processes
    answer, for good: had it been opened beside training (`background.politely`), they would be as nice as that, and on a
    busy machine every step would wait for them.
    """
    program, ops = Program(target, elastic_config({0: address})), Ops()
    name = ops.add("NoOp", device="/job:ps/task:0")
    program.load(ops)
    program.compile(targets=[name])()
    program.close()


def _original_server_class() -> type:
    from tensorflow.python.training import server_lib

    return getattr(server_lib, "_deeprec_ext_original", server_lib.Server)


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
        _trainer = Trainer(identity, env.member(role, identity.index), f"grpc://{address}" if address else "")
        _trainer.start()
        atexit.register(_at_exit, _trainer)
        log.info("%s is elastic: TensorFlow server at %s", identity.name, address or "(none)")
        return _trainer


def setup_logging() -> None:
    """Our lines go to stderr, once, whatever the user's logging is."""
    if not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s deeprec_ext: %(message)s", "%H:%M:%S"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        log.propagate = False


def _at_exit(one: Trainer) -> None:
    crashed = getattr(sys, "last_value", None) is not None
    expected = one.identity.role == "evaluator" or one.leaving.is_set() or one.asked_to_train or one.model_is_live
    trained_nothing = not one.had_session and not expected
    if trained_nothing and not crashed and one.refusal is None:
        one.refused(EAGER)
    one.finish()
    one.settle()
    if left := background.wait_for_threads():
        log.warning("the process ends while %s still work", ", ".join(left))
    if trained_nothing and not crashed:
        print(f"deeprec-ext: {one.refusal}", file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(2)
