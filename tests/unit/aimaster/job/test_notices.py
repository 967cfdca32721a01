"""What processes say of training beside the PS: kept once, bounded, over restarts, and with `strict` the end of the job."""

from __future__ import annotations

import json
from pathlib import Path

from deeprec_ext.aimaster.job.notices import KEPT_MAX, TEXT_MAX
from deeprec_ext.aimaster.reporting.summary import summarize
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.aimaster.rpc.test_wishes import play
from tests.unit.aimaster.world import World

NOTICE = pb.Notice(code="no-variable-on-ps", text="nothing is on a PS", remedy="use a setter")


def test_the_same_of_two_roles_is_one_and_survives_the_aimaster(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        for name in ("chief-0", "worker-0", "chief-0"):
            await it.agent(name).say(notice=NOTICE)
        await it.until(lambda: [one.roles for one in it.master.job.notices.all] == [("chief-0", "worker-0")])
        await it.crash()
        await it.start()
        status = await it.status()
        assert [(one.notice, list(one.roles)) for one in status.notices] == [(NOTICE, ["chief-0", "worker-0"])]
        assert not status.failure
        summary = summarize(it.master.job.store, status="succeeded", seconds=1.0, roles={})
        [told] = summary["notices"]
        assert (told["code"], told["text"], told["remedy"]) == (NOTICE.code, NOTICE.text, NOTICE.remedy)
        it.master.job.reopen()
        assert not (await it.status()).notices

    play(tmp_path, scenario)


def test_there_are_never_many_nor_long_ones(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        for number in range(KEPT_MAX + 5):
            it.master.job.notices.add("chief-0", pb.Notice(code="x", text=f"{number} " + "a" * 5000))
        kept = it.master.job.notices.all
        assert len(kept) == KEPT_MAX and all(len(one.text) == TEXT_MAX for one in kept)
        it.master.job.notices.add("chief-0", pb.Notice(code="x", text="0 " + "a" * 5000))
        assert it.master.job.notices.all == kept

    play(tmp_path, scenario)


def test_strict_ends_the_job_with_the_notice_unless_it_was_taken_care_of(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        job = it.master.job
        job.notices.add("chief-0", pb.Notice(code="model-dir", text="taken care of", mended=True))
        assert not job.ending
        await it.agent("chief-0").say(notice=NOTICE)
        await it.until(lambda: job.ending == "failed")
        assert job.failure == "nothing is on a PS: use a setter"

    play(tmp_path, scenario, strict=True)


def test_strict_does_not_end_a_job_that_others_train_at_one_workers_word_before_its_next_process_says_so_too(
    tmp_path: Path,
) -> None:
    async def scenario(it: World) -> None:
        job, first = it.master.job, it.agent("worker-0")
        await it.until(lambda: bool(job.catalogue.variables))
        await first.say(notice=NOTICE)
        await it.until(lambda: "worker-0" in it.backend.agents and it.agent("worker-0") is not first)
        await it.until(lambda: it.agent("worker-0").registered > 0)
        assert not job.ending and [one.roles for one in job.notices.all] == [("worker-0",)]
        told = [json.loads(row[5])["text"] for row in job.store.events(0, 1000) if row[2] == "warning"]
        assert len([text for text in told if "worker-0 alone says that nothing is on a PS" in text]) == 1
        await it.agent("worker-0").say(notice=NOTICE)
        await it.until(lambda: job.ending == "failed")
        assert job.failure == "nothing is on a PS: use a setter"

    play(tmp_path, scenario, strict=True)


def test_strict_believes_a_worker_when_another_trainer_says_the_same_or_nobody_has_anything_on_a_ps(
    tmp_path: Path,
) -> None:
    async def two(it: World) -> None:
        job, killed = it.master.job, []
        await it.until(lambda: bool(job.catalogue.variables))
        job.notices.kill = killed.append
        job.notices.add("worker-0", NOTICE, "one process")
        job.notices.add("worker-0", NOTICE, "one process")
        assert killed == ["worker-0"] and not job.ending
        job.notices.add("worker-1", NOTICE, "another")
        assert job.ending == "failed" and killed == ["worker-0"]

    async def none(it: World) -> None:
        job = it.master.job
        await it.until(lambda: bool(job.catalogue.variables))
        job.catalogue = pb.Catalogue()
        job.notices.add("worker-0", NOTICE, "one process")
        assert job.ending == "failed"

    for number, scenario in enumerate((two, none)):
        (tmp_path / str(number)).mkdir()
        play(tmp_path / str(number), scenario, strict=True)


def test_a_notice_is_a_field_of_its_own_in_the_event(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        it.master.job.notices.add("chief-0", NOTICE)
        it.master.job.notices.add("worker-0", NOTICE)
        rows = it.master.job.store.rows("SELECT role, json FROM events WHERE type = 'notice'")
        assert len(rows) == 1 and rows[0][0] == "chief-0" and NOTICE.remedy in rows[0][1]

    play(tmp_path, scenario)


def test_training_that_reaches_no_ps_is_an_event_of_its_own_once(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        for code in ("no-variable-on-ps", "local-training", "variables-beside-ps", "model-dir"):
            for name in ("chief-0", "worker-0"):
                it.master.job.notices.add(name, pb.Notice(code=code, text=f"what {code} says", remedy="use a setter"))
        rows = it.master.job.store.rows("SELECT role, json FROM events WHERE type = 'unused_ps' ORDER BY sequence")
        assert [role for role, _ in rows] == ["chief-0", "chief-0"]
        assert [json.loads(text) for _, text in rows] == [
            {"code": code, "text": f"what {code} says", "remedy": "use a setter"}
            for code in ("no-variable-on-ps", "local-training")
        ]

    play(tmp_path, scenario)
