"""Pods that cannot be had at once."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path

import pytest

from deeprec_ext.aimaster.membership.globalstep import GlobalStep
from deeprec_ext.aimaster.pods import pods as module
from deeprec_ext.aimaster.pods.backend import PodState
from deeprec_ext.aimaster.state.lock import Hold
from deeprec_ext.errors import UnreachableError
from tests.unit.aimaster.world import World, world


@pytest.mark.parametrize("error", [UnreachableError("quota exceeded"), RuntimeError("of ours")])
@pytest.mark.parametrize("what", ["create", "delete"])
def test_a_restart_that_fails_is_tried_again_until_it_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, what: str
) -> None:
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.01, raising=False)

    async def scenario(it: World) -> None:
        failures, usual = [error] * 3, getattr(it.backend, what)

        async def fails(name: str, *rest: object) -> None:
            if name == "worker-0" and failures:
                raise failures.pop()
            await usual(name, *rest)

        setattr(it.backend, what, fails)
        before = it.agent("worker-0").incarnation
        it.master.pods.restart("worker-0")
        await it.until(lambda: not failures)
        await it.until(lambda: "worker-0" in it.backend.agents and it.agent("worker-0").incarnation != before)
        await it.until(lambda: it.agent("worker-0").registered > 0)
        told = [row[5] for row in it.master.job.store.events(0, 1000) if row[2] == "warning" and row[3] == "worker-0"]
        assert len(told) == 1 and "could not be started again" in told[0] and str(error) in told[0]
        assert not it.master.job.ending

    async def main() -> None:
        async with world(tmp_path) as it:
            await scenario(it)

    asyncio.run(main())


@pytest.mark.parametrize(("deleted", "code", "said"), [
    (True, 143, "ended with the job"), (True, 137, "ended with the job"), (True, 139, "killed by signal 11"),
    (False, 143, "killed by signal 15"),
])  # fmt: skip
@pytest.mark.parametrize("ending", ["finished", ""])
def test_a_ps_that_is_stopped_with_its_job_has_no_cause(
    tmp_path: Path, ending: str, deleted: bool, code: int, said: str
) -> None:
    """ending: that of the job, if the AIMaster knows it before (Ctrl-C: it does not)."""

    async def main() -> None:
        async with world(tmp_path) as it:
            if ending:
                it.master.job.end(ending)
            it.backend.exit("ps-0", code, deleted=deleted)
            await it.until(lambda: it.master.pods.exited("ps-0"))
            told = [json.loads(row[5]) for row in it.master.job.store.events(0, 1000) if row[2:4] == ("exited", "ps-0")]
            assert [one["cause"] for one in told] == [said]

    asyncio.run(main())


def test_a_worker_whose_restarts_are_used_up_is_given_up_and_another_may_take_its_name(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path, workers=2) as it:
            job = it.master.job
            await it.until(lambda: job.members.has_trained)
            it.backend.exit("worker-0", 1)
            await it.until(lambda: bool(job.notices.all))
            status = await it.status()
            assert status.state == "training" and not job.ending
            assert sorted(one.name for one in status.roles) == ["chief-0", "ps-0", "ps-1", "worker-1"]
            [told] = status.notices
            assert told.notice.code == "given-up" and told.notice.text.startswith("worker-0 exited with code 1; ")
            [noted] = job.store.scalings()
            assert (noted.kind, noted.from_count, noted.to_count, noted.outcome) == ("given-up", 2, 1, "committed")
            assert (
                not noted.asked
                and "worker-0 exited with code 1" in noted.reason
                and it.master.scalings.ended == [noted]
            )
            await it.scale(workers=2)
            assert (await it.ended(2)).outcome == "committed"
            assert "worker-0" in it.backend.agents and not job.ending

    asyncio.run(main())


@pytest.mark.parametrize("name", ["worker-0", "chief-0", "ps-1"])
def test_without_whom_no_job_goes_on_that_ends_it(tmp_path: Path, name: str) -> None:
    """A worker: where nobody has trained yet, as the script would fail everywhere."""

    async def main() -> None:
        async with world(tmp_path) as it:
            job = it.master.job
            if name == "worker-0":
                for agent in it.backend.agents.values():
                    agent.mute.add("heartbeat")
                await asyncio.sleep(0.2)
                job.members.trained.clear()
                job.members._step = GlobalStep(0)
            it.backend.exit(name, 1)
            await it.until(lambda: job.ending == "failed")
            assert job.failure == f"{name} exited with code 1 and is not started again"
            assert not job.notices.all

    asyncio.run(main())


def test_that_the_pod_before_is_deleted_too_is_no_end_of_the_one_that_has_its_name_now(tmp_path: Path) -> None:
    """A worker was scaled away, and wanted again at once: else the job would be taken for one that is being stopped."""

    async def main() -> None:
        async with world(tmp_path) as it:
            pods, job = it.master.pods, it.master.job
            job.members.update("worker-0", wanted=False)
            over = PodState("worker-0", "exited", exit_code=0)
            pods.apply(over)
            await pods.create("worker-0")
            pods.apply(dataclasses.replace(over, deleted=True))
            assert not job.lock.held(Hold.STOPPING)
            assert not job.members.records["worker-0"].ended
            await it.until(lambda: it.agent("worker-0").registered > 0)

    asyncio.run(main())
