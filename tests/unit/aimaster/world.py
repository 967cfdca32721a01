"""A job in one process: a real AIMaster behind a real port, with agents and a pod backend that only pretend."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc.aio

from deeprec_ext.aimaster.core.records import parse_name
from deeprec_ext.aimaster.pods.backend import PodState
from deeprec_ext.aimaster.rebuilding import rebuild_if_lost
from deeprec_ext.aimaster.rpc.server import AIMaster
from deeprec_ext.autoscaler.loop.exchange import Exchange
from deeprec_ext.elastic.agent.memory import Memory
from deeprec_ext.options import JobSpec, Settings
from deeprec_ext.proto import PROTOCOL_MAJOR
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc
from deeprec_ext.security import credentials
from deeprec_ext.security.incarnations import public

SETTINGS = Settings(
    heartbeat_seconds=0.05, ps_heartbeat_limit_seconds=5, worker_heartbeat_limit_seconds=5, acquire_limit_seconds=3,
    prepare_limit_seconds=3, pause_limit_seconds=1.0, lease_seconds=4.0, commit_margin_seconds=0.2,
    release_limit_seconds=0.5, dirty_small_bytes=10, peer_backup="off", rebuild_limit_seconds=2.0,
)  # fmt: skip
SLOT_BYTES = 1000
INCARNATIONS = itertools.count(1)


def catalogue(slots: int = 8) -> pb.Catalogue:
    """One table and one dense variable a slot."""
    variables = []
    for slot in range(slots):
        variables.append(
            pb.Variable(name=f"table{slot}", slot=slot, update=pb.Variable.ROWS, bytes=SLOT_BYTES - 100, shape=[9, 25])
        )
        variables.append(pb.Variable(name=f"dense{slot}", slot=slot, update=pb.Variable.DENSE, bytes=100, shape=[25]))
    return pb.Catalogue(variables=variables, fingerprint="v1")


class FakeAgent:
    """Acks every command at once, unless its kind is in `mute` or a copy phase is; remembers what it was told."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.role, self.index = parse_name(name)
        self.secret = f"{name}#{next(INCARNATIONS)}"
        self.incarnation = public(self.secret)
        self.proof = b""  # that came with `known_aimaster`
        self.machine_kind = ""
        self.told: list[str] = []
        self.commands: list[pb.Command] = []
        self.mute: set[str] = set(world.mute.get(name, ()))
        self.fails: dict[str, str] = dict(world.fails.get(name, {}))
        self.view = pb.View()
        self.task_number = -1
        self.known_aimaster = 0
        self.step = 10
        self.stuck_in: int | None = None  # the epoch after which it makes no step
        self.preparing = False
        self.out_seconds = 0.0
        self.away = False  # as long as this is so it does not connect again
        self.registered = 0
        self.again: pb.BackupReport | None = None  # said at each later registration
        self.replies: list[pb.DataReply] = []
        self.memory = Memory(self.incarnation)
        self.data: list[pb.DataKnown] = []  # what it tells of its datasets
        self.restored = pb.ModelLive()  # what a chief says of the checkpoint it restores
        self.errors: list[str] = []
        self.call: grpc.aio.StreamStreamCall | None = None
        self._writing = asyncio.Lock()
        self._broken = False
        self._task = asyncio.get_running_loop().create_task(self._live())

    async def _live(self) -> None:
        while True:
            try:
                await self._connect()
            except grpc.aio.AioRpcError as error:
                self.errors.append(f"{error.code().name}: {error.details()}")
                if error.code() == grpc.StatusCode.FAILED_PRECONDITION:
                    return
            except asyncio.CancelledError:
                if not self._broken:
                    raise
                self._broken = False
            await asyncio.sleep(0.03)
            while self.away:
                await asyncio.sleep(0.01)

    def request(self, known: pb.Known | None = None) -> pb.RegisterRequest:
        return pb.RegisterRequest(
            protocol_major=PROTOCOL_MAJOR, job="job", role=self.role, index=self.index, incarnation=self.secret,
            address=f"{self.name}:1", pid=1, known_epoch=self.view.epoch, known_task=self.task_number,
            known_aimaster=self.known_aimaster, aimaster_proof=self.proof, known=known,
            resident_slots=self.memory.resident_slots(self.task_number), machine_kind=self.machine_kind,
        )  # fmt: skip

    def tell(self) -> pb.Known:
        known = self.memory.tell()
        if self.role in (pb.CHIEF, pb.WORKER):
            known.step = self.step
            known.catalogue.CopyFrom(self.world.catalogue)
            known.data.extend(self.data)
        return known

    async def _connect(self) -> None:
        async with credentials.open_aio_channel(self.world.address, "aimaster.job", "ps", None) as channel:
            stub = rpc.AgentsStub(channel)
            reply = await stub.Register(self.request(), timeout=30)
            if reply.tell:
                reply = await stub.Register(self.request(self.tell()), timeout=30)
            self.registered += 1
            self.memory.registered(reply)
            self.begins_with = reply.begins_with
            self.view, self.task_number, self.known_aimaster = reply.view, reply.task, reply.aimaster_incarnation
            self.proof = reply.aimaster_proof
            self.call = stub.Stream()
            await self.say(hello=pb.Hello(incarnation=self.secret))
            if self.again is not None:
                await self.say(backup=self.again)
            if self.role == pb.CHIEF:
                await self.say(live=pb.ModelLive(generation=self.view.generation, step=self.step))
                await self.say(catalogue=self.world.catalogue)
            beats = asyncio.ensure_future(self._beat())
            try:
                async for message in self.call:
                    self.memory.heard(message)
                    await self._receive(message)
            finally:
                beats.cancel()

    async def say(self, **message: object) -> None:
        assert self.call is not None
        for _ in range(500):  # the stream of an AIMaster that has crashed may be over, and the next one not there yet
            if not self.call.done():
                break
            await asyncio.sleep(0.01)
        async with self._writing:  # grpc.aio takes one write at a time
            await self.call.write(pb.AgentMessage(**message))

    async def _beat(self) -> None:
        while True:
            if "heartbeat" not in self.mute:
                self.step += 1 if self.role in (pb.CHIEF, pb.WORKER) else 0
                beat = pb.Heartbeat(
                    step=self.step, epoch=self.view.epoch, training=True, examples=10 * self.step,
                    step_epoch=self.view.epoch if self.stuck_in is None else self.stuck_in, preparing=self.preparing,
                    out_seconds=self.out_seconds, step_seconds=0.1,
                )  # fmt: skip
                await self.say(heartbeat=pb.Heartbeat(epoch=self.view.epoch) if self.role == pb.PS else beat)
            await asyncio.sleep(SETTINGS.heartbeat_seconds)

    async def _receive(self, message: pb.MasterMessage) -> None:
        kind = message.WhichOneof("message")
        if kind == "publish":
            old, self.view = self.view, message.publish.view
            self.told.append("publish")
            if self.role == pb.CHIEF and self.view.generation > old.generation:
                live = pb.ModelLive(generation=self.view.generation, step=5)
                live.MergeFrom(self.restored)
                await self.say(live=live)
        elif kind == "scaling":
            self.told.append(pb.ScalingNotice.Phase.Name(message.scaling.phase))
        elif kind == "data":
            self.replies.append(message.data)
        elif kind == "remember":
            self.told.append("remember")
        else:
            await self._obey(message.command)

    async def _obey(self, command: pb.Command) -> None:
        kind = command.WhichOneof("command")
        name = pb.Copy.Phase.Name(command.copy.phase) if kind == "copy" else str(kind)
        self.told.append(name)
        self.commands.append(command)
        if name in self.mute:
            return
        if name == "leave":
            self.world.backend.exit(self.name, 0)
            return
        if name == "commit":
            self.view = command.commit.view
        if name == "FINAL":
            self.memory.has_arrived(command.copy.scaling_id)
        if name == "guard" and "report" not in self.mute:
            slots = sorted({move.variable.slot for move in command.guard.moves})
            await self.say(backup=pb.BackupReport(guard=command.guard.id, slots=slots, bytes=7, age_seconds=0.01))
        if name == "destroy" and command.destroy.keep.moves:
            slots = sorted({move.variable.slot for move in command.destroy.keep.moves})
            await self.say(backup=pb.BackupReport(guard=command.destroy.keep.id, slots=slots))
        result = {"FIRST": pb.CopyResult(bytes=900), "DIRTY": pb.CopyResult(bytes=50, remaining_bytes=5),
                  "FINAL": pb.CopyResult(bytes=100, remaining_bytes=7)}  # fmt: skip
        error = self.fails.get(name, "")
        ack = pb.Ack(
            command_id=command.id, ok=not error, error=error, copy=result.get(name),
            step=self.step if name == "lost" else 0,
        )  # fmt: skip
        if not error and self.world.answers is not None:
            ack.MergeFrom(self.world.answers(self, command))
            ack.ok = not ack.error
        await self.say(ack=ack)
        if name == "commit":
            await self.say(pause=pb.PauseReport(scaling_id=1, pause_seconds=0.05))

    def break_stream(self) -> None:
        """The connection breaks; the agent connects again."""
        assert self.call is not None
        self._broken = True
        self.call.cancel()

    def command(self, kind: str) -> pb.Command:
        return next(c for c in reversed(self.commands) if c.WhichOneof("command") == kind)

    def stop(self) -> None:
        self._task.cancel()


class FakeBackend:
    """Pods are fake agents. `stillborn`: names whose pod runs but never registers; `queued`: whose pod finds no place yet."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.pods: dict[str, PodState] = {}
        self.agents: dict[str, FakeAgent] = {}
        self.everybody: dict[str, FakeAgent] = {}  # also those that are gone
        self.deleted: list[str] = []
        self.resized: list[tuple[str, float, int]] = []
        self.stillborn: set[str] = set()
        self.queued: set[str] = set()
        self.restarts_by_itself = True
        self.memory: int | None = None
        self.waiting: dict[str, str] = {}
        self.resizes_in_place = self.one_host = True
        self.machine_kind = ""  # of the nodes, as agents to come tell
        self.dying_seconds = 0.0  # from the order to end until a pod has ended
        self._pids = itertools.count(1000)
        self._watchers: set[asyncio.Queue[PodState]] = set()

    def _report(self, state: PodState) -> None:
        self.pods[state.name] = state
        for queue in self._watchers:
            queue.put_nowait(state)

    async def create(self, name: str) -> None:
        if name in self.queued:
            return
        while (old := self.pods.get(name)) is not None and old.state == "running":
            if not old.deleted:
                return
            await asyncio.sleep(0.01)
        self._report(PodState(name, "running", pid=next(self._pids), restarts=old.restarts if old else 0))
        if name not in self.stillborn:
            self._spawn(name)

    def _spawn(self, name: str) -> None:
        self.agents[name] = self.everybody[name] = agent = FakeAgent(self._world, name)
        agent.machine_kind = self.machine_kind

    async def delete(self, name: str, grace_seconds: float) -> None:
        self.deleted.append(name)
        if self.dying_seconds and name in self.pods:
            self.pods[name] = dataclasses.replace(self.pods[name], deleted=True)
            asyncio.get_running_loop().call_later(self.dying_seconds, lambda: self.exit(name, 137, deleted=True))
        else:
            self.exit(name, 137, deleted=True)

    async def resize(self, name: str, cpu: float, memory_bytes: int) -> None:
        self.resized.append((name, cpu, memory_bytes))

    def exit(self, name: str, code: int, *, deleted: bool = False, restarting: bool = False) -> None:
        state = self.pods.get(name)
        agent = self.agents.pop(name, None)
        if agent is not None:
            agent.stop()
        if state is not None and state.state == "running":
            self._report(
                dataclasses.replace(state, state="exited", exit_code=code, deleted=deleted, restarting=restarting)
            )

    async def kill(self, name: str) -> None:
        """SIGKILL, and the launcher starts it again."""
        self.exit(name, 137, restarting=True)
        await asyncio.sleep(0)
        self._report(dataclasses.replace(self.pods[name], state="running", pid=next(self._pids), restarting=False,
                                         restarts=self.pods[name].restarts + 1))  # fmt: skip
        self._spawn(name)

    async def watch(self) -> AsyncIterator[PodState]:
        queue: asyncio.Queue[PodState] = asyncio.Queue()
        for state in self.pods.values():
            queue.put_nowait(state)
        self._watchers.add(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._watchers.discard(queue)

    async def existing(self) -> list[PodState]:
        return list(self.pods.values())

    def available_memory(self) -> int | None:
        return self.memory

    def waiting_reason(self, name: str) -> str:
        return self.waiting.get(name, "")

    async def close(self) -> None:
        pass


class World:
    """One job and everything around it."""

    def __init__(self, workdir: Path, **spec: object) -> None:
        values: dict[str, object] = {"slots": 8, "ps": 2, "workers": 1, "settings": SETTINGS, **spec}
        self.spec = JobSpec(name="job", workdir=workdir, **values)  # type: ignore[arg-type]
        self.mute: dict[str, set[str]] = {}
        self.fails: dict[str, dict[str, str]] = {}
        self.catalogue = pb.Catalogue() if self.spec.sums else catalogue()
        self.answers: Callable[[FakeAgent, pb.Command], pb.Ack] | None = None  # further fields of an ack
        self.settle_seconds = 3.0  # a process that calls again at once may find the port closed, and waits a second
        self.backend = FakeBackend(self)
        self.address = "127.0.0.1:0"
        self.master: AIMaster = None  # type: ignore[assignment]
        self.exchange: Exchange | None = None  # with an arbiter

    async def start(self) -> None:
        await rebuild_if_lost(self.spec, self.backend, None, self.address)
        self.master = AIMaster(self.spec, self.backend, None, settle_seconds=self.settle_seconds)
        self.master.exchange = self.exchange or self.master.exchange
        port = await self.master.start(self.address)
        self.address = f"127.0.0.1:{port}"

    async def crash(self) -> None:
        """The AIMaster dies without a word; pods and agents stay."""
        for task in self.master._tasks:
            task.cancel()
        await asyncio.gather(*self.master._tasks, return_exceptions=True)
        assert self.master._server is not None
        await self.master._server.stop(None)
        self.master.job.store.close()

    def lose_store(self) -> None:
        """After a crash."""
        for path in self.spec.workdir.glob("aimaster.db*"):
            path.unlink()

    async def training(self) -> None:
        if self.spec.sums:
            await self.until(lambda: len(self.master.job.members.trainers()) == 1 + self.spec.workers)
            for name in self.master.job.members.trainers():
                await self.until(lambda name=name: self.agent(name).call is not None)  # type: ignore[misc]
                await self.agent(name).say(ring=pb.Ring(address=f"{name}:7"))
            await self.until(lambda: len(self.master.job.view().workers) == 1 + self.spec.workers)
            return
        await self.until(lambda: self.master.job.cluster.live and bool(self.master.job.catalogue.variables))
        expected = 1 + self.spec.workers
        await self.until(lambda: len(self.master.job.view().workers) >= expected)

    async def until(self, condition: Callable[[], bool], seconds: float = 20.0) -> None:
        for _ in range(int(seconds / 0.01)):
            if condition():
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"not in time; status: {(await self.status())}")

    async def scale(self, **request: object) -> pb.ScaleReply:
        async with credentials.open_aio_channel(self.address, "aimaster.job", "admin", None) as channel:
            return await rpc.AdminStub(channel).Scale(pb.ScaleRequest(**request), timeout=5)

    async def status(self) -> pb.StatusReply:
        async with credentials.open_aio_channel(self.address, "aimaster.job", "admin", None) as channel:
            return await rpc.AdminStub(channel).Status(pb.StatusRequest(), timeout=5)

    async def ended(self, number: int = 1, seconds: float = 8.0) -> pb.ScalingStatus:
        """The scaling with this id, once it has an outcome."""

        def found() -> pb.ScalingStatus | None:
            records = [s for s in self.master.scalings.ended if s.id == number]
            return records[0].to_proto() if records else None

        await self.until(lambda: found() is not None, seconds)
        result = found()
        assert result is not None
        return result

    async def heard(self, name: str, what: str) -> None:
        """Waits until the last thing this agent was told, views apart, is `what`."""
        told = self.backend.everybody[name].told
        await self.until(lambda: [t for t in told if t != "publish"][-1:] == [what])

    def agent(self, name: str) -> FakeAgent:
        return self.backend.agents[name]

    async def stop(self) -> None:
        for agent in self.backend.agents.values():
            agent.stop()
        await self.master.stop()


@contextlib.asynccontextmanager
async def world(workdir: Path, **spec: object) -> AsyncIterator[World]:
    """A job that trains; ended whatever happens."""
    it = World(workdir, **spec)
    await it.start()
    try:
        await it.training()
        yield it
    finally:
        await it.stop()
