"""The end of a job in a cluster, with a real AIMaster and agents that pretend."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from deeprec_ext.aimaster.kubernetes import ending
from deeprec_ext.aimaster.kubernetes.ending import Ending
from tests.unit.aimaster.world import SETTINGS, World, world
from tests.unit.autoscaler.policy.jobs import recorded_job


class Cluster:
    """The part of the backend that the world's own one lacks."""

    def __init__(self, it: World) -> None:
        self._it, self.closed = it, False

    def alive(self) -> list[str]:
        return [name for name, state in self._it.backend.pods.items() if state.state == "running"]


def run(
    tmp_path: Path, test: Callable[[World, Ending, Cluster], Coroutine[Any, Any, None]], **spec: Any
) -> dict[str, Any]:
    async def main() -> None:
        async with world(tmp_path, **spec) as it:
            cluster = Cluster(it)
            await test(it, Ending(it.master.job, it.master.pods, cluster, tmp_path / "termination-log"), cluster)

    asyncio.run(main())
    summary: dict[str, Any] = json.loads((tmp_path / "summary.json").read_text())
    return summary


def test_after_the_chief_s_success_workers_leave_then_ps_exit_by_themselves(tmp_path: Path) -> None:
    async def test(it: World, end: Ending, cluster: Cluster) -> None:
        ending_ = asyncio.ensure_future(end.run())
        await asyncio.sleep(0)
        assert not cluster.closed
        it.backend.exit("chief-0", 0)
        assert await ending_ == 0 and cluster.closed
        assert all(state.exit_code == 0 for state in it.backend.pods.values()), "everybody left by itself"
        assert it.backend.deleted == [], "ended pods stay for their logs"
        order = [event[3] for event in it.master.job.store.events(0, 1000) if event[2] == "exited"]
        assert order[:2] == ["chief-0", "worker-0"] and set(order[2:]) == {"ps-0", "ps-1"}
        assert it.master.job.ending == "finished"

    summary = run(tmp_path, test)
    assert summary["status"] == "succeeded" and summary["roles"]["ps-0"] == {"started": 1, "restarted": 0}
    assert summary["failures"] == [] and "reason" not in summary
    assert not (tmp_path / "termination-log").exists()


def test_the_summary_tells_what_the_decisions_have_brought(tmp_path: Path) -> None:
    played = recorded_job(tmp_path)

    async def test(it: World, end: Ending, cluster: Cluster) -> None:
        ending_ = asyncio.ensure_future(end.run())
        await asyncio.sleep(0)
        it.backend.exit("chief-0", 0)
        assert await ending_ == 0

    told = run(tmp_path, test)["estimator"]
    assert told["changes"] == len(played.decisions) > 1 and told["mape_holdout"] > 0
    assert told["brought"]["first"] == {"ps": 1, "workers": 1} and told["brought"]["gained"] > 0.3


def test_who_does_not_go_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "STOP_GRACE_SECONDS", 0.1)

    async def test(it: World, end: Ending, cluster: Cluster) -> None:
        it.agent("worker-0").mute.add("leave")
        it.agent("ps-1").mute.add("leave")
        it.backend.exit("chief-0", 0)
        assert await end.run() == 0
        assert it.backend.deleted == ["worker-0", "ps-1"]
        assert not cluster.alive()

    settings = SETTINGS.__class__(**{**vars(SETTINGS), "finish_grace_seconds": 0.2})
    assert run(tmp_path, test, settings=settings)["status"] == "succeeded"


def test_a_job_that_fails_is_stopped_and_says_why(tmp_path: Path) -> None:
    async def test(it: World, end: Ending, cluster: Cluster) -> None:
        it.backend.exit("chief-0", 1)
        assert await end.run() == 1
        assert not cluster.alive() and cluster.closed and sorted(it.backend.deleted) == ["ps-0", "ps-1", "worker-0"]

    summary = run(tmp_path, test)
    assert summary["status"] == "failed"
    assert summary["reason"] == "chief-0 exited with code 1 and is not started again"
    assert (tmp_path / "termination-log").read_text() == summary["reason"]


def test_a_restarted_aimaster_ends_what_had_begun_to_end(tmp_path: Path) -> None:
    async def test(it: World, end: Ending, cluster: Cluster) -> None:
        it.agent("worker-0").mute.add("leave")
        it.backend.exit("chief-0", 0)
        await it.until(lambda: it.master.job.ending == "finishing")
        await it.crash()
        await it.start()
        await it.until(lambda: len(it.master.pods.seen) == 4)
        it.backend.exit("worker-0", 0)
        again = Ending(it.master.job, it.master.pods, cluster, tmp_path / "termination-log")
        assert await again.run() == 0

    assert run(tmp_path, test)["status"] == "succeeded"


def test_a_failed_job_stays_failed(tmp_path: Path) -> None:
    """The kubelet starts the AIMaster again after exit code 1: it says the same again."""

    async def test(it: World, end: Ending, cluster: Cluster) -> None:
        it.backend.exit("chief-0", 1)
        assert await end.run() == 1
        await it.crash()
        await it.start()
        again = Ending(it.master.job, it.master.pods, cluster, tmp_path / "again")
        assert await again.run() == 1
        assert (tmp_path / "again").read_text().startswith("chief-0 exited with code 1")

    run(tmp_path, test)
