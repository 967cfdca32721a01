"""Scalings that cannot be done are rolled back or refused with a reason, and training goes on."""

from __future__ import annotations

import grpc
import pytest

from tests.behaviour.jobs import COUNT, RealJob

pytestmark = [pytest.mark.slow, pytest.mark.long]


def committed(job: RealJob, **request: int) -> bool:
    """Within a few attempts: on a busy machine a PS may need longer than the short time limit of this test."""
    return any((ended := job.scale(**request)) is None or ended.outcome == "committed" for _ in range(4))


@pytest.mark.timeout(600)
def test_what_cannot_be_scaled_is_rolled_back_or_refused_and_training_goes_on(begin):
    job = begin(
        "--ps", "1", "--workers", "1", "--max-ps", "3", "--slots", "4", "--setting", "acquire_limit_seconds=25",
        "--setting", "pause_limit_seconds=5", "--setting", "lease_seconds=10", "--setting", "verify_copies=true",
        "--setting", "release_limit_seconds=10", command=(*COUNT, "--paced"),
    )  # fmt: skip
    job.wait_scalable()
    before = job.running()

    # The present size: nothing to do. Too many or too few: refused with the figures.
    assert job.ask(ps=1).scaling_id == 0
    assert "no-op" in job.ask(workers=1).message
    for request, said in (({"ps": 5}, "limits, 1 to 3"), ({"ps": 0}, "at least one"), ({"ps": 4}, "limits, 1 to 3")):
        with pytest.raises(grpc.RpcError) as refused:
            job.ask(**request)
        assert said in refused.value.details()

    # A new PS that never comes up.
    first = job.ask(ps=2).scaling_id
    job.until(lambda: job.pid("ps-1"), "the new PS", every=0.001)
    job.stop("ps-1")
    ended = job.wait_scaling(first)
    assert (ended.outcome, ended.reason) == ("rolled_back", "ps-1 did not register within 25 s")
    assert job.roles_of("ps") == ["ps-0"]
    job.wait_training("chief-0", "worker-0")

    # A worker that is stuck in its input when everybody is to pause. The request after it waits for its turn.
    assert committed(job, ps=2)
    job.wait_scalable()
    job.stick("worker-0")
    down = job.ask(ps=1).scaling_id
    job.hold_in_pause(down, "worker-0")
    queued = job.ask(workers=2)
    assert queued.message == f"queued behind scaling {down}"
    assert job.states(queued.scaling_id) == []
    ended = job.wait_scaling(down)
    assert ended.outcome == "rolled_back", ended
    assert "worker-0" in ended.reason, ended.reason
    job.wait_training("chief-0")  # while the worker is still stuck
    assert job.roles_of("ps") == ["ps-0", "ps-1"]
    job.unstick("worker-0")
    job.wait_scaling(queued.scaling_id)
    assert committed(job, workers=2)
    job.wait_training("chief-0", "worker-0", "worker-1")

    # Now everything works again.
    assert committed(job, ps=3)
    assert job.scale(workers=1).outcome == "committed"
    after = job.running()
    assert all(after[name] == pid for name, pid in before.items())
    assert job.finish() == 0, job.output
    job.check_counts()
    assert job.summary()["failures"] == []
