"""A pool as its launchers see it: who is in it, who leads, who is gone, and how one waits. Time and processes are told."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from deeprec_ext.arbiter.observed import Allowance, Bid, Cluster, Count, Decision, Worth
from deeprec_ext.errors import NoRoomError, UsageError
from deeprec_ext.gazer.proctable import started
from deeprec_ext.launch.limits import resolve_limits
from deeprec_ext.launch.pool.entry import Asked, Entry, PoolSize, alive, entry_of, needed, present, size_here
from deeprec_ext.launch.pool.leading import Leader
from deeprec_ext.launch.pool.membership import Membership, room
from deeprec_ext.launch.pool.places import (
    FILE_BYTES_MAX,
    PoolDirectory,
    check_name,
    identifier,
    pools_directory,
    put,
    trusted,
)
from deeprec_ext.launch.pool.seen import Seen, look, observed, urged
from deeprec_ext.launch.resources import Requests, Resources
from deeprec_ext.units import format_memory, parse_bytes

NOTHING_SAID = Requests()


def an_entry(
    job: str,
    *,
    workers: int = 3,
    priority: int = 0,
    now: float = 0.0,
    requests: Requests = NOTHING_SAID,
    **more: object,
) -> Entry:
    limits = resolve_limits(
        ps=1, workers=workers, slots=None, min_ps=1, max_ps=None, min_workers=0, max_workers=None, evaluator=False
    )
    entry = entry_of(job, limits, requests, priority=priority, weight=1.0, now=now)
    return dataclasses.replace(entry, **more)  # type: ignore[arg-type]


@pytest.fixture
def pool(tmp_path: Path) -> PoolDirectory:
    directory = PoolDirectory(tmp_path / "state" / "pools" / "ads")
    directory.make()
    return directory


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Everybody:
    """Decides that each job has what was written, and remembers what it saw."""

    def __init__(self) -> None:
        self.seen: list[Cluster] = []

    def __call__(self, cluster: Cluster) -> Decision:
        self.seen.append(cluster)
        told = tuple(Allowance(job.name, True, job.written.ps, job.written.workers, 0.0, "all") for job in cluster.jobs)
        return Decision(cluster.time, told, (), 1.0)


def a_member(
    pool: PoolDirectory, job: str, clock: Clock, decide: Callable[[Cluster], Decision], **more: object
) -> Membership:
    entry = an_entry(job, now=clock(), **more)  # type: ignore[arg-type]
    return Membership(pool, entry, leader=Leader(pool, decide=decide), now=clock)


# ------------------------------------------------------------------------------------------------------ the directory


def test_it_lies_below_the_directory_of_state(tmp_path: Path) -> None:
    assert pools_directory({"XDG_STATE_HOME": "/x"}) == Path("/x/deeprec-ext/pools")
    assert pools_directory({"XDG_STATE_HOME": "relative"}) == Path.home() / ".local/state/deeprec-ext/pools"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", "a" * 64, "a b", "é"])
def test_a_name_that_would_be_another_place_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="--pool"):
        check_name(name)


def test_two_jobs_of_one_name_have_files_of_their_own() -> None:
    assert identifier("/a/run 1") != identifier("/b/run 1")
    assert identifier("/a/run 1").startswith("run-1-")


def test_it_is_its_owners_alone(pool: PoolDirectory) -> None:
    for path in (pool.path, pool.path / "jobs", pool.path / "bids", pool.path / "allowances"):
        assert path.stat().st_mode & 0o777 == 0o700
    put(pool.job("/a"), {"a": 1})
    assert pool.job("/a").stat().st_mode & 0o777 == 0o600


def test_a_directory_of_somebody_else_is_refused(pool: PoolDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(UsageError, match="another user's"):
        pool.make()


def test_files_of_others_links_pipes_and_large_ones_are_not_read(
    pool: PoolDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = pool.path / "x.json"
    put(path, {"a": 1})
    assert trusted(path) == {"a": 1}
    (pool.path / "link.json").symlink_to(path)
    os.mkfifo(pool.path / "pipe.json")
    (pool.path / "large.json").write_text(" " * FILE_BYTES_MAX + "{}")
    (pool.path / "torn.json").write_text('{"a": ')
    assert [trusted(pool.path / f"{name}.json") for name in ("link", "pipe", "large", "torn", "none")] == [None] * 5
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert trusted(path) is None


# ------------------------------------------------------------------------------------------------------ who is in it


def test_each_process_counts_for_what_it_is_held_to_or_a_core() -> None:
    assert needed(an_entry("/a"), Count(1, 3)).cpu == 5
    requests = Requests(Resources(0.5, parse_bytes("1Gi")), Resources(2.0, parse_bytes("3Gi")))
    entry = an_entry("/a", requests=requests)
    assert needed(entry, Count(2, 3)).cpu == 9 and needed(entry, Count(2, 3)).memory_bytes == 14 << 30
    limits = resolve_limits(
        ps=1, workers=0, slots=None, min_ps=1, max_ps=None, min_workers=0, max_workers=None, evaluator=True
    )
    evaluated = entry_of("/a", limits, Requests(), priority=0, weight=1.0, now=0.0)
    assert needed(evaluated, evaluated.least).cpu == 3, (
        "the evaluator is there as well; the AIMaster counts for nothing"
    )


def test_a_deadline_counts_from_when_its_job_came_also_while_it_waits() -> None:
    limits = resolve_limits(
        ps=1, workers=1, slots=None, min_ps=None, max_ps=None, min_workers=0, max_workers=None, evaluator=False
    )
    for seconds, deadline in ((60.0, 160.0), (0.0, 0.0)):
        entry = entry_of(
            "/a", limits, Requests(), priority=0, weight=1.0, now=100.0, deadline_seconds=seconds
        )  # fmt: skip
        assert observed(Seen(PoolSize(4.0, 1 << 30), (entry,)), 120.0).jobs[0].deadline == deadline


def test_what_the_autoscaler_has_given_a_process_counts() -> None:
    there = [
        ("chief", Resources()),
        ("ps", Resources(2.0)),
        ("ps", Resources(1.0)),
        ("worker", Resources()),
        ("evaluator", Resources()),
    ]
    entry = present(an_entry("/a"), there)
    assert (entry.chief, entry.ps, entry.workers, entry.other) == (1, 2, 1, 1)
    assert (entry.pods.chief.cpu, entry.pods.ps.cpu, entry.pods.worker.cpu) == (1.0, 2.0, 1.0)


def test_a_launcher_is_known_by_its_pid_and_when_that_was_started() -> None:
    entry = an_entry("/a")
    assert alive(entry, 0.0)
    assert not alive(dataclasses.replace(entry, ticks=entry.ticks - 1), 0.0), "the pid is another process's now"
    child = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.DEVNULL)
    of_child = dataclasses.replace(entry, pid=child.pid, ticks=started(child.pid))
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not alive(of_child, 0.0), "it has ended, and nobody has asked how"
    child.wait()
    assert not alive(of_child, 0.0)


def test_one_on_another_machine_is_believed_while_its_heartbeat_is_fresh() -> None:
    entry = an_entry("/a", machine="elsewhere/1", time=100.0)
    assert alive(entry, 105.0) and not alive(entry, 111.0)


def test_it_is_seen_as_one_node_with_jobs_that_have_started_once_they_were_told(pool: PoolDirectory) -> None:
    put(pool.size, {"cores": 4.0, "memory_bytes": 8 << 30})
    trains = dataclasses.replace(an_entry("/b", now=2.0), running=True, chief=1, ps=1, workers=2, heard=95.0)
    for entry in (trains, an_entry("/a", now=1.0)):
        put(pool.job(entry.job), dataclasses.asdict(entry))
    bid = Bid(99.0, Count(1, 2), Count(1, 3), (Worth(1, 2, 50.0),), training=True)
    put(pool.bid("/b"), dataclasses.asdict(bid))
    cluster = observed(look(pool, 100.0), 100.0)
    assert [node.free.cpu for node in cluster.nodes] == [4.0] and cluster.nodes[0].free.memory_bytes == 8 << 30
    a, b = cluster.jobs
    assert (a.name, a.started, a.placed, a.bid, a.silent_seconds) == ("/a", False, (), None, 0.0)
    assert (b.name, b.started, len(b.placed), b.bid, b.silent_seconds) == ("/b", True, 4, bid, 5.0)
    put(pool.allowance("/a"), dataclasses.asdict(Allowance("/a", True, 1, 1, 99.0, "")))
    a = observed(look(pool, 100.0), 100.0).jobs[0]
    assert a.started and sorted(one.role for one in a.placed) == ["chief", "ps", "worker"]


def test_what_a_user_asked_for_is_worth_more_than_less_of_it_whatever_a_model_says() -> None:
    flat = Bid(99.0, Count(1, 1), Count(1, 3), tuple(Worth(1, workers, 100.0) for workers in (0, 1, 3, 4)))
    told = urged(an_entry("/a"), flat)
    assert told is not None
    assert {one.workers: round(one.examples_per_second, 2) for one in told.worth} == {0: 100, 1: 103, 3: 109.27, 4: 100}
    steep = dataclasses.replace(flat, worth=tuple(Worth(1, workers, 50.0 + 50 * workers) for workers in range(5)))
    assert urged(an_entry("/a"), steep) == steep, "what is worth more stays as it was measured"
    assert urged(an_entry("/a", autoscaled=True), flat) == flat, "there it is the autoscaler that asks"
    assert urged(an_entry("/a"), None) is None


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"job": 7}', "nan", "[" * 100_000, '{"job": "/a", "workers": 1000000000000}']
)
def test_a_file_that_says_nothing_of_use_is_no_job(pool: PoolDirectory, text: str) -> None:
    pool.job("/a").write_text(text)
    assert look(pool, 0.0) == Seen(None)


def test_a_job_that_says_it_is_another_is_not_believed(pool: PoolDirectory) -> None:
    put(pool.job("/a"), dataclasses.asdict(an_entry("/b")))
    absurd = an_entry("/c", workers=3)
    put(pool.job("/c"), dataclasses.asdict(dataclasses.replace(absurd, workers=10**9)))
    assert look(pool, 0.0).entries == ()


# ------------------------------------------------------------------------------------------------------ who comes


def test_the_first_says_what_there_is_to_share(pool: PoolDirectory) -> None:
    clock, decide = Clock(), Everybody()
    first = a_member(pool, "/a", clock, decide)
    assert first.join(4.0).cores == 4.0
    second = a_member(pool, "/b", clock, decide)
    assert second.join().cores == 4.0, "it takes what there is"
    with pytest.raises(UsageError, match=r"--pool-cores 8: the pool ads has 4 while /a is in it"):
        a_member(pool, "/c", clock, decide).join(8.0)
    second.leave()
    first.leave()
    assert a_member(pool, "/c", clock, decide).join(8.0).cores == 8.0, "nobody is there any more"


def test_without_a_word_it_is_what_this_process_may_use(pool: PoolDirectory) -> None:
    if size_here().cores < 2:
        pytest.skip("a job with a PS has no room on one core")
    assert a_member(pool, "/a", Clock(), Everybody()).join() == size_here()


def test_a_job_that_never_has_room_is_told_so_at_once_with_the_figures(pool: PoolDirectory) -> None:
    with pytest.raises(
        UsageError, match=r"needs 2 cores at least \(1 PS, the chief and 0 workers\), and the pool has 1.5"
    ):
        a_member(pool, "/a", Clock(), Everybody()).join(1.5)
    requests = Requests(Resources(), Resources(memory_bytes=1 << 50))
    with pytest.raises(UsageError, match="lower --worker-memory"):
        a_member(pool, "/a", Clock(), Everybody(), requests=requests).join(4.0)
    assert look(pool, 0.0).entries == ()


def test_a_directory_that_another_machine_uses_is_refused_here(pool: PoolDirectory) -> None:
    clock = Clock()
    put(pool.job("/far"), dataclasses.asdict(an_entry("/far", machine="elsewhere/1", time=clock())))
    with pytest.raises(UsageError, match="another machine"):
        a_member(pool, "/a", clock, Everybody()).join(4.0)
    clock.now += 60
    a_member(pool, "/a", clock, Everybody()).join(4.0)


# ------------------------------------------------------------------------------------------------------ who leads


def test_one_leads_and_the_next_goes_on_when_it_is_gone(pool: PoolDirectory) -> None:
    clock, decide = Clock(), Everybody()
    first, second = a_member(pool, "/a", clock, decide), a_member(pool, "/b", clock, decide)
    first.join(10.0)
    second.join()
    first.turn()
    second.turn()
    assert len(decide.seen) == 1, "one decides"
    assert first.allowance is not None and first.allowance.runs
    assert second.allowance is not None and second.allowance.runs
    assert int(pool.lock(pool.term()).read_text()) == os.getpid()
    first.leave()
    assert [job.name for job in decide.seen[-1].jobs] == ["/b"], "who leaves shares out what it had"
    assert not second._leader.leads
    second.turn()
    assert second._leader.leads and len(decide.seen) == 3
    second.leave()
    assert list((pool.path / "allowances").iterdir()) == list((pool.path / "jobs").iterdir()) == []


def test_a_killed_leader_holds_nothing_and_what_it_left_is_taken_away(pool: PoolDirectory, tmp_path: Path) -> None:
    """A real process: the kernel drops its lock."""
    script = tmp_path / "leads.py"
    script.write_text(
        "import dataclasses, sys, time\n"
        "from pathlib import Path\n"
        "from tests.unit.launch.test_pool import Everybody, Leader, PoolDirectory, an_entry, put\n"
        "pool = PoolDirectory(Path(sys.argv[1]))\n"
        "put(pool.job('/dead'), dataclasses.asdict(an_entry('/dead', time=time.time())))\n"
        "leader = Leader(pool, decide=Everybody())\n"
        "assert leader.turn(time.time())\n"
        "print('leads', flush=True)\n"
        "time.sleep(60)\n"
    )
    root = Path(__file__).parents[3]
    process = subprocess.Popen(
        [sys.executable, str(script), str(pool.path)], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip
    try:
        assert process.stdout is not None and process.stdout.readline() == "leads\n"
        clock, decide = Clock(), Everybody()
        member = a_member(pool, "/a", clock, decide)
        member.join(10.0)
        member.turn()
        assert decide.seen == [] and {one.job for one in look(pool, clock()).entries} == {"/a", "/dead"}
    finally:
        process.kill()
        process.communicate()
    clock.now += 0.5
    member.turn()
    assert [job.name for job in decide.seen[-1].jobs] == ["/a"]
    assert not pool.job("/dead").exists() and not pool.allowance("/dead").exists()
    member.leave()


def test_what_was_decided_is_known_to_the_next_leader(pool: PoolDirectory) -> None:
    clock, decide = Clock(), Everybody()
    first = a_member(pool, "/a", clock, decide)
    first.join(10.0)
    first.turn()
    again = Leader(pool, decide=decide)
    first._leader.close()
    assert again.turn(clock())
    before = decide.seen[-1].jobs[0].allowance
    assert before is not None and (before.ps, before.workers, before.why) == (1, 3, "all")
    again.close()
    first.leave()


def test_nothing_is_written_while_nothing_changes_but_heartbeats(pool: PoolDirectory) -> None:
    clock = Clock()
    member = a_member(pool, "/a", clock, Everybody())
    member.join(10.0)
    for _ in range(3):
        clock.now += 0.5
        member.turn()

    def inodes() -> dict[str, int]:
        return {str(path): path.stat().st_ino for path in pool.path.rglob("*.json*")}

    before, written = inodes(), []
    for _ in range(8):
        clock.now += 0.5
        member.turn()
        now = inodes()
        written += [path for path in now if now[path] != before.get(path)]
        before = now
    assert set(written) == {str(pool.job("/a"))} and len(written) == 4, "one each second"
    member.leave()


def test_a_pool_whose_directory_was_removed_is_made_again(pool: PoolDirectory) -> None:
    import shutil

    clock = Clock()
    member = a_member(pool, "/a", clock, Everybody())
    member.join(10.0)
    member.turn()
    shutil.rmtree(pool.path)
    with pytest.raises(OSError):
        clock.now += 2
        member.turn()
    pool.make()
    clock.now += 2
    member.turn()
    assert member.allowance is not None and int(pool.lock(pool.term()).read_text()) == os.getpid(), (
        "the lock is that of the new file"
    )
    assert look(pool, clock()).size == PoolSize(10.0, size_here().memory_bytes)
    member.leave()


def test_the_thread_looks_after_it_and_ends_with_it(pool: PoolDirectory, wait_until: Callable[..., object]) -> None:
    member = Membership(pool, an_entry("/a"), leader=Leader(pool, decide=Everybody()))
    member.join(10.0)
    member.begin()
    wait_until(lambda: member.allowance, what="an allowance")
    thread = member._thread
    member.close()
    assert thread is not None and not thread.is_alive() and not pool.job("/a").exists()
    with pool.lock(pool.term()).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nobody has it


# ------------------------------------------------------------------------------------------------------ a leader that stops


def its_word(pool: PoolDirectory, job: str) -> tuple[int, int]:
    """(workers, term) in the file that the leader writes."""
    values = json.loads(pool.allowance(job).read_text())
    return values["workers"], values["term"]


def test_who_sees_that_the_leader_decides_nothing_takes_over_and_whoever_wakes_up_is_not_obeyed(
    pool: PoolDirectory,
) -> None:
    clock, decide = Clock(), Everybody()
    stopped, first, second = (a_member(pool, job, clock, decide) for job in ("/stopped", "/a", "/b"))
    stopped.join(10.0)
    stopped.turn()
    term = pool.term()
    for member in (first, second):
        member.join()
        member.turn()
    assert first.allowance is None, "it has come since"
    late: list[Seen] = []

    def stops(directory: PoolDirectory, now: float) -> Seen:
        """Between what it sees and what it writes."""
        found = look(directory, now)
        for _ in range(20):
            clock.now += 0.5
            first.turn()
            second.turn()
        late.append(found)
        return found

    stopped._leader._look = stops
    stopped._leader.turn(clock())
    assert late and pool.term() > term and first._leader.leads and not second._leader.leads
    assert first.allowance is not None and second.allowance is not None
    assert [one.name for one in pool.path.glob("leader.*")] == [pool.lock(pool.term()).name]
    assert its_word(pool, "/a") == (3, pool.term()), "it has written nothing: it looks before it does"

    nothing = dataclasses.asdict(Allowance("/a", True, 1, 0, clock(), "of one that has slept"))
    put(pool.allowance("/a"), {**nothing, "term": term})  # it was at its last line already
    told = pool.told("/a").read_text()
    first._hear("/a")
    assert first.allowance.workers == 3 and pool.told("/a").read_text() == told
    second.turn()
    first.turn()
    assert its_word(pool, "/a") == (3, pool.term()), "who leads says again what it has said"
    clock.now += 0.5
    stopped.turn()
    assert not stopped._leader.leads and stopped.allowance is not None, "it obeys like any other"
    for member in (stopped, first, second):
        member.leave()


def test_a_leader_that_decides_is_left_alone_whatever_clocks_say(pool: PoolDirectory) -> None:
    clock, decide = Clock(), Everybody()
    leader, other = a_member(pool, "/a", clock, decide), a_member(pool, "/b", clock, decide)
    leader.join(10.0)
    other.join()
    for step in (0.5, 3600.0, 0.5, -7200.0, 0.5, *[0.5] * 20):
        clock.now += step
        leader.turn()
        other.turn()
        assert leader._leader.leads and not other._leader.leads
    for member in (leader, other):
        member.leave()


def test_of_several_that_see_it_one_takes_over(pool: PoolDirectory) -> None:
    clock, decide = Clock(), Everybody()
    members = [a_member(pool, f"/{number}", clock, decide) for number in range(5)]
    for member in members:
        member.join(20.0)
    members[0].turn()
    for _ in range(30):
        clock.now += 0.5
        for member in members[1:]:
            member.turn()
        assert sum(member._leader._in_office() for member in members) == 1
    assert not members[0]._leader._in_office()
    for member in members:
        member.leave()


def test_two_that_find_the_lock_free_at_once_do_not_lead_in_one_term(pool: PoolDirectory) -> None:
    one, other = Leader(pool, decide=Everybody()), Leader(pool, decide=Everybody())
    put(pool.size, {"cores": 4.0, "memory_bytes": 1 << 30})
    assert one._begin(7) and not other._begin(7)
    assert other.turn(1.0) is False and other._begin(8), "as if it had found the lock free between file and lock"
    assert not one._in_office() and other._in_office()
    one.close()
    other.close()


def test_a_lock_is_asked_for_with_a_file_that_may_be_written_as_nfs_wants_it(
    pool: PoolDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def of_nfs(file: IO[str], operation: int) -> None:
        if operation & fcntl.LOCK_EX and not file.writable():
            raise OSError(errno.EBADF, "Bad file descriptor")
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", of_nfs)
    clock, decide = Clock(), Everybody()
    leader, other = a_member(pool, "/a", clock, decide), a_member(pool, "/b", clock, decide)
    leader.join(10.0)
    other.join()
    for member in (leader, other):
        member.turn()
    assert leader._leader.leads and not other._leader.leads
    leader._leader.close()
    other.turn()
    assert other._leader.leads
    for member in (leader, other):
        member.leave()


def test_trouble_with_leading_keeps_no_job_from_its_word(pool: PoolDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, decide = Clock(), Everybody()
    leader, other = a_member(pool, "/a", clock, decide), a_member(pool, "/b", clock, decide)
    leader.join(10.0)
    other.join()
    leader.turn()

    def trouble(now: float) -> bool:
        raise OSError(errno.EBADF, "Bad file descriptor")

    with monkeypatch.context() as patched:
        patched.setattr(other._leader, "turn", trouble)
        with pytest.raises(OSError, match="Bad file"):
            other.turn()
    assert other.allowance is not None and other.allowance.runs
    for member in (leader, other):
        member.leave()


def test_on_a_full_disk_one_leads_without_its_pid_and_no_locks_pile_up(pool: PoolDirectory) -> None:
    put(pool.size, {"cores": 4.0, "memory_bytes": 1 << 30})
    put(pool.job("/a"), dataclasses.asdict(an_entry("/a", now=1000.0)))
    leader, before = Leader(pool, decide=Everybody()), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))  # no file may grow
    try:
        for now in (1000.0, 1000.5, 1001.0, 1002.0):
            with pytest.raises(OSError, match="File too large"):
                leader.turn(now)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert leader.leads and len(pool.terms()) == 1
    assert leader.turn(1003.0)
    leader.close()


def test_a_lock_that_the_disk_cannot_give_leaves_no_file(pool: PoolDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    leader = Leader(pool, decide=Everybody())
    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", none_left)
        with pytest.raises(OSError, match="No locks"):
            leader.turn(1000.0)
    assert not pool.terms() and not leader.leads


def test_whoever_leads_no_more_takes_nobody_away(pool: PoolDirectory) -> None:
    """It has looked, was stopped, and wakes up when the next one leads, who knows of a job that has come again."""
    put(pool.size, {"cores": 4.0, "memory_bytes": 1 << 30})
    put(pool.job("/a"), dataclasses.asdict(an_entry("/a", ticks=1)))

    def sleepy(directory: PoolDirectory, now: float) -> Seen:
        seen = look(directory, now)
        assert [entry.job for entry in seen.dead] == ["/a"]
        directory.lock(directory.term() + 1).touch()
        return seen

    leader = Leader(pool, decide=Everybody(), look=sleepy)
    assert leader.turn(1000.0) is False
    assert pool.job("/a").exists()
    leader.close()


def test_a_real_leader_that_is_stopped_is_replaced_and_what_it_writes_when_it_goes_on_is_not_obeyed(
    pool: PoolDirectory, tmp_path: Path, wait_until: Callable[..., object]
) -> None:
    script = tmp_path / "leads.py"
    script.write_text(
        "import dataclasses, sys, time\n"
        "from pathlib import Path\n"
        "from tests.unit.launch.test_pool import Everybody, Leader, Membership, PoolDirectory, an_entry, put\n"
        "pool = PoolDirectory(Path(sys.argv[1]))\n"
        "member = Membership(pool, an_entry('/stopped', now=time.time()), leader=Leader(pool, decide=Everybody()))\n"
        "member.join(10.0)\n"
        "member.turn()\n"
        "print(pool.term(), flush=True)\n"
        "while True:\n"
        "    member.turn()\n"
        "    time.sleep(0.05)\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(script), str(pool.path)], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )  # fmt: skip
    member = Membership(pool, an_entry("/a"), leader=Leader(pool, decide=Everybody()))
    try:
        assert process.stdout is not None
        term = int(process.stdout.readline())
        process.send_signal(signal.SIGSTOP)
        member.join()
        member.begin()
        wait_until(lambda: member.allowance, what="an allowance")
        assert pool.term() > term and its_word(pool, "/stopped") == (3, pool.term())
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: json.loads(pool.job("/stopped").read_text())["time"] > time.time() - 1, what="its heartbeat")
        assert pool.term() == int(pool.lock(pool.term()).name.split(".")[1]) and member._leader.leads
    finally:
        process.kill()
        process.communicate()
        member.close()


# ------------------------------------------------------------------------------------------------------ waiting


class Told:
    """A member that is allowed one thing after the other, and a clock that goes on while one sleeps."""

    def __init__(self, *whys: str | None, last: Allowance | None = None) -> None:
        self._whys, self._last = list(whys), last
        self.now, self.said = 0.0, []
        self.standing = ""

    @property
    def allowance(self) -> Allowance | None:
        place = int(self.now)
        if place < len(self._whys):
            why = self._whys[place]
            return None if why is None else Allowance("/a", False, 0, 0, 0.0, why)
        return self._last

    def others(self) -> str:
        return self.standing

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        assert self.now < 1000

    def room(self, asked: Asked, interrupts: list[str] | None = None) -> Allowance | None:
        return room(
            self, asked, interrupts=interrupts if interrupts is not None else [],  # type: ignore[arg-type]
            say=lambda line: self.said.append((round(self.now), line)), clock=self.clock, sleep=self.sleep,
        )  # fmt: skip


GO = Allowance("/a", True, 1, 2, 0.0, "go")


def test_who_has_room_at_once_is_told_nothing() -> None:
    told = Told(None, last=GO)
    assert told.room(Asked("ads")) == GO and told.said == []


def test_the_reason_is_told_and_again_when_it_changes() -> None:
    told = Told(*["no room"] * 8, *["it is next"] * 4, last=GO)
    assert told.room(Asked("ads")) == GO
    assert told.said == [
        (1, "waits for room in the pool ads: no room"),
        (8, "waits for room in the pool ads: it is next"),
    ]


def test_it_does_not_say_twice_that_it_waits() -> None:
    told = Told(*["waits for 2.0 cores: 0.0 of 4.0 cores free; first in line"] * 3, last=GO)
    told.room(Asked("ads"))
    assert told.said == [(1, "waits for room in the pool ads: needs 2.0 cores: 0.0 of 4.0 cores free; first in line")]
    told = Told(*["waits: room is kept for /b; behind 1 other"] * 3, last=GO)
    told.room(Asked("ads"))
    assert told.said == [(1, "waits for room in the pool ads: room is kept for /b; behind 1 other")]


def test_sizes_of_memory_are_said_in_the_unit_of_limits(pool: PoolDirectory) -> None:
    requests = Requests(Resources(), Resources(memory_bytes=parse_bytes("900TiB")))
    with pytest.raises(
        UsageError, match=r"needs 900 TiB at least \(1 PS, the chief and 0 workers\), and the machine has"
    ):
        a_member(pool, "/a", Clock(), Everybody(), requests=requests).join(4.0)
    assert [format_memory(parse_bytes(text)) for text in ("900GiB", "1.5Gi", "2GB", "512Mi", "0B")] == [
        "900 GiB", "1.5 GiB", "1.9 GiB", "512 MiB", "0 B",
    ]  # fmt: skip


def test_a_reason_whose_figures_run_is_told_every_five_seconds() -> None:
    told = Told(*[f"{n} s" for n in range(20)], last=GO)
    told.room(Asked("ads"))
    assert [at for at, _ in told.said] == [1, 6, 11, 16]


def test_it_gives_up_after_the_wait_that_was_asked_for() -> None:
    told = Told(*["2 of 4 cores are taken"] * 100)
    with pytest.raises(
        NoRoomError, match=r"no room for the job within 30.0 s: 2 of 4 cores are taken; nothing was started"
    ):
        told.room(Asked("ads", max_wait_seconds=30.0))
    assert 30 <= told.now < 30.5 and NoRoomError.exit_code == 75


def test_an_interrupt_ends_the_waiting() -> None:
    told, names = Told(*["no room"] * 100), []
    told.sleep = lambda seconds: names.append("SIGINT")  # type: ignore[method-assign]
    assert told.room(Asked("ads"), names) is None


def test_a_launcher_that_stands_still_is_named(pool: PoolDirectory) -> None:
    clock = Clock()
    put(pool.job("/stopped"), dataclasses.asdict(an_entry("/stopped", pid=1, ticks=started(1), time=clock() - 20)))
    member = a_member(pool, "/a", clock, Everybody())
    assert "/stopped (pid 1) has stood still for 20.0 s, and nothing of its job" in member.others()
    assert "let it go on (kill -CONT 1)" in member.others()
    told = Told(*["no room"] * 20, last=GO)
    told.standing = "it stands still"
    told.room(Asked("ads"))
    assert told.said[-1][1].endswith("it stands still")


def test_the_files_are_json_that_others_can_read(pool: PoolDirectory) -> None:
    clock = Clock()
    member = a_member(pool, "/a", clock, Everybody(), priority=7)
    member.join(10.0)
    member.turn()
    values = json.loads(pool.job("/a").read_text())
    assert (values["job"], values["priority"], values["pid"], values["least"]) == (
        "/a",
        7,
        os.getpid(),
        {"ps": 1, "workers": 0},
    )
    assert json.loads(pool.allowance("/a").read_text())["workers"] == 3
    member.leave()
