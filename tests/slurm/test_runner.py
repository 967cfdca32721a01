"""Jobs of a real Slurm as the supervisor sees them: exit codes, causes, waiting, signals, and what a killed launcher leaves."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from deeprec_ext.errors import UsageError
from deeprec_ext.launch.resources import Requests, Resources
from deeprec_ext.launch.roles.guard import Guard
from deeprec_ext.launch.roles.printing import Printing
from deeprec_ext.launch.roles.runner import Command, JobOutline
from deeprec_ext.launch.roles.slurm import SlurmJob, SlurmRunner
from tests.slurm.test_slurm import jobs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120), pytest.mark.usefixtures("cluster")]
ROOT = Path(__file__).resolve().parent.parent.parent
LIMIT_SECONDS = 40.0


class Roles:
    """Starts roles that are shell scripts."""

    def __init__(self, directory: Path, runner: SlurmRunner) -> None:
        self.directory, self.runner = directory, runner

    async def start(self, script: str, name: str = "worker-0", number: int = 1, cpu: float = 0.0) -> SlurmJob:
        command = Command(("bash", "-c", script), dict(os.environ), umask=0o027)
        printing = Printing(self.directory / "logs" / f"{name}.log")
        return await self.runner.start(name, number, command, printing, Resources(cpu=cpu))

    async def ended(self, script: str, name: str = "worker-0") -> SlurmJob:
        job = await self.start(script, name)
        await asyncio.wait_for(job.wait(), LIMIT_SECONDS)
        return job


def with_roles(directory: Path, scenario: Callable[[Roles], Awaitable[None]], *arguments: str, memory: int = 0) -> None:
    async def run() -> None:
        guard = Guard()
        requests = Requests(worker=Resources(memory_bytes=memory))
        runner = SlurmRunner(JobOutline("test", directory, requests, arguments), guard)
        try:
            await runner.begin()
            await scenario(Roles(directory, runner))
        finally:
            await runner.close()
            guard.close()

    (directory / "logs").mkdir(exist_ok=True)
    asyncio.run(run())


def test_an_end_is_told_as_on_one_machine(tmp_path: Path) -> None:
    async def scenario(roles: Roles) -> None:
        told = tmp_path / "told"
        script = f'echo "$DEEPREC_EXT_ADDRESS $(umask)" > {told}; exit 0'
        ends = [await roles.ended(one) for one in (script, "exit 3", "kill -SEGV $$")]
        assert [(one.code, one.killed_by_signal) for one in ends] == [(0, False), (3, False), (139, True)]
        assert [one.cause for one in ends] == ["", "", ""]
        assert told.read_text().split() == ["127.0.0.1:0", "0027"]
        assert ends[0].pid != 0

    with_roles(tmp_path, scenario)


def test_want_of_memory_is_told_with_the_limit(tmp_path: Path) -> None:
    async def scenario(roles: Roles) -> None:
        job = await roles.ended(f"exec {sys.executable} -c 'bytearray(400 << 20)'")
        assert (job.code, job.killed_by_signal) == (137, True)
        assert job.cause == "oom: memory limit of 105 MB"

    with_roles(tmp_path, scenario, memory=100 << 20)


def test_one_without_a_place_says_what_it_waits_for_and_is_no_running_role(tmp_path: Path) -> None:
    async def scenario(roles: Roles) -> None:
        first = await roles.start("exec sleep 100", "worker-0", cpu=16)
        while not await asyncio.wait_for(first.begun(), LIMIT_SECONDS):  # Slurm looks for a place every few seconds
            pass
        second = await roles.start("exec sleep 100", "worker-1", cpu=16)
        while second.waiting not in ("Slurm: Resources", "Slurm: Priority"):  # before it has looked: Slurm: None
            assert not await asyncio.wait_for(second.begun(), LIMIT_SECONDS)
        assert second.pid == 0
        await asyncio.wait_for(first.stop(0), LIMIT_SECONDS)
        while not await asyncio.wait_for(second.begun(), LIMIT_SECONDS):
            pass
        assert second.pid > 0
        third = await roles.start("exec sleep 100", "worker-2", cpu=16)
        await asyncio.wait_for(third.stop(10), LIMIT_SECONDS)  # never began
        assert third.ended

    with_roles(tmp_path, scenario)


def test_signals_reach_it_and_a_grace_is_kept(tmp_path: Path) -> None:
    async def scenario(roles: Roles) -> None:
        polite = await roles.start(
            f"trap 'touch {tmp_path}/bye; exit 7' TERM; touch {tmp_path}/on; while :; do sleep 0.1; done"
        )
        while not (tmp_path / "on").exists():
            await asyncio.sleep(0.1)
        while not await polite.begun():
            pass
        polite.signal(signal.SIGSTOP)
        await asyncio.wait_for(polite.stop(20), LIMIT_SECONDS)
        assert (tmp_path / "bye").exists()
        assert (polite.code, polite.killed_by_signal) == (7, False)

        stubborn = await roles.start(
            f"trap '' TERM; echo on > {tmp_path}/stubborn; while :; do sleep 0.1; done", number=2
        )
        while not (tmp_path / "stubborn").exists() or not stubborn.pid:
            await asyncio.sleep(0.1)
        await asyncio.wait_for(stubborn.stop(0.5), LIMIT_SECONDS)
        assert (stubborn.code, stubborn.killed_by_signal, stubborn.cause) == (137, True, "")

    with_roles(tmp_path, scenario)


def test_what_sbatch_refuses_is_bad_usage_with_its_words(tmp_path: Path) -> None:
    async def scenario(roles: Roles) -> None:
        await roles.ended("exit 0", "ps-0")
        with pytest.raises(UsageError, match=r"worker-0: sbatch: error: .*partition"):
            await roles.start("exit 0")

    with_roles(tmp_path, scenario, "worker:--partition=nowhere")


def test_one_that_squeue_has_forgotten_is_asked_for_by_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(roles: Roles) -> None:
        ask = roles.runner._ask

        async def forgetful(*words: str, **more: object) -> str:
            answer = await ask(*words, **more)  # type: ignore[arg-type]
            return "" if words[0] == "squeue" else answer

        job = await roles.start("exit 5")
        while jobs():  # it has ended, as far as Slurm itself goes
            await asyncio.sleep(0.1)
        monkeypatch.setattr(roles.runner, "_ask", forgetful)
        job.told, job.code = None, -1
        roles.runner._jobs[job.number] = job
        assert await asyncio.wait_for(job.wait(), LIMIT_SECONDS) == 5

    with_roles(tmp_path, scenario)


LAUNCHER = """
import asyncio, sys
from pathlib import Path
from tests.slurm.test_runner import Roles, with_roles

async def scenario(roles):
    await roles.start("exec sleep 100", "ps-0")
    job = await roles.start("exec sleep 100", "ps-1")
    await job.begun()
    print("ready", flush=True)
    await asyncio.sleep(100)

with_roles(Path(sys.argv[1]), scenario)
"""


def gone(seconds: float = LIMIT_SECONDS) -> bool:
    deadline = time.monotonic() + seconds
    while jobs() and time.monotonic() < deadline:
        time.sleep(0.2)
    return not jobs()


def test_jobs_of_a_killed_launcher_end_by_its_guard(tmp_path: Path) -> None:
    words = [sys.executable, "-c", LAUNCHER, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == "ready\n"
        assert set(jobs()) == {"ps-0", "ps-1"}
        launcher.kill()
    assert gone()


def test_jobs_of_a_launcher_whose_machine_died_end_when_the_job_is_resumed(tmp_path: Path) -> None:
    comment = f"--comment=deeprec-ext {tmp_path}"
    for mine in (comment, "--comment=another"):
        words = ["sbatch", "--parsable", "--job-name=test.ps-0", mine, "--output=/dev/null", "--wrap=sleep 100"]
        subprocess.run(words, timeout=20, check=True)
    other = max(jobs().values(), key=int)

    async def scenario(roles: Roles) -> None:
        await asyncio.sleep(0)

    with_roles(tmp_path, scenario)
    while len(left := list(jobs().values())) > 1:
        time.sleep(0.2)
    assert left == [other]
    subprocess.run(["scancel", other], timeout=20, check=True)
    assert gone()
