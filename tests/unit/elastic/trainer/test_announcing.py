"""The chief's word of its model: said once, heard before it goes on, and by nobody else."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from types import SimpleNamespace

import grpc
import pytest

tf = pytest.importorskip("tensorflow")

from deeprec_ext.elastic.trainer import announcing as module  # noqa: E402
from deeprec_ext.elastic.trainer.announcing import Announcing  # noqa: E402
from deeprec_ext.elastic.trainer.cluster_state import ClusterState  # noqa: E402
from deeprec_ext.layout import names_of, user_tf_config  # noqa: E402
from deeprec_ext.proto import deeprec_ext_pb2 as pb  # noqa: E402
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc  # noqa: E402

v1 = tf.compat.v1
SLOTS = 4


class Master(rpc.AgentsServicer):
    """Hears a declaration, the first times in vain: the registration comes later."""

    def __init__(self, deaf: int = 2) -> None:
        self.requests: list[pb.DeclareRequest] = []
        self.deaf = deaf

    def Declare(self, request, context):
        self.requests.append(request)
        return pb.DeclareReply(heard=len(self.requests) > self.deaf)


@contextlib.contextmanager
def serving(master: Master) -> Iterator[str]:
    server = grpc.server(futures.ThreadPoolExecutor(2))
    rpc.add_AgentsServicer_to_server(master, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


def announcing(address: str, role: str = "chief", cluster: ClusterState | None = None) -> Announcing:
    agent = SimpleNamespace(
        identity=SimpleNamespace(role=role, incarnation="secret"), channel=lambda: grpc.insecure_channel(address)
    )
    names = names_of(user_tf_config(role, 0, SLOTS, "chief"), role, 0)
    made = cluster or ClusterState((role, 0), "127.0.0.1:1", "grpc://127.0.0.1:1", lambda: None)
    return Announcing(agent, made, lambda: names)


def until(condition: Callable[[], object], limit_seconds: float = 30.0) -> None:
    deadline = time.monotonic() + limit_seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(autouse=True)
def slots(monkeypatch):
    monkeypatch.setenv("DEEPREC_EXT_SLOTS", str(SLOTS))


@pytest.fixture
def graph():
    with tf.Graph().as_default() as made:
        with v1.device(v1.train.replica_device_setter(SLOTS, worker_device="/job:chief/task:0")):
            table = v1.get_variable("table", [100_000, 8])
            loss = tf.reduce_sum(tf.nn.embedding_lookup(table, tf.constant([1, 2])))
            v1.train.AdagradOptimizer(0.1).minimize(loss, v1.train.get_or_create_global_step())
        made.finalize()
    return made


def test_the_model_is_told_until_it_is_heard_and_once(graph) -> None:
    master = Master()
    with serving(master) as address:
        one = announcing(address)
        one.tell(graph)
        one.tell(graph)
        one.tell(None)
    assert len(master.requests) == 3 and {request.incarnation for request in master.requests} == {"secret"}
    variables = master.requests[-1].declaration.catalogue.variables
    parts = [one for one in variables if one.saved_name == "table"]
    assert len(parts) > 1, "as sessions have it: cut over slots"
    assert sum(one.bytes for one in parts) == 100_000 * 8 * 4


def test_an_aimaster_that_has_come_back_hears_it_again_until_there_is_a_view(graph, monkeypatch) -> None:
    from deeprec_ext.elastic.runtime.view import ClusterView

    monkeypatch.setattr(module, "REPEAT_SECONDS", 0.05)
    master, cluster = Master(0), ClusterState(("chief", 0), "127.0.0.1:1", "grpc://127.0.0.1:1", lambda: None)
    before = set(threading.enumerate())
    with serving(master) as address:
        announcing(address, cluster=cluster).tell(graph)
        until(lambda: len(master.requests) >= 3)
        cluster.set(ClusterView(1, {0: "127.0.0.1:2"}, (0,), False, 1))
        until(lambda: not [one for one in threading.enumerate() if one.name == "deeprec-declare" and one not in before])
    first = master.requests[0]
    assert first.declaration.catalogue.variables and all(request == first for request in master.requests)


def test_examples_of_a_step_that_the_script_has_told_are_declared(graph) -> None:
    master = Master(0)
    with serving(master) as address:
        for told in (None, 64):
            one = announcing(address)
            one._examples = lambda told=told: told
            one.tell(graph)
    silent, told = (request.declaration for request in master.requests)
    assert silent.batch_size == 0 and told.batch_size == 64, "the graph has no input that tells"


def test_what_was_exported_for_it_is_what_the_session_takes(graph) -> None:
    from deeprec_ext.elastic.session.usergraph import UserGraph
    from deeprec_ext.graph import Partitioning

    with serving(Master(0)) as address:
        announcing(address).tell(graph)
    first = graph._deeprec_ext_exported
    names = names_of(user_tf_config("chief", 0, SLOTS, "chief"), "chief", 0)
    session = UserGraph(graph, lambda reason: None, lambda: names, lambda: Partitioning(SLOTS))
    assert session.exported() is first
    whole = UserGraph(graph, lambda reason: None, lambda: names, lambda: Partitioning(SLOTS, "off"))
    assert whole.exported() is not first and not whole.exported().cuts.saved({"table": ("", "")}).keys() - {"table"}


def test_a_worker_and_who_has_a_view_say_nothing(graph) -> None:
    from deeprec_ext.elastic.runtime.view import ClusterView

    master = Master(0)
    with serving(master) as address:
        announcing(address, "worker").tell(graph)
        cluster = ClusterState(("chief", 0), "127.0.0.1:1", "grpc://127.0.0.1:1", lambda: None)
        cluster.set(ClusterView(1, {0: "127.0.0.1:2"}, (0,), False, 1))
        later = announcing(address, cluster=cluster)
        later.tell(graph)
        assert not master.requests
        later.tell_later(graph)
        until(lambda: master.requests)
    assert len(master.requests) == 1, "for the history of jobs"


def test_who_waits_for_the_view_without_a_graph_says_that_there_is_none() -> None:
    master = Master(0)
    with serving(master) as address:
        told: list[Announcing] = []
        cluster = ClusterState(
            ("chief", 0), "127.0.0.1:1", "grpc://127.0.0.1:1", lambda: None, lambda: told[0].tell(None)
        )
        told.append(announcing(address, cluster=cluster))
        threading.Timer(0.3, cluster.fail, [ValueError("the end")]).start()
        with pytest.raises(ValueError, match="the end"):
            cluster.wait_view()
    assert len(master.requests) == 1 and not master.requests[0].HasField("declaration")


def test_a_graph_that_cannot_be_elastic_is_refused_by_its_session_not_here() -> None:
    master = Master(0)
    with tf.Graph().as_default() as graph, v1.device("/job:ps/task:0"):
        tf.queue.FIFOQueue(10, [tf.float32])
    with serving(master) as address:
        announcing(address).tell(graph)
    assert len(master.requests) == 1 and not master.requests[0].HasField("declaration")


def test_an_aimaster_of_an_older_release_keeps_nobody(graph) -> None:
    class Older(rpc.AgentsServicer):
        pass

    with serving(Older()) as address:
        announcing(address).tell(graph)


class Refusing(Master):
    """As the border does with what no message may hold."""

    def Declare(self, request, context):
        self.requests.append(request)
        if request.HasField("declaration"):
            context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, "declaration.catalogue.variables has 100001, at most 100000"
            )
        return pb.DeclareReply(heard=True)


def test_an_aimaster_that_refuses_the_model_is_told_that_there_is_none_and_need_not_wait(graph) -> None:
    master = Refusing()
    with serving(master) as address:
        announcing(address).tell(graph)
    assert [request.HasField("declaration") for request in master.requests] == [True, False]


def test_a_model_that_comes_after_the_word_that_there_is_none_is_told_for_the_history(graph) -> None:
    master = Master(0)
    with serving(master) as address:
        one = announcing(address)
        one.tell(None)
        one.tell(graph)
        assert len(master.requests) == 1
        one.tell_later(graph)
        one.tell_later(graph)
        until(lambda: len(master.requests) >= 2)
    assert [request.HasField("declaration") for request in master.requests] == [False, True]


def test_whoever_prepares_sessions_does_not_wait_for_an_aimaster_that_hears_nothing(graph) -> None:
    release = threading.Event()

    class Slow(Master):
        def Declare(self, request, context):
            release.wait(30)
            return super().Declare(request, context)

    master = Slow(0)
    with serving(master) as address:
        announcing(address).tell_later(graph)
        assert not master.requests, "it is on its way, and nobody has waited for the answer"
        release.set()
        until(lambda: master.requests)


def test_nobody_answers_and_the_script_goes_on(graph, monkeypatch) -> None:
    monkeypatch.setattr(module, "TRY_SECONDS", 0.1)
    monkeypatch.setattr(module, "LIMIT_SECONDS", 0.3)
    with serving(Master()) as address:
        pass
    announcing(address).tell(graph)
