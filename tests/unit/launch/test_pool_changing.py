"""What a command changes of a pool whose jobs run, decided by the arbiter itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from deeprec_ext.errors import UsageError
from deeprec_ext.launch.pool.changing import change_job, change_size, changes_of, consequences, find, resized
from deeprec_ext.launch.pool.entry import Changes
from deeprec_ext.launch.pool.places import put
from deeprec_ext.launch.pool.seen import Seen, look
from tests.unit.launch.test_pool_story import Job, Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, 4.0)


def seen(machine: Machine) -> Seen:
    return look(machine.pool, machine.clock.now)


def changed(machine: Machine, job: Job, *words: str) -> None:
    change_job(machine.pool, find(machine.pool, seen(machine), job.name), changes_of(words))


def resize(machine: Machine, cores: float) -> None:
    change_size(machine.pool, resized(machine.pool, seen(machine), cores))


def test_a_job_whose_priority_is_raised_takes_what_another_has_beyond_its_least(machine: Machine) -> None:
    machine.cores = 6.0
    one, other = machine.comes("/runs/one", 3), machine.comes("/runs/other", 3)
    machine.until(lambda: one.cores + other.cores == 6, 30)
    machine.passes(60)
    assert (one.workers, other.workers) == (1, 1)
    changed(machine, other, "priority=500")
    machine.until(lambda: (one.workers, other.workers) == (0, 2), 60)
    assert [entry.priority for entry in seen(machine).entries] == [0, 500]
    changed(machine, other, "weight=2")
    entry = seen(machine).entries[1]
    assert (entry.priority, entry.weight) == (500, 2.0), "what is not said again stays"
    assert machine.most == 6


def test_what_was_changed_ends_with_the_job(machine: Machine) -> None:
    one = machine.comes("/runs/one", 0)
    machine.passes(2)
    changed(machine, one, "priority=500", "weight=3")
    machine.ends(one)
    again = machine.comes("/runs/one", 0)
    machine.passes(2)
    assert [(entry.priority, entry.weight) for entry in seen(machine).entries] == [(0, 1.0)]
    machine.ends(again)


def test_a_pool_that_gets_more_gives_it_and_one_that_gets_less_ends_nobody(machine: Machine) -> None:
    job = machine.comes("/runs/job", 4)
    machine.until(lambda: job.workers == 2, 10)
    resize(machine, 6.0)
    machine.until(lambda: job.workers == 4, 60)
    resize(machine, 3.0)
    machine.until(lambda: job.workers == 1, 60)
    waits = machine.comes("/runs/waits", 0)
    machine.passes(30)
    assert (job.workers, waits.began) == (1, None), "there is no room for both leasts, so it gives nothing back"
    size = resized(machine.pool, seen(machine), 1.0)
    assert consequences(seen(machine), size) == [
        "the leasts of the jobs that run are 2 cores: nobody is ended, so they go on with these until some end",
        "/runs/waits, which waits, needs 2 cores at least and has no room in the pool so",
    ]
    change_size(machine.pool, size)
    machine.passes(30)
    assert job.cores == 2, "nobody is ended"
    machine.pool.size.unlink()
    machine.passes(2)
    found = seen(machine).size
    assert found is not None and found.cores == 1.0, "the launchers know what it was last"
    machine.ends(job)
    resize(machine, 2.0)
    machine.until(lambda: waits.began is not None, 10)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ((), "say what is to be changed"),
        (("priority",), "say priority=NUMBER"),
        (("size=3",), "--set size=3: say priority=NUMBER"),
        (("priority=high",), "--set priority=high: 'high' is no whole number"),
        (("priority=99999999999",), "is too much"),
        (("weight=0",), "--set weight=0: must be more than 0"),
        (("weight=nan",), "--set weight=nan"),
    ],
)
def test_what_cannot_be_is_refused(words: tuple[str, ...], what: str) -> None:
    with pytest.raises(UsageError) as refused:
        changes_of(words)
    assert what in str(refused.value)


def test_a_job_is_found_by_its_run_directory_or_the_end_of_it(machine: Machine) -> None:
    machine.cores = 8.0
    for name in ("/a/same", "/b/same", "/b/other"):
        machine.comes(name, 0)
    assert find(machine.pool, seen(machine), "other").job == "/b/other"
    assert find(machine.pool, seen(machine), "/a/same").job == "/a/same"
    with pytest.raises(UsageError, match="called so; give the whole run directory: /a/same, /b/same"):
        find(machine.pool, seen(machine), "same")
    with pytest.raises(UsageError, match="--set none: is not in the pool ads; in it is same, other, same"):
        find(machine.pool, seen(machine), "none")


def test_a_change_that_is_damaged_or_absurd_changes_nothing(machine: Machine) -> None:
    one = machine.comes("/runs/one", 0)
    for values in ({"priority": "high"}, {"priority": None, "weight": None}, {"unknown": 1}):
        put(machine.pool.changes(one.name), values)
        assert [(entry.priority, entry.weight) for entry in seen(machine).entries] == [(0, 1.0)], values
    put(machine.pool.changes(one.name), {"weight": -1.0})
    assert [entry.weight for entry in seen(machine).entries] == [1.0], "the job itself is not lost by it"
    assert changes_of(("priority=-3", "weight=0.5")) == Changes(-3, 0.5)
    with pytest.raises(UsageError, match="no job would ever have room"):
        resized(machine.pool, seen(machine), 0.0)
