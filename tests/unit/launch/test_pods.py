"""What watchers are told of pods."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from deeprec_ext.aimaster.pods.restarting import Action, Verdict
from deeprec_ext.errors import UsageError
from deeprec_ext.launch.resources import Requests
from deeprec_ext.launch.roles import supervisor as module
from deeprec_ext.launch.roles.guard import Guard
from deeprec_ext.launch.roles.local import LocalRunner
from deeprec_ext.launch.roles.runner import Command, JobOutline
from deeprec_ext.launch.roles.supervisor import Pod, Pods

ABOUT = JobOutline("test", Path(), Requests())


def test_a_watcher_that_comes_while_a_pod_is_being_started_is_not_told_that_it_has_exited(tmp_path: Path) -> None:
    async def judge(pod: Pod, code: int, by_signal: bool) -> Verdict:
        return Verdict(Action.DONE)

    def command_of(pod: Pod) -> Command:
        return Command(("sleep", "100"), dict(os.environ))

    async def scenario() -> list[str]:
        guard = Guard()
        pods = Pods(command_of, lambda name: tmp_path / name, judge, LocalRunner(ABOUT, guard))
        starting = asyncio.ensure_future(pods.create("ps-0", "ps", 0))
        await asyncio.sleep(0)  # it is being forked
        assert not starting.done()
        told = [(await asyncio.wait_for(pods.watch().__anext__(), 10)).state]
        await starting
        pods.close()
        await pods.stop(["ps-0"], 0)
        guard.close()
        return told

    assert asyncio.run(scenario()) == ["running"]


def ended(tmp_path: Path, script: str, pid_of: Callable[[Pods], int]) -> list[tuple[int, bool]]:
    """Exit code and "by a signal", as judged, of a pod whose process is ended with the code 3."""

    async def scenario() -> list[tuple[int, bool]]:
        judged: list[tuple[int, bool]] = []

        async def judge(pod: Pod, code: int, by_signal: bool) -> Verdict:
            judged.append((code, by_signal))
            return Verdict(Action.DONE)

        def command_of(pod: Pod) -> Command:
            return Command(("bash", "-c", script), dict(os.environ))

        guard = Guard()
        pods = Pods(command_of, lambda name: tmp_path / name, judge, LocalRunner(ABOUT, guard))
        await pods.create("worker-0", "worker", 0)
        deadline = time.monotonic() + 20
        while not (pid := pid_of(pods)) and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        pods.end("worker-0", os.getpid(), 3)  # of another group: nothing happens to this very process
        pods.end("worker-0", pid, 3)
        exited = await pods.wait_exited(["worker-0"], 20)
        pods.close()
        await pods.stop(["worker-0"], 0)
        guard.close()
        assert exited
        return judged

    return asyncio.run(scenario())


def test_a_process_that_outstays_its_script_ends_with_the_code_of_the_script(tmp_path: Path) -> None:
    assert ended(tmp_path, "exec sleep 100", lambda pods: pods.all()[0].pid) == [(3, False)]


def test_what_the_command_of_a_role_does_after_a_process_that_had_to_be_ended_goes_on(tmp_path: Path) -> None:
    def child(pods: Pods) -> int:
        told = tmp_path / "child"
        return int(told.read_text() or 0) if told.exists() else 0

    script = f"sleep 100 & echo $! > {tmp_path}/child; wait $!; echo exported > {tmp_path}/after; exit 5"
    assert ended(tmp_path, script, child) == [(5, False)]
    assert (tmp_path / "after").read_text() == "exported\n"


@pytest.mark.parametrize("role, steady_seconds, counted", [
    ("aimaster", 0.0, [0, 0, 0, 0]), ("aimaster", 600.0, [0, 1, 2, 3]), ("ps", 0.0, [0, 1, 2, 3]),
])  # fmt: skip
def test_an_aimaster_that_is_killed_now_and_then_never_uses_up_its_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str, steady_seconds: float, counted: list[int]
) -> None:
    """As a memory limit does it."""
    monkeypatch.setattr(module, "STEADY_SECONDS", steady_seconds)

    async def scenario() -> list[int]:
        seen: list[int] = []

        async def judge(pod: Pod, code: int, by_signal: bool) -> Verdict:
            assert by_signal
            seen.append(pod.recent_restarts)
            return Verdict(Action.RESTART if len(seen) < 4 else Action.DONE)

        def command_of(pod: Pod) -> Command:
            return Command(("bash", "-c", "kill -9 $$"), dict(os.environ))

        guard = Guard()
        pods = Pods(command_of, lambda name: tmp_path / name, judge, LocalRunner(ABOUT, guard))
        await pods.create(role if role == "aimaster" else "ps-0", role, 0)
        assert await pods.wait_exited(["aimaster", "ps-0"], 30)
        pods.close()
        guard.close()
        return seen

    assert asyncio.run(scenario()) == counted


def test_what_keeps_a_pod_from_being_started_again_for_a_while_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk (its certificate, a pipe), or a cgroup that refuses its limits."""
    monkeypatch.setattr(module, "START_AGAIN_SECONDS", 0.0)
    trouble: list[Exception] = [OSError(28, "no space left"), UsageError("ps-0 cannot be limited to 1 core")]

    async def scenario() -> int:
        async def judge(pod: Pod, code: int, by_signal: bool) -> Verdict:
            return Verdict(Action.RESTART if pod.restarts < 1 else Action.DONE)

        def command_of(pod: Pod) -> Command:
            if pod.restarts and trouble:
                raise trouble.pop(0)
            return Command(("false",), dict(os.environ))

        guard = Guard()
        pods = Pods(command_of, lambda name: tmp_path / name, judge, LocalRunner(ABOUT, guard))
        pod = await pods.create("ps-0", "ps", 0)
        assert pod.supervisor is not None
        assert await pods.wait_exited(["ps-0"], 30)
        pods.close()
        guard.close()
        pod.supervisor.result()  # it has not died of it
        return pod.restarts

    assert asyncio.run(scenario()) == 1
    assert not trouble


@pytest.mark.parametrize("counts, counted", [(True, [0, 1, 2]), (False, [0, 0, 0])])
def test_restarts_that_do_not_count_are_not_counted(tmp_path: Path, counts: bool, counted: list[int]) -> None:
    async def scenario() -> list[int]:
        seen: list[int] = []

        async def judge(pod: Pod, code: int, by_signal: bool) -> Verdict:
            assert pod.recent_restarts == pod.recent_error_restarts
            seen.append(pod.recent_error_restarts)
            return Verdict(Action.RESTART if len(seen) < 3 else Action.DONE, counts=counts)

        def command_of(pod: Pod) -> Command:
            return Command(("false",), dict(os.environ))

        guard = Guard()
        pods = Pods(command_of, lambda name: tmp_path / name, judge, LocalRunner(ABOUT, guard))
        pod = await pods.create("chief-0", "chief", 0)
        assert await pods.wait_exited(["chief-0"], 30)
        pods.close()
        guard.close()
        assert pod.restarts == 2
        return seen

    assert asyncio.run(scenario()) == counted


async def supervised(
    tmp_path: Path, judge: module.Judge, command_of: Callable[[Pod], Command]
) -> tuple[Pod, list[str]]:
    """A pod whose supervisor has ended, and whom the launcher was told that nobody looks after."""
    guard, broken = Guard(), []
    pods = Pods(command_of, lambda name: tmp_path / name, judge, LocalRunner(ABOUT, guard))
    pods.broke = lambda name, error: broken.append(f"{name}: {error}")
    watch = pods.watch()
    pod = await pods.create("ps-0", "ps", 0)
    assert pod.supervisor is not None
    try:
        assert await pods.wait_exited(["ps-0"], 30)
        pod.supervisor.result()  # it has not died of it
        if broken:  # who watches learns that it is not started again
            status = await asyncio.wait_for(watch.__anext__(), 10)
            assert (status.state, status.restarting) == ("exited", False)
    finally:
        await watch.aclose()  # type: ignore[attr-defined]
        pods.close()
        guard.close()
    return pod, broken


@pytest.mark.parametrize("where", ["judge", "start"])
@pytest.mark.parametrize("times, told", [(2, False), (1000, True)])
def test_a_defect_of_the_launcher_leaves_no_pod_with_nobody_who_looks_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, times: int, told: bool
) -> None:
    monkeypatch.setattr(module, "START_AGAIN_SECONDS", 0.0)
    left = [times]

    def defect(here: str) -> None:
        if where == here and left[0]:
            left[0] -= 1
            raise RuntimeError("a defect")

    async def judge(pod: Pod, code: int, by_signal: bool) -> Verdict:
        defect("judge")
        return Verdict(Action.RESTART if pod.restarts < 1 else Action.DONE)

    def command_of(pod: Pod) -> Command:
        if pod.restarts:
            defect("start")
        return Command(("false",), dict(os.environ))

    pod, broken = asyncio.run(supervised(tmp_path, judge, command_of))
    assert broken == (["ps-0: a defect"] if told else [])
    assert not pod.running and not pod.restarting
    assert told or pod.starts == 2 + (times if where == "start" else 0)
