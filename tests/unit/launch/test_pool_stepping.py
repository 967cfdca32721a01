"""What each job of a pool may have at this moment, of what it shall have: `launch.pool.stepping`."""

from __future__ import annotations

from deeprec_ext.arbiter.observed import Allowance, Cluster, Count, Decision, Job, Node, Placed, Pods, Resources
from deeprec_ext.launch.pool.stepping import stepped

ONE, NONE = Resources(1.0), Resources()
GIB = 1 << 30


def a_job(
    name: str, workers: int | None, *, priority: int = 0, ps: int = 1, least: int = 0, memory: int = 0, at: float = 0.0
) -> Job:
    """`workers`: that it has; None: it has not started."""
    pod = Resources(1.0, memory)
    counts = {} if workers is None else {"chief": 1, "ps": ps, "worker": workers}
    return Job(
        name=name, priority=priority, weight=1.0, least=Count(1, least), most=Count(4, 9), pods=Pods(pod, pod, pod, NONE),
        placed=tuple(Placed(role, "machine") for role, count in counts.items() for _ in range(count)), queue="", arrived=at,
        started=workers is not None, strict=False, written=Count(1, 3), allowance=None, bid=None, silent_seconds=0.0,
    )  # fmt: skip


def run(cores: float, jobs: list[Job], shall: dict[str, int | None], may: dict[str, int] | None = None, memory: int = 0,
        time: float = 100.0) -> dict[str, tuple[bool, int, int]]:  # fmt: skip
    """`shall`: workers that were decided, None: not to run; `may`: workers allowed so far."""
    cluster = Cluster(time, (Node("machine", Resources(cores, memory)),), (), (), tuple(jobs))
    told = tuple(
        Allowance(job.name, shall[job.name] is not None, 1, shall[job.name] or 0, 50.0, "decided") for job in jobs
    )
    given = {name: Allowance(name, True, 1, count, 10.0, "") for name, count in (may or {}).items()}
    found = stepped(cluster, Decision(time, told, (), 1.0), given)
    assert [one.job for one in found] == [job.name for job in jobs]
    return {one.job: (one.runs, one.ps, one.workers) for one in found}


def test_who_comes_waits_until_the_others_have_given_back() -> None:
    """A has three workers beside PS and chief in 5 cores; B of higher priority is to have two cores for its least."""
    shall = {"a": 1, "b": 0}
    first = run(5, [a_job("a", 3), a_job("b", None, priority=5)], shall, {"a": 3})
    assert first == {"a": (True, 1, 1), "b": (False, 0, 0)}
    then = run(5, [a_job("a", 2), a_job("b", None, priority=5)], shall, {"a": 1})
    assert then["b"] == (False, 0, 0), "one core is free, and it needs two"
    assert run(5, [a_job("a", 1), a_job("b", None, priority=5)], shall, {"a": 1})["b"] == (True, 1, 0)


def test_who_starts_has_what_is_free_and_more_as_it_comes_free() -> None:
    jobs = [a_job("a", 2), a_job("b", None)]
    assert run(6, jobs, {"a": 0, "b": 2}, {"a": 2})["b"] == (True, 1, 0)
    jobs = [a_job("a", 1), a_job("b", 0)]
    assert run(6, jobs, {"a": 0, "b": 2}, {"a": 0, "b": 0})["b"] == (True, 1, 1)
    jobs = [a_job("a", 0), a_job("b", 1)]
    assert run(6, jobs, {"a": 0, "b": 2}, {"a": 0, "b": 1})["b"] == (True, 1, 2)


def test_what_was_promised_and_is_not_there_yet_is_not_given_twice() -> None:
    jobs = [a_job("a", 0), a_job("b", 0)]  # a was told that it may have two, and is starting them
    assert run(6, jobs, {"a": 2, "b": 2}, {"a": 2, "b": 0}) == {"a": (True, 1, 2), "b": (True, 1, 0)}


def test_a_job_that_waits_is_kept_room_for() -> None:
    """Two cores are free; the high one needs four, the low one could have one of them."""
    jobs = [a_job("low", 0), a_job("high", None, priority=9, least=2)]
    assert run(4, jobs, {"low": 1, "high": 2}, {"low": 0}) == {"low": (True, 1, 0), "high": (False, 0, 0)}


def test_of_two_that_wait_the_higher_priority_and_then_the_earlier_starts() -> None:
    jobs = [a_job("late", None, at=2.0), a_job("early", None, at=1.0), a_job("high", None, priority=1, at=3.0)]
    found = run(4, jobs, dict.fromkeys(("late", "early", "high"), 0))
    assert {name for name, one in found.items() if one[0]} == {"high", "early"}


def test_a_running_job_is_never_told_to_end() -> None:
    assert run(2, [a_job("a", 3, least=1)], {"a": None}, {"a": 3})["a"] == (True, 1, 1)


def test_memory_counts_as_cores_do() -> None:
    jobs = [a_job("a", 1, memory=GIB), a_job("b", None, memory=GIB)]
    assert run(64, jobs, {"a": 1, "b": 0}, {"a": 1}, memory=5 * GIB)["b"][0]
    assert not run(64, jobs, {"a": 1, "b": 0}, {"a": 1}, memory=4 * GIB)["b"][0]
    cluster = Cluster(1.0, (Node("machine", Resources(64, 4 * GIB)),), (), (), tuple(jobs))
    told = tuple(Allowance(job.name, True, 1, 1, 0.0, "") for job in jobs)
    assert "memory" in stepped(cluster, Decision(1.0, told, (), 1.0), {})[1].why


def test_a_reason_says_what_is_missing_and_since_changes_with_the_size_alone() -> None:
    jobs = [a_job("a", 2), a_job("b", None)]
    cluster = Cluster(100.0, (Node("machine", Resources(5.0)),), (), (), tuple(jobs))
    told = Decision(100.0, (Allowance("a", True, 1, 1, 90.0, "x"), Allowance("b", True, 1, 0, 90.0, "y")), (), 1.0)
    before = {"a": Allowance("a", True, 1, 1, 42.0, "another")}
    a, b = stepped(cluster, told, before)
    assert (a.since, a.why, b.since) == (42.0, "x", 100.0)
    assert b.why == "it is next: it needs 2 cores, and 1 are free until others have given back"


def test_never_more_than_there_is_whatever_is_decided() -> None:
    """All of small cases: what is allowed together, where nobody has more already, fits."""
    for has_a in (None, 0, 2):
        for has_b in (None, 1):
            for shall_a in (None, 0, 3):
                for shall_b in (0, 4):
                    jobs = [a_job("a", has_a), a_job("b", has_b, priority=1)]
                    start = sum(2 + count for count in (has_a, has_b) if count is not None)
                    cores = max(6, start)
                    found = run(
                        cores,
                        jobs,
                        {"a": shall_a, "b": shall_b},
                        {j.name: n for j, n in zip(jobs, (has_a, has_b)) if n is not None},
                    )
                    there = {"a": has_a or 0, "b": has_b or 0}
                    used = sum(
                        1 + ps + max(workers, there[name]) for name, (runs, ps, workers) in found.items() if runs
                    )
                    assert used <= cores, (has_a, has_b, shall_a, shall_b, found)
