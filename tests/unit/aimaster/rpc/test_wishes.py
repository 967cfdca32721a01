"""What a script tells the AIMaster: numbers of its own, and which backups it would like."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from pathlib import Path

from deeprec_ext.aimaster.main import parse
from deeprec_ext.aimaster.reporting.summary import summarize
from deeprec_ext.options import Settings, specification
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.aimaster.world import SETTINGS, World, world

WISH = pb.BackupWish(peer=False, peer_seconds=2, disk_seconds=7)


def play(workdir: Path, scenario: Callable[[World], Awaitable[None]], **given: object) -> None:
    """`given`: settings, as the command line gives them."""

    async def main() -> None:
        async with world(workdir, settings=dataclasses.replace(SETTINGS, **given), given=frozenset(given)) as it:
            await it.until(lambda: it.master.job.cluster.live)
            await scenario(it)

    asyncio.run(main())


async def wish(it: World, place: str = "wished") -> None:
    wanted = pb.BackupWish()
    wanted.CopyFrom(WISH)
    wanted.disk_path = str(it.master.job.spec.workdir / place)
    await it.agent("chief-0").say(backup_wish=wanted)
    await it.until(lambda: it.master.job.choices.wish == wanted)


def test_numbers_that_a_script_reports_are_in_the_summary(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await it.agent("worker-0").say(metrics=pb.MetricsReport(metrics={"auc": 0.91, "clicks": 3}, step=7))
        await it.until(lambda: "auc" in it.master.job.store.get("metrics", {}))
        summary = summarize(it.master.job.store, status="succeeded", seconds=1.0, roles={})
        assert summary["metrics"] == {"auc": 0.91, "clicks": 3}

    play(tmp_path, scenario)


def test_a_hook_chooses_the_backups_where_the_command_line_says_nothing(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        assert it.master.job.choices.peer and not it.master.job.choices.disk_path
        await wish(it)
        job = it.master.job
        assert (job.choices.peer, job.choices.peer_seconds) == (False, 2)
        assert (job.choices.disk_path, job.choices.disk_seconds) == (str(tmp_path / "wished"), 7)

    play(tmp_path, scenario, peer_backup=Settings.peer_backup)


def test_the_command_line_wins_over_the_hook(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await wish(it)
        job = it.master.job
        assert (job.choices.peer, job.choices.peer_seconds) == (True, 3)
        assert (job.choices.disk_path, job.choices.disk_seconds) == ("", 9)

    play(tmp_path, scenario, peer_backup="on", peer_backup_seconds=3.0, disk_backup="off", disk_backup_seconds=9.0)


def test_a_setting_that_was_given_wins_with_its_usual_value_too(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await wish(it)
        assert it.master.job.choices.disk_seconds == Settings.disk_backup_seconds != WISH.disk_seconds

    words = ["--listen", "127.0.0.1:0", "--workdir", str(tmp_path), "--launcher", "127.0.0.1:1"]
    file = tmp_path / "specification.json"
    file.write_text(specification([("disk_backup_seconds", str(Settings.disk_backup_seconds))], name="j"))
    _, spec = parse([*words, "--spec", str(file)])
    assert spec.given == {"disk_backup_seconds"}
    play(tmp_path, scenario, disk_backup_seconds=spec.settings.disk_backup_seconds)


def test_the_error_that_a_script_tells_is_the_reason_where_the_log_was_cut(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await it.agent("chief-0").say(
            finished=pb.Finished(had_session=True, exit_code=1, error="ValueError: no column")
        )
        await it.until(lambda: it.master.job.members.get("chief-0").said_goodbye)
        it.backend.exit("chief-0", 1)
        await it.until(lambda: it.master.job.ending == "failed")
        assert it.master.job.failure == "chief-0 exited with code 1 and is not started again: ValueError: no column"

    play(tmp_path, scenario)
