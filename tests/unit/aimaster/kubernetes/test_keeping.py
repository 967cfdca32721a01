"""The AIMaster's pod is gone with its disk: what the ConfigMap brings back, and who may write it."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from deeprec_ext.aimaster.core.records import RoleRecord
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.kubernetes import keeping
from deeprec_ext.aimaster.kubernetes.keeping import Keeper, bring_back
from deeprec_ext.aimaster.kubernetes.snapshot import PACKED_BYTES_MAX, Snapshot, SnapshotError, pack, take, unpack
from deeprec_ext.aimaster.membership.view import AgreedCluster
from deeprec_ext.aimaster.reporting.summary import summarize
from deeprec_ext.aimaster.rpc.server import AIMaster
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.errors import StaleError, UnreachableError
from deeprec_ext.options import JobSpec
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.aimaster.kubernetes.fake_api import NAMESPACE, OWNER, FakeApi
from tests.unit.aimaster.ledger.test_job import ask, done, holding
from tests.unit.aimaster.world import World, world
from tfjob.model.kinds import CONFIG_MAPS

NAME = "ctr-aimaster-state"


def run(main: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 60))


async def no_sleep(seconds: float) -> None:
    await asyncio.sleep(0)


def keeper(api: FakeApi, holder: str) -> Keeper:
    return Keeper(
        api, NAMESPACE, NAME, holder=holder, owner={"uid": OWNER}, labels={"training.kubeflow.org/job-name": "ctr"},
        sleep=no_sleep,
    )  # type: ignore[arg-type]  # fmt: skip


class Pod(World):
    """An AIMaster with a keeper. Each start is a new pod: an empty disk, the same ConfigMap."""

    def __init__(self, workdir: Path, **spec: Any) -> None:
        super().__init__(workdir, **spec)
        self.api = FakeApi()
        self.pods = 0

    async def start(self) -> None:
        self.pods += 1
        workdir = self.spec.workdir.parent / f"pod-{self.pods}"
        workdir.mkdir()
        self.spec = dataclasses.replace(self.spec, workdir=workdir)
        self.keeper = keeper(self.api, f"pod-{self.pods}")
        snapshot = await self.keeper.load()
        await bring_back(self.spec, self.backend, None, self.address, snapshot)
        self.master = AIMaster(self.spec, self.backend, None, settle_seconds=1.0)
        await self.keeper.claim(self.master.job)
        self.address = f"127.0.0.1:{await self.master.start(self.address)}"

    def written(self) -> Snapshot:
        found = self.api.objects["configmaps", NAME]
        return unpack(base64.b64decode(found["binaryData"]["state"]))


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("tests.unit.aimaster.world.World", Pod)
    (tmp_path / "first").mkdir()
    return tmp_path / "first"


def snapshot(**changes: Any) -> Snapshot:
    return dataclasses.replace(
        Snapshot(3, "pod-1", AgreedCluster(epoch=4, next_epoch=5), pb.View(epoch=4).SerializeToString(), b"", core="x"),
        **changes,
    )


# ----------------------------------------------------------------------------------------------------------- the bytes


def test_a_snapshot_comes_back_as_it_was() -> None:
    before = snapshot(
        roles=(RoleRecord("ps-0", "running", "i1", 2, "host:1"),), fenced={"i0": "ps-0"}, moved={7: b"catalogue"},
        catalogue=b"model", remembered=(pb.Remember(key="job", number=5, value=b"history").SerializeToString(),),
    )  # fmt: skip
    packed, left_out = pack(before)
    assert unpack(packed) == before and left_out == ()
    assert before.stored.remembered[0].value == b"history" and before.stored.view.epoch == 4


def test_what_is_too_large_is_thinned_by_its_largest_tables_and_then_refused() -> None:
    def remember(key: str, size: int) -> bytes:
        return pb.Remember(key=key, value=os.urandom(size)).SerializeToString()

    large = snapshot(remembered=(remember("ledger", 100), remember("shards/a", 700_000), remember("shards/b", 800_000)))
    packed, left_out = pack(large)
    assert left_out == ("b",) and len(packed) <= PACKED_BYTES_MAX
    assert [one.key for one in unpack(packed).stored.remembered] == ["ledger", "shards/a"]
    with pytest.raises(SnapshotError, match="state-volume"):
        pack(snapshot(remembered=(remember("job", 2_000_000),)))


@pytest.mark.parametrize("packed", [b"", b"garbage", pack(snapshot())[0][:-20]])
def test_a_damaged_snapshot_says_what_to_do(packed: bytes) -> None:
    with pytest.raises(SnapshotError, match="delete the ConfigMap"):
        unpack(packed)


# ------------------------------------------------------------------------------------------------------------ who writes


def make_job(tmp_path: Path, name: str, incarnation: int) -> Job:
    workdir = tmp_path / name
    workdir.mkdir()
    store = Store(workdir / "aimaster.db")
    store.put(aimaster_incarnation=incarnation - 1)
    return Job(JobSpec(name="job", workdir=workdir, slots=8, ps=2, workers=1), store)


def test_an_older_aimaster_finds_out_and_ends(tmp_path: Path) -> None:
    async def main() -> None:
        api = FakeApi()
        old, new = make_job(tmp_path, "old", 1), make_job(tmp_path, "new", 2)
        first, second = keeper(api, "pod-1"), keeper(api, "pod-2")
        assert await first.load() is None
        await first.claim(old)
        found = await second.load()
        assert found is not None and found.incarnation == 1
        await second.claim(new)
        old.set_cluster(AgreedCluster(epoch=9))
        with pytest.raises(StaleError, match="AIMaster 2 keeps the state of this job; this one is 1"):
            await old.keep()
        assert old.stale.is_set() and not new.stale.is_set()
        current = await keeper(api, "x").load()
        assert current is not None and current.holder == "pod-2"
        with pytest.raises(StaleError):
            await keeper(api, "pod-1 again").claim(old)

    run(main())


def test_what_people_do_to_the_config_map_is_overruled(tmp_path: Path) -> None:
    async def main() -> None:
        api, job = FakeApi(), make_job(tmp_path, "job", 1)
        one = keeper(api, "pod-1")
        await one.claim(job)
        api.change(CONFIG_MAPS, NAME, {"metadata": {"labels": {"mine": "yes"}}})
        job.set_cluster(AgreedCluster(epoch=2))
        await job.keep()
        api.change(CONFIG_MAPS, NAME, {"binaryData": {"state": base64.b64encode(b"garbage").decode()}})
        job.set_cluster(AgreedCluster(epoch=3))
        await job.keep()
        api.vanish(CONFIG_MAPS, NAME)
        job.set_cluster(AgreedCluster(epoch=4))
        await job.keep()
        found = await keeper(api, "x").load()
        assert found is not None and found.cluster.epoch == 4 and not job.stale.is_set()

    run(main())


def test_what_an_earlier_job_of_the_name_has_left_is_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        api = FakeApi()
        before, job = make_job(tmp_path, "before", 7), make_job(tmp_path, "job", 1)
        earlier = keeper(api, "pod-0")
        earlier._owner = {"uid": "uid-of-another-job"}
        await earlier.claim(before)
        one = keeper(api, "pod-1")
        assert await one.load() is None
        await one.claim(job)
        found = await keeper(api, "x").load()
        assert found is not None and found.incarnation == 1 and not job.stale.is_set()

    run(main())


def test_what_has_not_changed_is_not_written_again(tmp_path: Path) -> None:
    async def main() -> None:
        api, job = FakeApi(), make_job(tmp_path, "job", 1)
        one = keeper(api, "pod-1")
        await one.claim(job)
        for _ in range(3):
            await job.keep()
        assert (api.count("create", CONFIG_MAPS), api.count("update", CONFIG_MAPS)) == (1, 0)
        owner = api.objects["configmaps", NAME]["metadata"]["ownerReferences"]
        assert owner == [{"uid": OWNER}], "it goes with the job"

    run(main())


def test_a_server_that_does_not_answer_holds_no_decision_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "DECISION_SECONDS", 0.01)

    async def main() -> None:
        api, job = FakeApi(), make_job(tmp_path, "job", 1)
        one = keeper(api, "pod-1")
        await one.claim(job)
        job.set_cluster(AgreedCluster(epoch=2))
        api.unreachable = 1
        await job.keep()
        hanging = asyncio.Event()

        async def hang(*_: object) -> None:
            await hanging.wait()

        api.replace = hang  # type: ignore[assignment,method-assign]
        await job.keep()
        del api.replace
        warnings = [row[5] for row in job.store.events(0, 100) if row[2] == "warning"]
        assert len(warnings) == 1 and "does not answer" in warnings[0]

    run(main())


def test_without_the_right_to_write_it_the_aimaster_does_not_start(tmp_path: Path) -> None:
    async def main() -> None:
        api, job = FakeApi(), make_job(tmp_path, "job", 1)
        api.forbidden = {("create", "configmaps")}
        with pytest.raises(UnreachableError, match=r'cannot be kept.*cannot create resource "configmaps"'):
            await keeper(api, "pod-1").claim(job)

    run(main())


def test_decisions_are_written_soon_and_progress_now_and_then(tmp_path: Path) -> None:
    async def main() -> None:
        api, job = FakeApi(), make_job(tmp_path, "job", 1)
        seconds: list[float] = []
        late = asyncio.Event()

        async def sleep(pause: float) -> None:
            seconds.append(pause)
            if len(seconds) == 2:
                job.store.put(metrics={"loss": 0.5})  # progress
            if len(seconds) == 8:
                job.set_cluster(AgreedCluster(epoch=2))  # a decision
            if len(seconds) > 10:
                await late.wait()
            await asyncio.sleep(0)

        one = Keeper(api, NAMESPACE, NAME, holder="pod-1", owner={}, labels={}, sleep=sleep)  # type: ignore[arg-type]
        await one.claim(job)
        seen: list[tuple[int, int]] = []
        put = api.replace

        async def replace(*arguments: Any) -> Any:
            seen.append((len(seconds), unpack(base64.b64decode(arguments[2]["binaryData"]["state"])).cluster.epoch))
            return await put(*arguments)

        api.replace = replace  # type: ignore[method-assign]
        running = asyncio.ensure_future(one.run())
        while len(seconds) <= 10:
            await asyncio.sleep(0)
        running.cancel()
        assert seen == [(5, 0), (8, 2)]

    run(main())


# ------------------------------------------------------------------------------------------------------- what comes back


def test_a_store_that_is_older_than_the_snapshot_is_stale(tmp_path: Path) -> None:
    async def main() -> None:
        job = make_job(tmp_path, "job", 2)
        job.close()
        with pytest.raises(StaleError, match="AIMaster 3 has gone on with this job; the store here is of 2"):
            await bring_back(job.spec, None, None, "", snapshot())  # type: ignore[arg-type]

    run(main())


def test_when_nobody_is_left_the_snapshot_is_the_store(pod: Path) -> None:
    async def main() -> None:
        async with world(pod) as it:
            assert isinstance(it, Pod)
            chief, worker = it.agent("chief-0"), it.agent("worker-0")
            [mine] = (await ask(it, worker, 1)).leases
            await ask(it, worker, progress=done(mine))
            await it.master.job.keep()
            [late] = (await ask(it, chief, 1)).leases
            await ask(it, chief, progress=done(late))  # the snapshot does not know it
            await it.scale(workers=2)
            assert (await it.ended()).outcome == "committed"  # its decision was awaited
            step, epoch = it.master.job.members.highest_step, it.master.job.cluster.epoch
            it.master.job.members.flush()
            await it.master.job.keep()
            await it.crash()
            for name in list(it.backend.agents):
                it.backend.exit(name, 137)
            it.backend.pods.clear()
            await it.start()
            job = it.master.job
            assert job.incarnation == 2 and job.resumed and job.members.highest_step >= step
            assert len(job.members.wanted(pb.WORKER)) == 2, "the size that was asked for"
            await it.until(lambda: job.cluster.live and job.cluster.generation == 2)
            assert job.cluster.epoch > epoch and min(ps.task for ps in job.cluster.ps) >= 2
            assert [one.outcome for one in job.store.scalings()] == ["committed"]

    run(main())


def test_what_was_acknowledged_since_the_snapshot_by_somebody_who_died_is_repeated_not_lost(pod: Path) -> None:
    async def main() -> None:
        async with world(pod, workers=2) as it:
            assert isinstance(it, Pod)
            chief, alive, dies = it.agent("chief-0"), it.agent("worker-0"), it.agent("worker-1")
            [before] = (await ask(it, dies, 1)).leases
            await ask(it, dies, progress=done(before))
            await it.master.job.keep()
            [after] = (await ask(it, dies, 1)).leases
            await ask(it, dies, progress=done(after))  # the last second
            [held] = (await ask(it, alive, 1)).leases
            for agent in it.backend.agents.values():
                agent.memory._remembered.clear()  # PS are as new as the snapshot
            await it.crash()
            it.backend.exit("worker-1", 137, restarting=True)
            alive.data = [holding((held, 4))]
            await it.start()
            await it.until(lambda: alive.known_aimaster == 2 and chief.known_aimaster == 2)
            while (reply := await ask(it, chief, 50)).leases:
                assert before.shard not in [lease.shard for lease in reply.leases if lease.epoch == before.epoch]
                await ask(it, chief, progress=[one for lease in reply.leases for one in done(lease)])
            assert not (await ask(it, alive, progress=done(held))).fenced, "who lives goes on with what it holds"
            data = summarize(it.master.job.store, status="", seconds=0.0, roles={})["data"]
            assert (data["records"], data["trained"], data["lost"], data["left"]) == (200, 200, 0, 0)
            assert data["repeated"] == after.records, "exactly what nobody remembered"

    run(main())


def test_a_decision_that_nobody_has_heard_of_yet_is_taken_back(pod: Path) -> None:
    """The next pod of the AIMaster may come when trainers have gone on with the old view."""

    async def main() -> None:
        async with world(pod) as it:
            assert isinstance(it, Pod)
            job, keep = it.master.job, it.master.job.keep_elsewhere
            decided = asyncio.Event()

            async def keep_and_die() -> None:
                await keep()
                decided.set()
                await asyncio.Event().wait()

            job.keep_elsewhere = keep_and_die
            await it.scale(ps=3)
            await decided.wait()
            assert len(it.written().cluster.ps) == 3
            assert "destroy" not in it.agent("ps-0").told and "commit" not in it.agent("worker-0").told
            await it.crash()
            await it.start()
            ended = await it.ended()
            assert ended.outcome == "rolled_back" and "destroy" not in it.agent("ps-0").told
            await it.until(lambda: it.agent("worker-0").view.epoch > ended.epoch)
            assert len(it.agent("worker-0").view.ps) == 2

    run(main())


def test_the_snapshot_of_a_job_in_training_is_small(pod: Path) -> None:
    async def main() -> None:
        async with world(pod) as it:
            await ask(it, it.agent("worker-0"), 1)
            packed, left_out = pack(take(it.master.job, "pod-1"))
            assert not left_out and len(packed) < 10_000

    run(main())
