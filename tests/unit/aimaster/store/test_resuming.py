"""Where a resumed run would begin, and where it has begun, is what the chief has saved and restored."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from deeprec_ext.aimaster.reporting.summary import summarize
from deeprec_ext.aimaster.store import resuming
from deeprec_ext.aimaster.store.resuming import begins, has_begun
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.aimaster.world import World, world


def told(it: World) -> dict[str, Any]:
    return summarize(it.master.job.store, status="stopped", seconds=1.0, roles={})


def test_a_checkpoint_of_the_chief_is_where_a_resumed_run_begins_and_what_it_loses_is_told(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as it:
            await it.until(lambda: it.master.job.cluster.live)
            await it.agent("chief-0").say(saved=pb.Saved(step=12))
            await it.until(lambda: (told(it)["resume"]["checkpoint"] or {}).get("step") == 12)
            saved = told(it)["resume"]["checkpoint"]["time"]
            assert abs(saved - it.master.job.clock.wall()) < 60 and "resumed" not in told(it)
            await it.until(lambda: it.master.job.store.get("present_step", 0) > 20)  # written down
            await it.crash()
            for name in list(it.backend.agents):
                it.backend.exit(name, 137)
            it.backend.pods.clear()
            await it.start()
            await it.until(lambda: it.master.job.cluster.live and it.master.job.cluster.generation == 2)
            again = told(it)["resumed"]
            step = again["step"]  # 10 of a fake chief that registers, 5 of one that is there already
            assert step in (5, 10) and again["source"] == "checkpoint" and again["steps_lost"] > 20 - step, again
            assert told(it)["resume"]["checkpoint"] == {"step": step, "time": None}, "another one than it has told of"
            await it.backend.kill("ps-0")
            await it.until(lambda: it.master.job.cluster.generation == 3 and it.master.job.cluster.live)
            assert told(it)["resumed"] == again, "a later loss is a failure, and no resuming"

    asyncio.run(main())


def test_a_chief_that_finds_nothing_has_nothing_to_go_on_from_and_a_worker_has_no_word_in_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as it:
            await it.until(lambda: it.master.job.cluster.live)
            await it.agent("chief-0").say(saved=pb.Saved(step=12))
            await it.until(lambda: bool(told(it)["resume"]["checkpoint"]))
            await it.agent("worker-0").say(saved=pb.Saved(step=13))
            await it.until(lambda: bool(it.master.job.suspects.of("worker-0")))
            assert told(it)["resume"]["checkpoint"]["step"] == 12
            it.agent("chief-0").restored = pb.ModelLive(fresh=True)
            await it.backend.kill("ps-1")
            await it.until(lambda: it.master.job.cluster.generation == 2 and it.master.job.cluster.live)
            assert told(it)["resume"]["checkpoint"] is None

    asyncio.run(main())


def test_what_is_told_of_it_is_one_line() -> None:
    nothing = "--resume begins at step 0: nothing that was trained is in a checkpoint"
    hint = " (with `--backup peer,disk=DIR` it would be in a backup)"
    assert begins({"checkpoint": None, "disk_cut": None}, 1000.0) == nothing + hint
    assert begins({"checkpoint": {"step": 0, "time": 1.0}, "disk_cut": None}, 1000.0) == nothing + hint
    saved = {"step": 1500, "time": 880.0}
    assert begins({"checkpoint": saved}, 1000.0) == "--resume begins at step 1,500, of the checkpoint of 2:00 ago"
    assert begins({"checkpoint": {"step": 7, "time": None}}, 1.0) == "--resume begins at step 7, of the checkpoint"
    line = begins({"checkpoint": saved, "disk_cut": {"step": 1600, "time": 990.0}}, 1000.0)
    assert line.endswith("; the disk backup of 10.0 s ago has step 1,600 (`deeprec-ext backup restore` first)")
    assert begins({"checkpoint": saved, "disk_cut": {"step": 1400, "time": 990.0}}, 1000.0).endswith("2:00 ago")
    assert begins({"checkpoint": "damaged", "disk_cut": 3}, 1.0).endswith(hint)
    again = {"step": 150, "source": "checkpoint", "steps_lost": 1250}
    assert has_begun(again) == "resumed at step 150 from the checkpoint, 1,250 steps lost"
    again = {"step": 0, "source": "nothing", "steps_lost": 9}
    assert has_begun(again) == "resumed at step 0, without a checkpoint, 9 steps lost"


def test_a_job_without_ps_begins_with_what_its_chief_has_kept() -> None:
    none = "--resume begins with the model that the script makes or restores: the chief has kept none yet"
    assert begins({"checkpoint": None, "disk_cut": None, "kept": None}, 1000.0) == none
    line = begins({"checkpoint": None, "disk_cut": None, "kept": {"time": 880.0}}, 1000.0)
    assert line == "--resume begins with the copy of the model of 2:00 ago that the chief has kept"
    saved = {"checkpoint": {"step": 7, "time": None}, "kept": None}
    assert begins(saved, 1.0) == "--resume begins at step 7, of the checkpoint", "an Estimator has told of one"
    first = {"step": 0, "time": 870.0}  # of a session, which saves one before its first step
    assert begins({"checkpoint": first, "disk_cut": None, "kept": None}, 1000.0) == none
    assert begins({"checkpoint": first, "kept": {"time": 880.0}}, 1000.0) == line


def test_when_the_chief_has_kept_the_model_is_told_of_a_job_without_ps_alone(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    for number, time in enumerate((100.0, 300.0, 200.0)):
        file = tmp_path / "model" / f"fit-{number}.npz"
        file.touch()
        os.utime(file, (time, time))
    assert resuming.told({"slots": 0}, tmp_path)["resume"]["kept"] == {"time": 300.0}
    assert resuming.told({"slots": 0}, tmp_path / "model")["resume"]["kept"] is None
    assert "kept" not in resuming.told({"slots": 8}, tmp_path)["resume"]
