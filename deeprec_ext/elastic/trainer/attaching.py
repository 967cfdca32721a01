"""A chief that opens a session on a model that lives: it attaches, and restores nothing without the AIMaster's order.

Stock TensorFlow restores the last checkpoint whenever anything is uninitialised. Here it depends on what and where:

- on no PS, in this very process: nobody else has it, and it was lost with the process before. It is initialised here;
- on a PS: the AIMaster is asked (`Missing`). New variables of this graph the chief initialises, and only those. Where the model
  has truly lost some it begins anew, in another generation, which is told as such: then, and only then, the chief restores.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Collection, Sequence
from typing import Any

import grpc
import tensorflow as tf

from deeprec_ext.elastic.agent.agent import Agent
from deeprec_ext.elastic.session.host import Wanted
from deeprec_ext.elastic.session.session import ElasticSession
from deeprec_ext.elastic.trainer.cluster_state import ClusterState
from deeprec_ext.errors import UnreachableError
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc
from deeprec_ext.tf_private.session_managers import Manager
from deeprec_ext.units import few

v1 = tf.compat.v1
log = logging.getLogger("deeprec_ext")

ASK_SECONDS = 30.0
"""How long the AIMaster may take to answer; it asks the PS."""

LOOK_AGAIN_SECONDS = 0.5
LIMIT_SECONDS = 900.0
"""After so long without a model that is ready the script gets an error: a restore would not be what was asked for."""

ORDER_SECONDS = 60.0
"""How long the view with the ordered generation may be under way."""

RUN_LIMIT_SECONDS = 30.0
"""How long a run that has not found its variables waits to learn why; then the error is the script's."""

_ABSENT = re.compile(
    r"Resource [^/\s]+/(?P<a>\S+?)/N10tensorflow3VarE does not exist|uninitialized value (?P<b>\S+)"
    r"|resource variable (?P<c>\S+) from Container|Could not find variable (?P<d>\S+?)\. "
    r"|Could not find resource: [^/\s]+/(?P<e>[^\s)]+)"
)


def named_absent(error: Exception) -> set[str]:
    """Shared names of the variables that TensorFlow says it has not found."""
    return {name for match in _ABSENT.finditer(str(error)) for name in match.groups() if name}


def ask(agent: Agent, names: Collection[str], generation: int, epoch: int) -> pb.MissingReply:
    """What is to be done about these variables; LATER when nobody answers."""
    request = pb.MissingRequest(
        incarnation=agent.identity.incarnation, variables=sorted(names), generation=generation, epoch=epoch
    )
    try:
        channel = agent.channel()
        try:
            return rpc.AgentsStub(channel).Missing(request, timeout=ASK_SECONDS)
        finally:
            channel.close()
    except (grpc.RpcError, UnreachableError) as error:
        log.debug("the AIMaster was not asked about %d variables: %s", len(names), error)
        return pb.MissingReply(verdict=pb.MissingReply.LATER)


def await_order(error: Exception, failed: Wanted, agent: Agent, cluster: ClusterState) -> bool:
    """A run has not found variables in the present view. True: meanwhile there is another; False: the error is the script's.

    Raises AbortedError when the model has lost them, and begins anew.
    """
    names, deadline = named_absent(error), time.monotonic() + RUN_LIMIT_SECONDS
    while names and cluster.live and time.monotonic() < deadline:
        generation = cluster.generation
        reply = ask(agent, names, generation, cluster.epoch)
        if reply.verdict == pb.MissingReply.RESTORE and cluster.wait_generation(generation, ORDER_SECONDS):
            raise tf.errors.AbortedError(None, None, f"the model has lost {_few(names)}: the session is recovered")
        if reply.verdict not in (pb.MissingReply.RESTORE, pb.MissingReply.LATER):
            return False
        if cluster.wait_other(failed, lost=False):
            return True
        time.sleep(LOOK_AGAIN_SECONDS)
    return False


def new_variables(names: Collection[str], agent: Agent, cluster: ClusterState) -> frozenset[str]:
    """Of variables that nobody has initialised on the PS, those that the chief initialises now.

    Raises AbortedError when the model has lost them, and begins anew.
    """
    deadline = time.monotonic() + RUN_LIMIT_SECONDS
    while time.monotonic() < deadline:
        generation = cluster.generation
        reply = ask(agent, names, generation, cluster.epoch)
        if reply.verdict == pb.MissingReply.INITIALISE:
            log.info("initialised on the PS, since the model has never had them: %s", _few(reply.variables))
            return frozenset(reply.variables)
        if reply.verdict == pb.MissingReply.RESTORE and cluster.wait_generation(generation, ORDER_SECONDS):
            raise tf.errors.AbortedError(None, None, f"the model has lost {_few(names)}: the session is recovered")
        if reply.verdict == pb.MissingReply.THERE:
            break
        time.sleep(LOOK_AGAIN_SECONDS)
    return frozenset()


class Attaching:
    """One attempt of a chief's SessionManager. `trainer`: of this process (`elastic.trainer.trainer.Trainer`)."""

    def __init__(self, manager: Any, trainer: Any, master: str, config: Any) -> None:
        self._manager, self._trainer, self._master, self._config = Manager(manager), trainer, master, config
        self._said = ""

    def session(self) -> ElasticSession | None:
        """Ready to train; None: the model does not live any more, and has to be initialised or restored.

        Raises DeadlineExceededError when the live model does not become ready.
        """
        self._manager.attaches_to(self._master)
        deadline = time.monotonic() + LIMIT_SECONDS
        while self._trainer.view.live:
            session = ElasticSession(self._master, self._manager.graph, self._config, self._trainer)
            try:
                if self._until_ready(session, deadline):
                    log.info("attached to the live model; no checkpoint was restored")
                    return session
            except (tf.errors.AbortedError, tf.errors.UnavailableError) as error:
                log.info(
                    "the session that attaches is made again, after %s: %s", type(error).__name__, error.message[:200]
                )
            except BaseException:
                session.close()
                raise
            session.close()
            if time.monotonic() > deadline:
                raise tf.errors.DeadlineExceededError(
                    None, None, f"the live model was not ready within {LIMIT_SECONDS:g} s: {self._said}; nothing was restored "
                    "over it. Stop the job and resume it to begin from the last checkpoint",
                )  # fmt: skip
            time.sleep(LOOK_AGAIN_SECONDS)
        return None

    def _until_ready(self, session: ElasticSession, deadline: float) -> bool:
        """False: another session is needed, or the model does not live any more."""
        manager = self._manager
        while self._trainer.view.live and time.monotonic() < deadline:
            absent = _names(session, manager.ready_for_local)
            if not absent:
                manager.initialise_local(session)
                absent = _names(session, manager.ready)
            if not absent:
                return True
            if not self._settle(session, absent):
                time.sleep(LOOK_AGAIN_SECONDS)
        return False

    def _settle(self, session: ElasticSession, absent: Sequence[str]) -> bool:
        """Whether something was done about what is uninitialised."""
        graph = session.graph
        known = {
            variable.op.name: variable
            for key in (v1.GraphKeys.LOCAL_VARIABLES, v1.GraphKeys.GLOBAL_VARIABLES)
            for variable in graph.get_collection(key)
            if hasattr(variable, "initializer")
        }
        here: list[Any] = []
        there: dict[str, Any] = {}  # shared name on a PS -> variable
        for name in absent:
            variable = known.get(name)
            parts = session.on_ps(variable.op) if variable is not None else ()
            there.update(dict.fromkeys(parts, variable))
            if variable is not None and not parts:
                here.append(variable)
        if here:
            log.info(
                "initialised here, since they were lost with the process before: %s", _few(v.op.name for v in here)
            )
            session.initialise(here)
        elif there:
            return self._ask(session, there)
        else:
            self._say(f"uninitialised: {_few(absent)}")
        return bool(here)

    def _ask(self, session: ElasticSession, there: dict[str, Any]) -> bool:
        trainer = self._trainer
        generation = trainer.generation
        reply = ask(trainer.agent, there, generation, trainer.view.epoch)
        self._say(f"the PS have not got {_few(there)}; {pb.MissingReply.Verdict.Name(reply.verdict)}")
        if reply.verdict == pb.MissingReply.RESTORE:
            trainer.wait_generation(generation, ORDER_SECONDS)
            return True
        if reply.verdict == pb.MissingReply.INITIALISE:
            new = {id(there[name]): there[name] for name in reply.variables if name in there}
            log.info("initialised on the PS, since the model has never had them: %s", _few(reply.variables))
            session.initialise(new.values())
            return True
        return False

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            log.info("the live model is not ready: %s", text)


def _names(session: ElasticSession, op: Any) -> list[str]:
    """What the ready op of a SessionManager names."""
    if op is None:
        return []
    found = session.run(op)
    return [name.decode(errors="replace") if isinstance(name, bytes) else str(name) for name in found.ravel()]


def _few(names: Any) -> str:
    return few(sorted(names))
