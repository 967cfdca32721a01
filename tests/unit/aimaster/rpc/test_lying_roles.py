"""A chief and a PS that lie on their own streams, between what they rightly say: all edges that the border lets pass."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path

import pytest

from benchmarks.lies.edges import UNARY, Lie, lies
from benchmarks.lies.within import ENDS_THE_JOB
from deeprec_ext.aimaster.reporting.summary import summarize
from deeprec_ext.proto import bounds
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.aimaster.backups.test_disk import FakeDirectory
from tests.unit.aimaster.ledger.test_job import ask
from tests.unit.aimaster.rpc.test_lies import events
from tests.unit.aimaster.world import SETTINGS, FakeAgent, World, world

DRAWN = 3000
GUARDED = dataclasses.replace(SETTINGS, peer_backup="on", peer_backup_seconds=0.2)


async def tell(it: World, name: str, told: list[Lie]) -> int:
    """On the stream of that agent, what is within its range; how many."""
    agent, count = it.agent(name), 0
    for lie in told:
        message = lie.message
        if isinstance(message, pb.AgentMessage) and bounds.check(message) is None:
            kind = str(message.WhichOneof("message"))
            await agent.say(**{kind: getattr(message, kind)})
            count += 1
    return count


async def check(it: World, liar: str, others: list[str]) -> None:
    job = it.master.job
    await it.until(lambda: bool(job.suspects.of(liar)))
    assert not it.master.broken.is_set() and not job.ending and not job.stale.is_set(), it.master.failure
    assert not events(it, "handler_failed")
    for name in others:
        assert job.members.get(name) is not None and not job.suspects.of(name), name
        assert name not in it.backend.deleted
    status = await it.status()
    assert status.step < 10**6 and status.state == "training"
    assert sum(role.bytes for role in status.roles) < 1 << 32
    assert 0 <= status.backup.oldest_seconds < 2 * 3600 and 0 <= status.backup.bytes_sent < 1 << 40
    for data in status.data:
        assert data.name == "train" and data.records == 200 and 0 <= data.trained <= 200
    assert not (await ask(it, it.agent("worker-0"), 1)).error
    await it.crash()
    await it.start()  # what is stored can be read back
    await it.until(lambda: it.master.job.settled)
    assert not it.master.broken.is_set() and not events(it, "stored_set_aside")
    summary = summarize(it.master.job.store, status="", seconds=0.0, roles={})
    assert summary["steps"] < 10**6 and summary["examples"] < 10**9
    json.loads(json.dumps(summary), parse_constant=lambda word: pytest.fail(word))


@pytest.mark.parametrize("seed", [1, 2])
def test_a_lying_chief_changes_no_figure_that_is_not_its_own(tmp_path: Path, seed: int) -> None:
    async def main() -> None:
        async with world(tmp_path, workers=1, settings=GUARDED) as it:
            await it.training()
            await ask(it, it.agent("worker-0"), 1)
            told = [one for one in lies(DRAWN, seed, "train") if one.kind not in {*UNARY, *ENDS_THE_JOB, "data"}]
            assert await tell(it, "chief-0", told) > 500
            await it.agent("chief-0").say(heartbeat=pb.Heartbeat(step=2**53))
            await check(it, "chief-0", ["worker-0", "ps-0", "ps-1"])

    asyncio.run(asyncio.wait_for(main(), 240))


@pytest.mark.parametrize("seed", [1, 2])
def test_a_lying_ps_changes_nothing_but_what_lies_on_it(tmp_path: Path, seed: int) -> None:
    async def main() -> None:
        async with world(tmp_path, workers=1, settings=GUARDED) as it:
            await it.training()
            await ask(it, it.agent("worker-0"), 1)
            told = [one for one in lies(DRAWN, seed, "train") if one.kind not in UNARY]
            assert await tell(it, "ps-1", told) > 500
            await check(it, "ps-1", ["worker-0", "chief-0", "ps-0"])

    asyncio.run(asyncio.wait_for(main(), 240))


def test_what_a_ps_says_of_scripts_ends_no_job_though_its_next_process_says_the_same(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path, workers=1) as it:
            for _ in range(2):
                await it.agent("ps-1").say(refusal=pb.Refusal(reason="a lie"))
                await it.agent("ps-1").say(finished=pb.Finished(exit_code=0))
                await it.until(lambda: bool(it.master.job.suspects.of("ps-1")))
                member = it.master.job.members.get("ps-1")
                assert member is not None and not member.said_goodbye, "its silence would count no more"
                await it.backend.kill("ps-1")
                await it.until(lambda: it.master.job.cluster.live and not it.master.job.cluster.lost)
                await it.until(lambda: not it.master.job.suspects.of("ps-1"))
            assert not it.master.job.ending

    asyncio.run(asyncio.wait_for(main(), 60))


LIES = (
    '{"cuts": 5}', "no json", "[" * 5000, '{"cuts": [], "highest": 1e400, "unsealed": [], "damaged": [], "found": null}',
    '{"cuts": [], "highest": 1, "unsealed": ["../../x"], "damaged": [], "found": null}',
    '{"cuts": [{"id": "00000001-1-ab", "number": 1, "base": "00000001-1-ab", "bytes": 1, "job_id": "x", "files": '
    '["../../.ssh/authorized_keys"]}], "highest": 1, "unsealed": [], "damaged": [], "found": null}',
)  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_a_ps_that_lies_about_a_directory_ends_no_aimaster_and_names_no_file(tmp_path: Path, lie: str) -> None:
    async def main() -> None:
        place = FakeDirectory()

        def answer(agent: FakeAgent, command: pb.Command) -> pb.Ack:
            if command.WhichOneof("command") == "find_backup":
                return pb.Ack(backup_json=lie)
            return place.answer(agent, command)

        settings = dataclasses.replace(SETTINGS, disk_backup=str(tmp_path / "backup"), disk_backup_seconds=0.2)
        async with world(tmp_path, workers=1, settings=settings) as it:
            it.answers = answer
            await it.until(lambda: bool(it.master.job.disk.error))
            assert "ps-0 answered: ack.backup_json" in it.master.job.disk.error
            assert it.master.job.suspects.of("ps-0") and not it.master.broken.is_set()
            it.answers = place.answer  # an honest one
            await it.until(lambda: bool(events(it, "disk_backup_again")))

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("name", ["../../.ssh/authorized_keys", "cut-00000001-1-other-slot0001.drx", ""])
def test_files_that_a_ps_was_not_to_write_are_in_no_manifest(tmp_path: Path, name: str) -> None:
    async def main() -> None:
        place = FakeDirectory()

        def answer(agent: FakeAgent, command: pb.Command) -> pb.Ack:
            ack = place.answer(agent, command)
            if agent.name == "ps-1" and command.WhichOneof("command") == "write_backup":
                ack.files[0].name = name
            return ack

        settings = dataclasses.replace(SETTINGS, disk_backup=str(tmp_path / "backup"), disk_backup_seconds=0.2)
        async with world(tmp_path, workers=1, settings=settings) as it:
            it.answers = answer
            await it.until(lambda: bool(it.master.job.suspects.of("ps-1")))
            await it.until(lambda: len(place.writes) > 3)
            assert not place.manifests and not it.master.broken.is_set()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_ps_that_has_sent_more_than_there_is_changes_no_figure_of_the_scaling(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path, workers=1) as it:
            it.answers = lambda agent, command: pb.Ack(
                copy=pb.CopyResult(bytes=2**50) if agent.name == "ps-2" and command.HasField("copy") else None
            )
            await it.scale(ps=3)
            ended = await it.ended()
            assert ended.outcome == "committed" and ended.bytes_moved < 10**6 and ended.bytes_resent < 10**6
            assert it.master.job.suspects.of("ps-2") and not it.master.job.suspects.of("ps-0")

    asyncio.run(asyncio.wait_for(main(), 60))
