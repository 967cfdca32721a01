"""A single PS has no peer: a trainer holds its backups, and the PS that replaces it goes on from them."""

from __future__ import annotations

import pytest

from tests.behaviour.jobs import COUNT, RealJob
from tests.behaviour.losses import Losses

pytestmark = pytest.mark.slow

OFTEN = ("--setting", "peer_backup_seconds=0.5", "--setting", "ps_heartbeat_limit_seconds=5")


def nothing_was_restored(job: RealJob) -> None:
    assert not job.events("ps_replaced")
    assert {event["generation"] for event in job.events("view_published")} == {1}
    assert "Restoring parameters" not in job.log("chief-0")


@pytest.mark.timeout(300)
def test_one_ps_dies_and_training_goes_on_from_the_copies_of_a_trainer(begin):
    job = begin("--ps", "1", "--workers", "1", "--max-ps", "2", *OFTEN, command=COUNT)
    losses = Losses(job, 1)
    job.wait_scalable()
    losses.wait_protected()
    losses.remember_catalogue()
    assert job.status().backup.holder == "chief-0"

    losses.strike("ps-0", event="fetched")
    losses.wait_protected()
    chosen = len(job.events("holder_chosen"))
    chief = job.pid("chief-0")
    job.kill("chief-0")  # the holder: the worker is the next one, at once
    losses.wait_event("holder_chosen", chosen + 1)
    losses.wait_protected()
    job.until(lambda: (one := job.role("chief-0")) and one.pid not in (0, chief) and one.heartbeat.training, "chief-0")
    losses.wait_protected()  # on a slow machine the chief is back before the worker has everything, and is chosen again
    assert job.status().backup.holder
    losses.strike("ps-0", event="fetched")
    losses.wait_protected()

    assert job.wait_scaling(job.ask(ps=2).scaling_id).outcome == "committed"
    losses.ps = 2
    losses.wait_protected()  # by each other
    assert not job.status().backup.holder
    losses.strike("ps-0")
    losses.wait_protected()
    nothing_was_restored(job)
    assert job.finish() == 0, job.output
    losses.check(slack=1)
    failures = [one for one in job.summary()["failures"] if one["role"] == "ps"]
    assert [one["recovered_by"] for one in failures] == ["holder", "holder", "promotion"], failures
    assert all(one["steps_lost"] == 0 for one in failures), failures
