"""What watchers are told of pods."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from deeprec_ext.aimaster.restarting import Action, Verdict
from deeprec_ext.launch.containers import open_containers
from deeprec_ext.launch.guard import Guard
from deeprec_ext.launch.pods import Pod, Pods
from deeprec_ext.launch.process import Command
from deeprec_ext.launch.resources import Requests


def test_a_watcher_that_comes_while_a_pod_is_being_started_is_not_told_that_it_has_exited(tmp_path: Path) -> None:
    async def judge(pod: Pod, code: int, by_signal: bool) -> Verdict:
        return Verdict(Action.DONE)

    def command_of(pod: Pod) -> Command:
        return Command(("sleep", "100"), dict(os.environ), pod.log)

    async def scenario() -> list[str]:
        guard = Guard()
        pods = Pods(command_of, lambda name: tmp_path / name, judge, guard, open_containers(Requests()))
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
