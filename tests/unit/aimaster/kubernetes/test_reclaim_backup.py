"""A node is about to go, and nothing is free for the PS on it: a disk backup is written before it goes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from deeprec_ext.aimaster.kubernetes.reclaim import Reclaim
from deeprec_ext.aimaster.rpc import admission
from deeprec_ext.aimaster.rpc.admission import Admission
from deeprec_ext.arbiter.observed import Allowance
from deeprec_ext.errors import StaleError
from deeprec_ext.proto import PROTOCOL_MAJOR
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.aimaster.backups.test_disk import events, job
from tests.unit.aimaster.kubernetes.fake_api import FakeApi
from tests.unit.aimaster.kubernetes.test_following import Cluster


async def short(seconds: float) -> None:
    await asyncio.sleep(seconds / 20)


@pytest.mark.parametrize("room", [False, True])
def test_a_backup_is_written_where_nothing_is_free_for_the_replacement(tmp_path: Path, room: bool) -> None:
    async def main() -> None:
        async with job(tmp_path, disk_backup_seconds=1000.0) as world:  # type: ignore[no-untyped-call]
            if not room:
                world.backend.queued.add("ps-2")
            scalings, before = world.master.scalings, len(events(world, "disk_backup"))  # type: ignore[no-untyped-call]
            reclaim = Reclaim(FakeApi(), world.master.job, scalings, Cluster(world), sleep=short)  # type: ignore[arg-type]
            reclaim.notice("ps-1", "node n has the taint of its provider")
            ended = await world.ended()
            if room:
                assert ended.outcome == "committed"
                await world.until(lambda: not reclaim._answering)
                assert not events(world, "reclaim_backup")  # type: ignore[no-untyped-call]
                return
            assert ended.outcome == "rolled_back" and "a disk backup is written first" in ended.reason
            await world.until(lambda: bool(events(world, "reclaim_backup")))  # type: ignore[no-untyped-call]
            [told] = events(world, "reclaim_backup")  # type: ignore[no-untyped-call]
            assert told["written"] and len(events(world, "disk_backup")) > before  # type: ignore[no-untyped-call]
            await world.until(lambda: scalings.running is not None)
            assert scalings.running.scaling.replace == "ps-1", "room may come: it is tried again"
            reclaim.close()

    asyncio.run(asyncio.wait_for(main(), 40))


def test_nobody_is_replaced_who_leaves_because_the_arbiter_allows_fewer(tmp_path: Path) -> None:
    async def main() -> None:
        async with job(tmp_path) as world:  # type: ignore[no-untyped-call]
            master, workers = world.master, world.master.job.members.wanted(pb.WORKER)
            master.job.allowed.set(Allowance("ctr", True, 2, len(workers) - 1, 1.0, "a serving pod waits"))
            reclaim = Reclaim(FakeApi(), master.job, master.scalings, Cluster(world), sleep=short)  # type: ignore[arg-type]
            reclaim.notice(workers[0], "deleted: not by the AIMaster")
            await world.until(lambda: bool(events(world, "reclaimed")))  # type: ignore[no-untyped-call]
            [told] = events(world, "reclaimed")  # type: ignore[no-untyped-call]
            assert "it leaves before others" in told["answer"]
            assert not any(one.replace for one in master.scalings.records())
            reclaim.close()

    asyncio.run(asyncio.wait_for(main(), 40))


def test_a_process_whose_pod_is_being_deleted_does_not_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its signal may have come before anybody handled it; the pod would be kept, and its room, for the whole grace."""

    monkeypatch.setattr(admission, "SIGNAL_SECONDS", 0.05)

    async def main() -> None:
        async with job(tmp_path) as world:  # type: ignore[no-untyped-call]
            master = world.master
            master.job.members.request("worker-9")
            reclaim = Reclaim(FakeApi(), master.job, master.scalings, Here(), sleep=short)  # type: ignore[arg-type]
            reclaim.deleted("worker-9", "preempted")
            request = pb.RegisterRequest(
                protocol_major=PROTOCOL_MAJOR, role=pb.WORKER, index=9, incarnation="old", job=master.job.spec.name
            )
            assert master.job.reclaimed["worker-9"] == ""
            with pytest.raises(StaleError, match="the pod of worker-9 is being deleted; end the process"):
                await Admission(master.job, master._failover).register(request, None)
            Here.there = False  # it has gone
            master.job.changed.notify()
            await world.until(lambda: not reclaim._answering)
            assert "worker-9" not in master.job.reclaimed, "the next of this name may come"
            assert master.scalings.records() == []

    asyncio.run(asyncio.wait_for(main(), 40))


class Here:
    there = True

    def runs(self, name: str) -> bool:
        return self.there


def test_a_taint_keeps_nobody_from_joining(tmp_path: Path) -> None:
    """An AIMaster that has just begun knows nobody yet."""

    async def main() -> None:
        async with job(tmp_path) as world:  # type: ignore[no-untyped-call]
            master = world.master
            known = master.job.members.get("ps-0").incarnation
            master.job.members.request("worker-9")
            reclaim = Reclaim(FakeApi(), master.job, master.scalings, Here(), sleep=short)  # type: ignore[arg-type]
            for name in ("worker-9", "ps-0"):
                reclaim.notice(name, "its node has a taint")
            assert master.job.reclaimed == {"ps-0": known}
            reclaim.close()

    asyncio.run(asyncio.wait_for(main(), 40))
