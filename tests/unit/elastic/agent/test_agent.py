"""Registration, against a server that is an AIMaster as far as an agent can tell."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent import futures

import grpc
import pytest

from deeprec_ext.aimaster.membership.commands import Commander, Outbox
from deeprec_ext.elastic.agent import agent as agents
from deeprec_ext.elastic.agent.agent import Agent, Identity
from deeprec_ext.errors import DeepRecError
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc
from deeprec_ext.security.incarnations import public

Answer = Callable[[pb.RegisterRequest, grpc.ServicerContext], pb.RegisterReply]


class Master(rpc.AgentsServicer):
    """Answers registrations one after the other as it was told to; streams end at once."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.requests: list[pb.RegisterRequest] = []

    def Register(self, request: pb.RegisterRequest, context: grpc.ServicerContext) -> pb.RegisterReply:
        self.requests.append(request)
        return self.answers.pop(0)(request, context)


class Process:
    """The handler of an agent that does nothing but know its step."""

    def registered(self, reply: pb.RegisterReply) -> None: ...
    def receive(self, message: pb.MasterMessage) -> None: ...
    def fenced(self, reason: str) -> None: ...

    def beat(self) -> pb.Heartbeat:
        return pb.Heartbeat()

    def tell(self, known: pb.Known) -> None:
        known.step = 77


def admitted(incarnation: int) -> Answer:
    view = pb.View(epoch=4, slot_map=[0], ps=[pb.PsMember(task=0, incarnation=public("inc"))])
    return lambda request, context: pb.RegisterReply(aimaster_incarnation=incarnation, view=view, task=0)


def told(request: pb.RegisterRequest, context: grpc.ServicerContext) -> pb.RegisterReply:
    return pb.RegisterReply(tell=True)


def refused(code: grpc.StatusCode) -> Answer:
    return lambda request, context: context.abort(code, "no")


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch) -> Iterator[Master]:
    one, server = Master(), grpc.server(futures.ThreadPoolExecutor(2))
    rpc.add_AgentsServicer_to_server(one, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    monkeypatch.setenv("DEEPREC_EXT_AIMASTER", f"127.0.0.1:{port}")
    monkeypatch.delenv("DEEPREC_EXT_CERTS", raising=False)
    monkeypatch.setattr(agents, "RETRY_SECONDS", (0.01, 0.02))
    yield one
    server.stop(None)


@pytest.fixture
def agent() -> Agent:
    return Agent(Identity("ps", 0, "host:1", "inc"), Process())


def test_who_is_asked_tells_what_it_knows(master: Master, agent: Agent) -> None:
    master.answers = [admitted(1), told, admitted(2)]
    agent._register(5.0)
    reply = agent._register(5.0)
    assert reply.aimaster_incarnation == 2
    first, asked, last = master.requests
    assert not asked.HasField("known") and (asked.known_epoch, list(asked.resident_slots)) == (4, [0])
    assert last.known.view.epoch == 4 and last.known.served and last.known.step == 77
    assert (first.known_epoch, last.known_aimaster) == (0, 1)


def test_at_its_start_a_process_comes_again_while_the_aimaster_has_no_time(master: Master, agent: Agent) -> None:
    master.answers = [refused(grpc.StatusCode.UNAVAILABLE), refused(grpc.StatusCode.UNAVAILABLE), admitted(1)]
    assert agent._register_patiently(5.0).aimaster_incarnation == 1
    assert len(master.requests) == 3


def test_at_its_start_a_process_that_is_not_wanted_gives_up_at_once(master: Master, agent: Agent) -> None:
    master.answers = [refused(grpc.StatusCode.INVALID_ARGUMENT), admitted(1)]
    with pytest.raises(DeepRecError):
        agent._register_patiently(5.0)
    assert len(master.requests) == 1


def test_a_late_answer_to_the_aimaster_before_is_none_to_the_next_one(master: Master, agent: Agent) -> None:
    """A pause that waits for a step outlives the AIMaster that asked for it. The pause of the next one is obeyed, not taken
    for answered: the final copy of a migration would run while a trainer trains."""
    master.answers = [admitted(1), admitted(2)]

    async def pause(incarnation: int) -> tuple[Outbox, asyncio.Future[pb.Ack], pb.MasterMessage]:
        outbox = Outbox("worker-0")
        future = Commander(incarnation).send(outbox, pause=pb.Pause(lease_seconds=1))
        message = await outbox.next(outbox.attach())
        assert isinstance(message, pb.MasterMessage)
        return outbox, future, message

    async def both() -> None:
        agent._register(5.0)
        _, _, before = await pause(1)
        assert not agent._known(before)
        agent._register(5.0)
        outbox, answered, now = await pause(2)
        agent.ack(before.command.id)  # its step has ended
        late = agent._outbox.get_nowait()
        assert late is not None
        outbox.ack(late.ack)
        assert not answered.done()
        assert not agent._known(now)  # to be carried out
        agent.ack(now.command.id)
        mine = agent._outbox.get_nowait()
        assert mine is not None
        outbox.ack(mine.ack)
        assert answered.done()

    asyncio.run(both())


def test_what_is_said_once_is_said_again_over_the_next_stream(agent: Agent) -> None:
    """A stream that breaks takes with it what is in it."""
    agent.send(pb.AgentMessage(live=pb.ModelLive(generation=1)))
    agent.send(pb.AgentMessage(catalogue=pb.Catalogue(fingerprint="old")))
    agent.send(pb.AgentMessage(catalogue=pb.Catalogue(fingerprint="new")))
    agent.send(pb.AgentMessage(metrics=pb.MetricsReport(step=1)))
    while not agent._outbox.empty():
        agent._outbox.get_nowait()  # all of it was in the stream that broke
    said = agent._speak(threading.Event())
    kinds = [next(said) for _ in range(4)]
    assert [one.WhichOneof("message") for one in kinds] == ["hello", "live", "catalogue", "heartbeat"]
    assert kinds[2].catalogue.fingerprint == "new"


def test_a_stream_that_has_ended_takes_no_message_away(agent: Agent) -> None:
    agent.heartbeat_seconds = 60.0
    ended = threading.Event()
    said = agent._speak(ended)
    assert [next(said).WhichOneof("message") for _ in range(2)] == ["hello", "heartbeat"]
    rest: list[pb.AgentMessage] = []
    waits = threading.Thread(target=lambda: rest.extend(said))  # for a message, as gRPC's thread does
    waits.start()
    ended.set()
    agent.send(pb.AgentMessage(metrics=pb.MetricsReport(step=2)))
    waits.join(30)
    assert rest == []
    waiting = agent._outbox.get_nowait()
    assert waiting is not None and waiting.metrics.step == 2
