"""The chief's word of what its model is like: while its registration waits for the first view, which is made by it.

Said once, when the first graph that is to be trained is finished; or, with no model, by whoever waits for the view without one,
and where the AIMaster refuses what it is told: it waits for a word. What was heard is repeated until there is a view: an
AIMaster that has lost its store meanwhile waits for it, too. For the history of jobs a model is said later.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import grpc
import tensorflow as tf

from deeprec_ext import env
from deeprec_ext.elastic.agent.agent import Agent
from deeprec_ext.elastic.session.usergraph import UserGraph
from deeprec_ext.elastic.trainer.cluster_state import ClusterState
from deeprec_ext.errors import UnreachableError, one_line
from deeprec_ext.graph import Partitioning
from deeprec_ext.layout import Names
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc

log = logging.getLogger("deeprec_ext")

TRY_SECONDS, AGAIN_SECONDS = 5.0, 0.1
"""How long one call may take, and after how long another one is made: the registration may not have arrived yet."""

REPEAT_SECONDS = 5.0
"""After how long what was heard is said again, while there is no view."""

LIMIT_SECONDS = 60.0
"""After so long the script goes on: the AIMaster has its own limit, and then begins without."""

WHY_MAX = 1000
"""Characters of why there is no model."""

PASSING = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
"""What a call ends with that a dying AIMaster has taken: no word of its own."""

DEAF = (grpc.StatusCode.UNIMPLEMENTED,)
"""What an AIMaster of an older release answers, which waits for no word."""


class Announcing:
    """Args:
    cluster: as far as this trainer knows it.
    names: how the script calls this process and the PS.
    examples: of a step, as the script has told its hook; None: it has not.
    checkpoints: whether the session writes them; None: nobody knows.
    """

    def __init__(
        self, agent: Agent, cluster: ClusterState, names: Callable[[], Names],
        examples: Callable[[], int | None] = lambda: None, checkpoints: Callable[[], bool | None] = lambda: None,
    ) -> None:  # fmt: skip
        self._agent, self._cluster, self._names, self._examples = agent, cluster, names, examples
        self._checkpoints = checkpoints
        self._lock = threading.Lock()
        self._told = self._model_told = False

    def tell(self, graph: tf.Graph | None) -> None:
        """Returns when the AIMaster has heard it, or need not: who is no chief, or has a view, says nothing."""
        with self._lock:
            if self._told or self._agent.identity.role != "chief" or self._cluster.view is not None:
                return
            request = self._request(graph)
            self._told, self._model_told = True, request.HasField("declaration")
            self._say(request, waits=True)
        threading.Thread(target=self._repeat, args=(request,), name="deeprec-declare", daemon=True).start()

    def _repeat(self, request: pb.DeclareRequest) -> None:
        while True:
            time.sleep(REPEAT_SECONDS)
            if self._cluster.failed or self._cluster.view is not None:
                return
            self._say(request, waits=True)

    def tell_later(self, graph: tf.Graph) -> None:
        """The same of a job that did not wait for it, or was told that there is no model: for the history of jobs. Beside
        training: whoever calls has sessions to prepare, so it is said by a thread of its own, which ends by itself."""
        with self._lock:
            if self._model_told or self._agent.identity.role != "chief":
                return
            self._told = self._model_told = True
            request = self._request(graph)
        if request.HasField("declaration"):
            threading.Thread(target=self._say, args=(request, False), name="deeprec-declare", daemon=True).start()

    def _request(self, graph: tf.Graph | None) -> pb.DeclareRequest:
        """Without a declaration where nothing can be said. A graph that cannot be elastic is refused where it is first run."""
        request = pb.DeclareRequest(incarnation=self._agent.identity.incarnation)
        if graph is None:
            request.why_not = "the script waits for its cluster before it has a graph"
            return request
        cut = Partitioning(env.slots())  # as the setting `cut` has it by default: what it is here is not known yet
        began = time.monotonic()
        try:
            declaration = UserGraph(graph, lambda reason: None, self._names, lambda: cut).described(
                self._examples() or 0
            )
        except Exception as error:
            log.info("the model is not declared: %s", error)
            request.why_not = one_line(error)[:WHY_MAX]
            return request
        declaration.no_checkpoints = self._checkpoints() is False
        size = sum(variable.bytes for variable in declaration.catalogue.variables)
        log.info(
            "declared: %d variables of %.1f MB, %d examples a step (read off the graph in %.2f s)",
            len(declaration.catalogue.variables), size / 1e6, declaration.batch_size, time.monotonic() - began,
        )  # fmt: skip
        request.declaration.CopyFrom(declaration)
        return request

    def _say(self, request: pb.DeclareRequest, waits: bool) -> None:
        """`waits`: for the first view, and so does the AIMaster, for a word."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while (
            time.monotonic() < deadline and not self._cluster.failed and not (waits and self._cluster.view is not None)
        ):
            try:
                channel = self._agent.channel()
                try:
                    if rpc.AgentsStub(channel).Declare(request, timeout=TRY_SECONDS, wait_for_ready=True).heard:
                        return
                finally:
                    channel.close()
            except UnreachableError:
                return
            except grpc.RpcError as error:
                if error.code() not in PASSING:
                    log.warning("the model is not declared: %s", error.details())
                    if not (waits and request.HasField("declaration")) or error.code() in DEAF:
                        return
                    request.ClearField("declaration")
                    request.why_not = f"what is declared is refused: {error.details()}"[:WHY_MAX]
            time.sleep(AGAIN_SECONDS)
