"""A PS that gets no processor is waited for; one that hangs is given up, on the same busy machine."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time

import pytest

from deeprec_ext.gazer import hostload
from deeprec_ext.gazer.cgroup import Group, own_groups
from deeprec_ext.launch.roles.guard import PREFIX
from tests.behaviour.jobs import COUNT, RealJob
from tests.behaviour.losses import Losses

pytestmark = pytest.mark.slow

STARVED_SECONDS = 10.0
"""Several times the limit after which a PS that says nothing is given up, which is one second here."""


@contextlib.contextmanager
def starved(*pids: int):
    """These processes get what others leave of one core, and others leave nothing."""
    core = max(os.sched_getaffinity(0))
    spin = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile os.getppid() == int(sys.argv[2]): pass"
    hogs = [subprocess.Popen([sys.executable, "-c", spin, str(core), str(os.getpid())]) for _ in range(3)]
    try:
        for pid in pids:
            for thread in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(int(thread), {core})
                    os.sched_setscheduler(int(thread), os.SCHED_IDLE, os.sched_param(0))
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


@contextlib.contextmanager
def throttled(job: RealJob, role: str):
    """Its group may work for one millisecond a second; the container's own limit is back afterwards."""
    group = Group(
        next(own_groups()["cpu"].path.glob(f"{PREFIX}{job.process.pid}-*/{role}")), own_groups()["cpu"].version
    )
    if group.version == 2:
        files = {"cpu.max": (group.read("cpu.max"), "1000 1000000")}
    else:
        names = {"cpu.cfs_quota_us": "1000", "cpu.cfs_period_us": "1000000"}
        files = {name: (group.read(name), value) for name, value in names.items()}
    try:
        for name, (_, value) in files.items():
            (group.path / name).write_text(value)
        yield lambda: int(dict(line.split() for line in group.read("cpu.stat").splitlines())["nr_throttled"])
    finally:
        for name, (before, _) in reversed(files.items()):
            (group.path / name).write_text(before)


def queued(pid: int) -> float:
    look = hostload.look(pid)
    assert look is not None
    return look.queued_seconds


@pytest.mark.timeout(400)
def test_starved_ps_are_not_given_up_and_a_hung_one_is(begin):
    job: RealJob = begin(
        "--ps", "2", "--workers", "0", "--setting", "peer_backup_seconds=0.5",
        "--setting", "ps_heartbeat_limit_seconds=1", "--setting", "busy_limit_seconds=90", command=COUNT,
    )  # fmt: skip
    job.wait_scalable()
    Losses(job, 2).wait_protected()
    pids = [job.pid("ps-0"), job.pid("ps-1")]
    waited = [queued(pid) for pid in pids]
    with starved(*pids):
        deadline = time.monotonic() + STARVED_SECONDS
        job.until(lambda: time.monotonic() > deadline, "the end of the hunger")
        assert all(queued(pid) - before > STARVED_SECONDS / 4 for pid, before in zip(pids, waited)), (
            "they were not starved"
        )
        assert not job.events("silent", "failure"), job.last_events()
        job.stop("ps-1")
        job.until(lambda: job.events("failure"), "the hung one to be noticed", 60)
    assert [event["role"] for event in job.events("failure")] == ["ps-1"]
    job.until(lambda: job.events("promoted"), "the survivor to take over")
    job.wait_training("chief-0")
    assert job.finish() == 0, job.output


@pytest.mark.timeout(400)
@pytest.mark.usefixtures("groups_can_be_made")
def test_a_ps_whose_quota_is_used_up_is_not_given_up(begin):
    job: RealJob = begin(
        "--ps", "2", "--workers", "0", "--ps-cpu", "1", "--setting", "peer_backup_seconds=0.5",
        "--setting", "ps_heartbeat_limit_seconds=1", "--setting", "busy_limit_seconds=90", command=COUNT,
    )  # fmt: skip
    job.wait_scalable()
    Losses(job, 2).wait_protected()
    ages = [0.0]
    with throttled(job, "ps-0") as periods:
        before, deadline = periods(), time.monotonic() + 2 * STARVED_SECONDS

        def over() -> bool:
            if role := job.role("ps-0"):
                ages.append(role.heartbeat_age_seconds)
            return time.monotonic() > deadline or bool(job.events("silent"))

        job.until(over, "the end of the throttling", every=0.2)
        assert not job.events("silent", "failure"), job.last_events()
        assert periods() - before > STARVED_SECONDS / 2 and max(ages) > 1.5, "it was not held back"
    # And it tells how late it was, which is all that is known where nobody sees it.
    job.until(lambda: (role := job.role("ps-0")) and role.heartbeat.late_seconds > 1.0, "its own word for it", 10)
    job.wait_training("chief-0")
    assert job.finish() == 0, job.output
