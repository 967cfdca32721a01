"""Scripts in the form of Horovod's documented examples, in jobs whose workers come, go and die."""

from __future__ import annotations

import pytest

from tests.behaviour.jobs import SCRIPTS
from tests.behaviour.test_fit_in_step import check, hurry, lines, wait_steps, wait_together

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("form", "dies"), [("fit", "chief-0"), ("loop", "worker-1")])
def test_an_elastic_script_goes_on_with_one_state_whoever_comes_goes_and_dies(begin, form, dies):
    job = begin(
        "--strategy", "allreduce", "--workers", "1",
        command=("python", str(SCRIPTS / "horovod_elastic.py"), "--form", form),
    )  # fmt: skip
    wait_together(job, "chief-0", "worker-0")
    assert job.scale(workers=2).outcome == "committed"
    wait_together(job, "chief-0", "worker-0", "worker-1")
    killed = job.kill(dies)
    wait_steps(job)
    job.until(lambda: job.pid(dies) != killed, f"another process of {dies}")
    wait_together(job, "chief-0", "worker-0", "worker-1")
    assert job.scale(workers=1).outcome == "committed"
    wait_together(job, "chief-0", "worker-0")
    assert hurry(job) == 0, job.output
    check(job)
    rows = [row for found in lines(job, "steps").values() for row in found]
    assert {row[3] for row in rows} == {"2", "3"}
    assert all(float(rate) == int(size) for *_, rate, size, _ in rows)
    assert {name.partition(".")[0] for name in lines(job, "steps")} == {"chief-0", "worker-0", "worker-1"}
    resets = [row[0] for row in lines(job, "resets")[f"worker-0.{job.pid('worker-0')}"]]
    assert resets == ["3", "2", "3", "2"]  # no more than processes have come and gone
    ends = lines(job, "end")
    assert len(ends) == 2 and len({tuple(map(tuple, found)) for found in ends.values()}) == 1
    assert [name.partition(".")[0] for name in lines(job, "saved")] == ["chief-0"]
    assert len([name for name in lines(job, "steps") if name.startswith("worker-0")]) == 1  # it was never begun anew


def test_a_script_that_is_not_elastic_goes_on_too_and_who_comes_has_the_model(begin):
    job = begin(
        "--strategy", "allreduce", "--workers", "2",
        command=("python", str(SCRIPTS / "horovod_elastic.py"), "--form", "plain"),
    )  # fmt: skip
    wait_together(job, "chief-0", "worker-0", "worker-1")
    killed = job.kill("worker-1")
    wait_steps(job)
    job.until(lambda: job.pid("worker-1") != killed, "another process of worker-1")
    wait_together(job, "chief-0", "worker-0", "worker-1")
    assert job.scale(workers=1).outcome == "committed"
    wait_together(job, "chief-0", "worker-0")
    assert hurry(job) == 0, job.output  # each ends by itself, and nobody waits for who has ended
    check(job)
    known = lines(job, "steps")
    given = lines(job, "before")
    assert (
        len(given) == 4 and len({tuple(rows[0]) for rows in given.values()}) == 1
    )  # who comes has what the others were given
    assert len({row[2] for rows in known.values() for row in rows}) > 8  # rates rise, and all have the same
    assert len(known) == 4 and {row[3] for rows in known.values() for row in rows} == {"2", "3"}
