"""Roles in cgroups of their own: real limits, real kills for want of memory. Skipped where no groups can be made."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import grpc
import psutil
import pytest

from deeprec_ext.gazer.cgroup import Group, own_groups
from deeprec_ext.launch.roles.guard import PREFIX
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc
from deeprec_ext.security.credentials import open_channel, server_name
from tests.behaviour.jobs import HUNGRY, RealJob
from tests.behaviour.test_launcher import Run, alive
from tests.behaviour.test_launcher import start as start  # the fixture

pytestmark = pytest.mark.usefixtures("groups_can_be_made")


def groups_of(run: Run, role: str) -> dict[str, Group]:
    """controller -> group, of a role of a run that was started by this process."""
    return {
        name: Group(path, own.version)
        for name, own in own_groups().items()
        for path in own.path.glob(f"{PREFIX}{run.process.pid}-*/{role}")
    }


def directories(pid: int) -> list[Path]:
    return [path for own in own_groups().values() for path in own.path.glob(f"{PREFIX}{pid}-*")]


def resize(run: Run, name: str, **resources: float) -> None:
    described = json.loads((run.directory / "job.json").read_text())
    certificates = run.directory / "certs"
    channel = open_channel(described["launcher"], server_name("launcher", described["job"]), "admin", certificates)
    request = pb.ResizeRequest(name=name, resources=pb.Resources(**resources))
    rpc.LauncherStub(channel).Resize(request, timeout=10)


def cpu_limit(group: Group) -> float:
    if group.version == 2:
        quota, period = group.read("cpu.max").split()
    else:
        quota, period = group.read("cpu.cfs_quota_us"), group.read("cpu.cfs_period_us")
    return int(quota) / int(period)


def test_a_role_lives_in_its_group_and_a_resize_reaches_it_while_it_runs(start, wait_until):
    run = start("--ps", "1", "--ps-cpu", "0.5", "--worker-cpu", "250m", "--worker-memory", "256MiB")
    wait_until(lambda: run.step("chief-0") and run.step("worker-0") and run.pid("ps-0"), what="steps")
    limits = {role: cpu_limit(groups_of(run, role)["cpu"]) for role in ("ps-0", "chief-0", "worker-0")}
    assert limits == {"ps-0": 0.5, "chief-0": 0.25, "worker-0": 0.25}
    assert groups_of(run, "worker-0")["memory"].memory_limit_bytes() == 256 << 20
    assert groups_of(run, "ps-0")["memory"].memory_limit_bytes() == 0
    for role in limits:
        for group in groups_of(run, role).values():
            assert str(run.pid(role)) in group.read("cgroup.procs").split()

    resize(run, "worker-0", cpu=0.75)
    resize(run, "ps", memory_bytes=512 << 20)
    assert cpu_limit(groups_of(run, "worker-0")["cpu"]) == 0.75
    assert cpu_limit(groups_of(run, "chief-0")["cpu"]) == 0.25
    assert groups_of(run, "ps-0")["memory"].memory_limit_bytes() == 512 << 20
    with pytest.raises(grpc.RpcError, match="no such pod"):
        resize(run, "worker-9", cpu=1.0)
    described = json.loads((run.directory / "job.json").read_text())
    assert described["requests"] == {
        "ps": {"cpu": 0.5, "memory_bytes": 0},
        "worker": {"cpu": 0.25, "memory_bytes": 256 << 20},
    }

    run.process.send_signal(signal.SIGINT)
    run.end()
    assert run.process.returncode == 130
    assert not directories(run.process.pid)


def test_a_busy_role_is_held_to_its_share(start, wait_until, tmp_path):
    busy = tmp_path / "busy.py"
    busy.write_text("while True: pass\n")
    run = start("--ps", "1", "--workers", "0", "--worker-cpu", "0.1", command=["python", str(busy)])

    def throttled() -> int:
        words = groups_of(run, "chief-0")["cpu"].read("cpu.stat").split() if groups_of(run, "chief-0") else []
        return int(words[words.index("nr_throttled") + 1]) if words else 0

    wait_until(lambda: throttled() > 3, what="periods in which it was held back")


def test_groups_of_a_killed_launcher_are_removed_and_those_of_a_killed_guard_by_the_next_run(start, wait_until):
    run = start("--worker-cpu", "0.5")
    wait_until(lambda: run.step("chief-0"), what="steps")
    processes = run.processes()
    assert directories(run.process.pid)
    run.process.kill()
    wait_until(lambda: not directories(run.process.pid), 15.0, "the removal of the groups by the guard")
    wait_until(lambda: not alive(processes), 5.0, "the end of all processes, the guard's own as well")

    run.process.wait()
    (run.directory / "aimaster.db").unlink()  # the fake one knows no resuming
    again = start("--worker-cpu", "0.5")
    wait_until(lambda: again.pid("chief-0") in {one.pid for one in again.processes()}, what="the second run")
    processes = again.processes()
    assert directories(again.process.pid)
    guard = next(one for one in processes if any(word.endswith("guard.py") for word in one.cmdline()))
    guard.kill()
    again.process.kill()
    again.process.wait()
    wait_until(lambda: not alive(processes), 15.0, "the end of all processes")

    # The next run on this machine, which may be one of another test.
    (run.directory / "aimaster.db").unlink()
    third = start("--worker-cpu", "0.5")
    wait_until(lambda: third.pid("chief-0") in {one.pid for one in third.processes()}, what="the third run")
    assert not directories(again.process.pid)
    assert directories(third.process.pid)


def test_what_a_role_has_started_ends_with_it_though_it_has_left_its_process_group(start, wait_until, tmp_path):
    script = tmp_path / "leaves_a_child.py"
    script.write_text(
        "import os, subprocess, sys\n"
        "child = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        "open(os.environ['DEEPREC_EXT_WORKDIR'] + '/child', 'w').write(str(child.pid))\n"
    )
    run = start("--ps", "1", "--workers", "0", "--worker-cpu", "0.5", command=["python", str(script)])
    assert "succeeded" in run.end() and run.process.returncode == 0
    child = int((run.directory / "child").read_text())
    wait_until(lambda: not psutil.pid_exists(child), 10.0, "the end of the child")


@pytest.mark.slow
def test_a_worker_that_runs_out_of_memory_is_started_again_and_the_summary_says_oom(begin: Callable[..., RealJob]):
    job = begin("--ps", "1", "--workers", "1", "--worker-memory", "1500MiB", command=HUNGRY)
    job.wait_training("chief-0", "worker-0")
    pid = job.pid("worker-0")
    eat = job.put("eat-worker-0")
    job.until(lambda: job.pid("worker-0") != pid, "another worker-0")
    eat.unlink()
    assert not psutil.pid_exists(pid)
    job.wait_training("worker-0", "chief-0")
    assert job.finish() == 0
    failures = job.summary()["failures"]
    assert [(one["role"], one["id"]) for one in failures] == [("worker", 0)]
    assert failures[0]["cause"] == "oom: memory limit of 1.6 GB"
    assert job.summary()["roles"]["worker-0"] == {"started": 2, "restarted": 1}


def test_limits_that_are_no_amounts_end_with_bad_usage(start):
    for flags, part in (
        (["--ps-memory", "Mi"], "--ps-memory"),
        (["--worker-memory", "2"], "Write the unit"),
        (["--ps-cpu", "much"], "--ps-cpu"),
    ):
        run = start(*flags)
        output = run.end()
        assert run.process.returncode == 2, output
        assert part in output
        assert "Traceback" not in output
        assert not (run.directory / "job.json").exists()
