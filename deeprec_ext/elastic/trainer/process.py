"""The one piece of state per process: whether it is elastic, and its `Trainer`.

TensorFlow itself has one runtime per process, and the hooks, the patched classes and user code must all find the same
trainer; so it is kept here, set once by `start`, and nowhere else.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import sys
import threading
import time

from deeprec_ext import env
from deeprec_ext.elastic.agent import background, script_end
from deeprec_ext.elastic.agent.agent import Identity
from deeprec_ext.elastic.agent.script_end import SCRIPT, UNKNOWN_EXIT_CODE, Guard
from deeprec_ext.elastic.runtime.starting import start_server
from deeprec_ext.elastic.trainer.trainer import Trainer
from deeprec_ext.elastic.trainer.unopened import text_of_script, why_no_session
from deeprec_ext.printable import setup_logging

log = logging.getLogger("deeprec_ext")

_lock = threading.Lock()
_trainer: Trainer | None = None
_server: object = None

CLOSE_SECONDS = 5.0
"""How long the end of the script waits until the sessions that it left open are closed; a session takes milliseconds."""

LAST_SECONDS = 8.0
"""How long the end of the process waits for the last word to the AIMaster, a session that is being prepared, and others
that are being closed. What takes longer is left behind, which costs nothing at the end."""


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
        SCRIPT.running()
        SCRIPT.at_last(functools.partial(_at_last, _trainer))
        atexit.register(_before_tensorflow, _trainer)
        log.info("%s is elastic: TensorFlow server at %s", identity.name, address or "(none)")
        return _trainer


def _before_tensorflow(one: Trainer) -> None:
    """The handlers of TensorFlow itself have not run yet. Those that the script registered before its import come later, and
    may take their time: the script has not ended.

    A session that is still open must not see the finalisers, which can neither start a thread nor wait.
    """
    if os.getpid() == one.pid:  # not in a child that the script has forked
        with script_end.bounded(2 * CLOSE_SECONDS, "closing the sessions that the script left open hangs"):
            one.close_sessions(CLOSE_SECONDS)


def _at_last(one: Trainer) -> None:
    """The script has ended. From here on nobody waits for long, and if anybody does the process is ended."""
    code = SCRIPT.exit_code
    limit = one.end_limit_seconds
    Guard(
        limit, UNKNOWN_EXIT_CODE if code is None else code,
        f"deeprec-ext: this process is ended: it lives {limit:g} s after the end of its script",
    )  # fmt: skip
    expected = one.identity.role == "evaluator" or one.leaving.is_set() or one.asked_to_train or one.model_is_live
    beside = one.plain.conclude(
        refuse=code == 0 and not expected
    )  # that is told: the script ends as it ends, if not strict
    trained_nothing = not one.had_session and not expected and not beside and code == 0
    if trained_nothing and one.refusal is None:
        calling = one.calling
        one.refused(why_no_session(calling.made, one.plain.opened, calling.given, text_of_script()))
    deadline = time.monotonic() + LAST_SECONDS
    one.finish(2 if trained_nothing else code, SCRIPT.error)
    one.settle(max(0.0, deadline - time.monotonic()))
    background.outlive()
    if left := background.wait_for_threads(longest_seconds=max(0.0, deadline - time.monotonic())):
        log.info("the process ends without waiting for threads in which TensorFlow ends something: %s", ", ".join(left))
        script_end.skip_static_destructors()
    if trained_nothing:
        print(f"deeprec-ext: {one.refusal}", file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(2)
