"""Roles as jobs of Slurm, without one: how its words are read, what it is asked, and how often."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from deeprec_ext.errors import UsageError
from deeprec_ext.launch.resources import Requests, Resources
from deeprec_ext.launch.roles import slurm as module
from deeprec_ext.launch.roles.guard import Guard
from deeprec_ext.launch.roles.printing import Printing
from deeprec_ext.launch.roles.runner import Command, JobOutline
from deeprec_ext.launch.roles.slurm import SlurmRunner, Told, address_towards, clean, past, role_argument


@pytest.mark.parametrize("words, code, cause", [
    ("COMPLETED|0|n1|None", (0, False), ""),
    ("FAILED|768|n1|NonZeroExitCode", (3, False), ""),
    ("FAILED|11|n1|JobLaunchFailure", (139, True), ""),
    ("OUT_OF_MEMORY|253|n1|OutOfMemory", (137, True), "oom: memory limit of 1.0 GB"),
    ("TIMEOUT|15|n1|TimeLimit", (137, True), "the time limit of its Slurm job"),
    ("NODE_FAIL|0|n1|NodeDown", (137, True), "node lost (n1)"),
    ("PREEMPTED|0|n1|None", (137, True), "preempted"),
    ("CANCELLED by 100|15|n1|None", (137, True), "deleted: not by the launcher"),
    ("FAILED|256|(null)|BadConstraints", (1, False), "refused by Slurm: BadConstraints"),
])  # fmt: skip
def test_an_end_in_slurms_words(words: str, code: tuple[int, bool], cause: str) -> None:
    told = Told.parse(words.split("|"))
    assert (told.exit_code(), told.cause(10**9, asked=False)) == (code, cause)


def test_an_end_that_was_asked_for_has_no_cause_of_its_own() -> None:
    assert Told("CANCELLED", 15, "n1").cause(0, asked=True) == ""
    assert Told("NODE_FAIL", 0, "n1").cause(0, asked=True) == "node lost (n1)"


@pytest.mark.parametrize("text, told", [
    ("JobId=6 JobState=OUT_OF_MEMORY Reason=OutOfMemory ExitCode=0:125 NodeList=n2", Told("OUT_OF_MEMORY", 125, "n2")),
    ("JobId=6 JobState=RUNNING ExitCode=0:0 NodeList=n2", None),
    ("FAILED|5:0|n3\n", Told("FAILED", 5 << 8, "n3")),
    ("CANCELLED by 0|0:15|n3", Told("CANCELLED", 15, "n3")),
    ("", None),
])  # fmt: skip
def test_what_scontrol_and_sacct_remember(text: str, told: Told | None) -> None:
    assert past(text) == told


def test_arguments_are_for_all_roles_or_for_one() -> None:
    assert role_argument("--partition=long") == ("", "--partition=long")
    assert role_argument("worker:--gres=gpu:1") == ("worker", "--gres=gpu:1")
    with pytest.raises(UsageError, match="write an option of sbatch"):
        role_argument("nobody:--gres=gpu:1")


def test_the_launchers_own_job_says_nothing_about_those_of_the_roles() -> None:
    given = {"SLURM_CONF": "a", "SLURM_MEM_PER_NODE": "1", "SBATCH_PARTITION": "long", "PATH": "/bin"}
    assert clean(given) == {"SLURM_CONF": "a", "SBATCH_PARTITION": "long", "PATH": "/bin"}


def test_the_address_of_this_machine_is_the_one_towards_the_nodes() -> None:
    assert address_towards(["no.such.node.invalid", "127.0.0.1"]) == "127.0.0.1"
    with pytest.raises(UsageError, match=r"no address of a node is known here: no\.such\.node\.invalid"):
        address_towards(["no.such.node.invalid"])


def test_where_there_is_no_slurm_a_run_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    guard = Guard()
    with pytest.raises(UsageError, match="sbatch, squeue, scancel, sinfo is not on the PATH"):
        SlurmRunner(JobOutline("job", tmp_path, Requests()), guard)
    guard.close()


FAKES = {
    "sinfo": "echo 127.0.0.1",
    "sbatch": 'cat > {at}/script; echo $$ >> {at}/jobs; echo $$; for word in "$@"; do echo "$word" >> {at}/words; done',
    "squeue": 'echo x >> {at}/asked; [ "$3" = "--states=all" ] || exit 0; '
    'while read job; do echo "$job|RUNNING|0|n1|None|"; done < {at}/jobs',
    "scancel": 'echo "$@" >> {at}/cancelled',
}


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with what the commands of a Slurm were asked, in which everything runs for ever."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, script in FAKES.items():
        (programs / name).write_text("#!/bin/sh\n" + script.format(at=tmp_path) + "\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return tmp_path


def with_runner(directory: Path, scenario: Callable[[SlurmRunner], Awaitable[None]], *arguments: str) -> None:
    async def run() -> None:
        guard = Guard()
        runner = SlurmRunner(
            JobOutline("job", directory, Requests(Resources(1.5, 1 << 30), Resources()), arguments), guard
        )
        await runner.begin()
        try:
            await scenario(runner)
        finally:
            await runner.close()
            guard.close()

    asyncio.run(run())


def test_what_a_role_requests_and_what_the_user_adds_go_to_sbatch(fakes: Path) -> None:
    async def scenario(runner: SlurmRunner) -> None:
        command = Command(("python", "it's.py"), {"PATH": os.environ["PATH"]}, umask=0o022)
        job = await runner.start("ps-1", 2, command, Printing(fakes / "logs" / "ps-1.log"), None)
        assert job.limit_bytes == 1 << 30
        words = (fakes / "words").read_text().splitlines()
        assert {"--no-requeue", "--job-name=job.ps-1", "--cpus-per-task=2", "--mem=1024M", "--partition=long"} <= set(
            words
        )
        assert "--gres=gpu:1" not in words
        assert f"--output={fakes}/logs/ps-1.log" in words
        script = (fakes / "script").read_text().splitlines()
        assert script[0] == "#!/bin/bash"
        assert "umask 22" in script
        assert script[-1] == """exec python 'it'"'"'s.py'"""
        assert runner.resize("ps", Resources(memory_bytes=2 << 30)) == []
        assert runner.resources("ps-2") == Resources(1.5, 2 << 30)
        with pytest.raises(UsageError, match="keeps its size"):
            runner.resize("ps-1", Resources(memory_bytes=2 << 30))

    with_runner(fakes, scenario, "--partition=long", "worker:--gres=gpu:1")


def test_a_thousand_roles_cost_one_question_and_one_signal(fakes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_SECONDS", 0.05)

    async def scenario(runner: SlurmRunner) -> None:
        jobs = []
        for number in range(1000):
            job = module.SlurmJob(str(number), runner, fakes / "slurm" / f"worker-{number}")
            job.pid_file.write_text(str(number + 1))
            runner._jobs[job.number] = job
            jobs.append(job)
        (fakes / "jobs").write_text("".join(f"{number}\n" for number in range(1000)))
        (fakes / "asked").unlink()
        began = time.monotonic()
        assert all(await asyncio.wait_for(asyncio.gather(*(job.begun() for job in jobs)), 30))
        seconds = time.monotonic() - began
        assert [job.pid for job in jobs] == list(range(1, 1001))
        assert len((fakes / "asked").read_text().split()) <= 2 + seconds / 0.05
        for job in jobs:
            job.signal(signal.SIGTERM)
        while not (fakes / "cancelled").exists() or not (fakes / "cancelled").read_text().endswith("\n"):
            await asyncio.sleep(0.01)
        lines = (fakes / "cancelled").read_text().splitlines()
        assert len(lines) == 1
        assert lines[0].split()[:3] == ["--quiet", "--signal=15", "--full"]
        assert len(lines[0].split()) == 1003

    with_runner(fakes, scenario)
