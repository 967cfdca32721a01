"""A small cluster in one process: TensorFlow servers for PS and a trainer, and a host for elastic sessions."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from types import SimpleNamespace

import tensorflow as tf

from deeprec_ext import graph as passes
from deeprec_ext.data.local import LocalLedger
from deeprec_ext.elastic.agent.gate import Gate
from deeprec_ext.elastic.agent.inputs import Inputs
from deeprec_ext.elastic.ps.migration import Mover, destroy
from deeprec_ext.elastic.runtime.view import ClusterView, elastic_config
from deeprec_ext.elastic.session.host import Wanted
from deeprec_ext.elastic.session.runner import Runner
from deeprec_ext.elastic.session.session import ElasticSession
from deeprec_ext.layout import Names
from deeprec_ext.proto import deeprec_ext_pb2 as pb

v1 = tf.compat.v1


def server() -> tuple[object, str]:
    one = v1.train.Server({"localhost": ["127.0.0.1:0"]}, job_name="localhost", task_index=0)
    return one, one.target.removeprefix("grpc://")


class LocalCluster:
    """`count` PS servers and a trainer's server."""

    def __init__(self, count: int) -> None:
        made = [server() for _ in range(count)]
        self._servers = [one for one, _ in made]
        self.ps = {task: address for task, (_, address) in enumerate(made)}
        self._trainer, self.trainer = server()

    def view(self, *slot_map: int, epoch: int = 1) -> ClusterView:
        used = {task: self.ps[task] for task in set(slot_map)}
        return ClusterView(epoch, used, tuple(slot_map), live=True)

    def config(self) -> v1.ConfigProto:
        return elastic_config(self.ps, None, ("chief", 0, self.trainer))


class FakeAgent:
    """Answers for the AIMaster's data ledger, at once, as long as it is `connected`."""

    def __init__(self) -> None:
        self.inputs: Inputs | None = None
        self.ledgers: dict[str, LocalLedger] = {}
        self.requests: list[pb.DataRequest] = []
        self.connected = True

    def send(self, message: pb.AgentMessage) -> None:
        request = message.data
        self.requests.append(request)
        if request.HasField("declare"):
            self.ledgers.setdefault(request.dataset, LocalLedger(request.declare))
        if self.connected:
            self.inputs.receive(self.ledgers[request.dataset].answer(request))


class FakeHost:
    """Does what `Trainer` does for a session, at the word of the test."""

    generation = 0
    gone = False
    chief = True
    model_lives = False
    lazy = "off"
    pack = "on"
    optimise = "auto"
    rate_scaling = "none"
    factor = 1.0

    def __init__(self, cluster: LocalCluster, view: ClusterView) -> None:
        self.cluster, self.gate, self.runner = cluster, Gate(), Runner()
        self.failures: list[Exception] = []
        self.sessions: list[ElasticSession] = []
        self.declared: list[pb.Catalogue] = []
        self.refusals: list[str] = []
        self.notices: list[str] = []
        self.new: frozenset[str] = frozenset()  # what the AIMaster says may be initialised
        self.asked: list[list[str]] = []
        self.retired: list[object] = []
        self.forgotten: list[object] = []
        self.runs: deque[tuple[Sequence[str], Sequence[object], bool]] = deque(
            maxlen=3
        )  # with whether the gate was idle
        self.agent = FakeAgent()
        self.leaving = threading.Event()
        self.inputs = self.agent.inputs = Inputs(self.agent, self.leaving)
        self.inputs.registered(pb.RegisterReply(aimaster_incarnation=1))
        self.identity = SimpleNamespace(name="chief-0", incarnation="0123456789")
        self.set(view)

    def set(self, view: ClusterView, tracked: Mapping[str, str] | None = None) -> Wanted:
        self._wanted = self.make(view, tracked)
        return self._wanted

    def make(self, view: ClusterView, tracked: Mapping[str, str] | None = None) -> Wanted:
        context = passes.Context(
            slot_map=view.slot_map,
            tracked=tracked or {},
            worker_device="/job:chief/task:0",
            dedup="off",
            lazy=self.lazy,
            pack=self.pack,
            optimise=self.optimise,
            rate=self.rate_scaling,
        )
        member = ("chief", 0, self.cluster.trainer)
        return Wanted(
            view.placement,
            context,
            lambda base: elastic_config(view.ps, base, member),
            "grpc://" + self.cluster.trainer,
        )

    def wanted(self) -> Wanted:
        return self._wanted

    def rate(self) -> float:
        return self.factor

    def names(self) -> Names:
        return Names("/job:chief/task:0", (("chief", 0),))

    def next_view(self, error: Exception, failed: Wanted) -> bool:
        self.failures.append(error)
        return self._wanted.key != failed.key

    def ran(self, fetches: Sequence[str], results: Sequence[object]) -> None:
        self.runs.append((fetches, results, self.gate.wait_idle(0)))

    def declare(self, catalogue: pb.Catalogue) -> None:
        self.declared.append(catalogue)

    def new_variables(self, names: Sequence[str]) -> frozenset[str]:
        self.asked.append(sorted(names))
        return self.new

    def notice(self, code: str, text: str, remedy: str, *, mended: bool = False) -> None:
        self.notices.append(f"{code}: {text}: {remedy}")

    def dead(self, wanted: Wanted) -> bool:
        return self.gone

    def opened(self, session: ElasticSession) -> None:
        self.sessions.append(session)

    def closed(self, session: ElasticSession) -> None:
        self.sessions.remove(session)

    def dropped(self, close: object) -> None:
        self.forgotten.append(close)

    def refused(self, reason: str) -> None:
        self.refusals.append(reason)

    def retire(self, sessions: list[object]) -> None:
        self.retired += sessions


def movers(cluster: LocalCluster, catalogue: pb.Catalogue, old: ClusterView, new: ClusterView) -> dict[int, Mover]:
    """One armed mover for each PS that gets slots."""
    made = {}
    for target in sorted(set(new.slot_map)):
        moves = [
            pb.Move(variable=variable, source_task=old.slot_map[variable.slot])
            for variable in catalogue.variables
            if new.slot_map[variable.slot] == target != old.slot_map[variable.slot]
        ]
        if moves:
            ps = {**old.ps, **new.ps}
            made[target] = Mover("grpc://" + cluster.ps[target], target, ps, moves, 64 << 10)
            made[target].arm(verify=True)
    return made


def destroy_moved(cluster: LocalCluster, catalogue: pb.Catalogue, old: ClusterView, new: ClusterView) -> None:
    for task in sorted(set(old.slot_map)):
        gone = [v for v in catalogue.variables if old.slot_map[v.slot] == task != new.slot_map[v.slot]]
        destroy("grpc://" + cluster.ps[task], task, cluster.ps[task], gone)


def move(cluster: LocalCluster, catalogue: pb.Catalogue, old: ClusterView, new: ClusterView) -> None:
    """Everything is where the new view has it, and nowhere else."""
    for mover in movers(cluster, catalogue, old, new).values():
        mover.first()
        mover.final()
    destroy_moved(cluster, catalogue, old, new)


def elastic(host, graph):
    session = ElasticSession("grpc://x", graph, None, host)
    session.run(v1.global_variables_initializer())
    session.run(v1.tables_initializer())
    return session


def move_unseen(cluster, host, session, one, two):
    """The variables move away, and the session hears of it only when its next run has failed."""
    move(cluster, session.catalogue(), one, two)
    original, waiting = type(host).next_view, host.make(two, {})

    def next_view(error, failed):
        host._wanted = waiting
        return original(host, error, failed)

    host.next_view = next_view


def slowly(number):
    time.sleep(0.05)
    return number


def packed_in_haste(session: ElasticSession) -> None:
    """Runs of the present session are packed, as far as that pays."""
    while True:
        ended = threading.Event()
        session.pool.pack_present(ended.set)
        if session.pool._better is None:
            return
        assert ended.wait(60)


def improved(session: ElasticSession) -> list[object]:
    """Whatever can be made better beside the training is; what nobody needs any more."""
    unneeded: list[object] = []
    packed_in_haste(session)
    while True:
        ended = threading.Event()
        unneeded += session.pool.improve(ended.set) or []
        if session.pool._better is None:
            return unneeded
        assert ended.wait(60)
