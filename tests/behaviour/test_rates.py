"""A job with PS whose learning rate follows the number of its trainers, as the sizes of its updates show."""

from __future__ import annotations

import pytest

from tests.behaviour.jobs import SCRIPTS

pytestmark = pytest.mark.slow


def added(job, role: str) -> list[tuple[float, float]]:
    """What each step of a trainer has added to its elements of the dense variable and of the table."""
    try:
        lines = (job.directory / "rates" / role).read_text().splitlines()
    except FileNotFoundError:
        return []
    return [tuple(map(float, line.split())) for line in lines]


@pytest.mark.timeout(180)
def test_updates_are_as_large_as_the_number_of_trainers_says(begin):
    settings = ("--setting", "rate_scaling=inverse", "--setting", "rate_warmup_steps=8")
    job = begin("--ps", "1", "--workers", "0", *settings, command=("python", str(SCRIPTS / "rated.py")))
    job.until(lambda: len(added(job, "chief-0")) > 3, "steps of the chief")
    assert set(added(job, "chief-0")) == {(1.0, 1.0)}
    assert job.status().learning_rate == ""

    chief = job.pid("chief-0")
    assert job.scale(workers=1).outcome == "committed"
    job.until(lambda: added(job, "worker-0")[-3:] == [(0.5, 0.5)] * 3, "updates of the worker with half of the rate")
    job.until(lambda: added(job, "chief-0")[-3:] == [(0.5, 0.5)] * 3, "updates of the chief with half of the rate")
    assert set(added(job, "worker-0")) == {(0.5, 0.5)}, "who comes has the rate of the others from its first step on"
    assert job.status().learning_rate == "× 0.5 (inverse, 2 trainers)"
    assert "the learning rate is multiplied by 0.5 from now on" in job.log("chief-0")

    assert job.scale(workers=0).outcome == "committed"
    job.until(lambda: added(job, "chief-0")[-1:] == [(1.0, 1.0)], "the whole rate")
    dense = [one for one, _ in added(job, "chief-0")]
    last = len(dense) - 1 - dense[::-1].index(0.5)
    assert dense[last : last + 5] == [0.5, 0.625, 0.75, 0.875, 1.0], "in steps of an eighth"
    assert [(one["before"], one["factor"], one["trainers"]) for one in job.events("learning_rate")] == [
        (1.0, 0.5, 2), (0.5, 1.0, 1),
    ]  # fmt: skip
    assert job.pid("chief-0") == chief

    (job.directory / "rates" / "stop").touch()
    assert job.end(60) == 0, job.output
