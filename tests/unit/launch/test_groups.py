"""Where groups are and what is written into them, on files that look like the kernel's."""

from __future__ import annotations

from pathlib import Path

import pytest

from deeprec_ext.gazer.cgroup import Group, own_groups
from deeprec_ext.launch.roles.groups import base_for, switch_on

V1_MOUNTS = """\
30 25 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755
31 30 0:27 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
32 30 0:28 /docker/abc /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
33 30 0:29 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
"""
V1_MEMBERSHIPS = "3:memory:/docker/abc/inner\n2:cpu,cpuacct:/docker/abc\n1:pids:/\n"


def unified(path: Path, controllers: str = "cpu io memory", on: str = "", processes: str = "") -> Group:
    path.mkdir(exist_ok=True)
    (path / "cgroup.controllers").write_text(controllers + "\n")
    (path / "cgroup.subtree_control").write_text(on + "\n")
    (path / "cgroup.procs").write_text(processes)
    return Group(path, 2)


def test_version_1_has_a_tree_for_each_controller_of_which_a_container_sees_a_part():
    groups = own_groups(V1_MOUNTS, V1_MEMBERSHIPS)
    assert groups == {
        "memory": Group(Path("/sys/fs/cgroup/memory/inner"), 1),
        "cpu": Group(Path("/sys/fs/cgroup/cpu,cpuacct"), 1),
        "cpuacct": Group(Path("/sys/fs/cgroup/cpu,cpuacct"), 1),
    }


def test_version_2_has_one_tree(tmp_path):
    own = unified(tmp_path / "user.slice")
    mounts = f"35 24 0:30 / {tmp_path} rw - cgroup2 cgroup2 rw,nsdelegate\n"
    assert own_groups(mounts, "0::/user.slice\n") == {"cpu": own, "memory": own}


def test_a_controller_in_a_tree_of_version_1_is_used_there_where_a_machine_has_both(tmp_path):
    unified(tmp_path, controllers="memory hugetlb")
    mounts = V1_MOUNTS.splitlines()[2] + f"\n40 24 0:30 / {tmp_path} rw - cgroup2 cgroup2 rw\n"
    groups = own_groups(mounts, V1_MEMBERSHIPS + "0::/\n")
    assert groups["cpu"].version == 1
    assert groups["memory"] == Group(tmp_path, 2)


def test_without_cgroups_there_are_none():
    assert own_groups("", "") == {}
    assert own_groups(V1_MOUNTS, "") == {}


@pytest.mark.parametrize(
    ("version", "files"),
    [
        (1, {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "25000", "memory.limit_in_bytes": "1048576",
             "memory.swappiness": "0", "cpu.shares": "10240"}),
        (2, {"cpu.max": "25000 100000", "memory.max": "1048576", "memory.swap.max": "0", "cpu.weight": "1000"}),
    ],
)  # fmt: skip
def test_limits_are_written_as_the_kernel_reads_them(tmp_path, version, files):
    group = Group(tmp_path, version)
    group.limit_cpu(0.25)
    group.limit_memory(1 << 20)
    group.weigh(10)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == files
    assert group.memory_limit_bytes() == 1 << 20


def test_the_kernel_gives_no_less_than_a_millisecond_of_each_period(tmp_path):
    Group(tmp_path, 2).limit_cpu(0.0001)
    assert (tmp_path / "cpu.max").read_text() == "1000 100000"


@pytest.mark.parametrize(
    ("version", "files"),
    [
        (1, {"memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", "memory.usage_in_bytes": "1000\n",
             "memory.stat": "inactive_file 7\ntotal_inactive_file 300\n", "memory.limit_in_bytes": "9223372036854771712\n"}),
        (2, {"memory.events": "low 0\nmax 9\noom 4\noom_kill 3\n", "memory.current": "1000\n",
             "memory.stat": "anon 1\ninactive_file 300\n", "memory.max": "max\n"}),
    ],
)  # fmt: skip
def test_use_and_kills_are_read_back(tmp_path, version, files):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    group = Group(tmp_path, version)
    assert (group.oom_kills(), group.working_set_bytes(), group.memory_limit_bytes()) == (3, 700, 0)


def test_a_group_that_cannot_be_read_has_used_nothing(tmp_path):
    group = Group(tmp_path / "gone", 1)
    assert (group.oom_kills(), group.working_set_bytes(), group.memory_limit_bytes()) == (0, 0, 0)


def test_in_version_2_groups_are_made_where_their_controllers_are_on(tmp_path):
    above = unified(tmp_path / "slice", on="cpu memory", processes="")
    own = unified(tmp_path / "slice" / "scope", processes="1\n")  # somebody else is in it: it can have no children
    own.path.joinpath("cgroup.subtree_control").unlink()
    own.path.joinpath("cgroup.subtree_control").mkdir()  # writing to it fails, as it does in the kernel then
    assert base_for(own, ["cpu", "memory"]) == above


def test_in_version_2_controllers_are_switched_on_where_that_is_allowed(tmp_path):
    own = unified(tmp_path / "scope", on="memory")
    assert base_for(own, ["cpu", "memory"]) == own
    assert (own.path / "cgroup.subtree_control").read_text() == "+cpu"


def test_a_group_without_the_controllers_is_refused(tmp_path):
    own = unified(tmp_path / "scope", controllers="io")
    with pytest.raises(OSError, match="controllers"):
        base_for(own, ["cpu"])


def test_version_1_needs_nothing_switched_on(tmp_path):
    switch_on(Group(tmp_path, 1), ["cpu"])
    assert not list(tmp_path.iterdir())
