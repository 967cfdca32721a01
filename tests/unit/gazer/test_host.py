"""What a process finds about its host, on a fake /proc and on the real one."""

from __future__ import annotations

import os

import pytest

from deeprec_ext.gazer import host
from deeprec_ext.gazer.cgroup import Cgroup
from deeprec_ext.gazer.process import ProcessReader
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.gazer.trees import SECOND, first, groups, plant

TICKS = os.sysconf("SC_CLK_TCK")


def line(name: str, *seconds: int) -> str:
    """user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice."""
    return f"{name} {' '.join(str(TICKS * one) for one in seconds)}\n"


STAT = (
    line("cpu", *[1000] * 10) + line("cpu0", 1, 2, 3, 100, 50, 4, 5, 6, 1, 0) + line("cpu1", 10, 0, 0, 9, 0, 0, 0, 0, 0, 0)
    + line("cpu12", 100, 0, 0, 9, 0, 0, 0, 0, 0, 0) + "intr 1 2 3\ncpu1 999\n"
)  # fmt: skip


def test_what_a_processor_did_for_anybody_counts_and_what_it_waited_does_not():
    assert host.worked_seconds(STAT, frozenset({0})) == 1 + 2 + 3 + 4 + 5 + 6
    assert host.worked_seconds(STAT, frozenset({0, 1})) == 21 + 10
    assert host.worked_seconds(STAT, frozenset({1, 12})) == 110


@pytest.mark.parametrize("text", ["", "nonsense", "cpu\ncpu0\ncpu1 x y z\n"])
def test_an_unreadable_file_is_no_work(text):
    assert host.worked_seconds(text, frozenset({0, 1})) == 0


def test_only_the_processors_that_the_process_is_kept_to_are_its_host(tmp_path, monkeypatch):
    monkeypatch.setattr(host, "processors", lambda: frozenset({1, 12}))
    root = plant(tmp_path, {"proc/stat": STAT})
    sample = host.HostReader(root, Cgroup(root)).read(shared=True)
    assert sample == pb.HostSample(cores=2, busy_seconds=110, processors=[1, 12])
    (tmp_path / "proc/stat").unlink()
    assert host.HostReader(root, Cgroup(root)).read(shared=True) == pb.HostSample()


def limited(tmp_path, *, role: str, above: str) -> Cgroup:
    """A role in a group of its own, below that of the container."""
    usage = {"cgroup__type": "domain\n"}
    files = {
        "proc/self/cgroup": "0::/role\n", "proc/self/mountinfo": SECOND,
        **groups("sys/fs/cgroup", cpu__max=above, cpu__stat="usage_usec 7500000\n", **usage),
        **groups("sys/fs/cgroup/role", cpu__max=role, cpu__stat="usage_usec 500000\n", **usage),
    }  # fmt: skip
    return Cgroup(plant(tmp_path, files))


def test_the_limit_of_a_role_alone_is_no_quota_of_the_host(tmp_path):
    cgroup = limited(tmp_path, role="50000 100000\n", above="max 100000\n")
    assert cgroup.shared_quota(own=False) == (0, 0)
    assert cgroup.shared_quota(own=True) == (0.5, 0.5)  # with other roles in that group it is


def test_the_limit_of_the_container_around_the_roles_is_shared(tmp_path):
    cgroup = limited(tmp_path, role="50000 100000\n", above="200000 100000\n")
    assert cgroup.shared_quota(own=False) == (2, 7.5)


def test_the_first_version_of_control_groups(tmp_path):
    folder = "sys/fs/cgroup/cpu"
    files = {
        "proc/self/cgroup": "3:cpu:/\n", "proc/self/mountinfo": first("cpu"),
        **groups(folder, cpu__cfs_quota_us="150000\n", cpu__cfs_period_us="100000\n", cpuacct__usage="2500000000\n"),
    }  # fmt: skip
    assert Cgroup(plant(tmp_path, files)).shared_quota(own=True) == (1.5, 2.5)


@pytest.mark.skipif(not os.path.exists("/proc/stat"), reason="no /proc")
def test_the_real_host_works():
    reader = ProcessReader()
    reader.read()
    before = reader.read_host()
    until = before.busy_seconds + 0.05
    while (after := reader.read_host()).busy_seconds < until:
        sum(range(10_000))
    assert after.cores == before.cores == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(("text", "name"), [
    ("processor : 0\nmodel name\t: Some Core 9\n" * 3, "3 x Some Core 9"), ("", "2 x cores"),
    ("Model : board 4\n", "2 x board 4"),
])  # fmt: skip
def test_a_machine_is_named_by_all_its_processors(tmp_path, monkeypatch, text, name):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cpuinfo").write_text(text)
    monkeypatch.setattr(host, "processors", lambda: frozenset({0, 1}))
    assert host.machine(str(tmp_path)) == name
