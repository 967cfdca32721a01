"""A PS dies just when the PS are being changed: the backups of the new view are there with its first step."""

from __future__ import annotations

import pytest

from benchmarks import kills
from tests.behaviour.jobs import COUNT
from tests.behaviour.losses import Losses
from tests.behaviour.test_failovers import unchanged_generation

pytestmark = pytest.mark.slow

OFTEN = ("--setting", "peer_backup_seconds=0.5", "--setting", "ps_heartbeat_limit_seconds=5")


@pytest.mark.smoke
@pytest.mark.timeout(300)
def test_a_ps_killed_right_after_a_change_is_taken_over(begin):
    job = begin("--ps", "2", "--workers", "1", "--max-ps", "3", *OFTEN, command=COUNT)
    losses = Losses(job, 2)
    job.wait_scalable()
    losses.wait_protected()
    losses.remember_catalogue()
    for number, ps in enumerate((3, 2), 1):
        before = losses.certain()
        scaling = job.ask(ps=ps).scaling_id
        losses.ps = ps
        job.wait_state(scaling, "RELEASE")
        losses.strike_now("ps-0", before=before)
        assert job.wait_scaling(scaling).outcome == "committed"
        losses.wait_event("recovered", number)
        losses.wait_protected()
    unchanged_generation(job)
    assert job.finish() == 0, job.output
    losses.check()
    failures = job.summary()["failures"]
    assert [(one["recovered_by"], one["steps_lost"]) for one in failures] == [("promotion", 0)] * 2


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_kills_by_seed_in_every_state_never_go_back_to_a_checkpoint():
    result = kills.Result()
    for seed in (1, 2):  # 2 and 3 PS at the start
        kills.one_job(seed, 10, 1.0, result, lambda one: print(one))
    assert len(result.kills) == 20
    assert {one.generation for one in result.kills} == {1}
    assert {one.by for one in result.kills} <= {"promotion", "holder", "nothing to recover", "restart"}
