"""Calls before the first step, between replicas as threads, in real rings."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not here: make torch")

from deeprec_ext.allreduce.meeting import Listener  # noqa: E402
from deeprec_ext.allreduce.summing import Summing  # noqa: E402
from deeprec_ext.errors import ProtocolError  # noqa: E402
from deeprec_ext.torch import beginning  # noqa: E402
from deeprec_ext.torch.beginning import ALL_REDUCE, BARRIER, BROADCAST  # noqa: E402
from deeprec_ext.torch.replica import Replica  # noqa: E402
from tests.unit.allreduce.members import DEADLINE, Coordinator, Told  # noqa: E402


class Job:
    """What the AIMaster is to be."""

    def __init__(self, begins_with: int) -> None:
        self.begins_with, self.coordinator = begins_with, Coordinator()
        self._pool = ThreadPoolExecutor(8)
        self._works: list[Future] = []
        self._members: list[Member] = []
        self._ready: dict[str, int] = {}
        self._lock = threading.RLock()

    def ready(self, name: str, port: int | None) -> None:
        with self._lock:
            before = dict(self._ready)
            self._ready.pop(name, None)
            if port is not None:
                self._ready[name] = port
            if before != self._ready:
                self.coordinator.announce(dict(sorted(self._ready.items())))

    def lost(self, number: int) -> None:
        with self._lock:
            if number == self.coordinator._number:
                self.coordinator.announce(dict(sorted(self._ready.items())))

    @property
    def names(self) -> list[str]:
        return list(self.coordinator._members)

    def replica(self, name: str) -> Replica:
        one = Replica()
        one.chief = name == "chief-0"
        one.member = one._joined = Member(self, name, one)
        self._members.append(one.member)
        return one

    def submit(self, *work) -> Future:
        self._works.append(self._pool.submit(*work))
        return self._works[-1]

    def close(self) -> None:
        """Whoever waits for another is told that nobody comes."""
        self.coordinator.end()

        def ended() -> bool:
            for one in self._members:
                if one.summing._ring is not None:
                    one.summing._ring.give_up()
            return all(one.done() for one in self._works)

        until(ended)
        self._pool.shutdown()


class Generations(Told):
    def __init__(self, job: Job, name: str) -> None:
        super().__init__(job.coordinator, name)
        self._job = job

    def after(self, number: int, trouble: str):
        if trouble:
            self._job.lost(number)
        return super().after(number, "")


class Member:
    """As `elastic.member.member.Member`, for a test."""

    def __init__(self, job: Job, name: str, replica: Replica) -> None:
        self._job, self.begins_with, self.settings = job, job.begins_with, None
        self.identity, self.leaving = SimpleNamespace(name=name), threading.Event()
        self.inputs = SimpleNamespace(end_of_epoch=lambda request: SimpleNamespace(rewinds=1))
        self._listener = Listener()
        self._told = Generations(job, name)
        self.summing = Summing(self._listener, self._told, replica.snapshot, may_begin=replica.chief)

    @property
    def step(self) -> int:
        return self.summing.step

    @property
    def view(self):
        return SimpleNamespace(workers=[SimpleNamespace(name=one) for one in self._job.names])

    @property
    def place(self):
        return max(1, len(self._job.names)), 0

    def take_part(self) -> None:
        self._job.ready(self.identity.name, self._listener.port)

    def sum(self, arrays, weight=1.0, *, last=False, vote=False, exact=0, other=False, entered=lambda: None):
        self.take_part()
        return self.summing.sum(arrays, weight, vote, entered=entered, exact=exact, other=other)

    def attend(self, arrays, exact=0):
        self.take_part()
        return self.summing.attend(arrays, exact)

    def look(self) -> bool:
        self.take_part()
        found = self.summing.look()
        self.pause()
        return found

    def pause(self) -> None:
        self.summing.forget()
        self._job.ready(self.identity.name, None)

    def renew(self) -> None:
        self.summing.forget()

    def wait_for_somebody(self) -> None:
        while not self._job.names:
            self.leaving.wait(0.01)

    def notice(self, *args, **words) -> None:
        pass

    def die(self) -> None:
        self._told.dead = True
        self.summing.close()
        self._listener.close()
        self._job.ready(self.identity.name, None)


@pytest.fixture
def job():
    made: list[Job] = []

    def make(begins_with: int) -> Job:
        made.append(Job(begins_with))
        return made[-1]

    yield make
    for one in made:
        one.close()


def broadcast(one: Replica, value: float, source: bool | None = None) -> float:
    summed = one.collective(np.array([value]), float(one.chief if source is None else source), BROADCAST)
    return float(summed.arrays[0][0]) if summed is not None and summed.weight else value


def barrier(one: Replica) -> None:
    one.collective(np.zeros(1, np.float32), 1.0, BARRIER)


def step(one: Replica, value: float = 1.0) -> float:
    [found] = one.reduce([np.full(2, value, np.float32)], 0)
    return float(found[0])


def begin(one: Replica, seed: float) -> tuple[float, float]:
    one.beginning.wait()
    first = broadcast(one, seed)
    barrier(one)
    return first, broadcast(one, seed + 1)


def all_of(job: Job, *works):
    return [one.result(DEADLINE) for one in [job.submit(work) for work in works]]


def until(what) -> None:
    for _ in range(int(DEADLINE / 0.005)):
        if what():
            return
        threading.Event().wait(0.005)
    raise AssertionError("it took too long")


def test_who_begins_together_and_who_comes_later_has_what_rank_0_broadcast(job):
    it = job(3)
    names = ("chief-0", "worker-0", "worker-1")
    three = [it.replica(name) for name in names]
    assert (
        all_of(it, *(lambda one=one, at=at: begin(one, 10.0 * at) for at, one in enumerate(three))) == [(0.0, 1.0)] * 3
    )
    assert [one.size for one in three] == [3] * 3
    over = threading.Event()

    def train(one: Replica) -> None:
        while not over.is_set():
            step(one)

    trains = [it.submit(train, one) for one in three]
    it.begins_with = 0  # they have made steps
    new = it.replica("worker-2")
    assert begin(new, 77.0) == (0.0, 1.0) and broadcast(new, 78.0) == 78.0  # which nobody has called
    three[0].member.die()
    again = it.replica("chief-0")
    assert begin(again, 88.0) == (0.0, 1.0)
    trains.append(it.submit(train, again))
    until(lambda: again.member.step > 3)
    over.set()
    for one in (*three[1:], again):
        one.member.leaving.set()
    it.coordinator.end()
    assert trains[0].exception(DEADLINE) is not None  # it is dead


def test_a_chief_alone_keeps_what_it_broadcasts_for_who_comes(job):
    it = job(1)
    chief = it.replica("chief-0")
    assert begin(chief, 5.0) == (5.0, 6.0)
    it.begins_with = 2
    worker = it.replica("worker-0")
    comes = it.submit(begin, worker, 9.0)
    until(lambda: it.names == ["worker-0"])
    until(lambda: step(chief) == 1.0 and comes.done())
    assert comes.result() == (5.0, 6.0)


def test_who_is_missed_at_the_beginning_is_waited_for_no_longer_than_said(job, monkeypatch):
    monkeypatch.setattr(beginning, "BEGIN_SECONDS", 0.05)
    it = job(3)
    two = [it.replica("chief-0"), it.replica("worker-0")]
    first, second = all_of(it, *(lambda one=one: begin(one, 3.0 * (not one.chief)) for one in two))
    assert first == second == (0.0, 1.0)


def test_a_barrier_before_the_first_step_and_that_step_are_made_by_all_together(job):
    it = job(2)
    chief, worker = it.replica("chief-0"), it.replica("worker-0")
    done: list[str] = []

    def prepares() -> None:
        chief.beginning.wait()
        done.append("prepared")
        barrier(chief)
        step(chief)
        done.append("removed")

    def reads() -> None:
        done.append("comes")
        worker.beginning.wait()
        barrier(worker)
        assert "prepared" in done
        done.append("read")
        step(worker)

    first = it.submit(prepares)
    until(lambda: it.names == ["chief-0"])
    assert not first.done() and not done
    all_of(it, reads)
    first.result(DEADLINE)
    assert done.index("comes") < done.index("read") < done.index("removed")


def test_what_all_have_alike_after_the_first_step_is_the_chief_s(job):
    it = job(2)
    two = [it.replica("chief-0"), it.replica("worker-0")]
    models = [torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)]
    for one, model in zip(two, models):
        one.snapshot.holds(model)
    chief = models[0].weight.detach().clone()

    def work(one: Replica) -> float:
        one.beginning.wait()
        barrier(one)
        return step(one, 1.0 if one.chief else 5.0)

    assert all_of(it, *(lambda one=one: work(one) for one in two)) == [1.0, 1.0]  # of what was computed with its model
    assert all(torch.equal(model.weight, chief) for model in models)


def test_another_rank_s_broadcast_and_sums_before_the_first_step_are_all_s(job):
    it = job(2)
    two = [it.replica("chief-0"), it.replica("worker-0")]

    def work(one: Replica):
        one.beginning.wait()
        summed = one.collective(np.array([1.0 + one.chief]), 1.0, ALL_REDUCE)
        return broadcast(one, 4.0 if one.chief else 6.0, source=not one.chief), float(
            summed.arrays[0][0] * summed.weight
        )

    assert all_of(it, *(lambda one=one: work(one) for one in two)) == [(6.0, 3.0)] * 2


def test_what_rank_0_broadcast_anew_is_no_secret(job):
    """It died before anybody trained; who has had the old value begins again."""
    it = job(1)
    one, other = it.replica("chief-0"), it.replica("worker-0")
    broadcast(one, 3.0)
    other.snapshot.begun.append(np.array([4.0, 1.0]))
    with pytest.raises(ProtocolError, match="begun again before anybody trained"):
        other.snapshot.put(one.snapshot.take())


def test_what_is_large_is_not_handed_on(job):
    it = job(1)
    one = it.replica("chief-0")
    one.collective(np.zeros(beginning.BEGUN_BYTES // 8 + 1), 1.0, BROADCAST)
    broadcast(one, 3.0)
    assert one.snapshot.begun[0] is None and one.snapshot.begun[1].tolist() == [3.0, 1.0]
