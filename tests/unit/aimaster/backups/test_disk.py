"""Disk backups as the AIMaster plans them: PS that only pretend, and a directory in memory."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import json
from pathlib import Path

import pytest

from deeprec_ext.aimaster.membership.commands import CommandError
from deeprec_ext.aimaster.state.lock import Hold
from deeprec_ext.backup import manifest as manifests
from deeprec_ext.backup import snapshots
from deeprec_ext.errors import DeepRecError
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.aimaster.world import SETTINGS, World, catalogue


def played(test):
    """An asynchronous test, in a loop of its own."""

    @functools.wraps(test)
    def run(tmp_path):
        asyncio.run(asyncio.wait_for(test(tmp_path), 50))

    return run


class Watched:
    """Stands in for two methods of a job's ledger."""

    def __init__(self, ledger) -> None:
        self.count, self.rewound = 0, []
        ledger.position, ledger.rewind = self.position, self.rewound.append

    def position(self) -> bytes:
        self.count += 1
        return b"position %d" % self.count


class FakeDirectory:
    """What all PS see; `problem` is what writing answers with, `damaged` what a restore does."""

    def __init__(self) -> None:
        self.manifests: dict[str, manifests.Manifest] = {}
        self.removed: list[str] = []
        self.writes: list[pb.WriteBackup] = []
        self.restores: list[tuple[str, int]] = []
        self.problem = ""
        self.damaged: set[int] = set()
        self.delta_bytes = 30

    def answer(self, agent, command: pb.Command) -> pb.Ack:
        kind = command.WhichOneof("command")
        try:
            return getattr(self, f"_{kind}", lambda *_: pb.Ack())(agent, getattr(command, kind))
        except DeepRecError as error:
            return pb.Ack(error=str(error))

    def _write_backup(self, agent, command: pb.WriteBackup) -> pb.Ack:
        self.writes.append(command)
        if self.problem:
            return pb.Ack(error=self.problem)
        size = 100 if command.base else self.delta_bytes
        slots = sorted({variable.slot for variable in command.variables})
        return pb.Ack(files=[
            pb.BackupFile(name=manifests.data_name(command.id, slot), bytes=size, slot=slot, whole=command.base, rows=1)
            for slot in slots
        ])  # fmt: skip

    def _seal_backup(self, agent, command: pb.SealBackup) -> pb.Ack:
        made = manifests.loads(command.manifest_json, "m")
        self.manifests[made.name] = made
        for name in command.remove:
            self.manifests.pop(name, None)
        self.removed += command.remove
        return pb.Ack()

    def _find_backup(self, agent, command: pb.FindBackup) -> pb.Ack:
        found = snapshots.Found(list(manifests.newest_first(self.manifests.values())))
        text = snapshots.answer(found, command.path, command.fingerprint, command.job, command.before)
        return pb.Ack(backup_json=text)

    def _restore_backup(self, agent, command: pb.RestoreBackup) -> pb.Ack:
        self.restores.append((agent.name, command.cut))
        error = f"cut-{command.cut} is flipped" if command.cut in self.damaged and agent.name == "ps-1" else ""
        return pb.Ack(error=error, copy=pb.CopyResult(bytes=500))


def real_catalogue() -> pb.Catalogue:
    made = catalogue()
    for variable in made.variables:
        variable.dtype, variable.saved_name = 1, variable.name
        if variable.update == pb.Variable.ROWS:
            variable.bitmap = f"{variable.name}@dirty"
    made.global_step = "dense0"
    return made


@contextlib.asynccontextmanager
async def job(path: Path, directory: FakeDirectory | None = None, training=True, **settings):
    values = {"disk_backup": "/backup", "disk_backup_seconds": 0.0, **settings}
    path.mkdir(exist_ok=True)
    it = World(path, settings=dataclasses.replace(SETTINGS, **values))
    it.catalogue, it.directory = real_catalogue(), directory or FakeDirectory()
    it.answers = it.directory.answer
    await it.start()
    it.ledger = Watched(it.master.job.ledger)
    try:
        if training:
            await it.training()
        yield it
    finally:
        await it.stop()


def events(world: World, kind: str) -> list[dict]:
    lines = (world.spec.workdir / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["type"] == kind]


@played
async def test_base_deltas_and_a_new_base_when_they_reach_its_size(tmp_path):
    async with job(tmp_path) as world:
        await world.until(lambda: len(events(world, "disk_backup")) >= 6, 10)
        bases = [event["base"] for event in events(world, "disk_backup")]
        start = bases.index(False) - 1  # before that, rows were not marked yet
        assert bases[start : start + 6][:5] == [True, False, False, False, False]  # 4 × 30 reach 100
        for before, write in zip(world.directory.writes, world.directory.writes[2:]):
            assert write.base or write.parent == before.id  # two PS write each cut
        newest = max(world.directory.manifests.values(), key=lambda one: one.number)
        assert newest.ledger.startswith(b"position") and newest.global_step == "dense0"
        assert {file.slot for file in newest.cut.files} == set(range(8))
        status = (await world.status()).backup
        assert status.disk_path == "/backup" and status.disk_cut >= 6 and not status.error


@played
async def test_old_chains_are_removed(tmp_path):
    directory = FakeDirectory()
    directory.delta_bytes = 100
    async with job(tmp_path, directory, disk_backup_keep=2) as world:
        await world.until(lambda: len(events(world, "disk_backup")) >= 9, 15)
        bases = {one.base.id for one in directory.manifests.values()}
        assert len(bases) == 2 and directory.removed
        needed = {name for one in directory.manifests.values() for name in one.files()}
        assert needed.isdisjoint(directory.removed)


@played
async def test_what_cannot_be_written_is_one_warning_per_episode_and_training_goes_on(tmp_path):
    async with job(tmp_path) as world:
        for episode in (1, 2):
            world.directory.problem = "[Errno 28] No space left on device"
            count = len(world.directory.writes)
            await world.until(lambda count=count: len(world.directory.writes) >= count + 6, 10)
            warnings = [one for one in events(world, "warning") if "disk backup" in one["text"]]
            assert len(warnings) == episode and "No space left" in warnings[-1]["text"]
            assert "No space left" in (await world.status()).backup.error
            world.directory.problem = ""
            await world.until(lambda episode=episode: len(events(world, "disk_backup_again")) == episode, 10)
        assert (await world.status()).state == "training" and not (await world.status()).backup.error


@played
async def test_an_episode_that_outlasts_an_aimaster_is_still_one_warning_and_its_end_is_told(tmp_path):
    async with job(tmp_path) as world:
        world.directory.problem = "[Errno 28] No space left on device"
        await world.until(lambda: len(events(world, "warning")) > 0, 10)
        await world.crash()
        tried = len(world.directory.writes)
        await world.start()
        await world.until(lambda: len(world.directory.writes) >= tried + 6, 10)
        assert len([one for one in events(world, "warning") if "disk backup" in one["text"]]) == 1
        assert "No space left" in (await world.status()).backup.error
        world.directory.problem = ""
        await world.until(lambda: len(events(world, "disk_backup_again")) == 1, 10)
        await world.crash()
        await world.start()
        assert not (await world.status()).backup.error


@played
async def test_a_ps_that_dies_during_a_cut_drops_it_without_a_warning(tmp_path):
    async with job(tmp_path) as world:
        await world.until(lambda: bool(events(world, "disk_backup")), 10)
        world.agent("ps-1").mute.add("write_backup")
        count = len(world.directory.writes)
        await world.until(lambda: len(world.directory.writes) > count, 5)
        await world.backend.kill("ps-1")
        await world.until(lambda: bool(events(world, "disk_backup_dropped")), 5)
        assert not [one for one in events(world, "warning") if "disk backup could be written" in one["text"]]

        def after():
            replaced = events(world, "ps_replaced")[-1:]
            return [
                one for one in events(world, "disk_backup") if replaced and one["sequence"] > replaced[0]["sequence"]
            ]

        await world.until(lambda: bool(after()), 8)
        assert after()[0]["base"]  # what the marks say does not reach back behind a restore


@played
async def test_no_cut_is_begun_while_a_scaling_of_ps_is_under_way(tmp_path):
    async with job(tmp_path) as world:
        await world.until(lambda: bool(events(world, "disk_backup")), 10)
        world.mute["chief-0"] = set()
        world.agent("chief-0").mute.add("prepare")
        await world.scale(ps=1)
        await world.until(lambda: world.master.job.lock.held(Hold.CHANGE), 5)
        await asyncio.sleep(0.3)  # a cut that had begun
        count = len(world.directory.writes)
        await asyncio.sleep(0.7)  # several intervals
        assert world.master.job.lock.held(Hold.CHANGE) and len(world.directory.writes) == count
        await world.ended()
        await world.until(lambda: len(world.directory.writes) > count, 5)


@played
async def test_a_restore_takes_the_newest_cut_that_can_be_read_and_rewinds_the_ledger(tmp_path):
    async with job(tmp_path) as world:
        await world.until(lambda: len(events(world, "disk_backup")) >= 3, 10)
        master = world.master.job
        master.lock.take("the test", Hold.CHANGE)  # no further cuts
        await asyncio.sleep(0.3)
        newest, second, *_ = sorted((one.number for one in world.directory.manifests.values()), reverse=True)
        world.directory.damaged = {newest}
        restored = await master.disk.restore(master.cluster)
        chosen = next(one for one in world.directory.manifests.values() if one.number == second)
        assert (restored.cut, restored.step, restored.bytes) == (second, chosen.step, 1000)
        assert world.ledger.rewound == [chosen.ledger] and restored.ledger == chosen.ledger
        assert world.directory.restores[-2:] == [("ps-0", second), ("ps-1", second)] or world.directory.restores[-2:] == [
            ("ps-1", second), ("ps-0", second),
        ]  # fmt: skip
        assert [one for one in events(world, "warning") if "flipped" in one["text"]]


@played
async def test_nothing_is_restored_of_other_slots_or_another_job_and_the_reason_is_told(tmp_path):
    directory = FakeDirectory()
    async with job(tmp_path / "one", directory) as world:
        await world.until(lambda: bool(events(world, "disk_backup")), 10)
        world.master.job.lock.take("the test", Hold.CHANGE)
        del world.master.job.catalogue.variables[-1]
        assert await world.master.job.disk.restore(world.master.job.cluster) is None
        assert "other variables or slots" in events(world, "warning")[-1]["text"]
    async with job(tmp_path / "two", directory, disk_backup_seconds=1000.0) as world:
        world.master.job.lock.take("the test", Hold.CHANGE)
        assert await world.master.job.disk.restore(world.master.job.cluster) is None
        assert world.ledger.rewound == []


@played
async def test_a_restore_after_the_loss_of_all_ps_is_told_as_one(tmp_path):
    async with job(tmp_path) as world:
        await world.until(lambda: bool(events(world, "disk_backup")), 10)
        await asyncio.gather(world.backend.kill("ps-0"), world.backend.kill("ps-1"))
        await world.until(lambda: bool(events(world, "restored")), 10)
        [told], [loaded] = events(world, "restored"), events(world, "disk_restored")
        assert (told["source"], told["step"], told["generation"]) == ("disk backup", loaded["step"], 2)
        assert told["steps_lost"] == max(one.steps_lost for one in world.master.job.store.failures()) >= 0


@played
async def test_a_restore_raises_when_a_ps_is_lost_meanwhile(tmp_path):
    async with job(tmp_path) as world:
        await world.until(lambda: bool(events(world, "disk_backup")), 10)
        world.master.job.lock.take("the test", Hold.CHANGE)
        world.agent("ps-1").mute.add("restore_backup")
        task = asyncio.ensure_future(world.master.job.disk.restore(world.master.job.cluster))
        await world.until(lambda: ("ps-0", 1) in world.directory.restores or bool(world.directory.restores), 5)
        await world.backend.kill("ps-1")
        with pytest.raises(CommandError):
            await task


@played
async def test_a_new_aimaster_goes_on_with_higher_numbers_and_a_base(tmp_path):
    async with job(tmp_path) as world:
        await world.until(lambda: len(events(world, "disk_backup")) >= 3, 10)
        await world.crash()
        before = max(one.number for one in world.directory.manifests.values())
        old = len(world.directory.writes)
        await world.start()
        await world.until(lambda: max(one.number for one in world.directory.manifests.values()) > before, 10)
        first = next(one for one in world.directory.writes[old:] if one.cut > before)
        assert first.base and first.cut > before


@played
async def test_a_directory_of_another_model_is_refused_naming_both(tmp_path):
    directory = FakeDirectory()
    async with job(tmp_path / "one", directory) as world:
        await world.until(lambda: bool(events(world, "disk_backup")), 10)
    made = next(iter(directory.manifests.values()))
    directory.manifests[made.name] = dataclasses.replace(made, fingerprint="another", job="one")
    directory.writes.clear()
    async with job(tmp_path / "two", directory) as world:
        await world.until(lambda: "another model" in "".join(e.get("text", "") for e in events(world, "warning")), 5)
        text = next(e["text"] for e in events(world, "warning") if "another model" in e["text"])
        assert "'one' is of model another" in text and "give another directory" in text
        assert not directory.writes
