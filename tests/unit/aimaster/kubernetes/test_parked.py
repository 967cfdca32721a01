"""A TFJob whose pods go for a while: what there is is kept, and the next AIMaster goes on with it, or with fewer processes."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from deeprec_ext.aimaster.kubernetes import following
from deeprec_ext.aimaster.parking import parking, supervision, supervisor
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.aimaster.backups.test_disk import FakeDirectory, real_catalogue
from tests.unit.aimaster.kubernetes.fake_api import PODS
from tests.unit.aimaster.kubernetes.test_running import Cluster, play
from tests.unit.aimaster.world import SETTINGS
from tfjob.model import names
from tfjob.model.kinds import TFJOBS
from tfjob.model.parked import Parked


async def until(condition: Any, what: str) -> None:
    for _ in range(1500):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"not in time: {what}")


def disk_backups(it: Cluster) -> FakeDirectory:
    directory = FakeDirectory()  # type: ignore[no-untyped-call]
    it.catalogue, it.answers = real_catalogue(), directory.answer
    it.more = {"settings": dataclasses.replace(SETTINGS, disk_backup="/backup", disk_backup_seconds=1000.0)}
    return directory


def condition(it: Cluster, status: str, reason: str) -> None:
    """As the operator writes it."""
    told = {"type": "Suspended", "status": status, "reason": reason, "message": "ctr is about to be suspended (higher)"}
    it.api.change(TFJOBS, "ctr", {"status": {"conditions": [told]}})


async def parked(it: Cluster) -> Parked:
    await until(lambda: it.annotations.get(names.PARKED_ANNOTATION), "parked")
    return Parked(**json.loads(it.annotations[names.PARKED_ANNOTATION]))


async def take_away(it: Cluster, serving: asyncio.Task[int]) -> None:
    """What the operator does then."""
    serving.cancel()
    await asyncio.wait([serving])
    for name in it.api.names(PODS):
        it.api.vanish(PODS, name)
    await until(lambda: not it.backend.agents, "all are gone")
    condition(it, "False", "TFJobResumed")
    it.api.change(TFJOBS, "ctr", {"metadata": {"annotations": {names.PARKED_ANNOTATION: ""}}})


def events(directory: Path, kind: str) -> list[dict[str, Any]]:
    lines = (directory / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["type"] == kind]


@pytest.mark.parametrize("first", [{}, {"first_ps": 1, "first_workers": 0}])
def test_everything_is_kept_and_the_job_goes_on_with_it(tmp_path: Path, first: dict[str, int]) -> None:
    async def test(it: Cluster) -> None:
        directory = disk_backups(it)
        serving = it.aimaster()
        await it.trains()
        before, chief = set(directory.manifests), it.agent("chief-0")
        condition(it, "False", "TFJobSuspending")
        word = await parked(it)
        [cut] = [one for name, one in directory.manifests.items() if name not in before and one.step]
        assert word == Parked(f"kept: disk backup of step {cut.step:,}, 2 PS, 1 workers")
        assert chief.told.index("lost") >= 0 and chief.command("lost").lost.lease_seconds > 600, (
            "nobody trains any more"
        )
        assert it.annotations[names.STATUS_ANNOTATION].startswith("parked: PS 2, workers 1")
        it.api.vanish(PODS, "ctr-worker-0")
        await asyncio.sleep(0.2)
        assert "ctr-worker-0" not in it.api.names(PODS), "nothing is made again"
        await take_away(it, serving)
        it.more |= first
        again = it.aimaster()
        await it.trains(1 if first else 2)
        assert len(it.api.names(PODS)) == (2 if first else 4)
        status = await it.status()
        assert len(set(status.slot_map)) == (1 if first else 2)
        [restored] = events(tmp_path / "pod-2", "restored")
        assert (restored["source"], restored["step"], restored["generation"]) == ("disk backup", cut.step, 2)
        assert {name for name, number in directory.restores if number == cut.number} == (
            {"ps-0"} if first else {"ps-0", "ps-1"}
        )
        assert [
            one["trained"] for one in events(tmp_path / "pod-2", "ledger_rewound")
        ] == []  # no dataset; no complaint
        again.cancel()
        await asyncio.wait([again])

    play(tmp_path, test)


@pytest.mark.parametrize("own", [False, True])
def test_the_word_is_said_however_long_the_api_server_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    monkeypatch.setattr(following, "TICK_SECONDS", 0.001)
    monkeypatch.setattr(following, "PARKED_SECONDS_MAX", 0.002)
    monkeypatch.setattr(supervisor, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(supervision, "STRICT_SECONDS", 0.1)

    async def test(it: Cluster) -> None:
        disk_backups(it)
        it.more["settings"] = dataclasses.replace(it.more["settings"], supervise="strict" if own else "dynamic")
        serving = it.aimaster()
        await it.trains()
        it.api.forbidden.add(("patch", "tfjobs"))
        if own:
            it.no_room.add("worker-0")
            it.api.vanish(PODS, "ctr-worker-0")
        else:
            condition(it, "False", "TFJobSuspending")
        await until(lambda: events(tmp_path / "pod-1", "parked"), "kept")
        tries = len(it.api.calls)
        await until(lambda: it.api.calls[tries:].count(("patch", "tfjobs", "ctr")) > 70, "tried again and again")
        assert not serving.done() and not it.annotations.get(names.PARKED_ANNOTATION)
        it.api.forbidden.clear()
        assert (await parked(it)).kept.startswith("kept: disk backup of step")
        serving.cancel()
        await asyncio.wait([serving])

    play(tmp_path, test)


@pytest.mark.parametrize("how", ["not said", "not kept"])
def test_an_aimaster_that_cannot_park_and_need_not_any_more_ends_and_the_next_comes_back_to_the_living_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(following, "TICK_SECONDS", 0.01)

    async def test(it: Cluster) -> None:
        disk_backups(it)
        serving = it.aimaster()
        await it.trains()
        chief = it.agent("chief-0")
        if how == "not said":
            it.api.forbidden.add(("patch", "tfjobs"))
            condition(it, "False", "TFJobSuspending")
            await until(lambda: events(tmp_path / "pod-1", "parked"), "kept")
            await asyncio.sleep(0.1)
            assert not serving.done(), "it is still to be parked"
            condition(it, "False", "TFJobResumed")
        else:
            monkeypatch.setattr(parking, "kept", mock.Mock(side_effect=OSError("no space left")))
            condition(it, "False", "TFJobSuspending")
        assert await asyncio.wait_for(serving, 10) == 1 and not (tmp_path / "termination-log").exists()
        [broken] = events(tmp_path / "pod-1", "broken")
        assert ("not to be parked any more" if how == "not said" else "no space left") in broken["reason"]
        assert chief.command("lost").lost.lease_seconds == parking.LET_GO_SECONDS, "the last word"
        monkeypatch.undo()
        it.api.forbidden.clear()
        condition(it, "False", "TFJobResumed")
        assert len(it.api.names(PODS)) == 4 and not it.annotations.get(names.PARKED_ANNOTATION)
        again = it.aimaster()
        await it.trains()
        assert it.agent("chief-0") is chief and (await it.status()).aimaster_incarnation == 2
        it.api.vanish(PODS, "ctr-worker-0")
        it.backend.stop("worker-0")  # type: ignore[attr-defined]
        await until(lambda: "ctr-worker-0" in it.api.names(PODS), "it heals again")
        again.cancel()
        await asyncio.wait([again])

    play(tmp_path, test)


def test_without_disk_backups_it_is_said_what_is_lost_and_the_chief_restores(tmp_path: Path) -> None:
    async def test(it: Cluster) -> None:
        serving = it.aimaster()
        await it.trains()
        await it.agent("chief-0").say(saved=pb.Saved(step=12))
        condition(it, "False", "TFJobSuspending")
        word = await parked(it)
        assert "lost: it has no disk backups (annotation aimaster.deeprec.io/backup: peer,disk=DIR)" in word.kept
        await take_away(it, serving)
        again = it.aimaster()
        await it.trains()
        [restored] = events(tmp_path / "pod-2", "restored")
        assert restored["source"] == "checkpoint" and (await it.status()).aimaster_incarnation == 2
        again.cancel()
        await asyncio.wait([again])

    play(tmp_path, test)


def test_a_strict_job_that_has_lost_a_pod_for_which_there_is_no_room_parks_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(supervision, "STRICT_SECONDS", 0.2)

    async def test(it: Cluster) -> None:
        directory = disk_backups(it)
        it.more["settings"] = dataclasses.replace(it.more["settings"], supervise="strict")
        serving = it.aimaster()
        await it.trains()
        it.no_room.add("worker-0")
        it.api.vanish(PODS, "ctr-worker-0")
        word = await parked(it)
        assert word.why.startswith("strict, and there is no room for worker-0") and word.again_seconds == 60.0
        assert word.kept.startswith("kept: disk backup of step") and directory.manifests
        serving.cancel()
        await asyncio.wait([serving])

    play(tmp_path, test)


def test_a_job_begins_with_no_more_than_it_may_have_and_that_is_no_request_of_its_user(tmp_path: Path) -> None:
    async def test(it: Cluster) -> None:
        it.more = {"first_ps": 1, "first_workers": 0}
        serving = it.aimaster()
        await it.trains(1)
        assert it.api.names(PODS) == ["ctr-chief-0", "ctr-ps-0"]
        await until(lambda: json.loads(it.annotations.get(names.SCALED_TO_ANNOTATION, "{}")).get("PS") == 1, "noted")
        assert not (await it.status()).scalings
        serving.cancel()
        await asyncio.wait([serving])

    play(tmp_path, test)


@pytest.mark.parametrize("supervise", ["dynamic", "strict"])
def test_a_job_for_which_there_is_no_room_begins_with_its_least_or_fails_where_it_is_strict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, supervise: str
) -> None:
    monkeypatch.setattr(supervisor, "LOOK_SECONDS", 0.05)

    async def test(it: Cluster) -> None:
        it.more = {"settings": dataclasses.replace(SETTINGS, supervise=supervise, max_wait_seconds=1.0)}
        it.no_room.add("ps-1")
        serving = it.aimaster()
        if supervise == "strict":
            assert await serving == 1
            word = (tmp_path / "termination-log").read_text()
            assert word.startswith("there was no room for ps-1") and word.endswith("within 1.0 s (max-wait)"), word
            return
        await it.trains(1)
        assert set(it.api.names(PODS)) == {"ctr-chief-0", "ctr-ps-0"} and len((await it.status()).slot_map) == 8
        assert [one["ps"] for one in events(tmp_path / "pod-1", "least")] == [1]
        serving.cancel()
        await asyncio.wait([serving])

    play(tmp_path, test)
