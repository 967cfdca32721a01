import dataclasses
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from deeprec_ext.aimaster.failover import silence
from deeprec_ext.aimaster.failover.causes import GONE, HUNG
from deeprec_ext.aimaster.failover.failures import Failures
from deeprec_ext.aimaster.failover.silence import Silence, Watched, patience
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.gazer import hostload
from deeprec_ext.gazer.hostload import Look
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.aimaster.collected import HandClock, arrive, make_job

LIMIT, BUSY = 3.0, 60.0
ASLEEP = Watched(1.5, worked_seconds=0.01, queued_seconds=0.02, stopped=False)
STARVED = Watched(1.5, worked_seconds=0.01, queued_seconds=30.0, stopped=False)
WORKING = Watched(1.5, worked_seconds=1.2, queued_seconds=0.0, stopped=False)
STOPPED = Watched(0.0, worked_seconds=0.0, queued_seconds=0.0, stopped=True)
THROTTLED = Watched(1.5, worked_seconds=0.01, queued_seconds=0.0, stopped=False, ready_seconds=1.4)
SEEN_READY_AT_TIMES = Watched(1.5, worked_seconds=0.01, queued_seconds=0.0, stopped=False, ready_seconds=0.2)
JUST_SEEN = Watched(0.1, worked_seconds=0.0, queued_seconds=0.0, stopped=False)


@pytest.mark.parametrize(
    ("watched", "crowd", "seconds"),
    [
        (None, 0.0, 3.0), (None, 2.0, 3.0), (None, 8.0, 12.0), (None, 1e6, 60.0),
        (ASLEEP, 8.0, 3.0), (STARVED, 1.0, 60.0), (WORKING, 1.0, 60.0), (STOPPED, 8.0, 3.0), (THROTTLED, 0.0, 60.0),
        (SEEN_READY_AT_TIMES, 0.0, 3.0), (JUST_SEEN, 1.0, math.inf),
    ],
)  # fmt: skip
def test_how_long_a_silence_is_borne(watched: Watched | None, crowd: float, seconds: float) -> None:
    assert patience(LIMIT, BUSY, crowd, watched) == seconds


@pytest.mark.parametrize(
    ("watched", "crowd", "seconds"),
    [
        (ASLEEP, 1.0, 1.0), (ASLEEP, 8.0, 3.0), (STOPPED, 0.0, 1.0), (STOPPED, 8.0, 3.0), (STARVED, 1.0, 60.0),
        (None, 0.0, 3.0), (JUST_SEEN, 1.0, math.inf),
    ],
)  # fmt: skip
def test_who_is_seen_to_hang_where_nobody_waits_has_less(watched: Watched | None, crowd: float, seconds: float) -> None:
    assert patience(LIMIT, BUSY, crowd, watched, 0.0, 1.0) == seconds
    assert patience(LIMIT, BUSY, crowd, watched, 0.0, 9.0) >= LIMIT, "never longer than its limit"


@pytest.mark.parametrize(
    ("watched", "late", "seconds"),
    [(None, 0.01, 3.04), (None, 2.0, 11.0), (None, 100.0, 60.0), (ASLEEP, 2.0, 3.0), (STARVED, 0.0, 60.0)],
)
def test_who_was_late_lately_is_waited_for_longer_where_it_cannot_be_seen(
    watched: Watched | None, late: float, seconds: float
) -> None:
    assert patience(LIMIT, BUSY, 0.0, watched, late) == pytest.approx(seconds)


def test_a_limit_that_is_longer_than_the_busy_one_stays() -> None:
    longer = Watched(50.0, worked_seconds=0.0, queued_seconds=900.0, stopped=False)
    assert patience(100.0, BUSY, 50.0, None) == patience(100.0, BUSY, 0.0, longer) == 100.0


class Here:
    """A job of two PS and two trainers, whose processes the AIMaster sees as it is told to."""

    def __init__(self, job: Job, clock: HandClock) -> None:
        self.job, self.clock = job, clock
        self.looks: dict[int, Callable[[], Look | None]] = {}
        self.crowd = 0.5
        self.failures = Failures(job)
        for pid, name in enumerate(("ps-0", "ps-1", "chief-0", "worker-0"), 100):
            member = arrive(job, name)
            member.task = pid - 100
            member.machine, member.pid_namespace = "m", "m pid:1"
            job.members.update(name, pid=pid)

    def elsewhere(self, *names: str, crowd: float = 0.0, late: float = 0.0) -> None:
        for name in names:
            member = self.job.members.get(name)
            assert member is not None
            member.machine, member.pid_namespace = "another", "another pid:1"
            self.job.members.beat(member, pb.Heartbeat(crowd=crowd, late_seconds=late))

    def speaks(self, *names: str) -> None:
        for name in names:
            member = self.job.members.get(name)
            assert member is not None
            self.job.members.beat(member, pb.Heartbeat(crowd=member.heartbeat.crowd))

    def given_up(self, seconds: float, *speaking: str, watch: Silence) -> dict[str, float]:
        """Who is given up within the time, and after how long a silence."""
        found: dict[str, float] = {}
        for _ in range(round(seconds * 10)):
            self.clock.now += 0.1
            self.speaks("chief-0", "worker-0", *speaking)
            for member, silent in watch.given_up():
                found[member.name] = silent
                self.job.members.drop(member.name, "hung")
        return found


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    clock = HandClock()
    one = Here(make_job(tmp_path, clock), clock)
    monkeypatch.setattr(hostload, "machine", lambda: "m")
    monkeypatch.setattr(hostload, "pid_namespace", lambda: "m pid:1")
    monkeypatch.setattr(hostload, "crowd", lambda: one.crowd)
    monkeypatch.setattr(hostload, "look", lambda pid: one.looks.get(pid, lambda: None)())
    return one


@pytest.mark.parametrize(("crowd", "seconds"), [(0.5, 1.4), (8.0, 3.0)])
def test_a_starved_ps_has_until_the_busy_limit_and_a_sleeping_one_less_where_nobody_waits(
    here: Here, crowd: float, seconds: float
) -> None:
    here.crowd = crowd
    here.looks[100] = lambda: Look(0.0, 0.5 * here.clock.now, False)
    here.looks[101] = lambda: Look(1.0, 2.0, False)
    given_up = here.given_up(70, watch=Silence(here.job, here.failures))
    assert given_up == {"ps-0": pytest.approx(60, abs=0.2), "ps-1": pytest.approx(seconds, abs=0.2)}


@pytest.mark.parametrize(("crowd", "seconds"), [(0.5, 1.0), (8.0, 3.0)])
def test_a_stopped_ps_is_given_up_in_a_second_where_nobody_waits_and_a_trainer_is_not(
    here: Here, crowd: float, seconds: float
) -> None:
    here.crowd = crowd
    here.looks = {pid: lambda: Look(1.0, 2.0, True) for pid in (100, 102)}
    watch, given_up = Silence(here.job, here.failures), {}
    for _ in range(200):
        here.clock.now += 0.1
        here.speaks("ps-1", "worker-0")
        for member, silent in watch.given_up():
            given_up[member.name] = silent
            here.job.members.drop(member.name, "hung")
    assert given_up == {"ps-0": pytest.approx(seconds, abs=0.2)}


def test_long_intervals_between_heartbeats_are_no_silence(here: Here) -> None:
    here.job.settings = dataclasses.replace(here.job.settings, heartbeat_seconds=2.0)
    here.looks[100] = lambda: Look(1.0, 2.0, True)
    given_up = here.given_up(10, "ps-1", watch=Silence(here.job, here.failures))
    assert given_up == {"ps-0": pytest.approx(3, abs=0.2)}


def test_a_ps_whose_quota_is_used_up_has_until_the_busy_limit_though_no_wait_of_it_has_ended(here: Here) -> None:
    here.looks[100] = lambda: Look(1.0, 2.0, False, ready=True)
    given_up = here.given_up(70, "ps-1", watch=Silence(here.job, here.failures))
    assert given_up == {"ps-0": pytest.approx(60, abs=0.2)}


def test_a_hung_ps_with_a_thread_that_wakes_up_now_and_then_is_given_up(here: Here) -> None:
    here.looks[100] = lambda: Look(1.0, 2.0, False, ready=round(10 * here.clock.now) % 4 == 0)
    given_up = here.given_up(10, "ps-1", watch=Silence(here.job, here.failures))
    assert given_up == {"ps-0": pytest.approx(1.4, abs=0.2)}


def test_who_waits_for_a_disk_does_not_hang(here: Here) -> None:
    here.looks[100] = lambda: Look(0.0, 0.0, False, True)
    assert here.given_up(30, "ps-1", watch=Silence(here.job, here.failures)) == {}


def test_who_has_waited_for_a_disk_lately_is_not_seen_to_hang_so_soon(here: Here) -> None:
    """It reads its memory back from there: asleep at one look, waiting at the next."""
    here.looks[100] = lambda: Look(0.0, 0.0, False, here.clock.now % 1.0 < 0.15)
    assert here.given_up(2.9, "ps-1", watch=Silence(here.job, here.failures)) == {}


def test_a_thread_that_ends_takes_nothing_of_what_the_others_waited(here: Here) -> None:
    here.looks[100] = lambda: Look(0.0, 0.5 * here.clock.now + (0.0 if here.clock.now % 10 > 2 else 1000.0), False)
    assert here.given_up(20, "ps-1", watch=Silence(here.job, here.failures)) == {}


def test_two_that_are_seen_to_hang_are_given_up_at_once(here: Here) -> None:
    here.looks = {pid: lambda: Look(1.0, 2.0, True) for pid in (100, 101)}
    given_up = here.given_up(3.3, watch=Silence(here.job, here.failures))
    assert set(given_up) == {"ps-0", "ps-1"}


def test_of_two_that_nobody_sees_one_is_given_up_and_the_next_a_limit_later(here: Here) -> None:
    here.elsewhere("ps-0", "ps-1")
    given_up = here.given_up(10, watch=Silence(here.job, here.failures))
    assert sorted(given_up.values()) == [pytest.approx(3, abs=0.2), pytest.approx(6, abs=0.3)]


def test_two_that_trainers_fail_because_of_are_given_up_at_once(here: Here) -> None:
    here.elsewhere("ps-0", "ps-1")
    here.clock.now += 0.1
    here.failures.trouble([0, 1])
    given_up = here.given_up(3.3, watch=Silence(here.job, here.failures))
    assert set(given_up) == {"ps-0", "ps-1"}


def test_on_another_machine_the_limit_follows_what_its_neighbours_tell_of_the_run_queue(here: Here) -> None:
    here.elsewhere("ps-0", "worker-0", crowd=10.0)
    assert here.given_up(30, "ps-1", watch=Silence(here.job, here.failures)) == {"ps-0": pytest.approx(15, abs=0.2)}


def test_on_another_machine_the_limit_follows_how_late_it_was_itself_whatever_its_neighbours_say(here: Here) -> None:
    here.elsewhere("ps-0", late=2.0)
    here.elsewhere("worker-0", crowd=0.1)
    assert here.given_up(30, "ps-1", watch=Silence(here.job, here.failures)) == {"ps-0": pytest.approx(11, abs=0.2)}


def test_who_speaks_again_is_looked_at_anew(here: Here) -> None:
    here.looks[100] = lambda: Look(0.0, 0.5 * here.clock.now, False)
    watch = Silence(here.job, here.failures)
    assert here.given_up(20, "ps-1", watch=watch) == {}
    here.speaks("ps-0")
    total = here.clock.now
    here.looks[100] = lambda: Look(0.0, total, False)  # it sleeps now
    assert here.given_up(3.3, "ps-1", watch=watch) == {"ps-0": pytest.approx(1.4, abs=0.2)}


def test_a_machine_is_slower_by_its_crowd() -> None:
    assert [silence.stretch(crowd) for crowd in (0.0, 2.0, 20.0)] == [1.0, 1.0, 10.0]


@pytest.mark.parametrize(
    ("broke", "seen", "cause"), [(False, True, HUNG), (False, False, HUNG), (True, True, HUNG), (True, False, GONE)]
)
def test_who_has_gone_without_a_word_of_who_started_it_is_not_told_as_hung(
    here: Here, broke: bool, seen: bool, cause: str
) -> None:
    member = here.job.members.get("ps-0")
    assert member is not None
    member.stream_lost = here.clock.now if broke else None
    here.looks[100] = lambda: Look(1.0, 2.0, True) if seen else None
    assert Silence(here.job, here.failures).cause(member) == cause


def test_what_is_learned_later_is_told_instead_and_only_of_who_had_gone(here: Here) -> None:
    for name, cause in (("ps-0", GONE), ("ps-1", HUNG)):
        here.failures.add(name, cause, here.job.members.get(name))
        here.failures.learned(name, "oom: memory limit of 2.0 GB")
    assert [one.cause for one in here.job.store.failures()] == ["oom: memory limit of 2.0 GB", HUNG]


def in_step(here: Here, seconds: float, *speaking: str) -> dict[str, float]:
    """Of a job without PS with four trainers that nobody sees: who is given up within the time, after how long a silence."""
    here.job.members._in_step = True
    for name in ("ps-0", "ps-1"):
        here.job.members.drop(name, "there are none")
    for name in ("worker-1", "worker-2"):
        arrive(here.job, name)
    here.elsewhere("chief-0", "worker-0", "worker-1", "worker-2")
    watch, found = Silence(here.job, here.failures), {}
    for _ in range(round(seconds * 10)):
        here.clock.now += 0.1
        here.speaks(*speaking)
        for member, silent in watch.given_up():
            found[member.name] = silent
            here.job.members.drop(member.name, "hung")
    return found


def test_where_all_trainers_in_step_are_silent_it_is_not_they(here: Here) -> None:
    """A network that carries nothing for a while between them and the AIMaster; they sum on."""
    limit = here.job.settings.worker_heartbeat_limit_seconds
    assert in_step(here, min(25.0, limit - 1)) == {}


def test_of_several_trainers_in_step_that_nobody_sees_one_is_given_up_and_the_next_a_limit_later(here: Here) -> None:
    given_up = in_step(here, 7.0, "chief-0", "worker-2")
    assert sorted(given_up.values()) == [pytest.approx(3, abs=0.2), pytest.approx(6, abs=0.3)]
    assert set(given_up) == {"worker-0", "worker-1"}
