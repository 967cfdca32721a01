"""The AIMaster in a group whose memory is used up is killed by the kernel, and the job goes on."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator

import grpc
import pytest

from deeprec_ext.gazer.cgroup import Group, own_groups
from deeprec_ext.launch.roles.guard import PREFIX
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc
from deeprec_ext.security.credentials import open_channel, server_name
from tests.behaviour.jobs import COUNT, RealJob

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("groups_can_be_made")]

ROOM, ASKED = 16 << 20, 60 << 20
"""Bytes that it has left, and of one question that it is asked."""


def group_of_aimaster(job: RealJob) -> Group:
    own = own_groups()["memory"]
    [path] = own.path.glob(f"{PREFIX}{job.process.pid}-*/aimaster")
    return Group(path, own.version)


@contextlib.contextmanager
def memory_bound(group: Group, most: int) -> Iterator[None]:
    group.limit_memory(most)
    try:
        yield
    finally:
        (group.path / ("memory.max" if group.version == 2 else "memory.limit_in_bytes")).write_text(
            "max" if group.version == 2 else "-1"
        )


def ask_much(job: RealJob) -> None:
    """A question so long that its answerer needs more memory than there is."""
    described = json.loads((job.directory / "job.json").read_text())
    certificates = job.directory / "certs"
    name = server_name("aimaster", described["job"])
    with (
        open_channel(described["aimaster"], name, "admin", certificates) as channel,
        contextlib.suppress(grpc.RpcError),
    ):
        rpc.AdminStub(channel).Scale(pb.ScaleRequest(reason="x" * ASKED, dry_run=True), timeout=30)


def test_an_aimaster_that_runs_out_of_memory_is_started_again_and_the_job_goes_on(begin: Callable[..., RealJob]):
    job = begin("--ps", "2", "--workers", "1", "--ps-memory", "4GiB", command=COUNT)
    job.wait_training("chief-0", "worker-0")
    job.wait_scalable()
    before = job.running()
    pid, group = job.pid("aimaster"), group_of_aimaster(job)
    with memory_bound(group, group.working_set_bytes() + ROOM):
        ask_much(job)
        job.until(lambda: job.pid("aimaster") != pid, "another AIMaster")
    assert group.oom_kills() > 0
    step = job.step()
    job.until(lambda: job.step() > step + 20, "training to go on")
    after = job.running()
    assert {name: after[name] for name in before} == before, "nobody else was started anew"
    assert job.scale(ps=3).outcome == "committed"
    assert job.finish() == 0
    summary = job.summary()
    assert summary["status"] == "succeeded" and not summary["failures"], summary
    assert summary["roles"]["aimaster"] == {"started": 2, "restarted": 1}
    assert summary["aimaster_restarts"] == {"was killed (oom: out of memory)": 1}
