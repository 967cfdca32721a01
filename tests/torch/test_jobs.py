"""Unmodified DDP scripts in real jobs: workers come, go and die, and models and optimizers stay equal bit for bit."""

from __future__ import annotations

import signal
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from tests.behaviour.jobs import RealJob

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).resolve().parent / "scripts"
DDP = (sys.executable, str(SCRIPTS / "ddp.py"))


def lines(place: Path, kind: str) -> dict[str, list[list[str]]]:
    """rank.pid → words of each line of this kind, in order; a torn last one is left out."""
    found: dict[str, list[list[str]]] = defaultdict(list)
    for file in sorted(place.glob("*.[0-9]*")):
        for line in file.read_text().splitlines(keepends=True):
            if line.startswith(f"{kind} ") and line.endswith("\n"):
                found[file.name].append(line.split()[1:])
    return found


def step(place: Path) -> int:
    return max((int(rows[-1][0]) for rows in lines(place, "step").values() if rows), default=0)


def wait_together(job, place: Path, size: int) -> None:
    """Until so many processes have made one more step, each with what the others have."""
    since = step(place)

    def seen() -> bool:
        rows = [row for found in lines(place, "step").values() for row in found if int(row[0]) > since]
        return max(Counter((row[0], row[1]) for row in rows).values(), default=0) >= size

    job.until(seen, f"a step of {size} processes")


def check(place: Path) -> None:
    """Equal after each step; none is left out, none comes twice in a process, none goes back."""
    known: dict[int, set[str]] = defaultdict(set)
    for name, rows in lines(place, "step").items():
        steps = [int(row[0]) for row in rows]
        assert steps == sorted(set(steps)), name
        for row in rows:
            known[int(row[0])].add(row[1])
    assert {number: states for number, states in known.items() if len(states) > 1} == {}
    assert sorted(known) == list(range(1, max(known) + 1))


def test_an_unchanged_ddp_script_goes_on_while_workers_come_go_and_die(begin, tmp_path):
    place, enough = tmp_path / "out", tmp_path / "enough"
    job = begin("--workers", "1", command=(*DDP, "--place", str(place), "--epochs", "1000", "--until", str(enough)))
    wait_together(job, place, 2)
    assert job.scale(workers=2).outcome == "committed"
    wait_together(job, place, 3)
    killed = job.kill("worker-0")
    before = step(place)
    job.until(lambda: step(place) > before + 5, "steps after a kill")
    job.until(lambda: job.pid("worker-0") != killed, "another process of worker-0")
    wait_together(job, place, 3)
    killed = job.kill("chief-0")
    before = step(place)
    job.until(lambda: step(place) > before + 5, "steps after a kill of the chief")
    job.until(lambda: job.pid("chief-0") != killed, "another process of chief-0")
    wait_together(job, place, 3)
    assert job.scale(workers=0).outcome == "committed"
    before = step(place)
    job.until(lambda: step(place) > before + 5, "steps of one")
    enough.touch()
    assert job.end() == 0, job.output
    check(place)
    assert (place / "model.pt").exists()
    assert {name: role["restarted"] for name, role in job.summary()["roles"].items() if role["restarted"]} == {
        "chief-0": 1, "worker-0": 1
    }  # fmt: skip


def test_each_record_is_trained_once_an_epoch_and_all_leave_it_after_the_same_step(begin, tmp_path):
    place = tmp_path / "out"
    job = begin("--workers", "1", command=(*DDP, "--place", str(place), "--epochs", "3", "--workers", "2"))
    wait_together(job, place, 2)
    assert job.scale(workers=2).outcome == "committed"
    assert job.end() == 0, job.output
    check(place)
    data = job.summary()["data"]
    assert data["trained"] == 3 * 1600 and data["repeated"] == data["lost"] == 0, data
    epochs = defaultdict(set)
    for rows in lines(place, "epoch").values():
        for epoch, right, seen, state, _ in rows:
            epochs[epoch].add((right, seen, state))
    assert len(epochs["2"]) == 1 and {seen for _, seen, _ in epochs["2"]} == {"200"}


@pytest.mark.parametrize(
    ("workers", "how"),
    [("0", "resumed"), ("1", "resumed"), ("1", "killed"), pytest.param("0", "killed", marks=pytest.mark.long)],
)
def test_a_pytorch_model_that_nobody_has_goes_back_and_its_records_with_it(begin, tmp_path, workers, how):
    """To the end of the second of four epochs, as the chief has kept it: what was trained since then is trained again."""
    place, roles = tmp_path / "out", ["chief-0", *(["worker-0"] if workers == "1" else [])]
    command = (*DDP, "--place", str(place), "--epochs", "4", "--seconds", "0.03")
    job = begin("--workers", workers, command=command)
    epochs = lambda: {row[3] for rows in lines(place, "step").values() for row in rows}  # noqa: E731
    job.until(lambda: "2" in epochs(), "the third epoch")
    reached = step(place)
    job.until(lambda: step(place) > reached + 15, "its middle")
    before = {role: job.pid(role) for role in roles}
    if how == "killed":
        for role in roles:
            job.kill(role)
    else:
        job.process.send_signal(signal.SIGINT)
        job.end()
        job = RealJob(job.directory, ("--strategy", "allreduce", "--resume", "--workers", workers), command)
    try:
        assert job.end() == 0, job.output
    finally:
        job.close()
    old = {f"{rank}.{pid}" for rank, pid in enumerate(before.values())}
    rows = lines(place, "step")
    kept = max(int(row[0]) for name in old for row in rows[name] if row[3] == "1")
    again = {name: found for name, found in rows.items() if name not in old and found}
    assert min(int(row[0]) for found in again.values() for row in found) == kept + 1
    assert {row[3] for found in again.values() for row in found} == {"2", "3"}, "two are over"
    ends = {one["dataset"]: (one["trained"], one["before"]) for one in job.events("ledger_rewound")}
    assert [trained for trained, _ in ends.values()] == [1600, 1600, 0] and list(ends.values())[2][1] > 0
    data = job.summary()["data"]
    assert data["trained"] == 4 * 1600 and data["lost"] == 0, data
    if workers == "0":
        [found] = again.values()
        assert [int(row[0]) for row in found] == list(range(201, 401)), "each record has been in the model four times"
    for name in again:
        if name.startswith("0."):  # schedules are where the steps are
            assert [row for row in lines(place, "schedule")[name] if row[0] >= "2"] == [["2", "3"], ["3", "4"]]


def test_what_cannot_be_followed_ends_the_job_with_its_name(begin):
    job = begin("--workers", "1", command=(sys.executable, str(SCRIPTS / "gathers.py")))
    assert job.end() != 0
    assert "torch.distributed.all_gather cannot be followed where workers come and go" in job.output


def test_scripts_that_decide_by_counts_of_their_own_stay_equal_and_have_what_rank_0_broadcast(begin, tmp_path):
    """Rates by hand, a seed from rank 0, a file that is renamed: who comes later is not apart."""
    place, enough = tmp_path / "out", tmp_path / "enough"
    command = (sys.executable, str(SCRIPTS / "counts.py"), "--place", str(place), "--until", str(enough))
    job = begin("--workers", "1", command=command)
    wait_together(job, place, 2)
    assert job.scale(workers=2).outcome == "committed"
    wait_together(job, place, 3)
    killed = job.kill("chief-0")
    job.until(lambda: job.pid("chief-0") != killed, "another process of chief-0")
    wait_together(job, place, 3)
    enough.touch()
    assert job.end() == 0, job.output
    known = defaultdict(set)
    for rows in lines(place, "step").values():
        for number, state, seed, _ in rows:
            known[number].add((state, seed))
    assert {number: found for number, found in known.items() if len(found) > 1} == {}
    assert len({seed for found in known.values() for _, seed in found}) == 1
    assert (place / "model.pt").exists() and not (place / "model.tmp").exists()


def test_what_rank_0_prepares_is_there_for_all_until_the_first_step(begin, tmp_path):
    job = begin("--workers", "1", command=(sys.executable, str(SCRIPTS / "checkpoint.py"), str(tmp_path / "file")))
    assert job.end() == 0, job.output
    said = "".join(file.read_text() for file in (job.directory / "logs").glob("*.log"))
    assert {line for line in said.splitlines() if "is through" in line} == {
        f"rank {one} of 2 is through" for one in (0, 1)
    }


@pytest.mark.parametrize("words", [(), ("joined",)])
def test_processes_that_a_script_starts_itself_are_refused_by_name(begin, words):
    job = begin("--workers", "1", command=(sys.executable, str(SCRIPTS / "processes.py"), *words))
    assert job.end() != 0
    assert "init_process_group in a process that a role has started" in job.output
