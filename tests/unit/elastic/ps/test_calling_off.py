"""A PS that is told to write no more, in the middle of it: what is written after its word stays."""

from __future__ import annotations

import queue
import threading

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.elastic.ps import disk_restore, fetching
from deeprec_ext.elastic.ps.calling_off import CallingOff
from deeprec_ext.elastic.ps.copies import backup_of
from deeprec_ext.elastic.ps.parameter_server import ParameterServer
from deeprec_ext.elastic.ps.variables import Facts, Located
from deeprec_ext.elastic.runtime.ops import Ops, Program
from deeprec_ext.elastic.runtime.view import elastic_config
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.elastic.cluster import server
from tests.unit.elastic.ps.test_disk import World as DiskWorld

LIMIT_SECONDS = 60
OWN, HOLDER = 3, 1_000_000
ROWS = 4000
TABLE = pb.Variable(
    name="table", dtype=tf.float32.as_datatype_enum, shape=[ROWS, 16], slot=0, update=pb.Variable.ROWS,
    bitmap="table@dirty", bytes=ROWS * 64,
)  # fmt: skip


class Slowly:
    """In place of `still_wanted`: the code that asks waits at the call with this number until it is told to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: object, at: int) -> None:
        self._original, self._at, self._calls = module.still_wanted, at, 0
        self.there, self.go_on = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        monkeypatch.setattr(module, "still_wanted", self)

    def __call__(self, called_off: object) -> None:
        with self._lock:
            self._calls += 1
            wait = self._calls == self._at
        if wait:
            self.there.set()
            assert self.go_on.wait(LIMIT_SECONDS)
        self._original(called_off)


class Ps:
    """A whole `ParameterServer`, with a stream that a test plays, beside a holder that is a bare server."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DEEPREC_EXT_ROLE", "ps")
        monkeypatch.setenv("DEEPREC_EXT_INDEX", "0")
        self._holder, self.holder = server()
        self.ps = ParameterServer()
        self.target = self.ps._target
        self.acks: queue.Queue[pb.Ack] = queue.Queue()
        monkeypatch.setattr(self.ps.agent, "ack", self._ack)
        self.ps.disk._answer = self._ack
        settings = pb.AgentSettings(copy_chunk_bytes=TABLE.bytes // 8)
        self.ps.registered(pb.RegisterReply(task=OWN, settings=settings))
        self._thread = threading.Thread(target=self.ps.serve, daemon=True)
        self._thread.start()

    def _ack(self, command_id: int, error: str = "", **_: object) -> None:
        self.acks.put(pb.Ack(command_id=command_id, ok=not error, error=error))

    def told(self, number: int, **command: object) -> None:
        self.ps.receive(pb.MasterMessage(command=pb.Command(id=number, **command)))

    def ack(self) -> pb.Ack:
        return self.acks.get(timeout=LIMIT_SECONDS)

    def fetch(self, number: int) -> None:
        ps = [pb.PsMember(task=HOLDER, address=self.holder)]
        self.told(number, fetch=pb.Fetch(moves=[pb.Move(variable=TABLE, source_task=HOLDER)], ps=ps))

    def write(self, task: int, value: float) -> None:
        address = self.holder if task == HOLDER else self.target[7:]
        facts = Facts.from_proto(TABLE)
        facts = backup_of(facts) if task == HOLDER else facts
        program, ops = Program("grpc://" + address, elastic_config({task: address})), Ops()
        one = Located(ops, facts, task)
        name = one.assign(ops.constant(np.full((ROWS, 16), value, np.float32), tf.float32, one.device))
        program.load(ops)
        program.compile(targets=[name])()
        program.close()

    def values(self) -> set[float]:
        program, ops = Program(self.target, elastic_config({OWN: self.target[7:]})), Ops()
        name = Located(ops, Facts.from_proto(TABLE), OWN).read()
        program.load(ops)
        found = program.compile(fetches=[name])()[0]
        program.close()
        return {float(value) for value in np.unique(found)}

    def stop(self) -> None:
        self.ps.stop()
        self._thread.join(LIMIT_SECONDS)


@pytest.fixture
def ps(monkeypatch):
    one = Ps(monkeypatch)
    one.write(HOLDER, 1.0)
    yield one
    one.stop()


def test_a_fetch_that_outlives_its_limit_writes_nothing_over_what_was_restored_meanwhile(ps, monkeypatch):
    slowly = Slowly(monkeypatch, fetching, at=5)  # some chunks are there, others are not
    ps.fetch(1)
    assert slowly.there.wait(LIMIT_SECONDS)
    ps.told(2, call_off=pb.CallOff())
    assert ps.acks.empty(), "it is in the middle of it"
    slowly.go_on.set()
    first, second = ps.ack(), ps.ack()
    assert first.command_id == 1 and "called off" in first.error
    assert second.command_id == 2 and second.ok
    ps.write(OWN, 7.0)
    ps.fetch(1)  # sent again over another stream, or late
    assert "called off" in ps.ack().error
    assert ps.values() == {7.0}
    ps.fetch(3)
    assert ps.ack().ok
    assert ps.values() == {1.0}, "a later one counts"


def test_a_second_fetch_takes_the_place_of_the_first(ps, monkeypatch):
    slowly = Slowly(monkeypatch, fetching, at=5)
    ps.fetch(1)
    assert slowly.there.wait(LIMIT_SECONDS)
    ps.fetch(2)
    slowly.go_on.set()
    assert "called off" in ps.ack().error
    assert ps.ack().ok and ps.values() == {1.0}


def test_a_restore_of_a_disk_backup_that_outlives_its_limit_writes_nothing_any_more(tmp_path, monkeypatch):
    world = DiskWorld(tmp_path)
    world.one.fill()
    assert world.write(base=True).ok
    slowly = Slowly(monkeypatch, disk_restore, at=2)
    command = pb.RestoreBackup(path=world.path, cut=1, id=world.chain[-1].id, variables=world.variables)
    world.two.disk.put(pb.Command(id=5, restore_backup=command))
    assert slowly.there.wait(LIMIT_SECONDS)
    world.two.disk.call_off(6)
    world.two.disk.put(pb.Command(id=6, call_off=pb.CallOff()))
    slowly.go_on.set()
    assert "called off" in world.two.answers.get(timeout=LIMIT_SECONDS).error
    assert world.two.answers.get(timeout=LIMIT_SECONDS).ok


def test_what_is_called_off_is_a_matter_of_numbers_alone():
    off = CallingOff()
    assert not off.is_off(1)
    off.call_off(5)
    off.call_off(3)
    assert off.is_off(4) and not off.is_off(5)
