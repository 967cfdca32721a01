"""What a process finds about its container, on fake trees of files."""

from __future__ import annotations

import pytest

from deeprec_ext.gazer.cgroup import Cgroup, CgroupSample
from deeprec_ext.gazer.host import free_memory_bytes
from tests.unit.gazer.trees import SECOND, first, groups, plant

TOP = "sys/fs/cgroup"
MEMORY_STAT = "anon 700\ninactive_file 300\nactive_file 20\n"
NO_LIMIT = "9223372036854771712\n"


def second(folder: str, current: int, limit: str, cpu: str = "max 100000", **more: str) -> dict[str, str]:
    files = {
        "cgroup__type": "domain\n", "memory__current": f"{current}\n", "memory__max": f"{limit}\n", "memory__stat": MEMORY_STAT,
        "cpu__max": f"{cpu}\n", "cpu__stat": "usage_usec 9\nthrottled_usec 0\n", "memory__events": "oom 0\noom_kill 0\n",
    }  # fmt: skip
    return groups(folder, **{**files, **more})


def test_a_container_of_version_2(tmp_path):
    root = plant(tmp_path, {
        "proc/self/cgroup": "0::/\n", "proc/self/mountinfo": SECOND,
        **second(TOP, 1000, "4096", "150000 100000", memory__events="low 0\noom 2\noom_kill 1\n",
                 cpu__stat="usage_usec 5\nnr_throttled 3\nthrottled_usec 2500000\n"),
    })  # fmt: skip
    assert Cgroup(root).sample() == CgroupSample(700, 4096, 1.5, 2.5, 1)


def test_max_is_no_limit(tmp_path):
    files = {"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": SECOND, **second(TOP, 1000, "max")}
    assert Cgroup(plant(tmp_path, files)).sample() == CgroupSample(working_set_bytes=700)


@pytest.mark.parametrize("inner, outer, expected", [
    ("max", "8000", CgroupSample(working_set_bytes=4700, memory_limit_bytes=8000)),
    ("2000", "8000", CgroupSample(working_set_bytes=700, memory_limit_bytes=2000)),
    ("9000", "8000", CgroupSample(working_set_bytes=4700, memory_limit_bytes=8000)),
])  # fmt: skip
def test_of_nested_groups_the_one_with_the_lowest_limit_counts(tmp_path, inner, outer, expected):
    files = {
        "proc/self/cgroup": "0::/pod/app/worker\n", "proc/self/mountinfo": SECOND,
        **second(TOP, 9000, "max"), **second(f"{TOP}/pod", 5000, outer), **second(f"{TOP}/pod/app", 3000, "max"),
        **second(f"{TOP}/pod/app/worker", 1000, inner),
    }  # fmt: skip
    assert Cgroup(plant(tmp_path, files)).sample() == expected


def test_a_cpu_limit_further_up_counts(tmp_path):
    files = {
        "proc/self/cgroup": "0::/pod/app\n", "proc/self/mountinfo": SECOND, **second(TOP, 0, "max"),
        **second(f"{TOP}/pod", 0, "max", "50000 100000", cpu__stat="throttled_usec 7000000\n"),
        **second(f"{TOP}/pod/app", 0, "max", "200000 100000"),
    }  # fmt: skip
    sample = Cgroup(plant(tmp_path, files)).sample()
    assert (sample.cpu_limit_cores, sample.throttled_seconds) == (0.5, 7.0)


def test_a_container_of_version_1_without_a_namespace_is_found_by_what_the_mount_shows(tmp_path):
    """/proc/self/cgroup has the path on the host, and the mount point is the container's group."""
    root = plant(tmp_path, {
        "proc/self/cgroup": "3:cpu,cpuacct:/kubepods/pod7/abc\n2:memory:/kubepods/pod7/abc\n1:name=systemd:/\n",
        "proc/self/mountinfo": first("memory", "/kubepods/pod7/abc") + first("cpu", "/kubepods/pod7/abc"),
        **groups(f"{TOP}/memory", memory__limit_in_bytes="4096\n", memory__usage_in_bytes="1000\n",
                 memory__stat="inactive_file 1\ntotal_inactive_file 300\n",
                 memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 4\n"),
        **groups(f"{TOP}/cpu", cpu__cfs_quota_us="250000\n", cpu__cfs_period_us="100000\n",
                 cpu__stat="nr_periods 9\nnr_throttled 3\nthrottled_time 1500000000\n"),
    })  # fmt: skip
    assert Cgroup(root).sample() == CgroupSample(700, 4096, 2.5, 1.5, 4)


def test_the_limitless_numbers_of_version_1(tmp_path):
    root = plant(tmp_path, {
        "proc/self/cgroup": "3:cpu,cpuacct:/a\n2:memory:/a\n", "proc/self/mountinfo": first("memory") + first("cpu"),
        **groups(f"{TOP}/memory/a", memory__limit_in_bytes=NO_LIMIT, memory__usage_in_bytes="1000\n"),
        **groups(f"{TOP}/cpu/a", cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n"),
        **groups(f"{TOP}/memory", release_agent="", memory__limit_in_bytes=NO_LIMIT, memory__usage_in_bytes="99999\n"),
    })  # fmt: skip
    assert Cgroup(root).sample() == CgroupSample(working_set_bytes=1000)


def test_the_machine_itself_is_no_container(tmp_path):
    root = plant(tmp_path, {
        "proc/self/cgroup": "2:memory:/\n0::/\n", "proc/self/mountinfo": first("memory") + SECOND,
        **groups(f"{TOP}/memory", release_agent="", memory__limit_in_bytes="4096\n", memory__usage_in_bytes="99999\n"),
        **groups(TOP, memory__current="5\n", memory__max="5\n", cpu__max="1 1\n"),
    })  # fmt: skip
    assert Cgroup(root).sample() == CgroupSample()


def test_in_a_mixed_set_up_each_controller_is_looked_for_where_it_belongs(tmp_path):
    root = plant(tmp_path, {
        "proc/self/cgroup": "2:memory:/a\n0::/a\n",
        "proc/self/mountinfo": first("memory") + "32 20 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
        **groups(f"{TOP}/memory/a", memory__limit_in_bytes="4096\n", memory__usage_in_bytes="10\n"),
        **second(f"{TOP}/unified/a", 77, "88", "100000 100000"),
    })  # fmt: skip
    assert Cgroup(root).sample() == CgroupSample(working_set_bytes=10, memory_limit_bytes=4096, cpu_limit_cores=1.0)


def test_a_group_outside_of_what_is_mounted_is_replaced_by_the_mount(tmp_path):
    files = {"proc/self/cgroup": "0::/../../elsewhere\n", "proc/self/mountinfo": SECOND, **second(TOP, 1000, "4096")}
    assert Cgroup(plant(tmp_path, files)).sample().memory_limit_bytes == 4096


def test_limits_are_read_anew_each_time(tmp_path):
    files = {"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": SECOND, **second(TOP, 1000, "4096")}
    cgroup = Cgroup(plant(tmp_path, files))
    assert cgroup.sample().memory_limit_bytes == 4096
    plant(tmp_path, second(TOP, 1000, "8192"))
    assert cgroup.sample().memory_limit_bytes == 8192


@pytest.mark.parametrize("files", [
    {},
    {"proc/self/cgroup": "0::/\n"},
    {"proc/self/mountinfo": SECOND},
    {"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": SECOND},
    {"proc/self/cgroup": "nonsense\n:::\n0::/\n", "proc/self/mountinfo": "1 2\n - cgroup2\n" + SECOND,
     f"{TOP}/cgroup.type": "", f"{TOP}/memory.max": "many", f"{TOP}/cpu.max": "a b c", f"{TOP}/memory.current": "-"},
])  # fmt: skip
def test_what_is_missing_or_nonsense_is_zero(tmp_path, files):
    assert Cgroup(plant(tmp_path, files)).sample() == CgroupSample()


@pytest.mark.parametrize("inner, outer, expected", [
    ("max", "max", None),
    ("2000", "max", 1320),
    ("2000", "5000", 320),  # 4680 of the outer one are in use, and no files
    ("500", "8000", 0),
])  # fmt: skip
def test_what_is_free_is_what_the_tightest_of_all_limits_leaves(tmp_path, inner, outer, expected):
    files = {
        "proc/self/cgroup": "0::/pod/app\n", "proc/self/mountinfo": SECOND, **second(TOP, 9000, "max"),
        **second(f"{TOP}/pod", 5000, outer), **second(f"{TOP}/pod/app", 1000, inner),
    }  # fmt: skip
    assert Cgroup(plant(tmp_path, files)).free_memory_bytes() == expected


def test_files_that_were_read_twice_take_no_memory_from_anybody(tmp_path):
    """Of a data set larger than the limit all that is left is full of them in the second epoch."""
    root = plant(tmp_path, {
        "proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": SECOND, **second(f"{TOP}/a", 1000, "1000"),
        f"{TOP}/a/memory.stat": "inactive_file 300\nactive_file 500\n",
    })  # fmt: skip
    assert Cgroup(root).free_memory_bytes() == 800
    assert Cgroup(root).sample().working_set_bytes == 700


def test_what_is_free_under_a_limit_of_version_1(tmp_path):
    root = plant(tmp_path, {
        "proc/self/cgroup": "2:memory:/a\n", "proc/self/mountinfo": first("memory"),
        **groups(f"{TOP}/memory/a", memory__limit_in_bytes="4096\n", memory__usage_in_bytes="1000\n",
                 memory__stat="total_inactive_file 300\n"),
    })  # fmt: skip
    assert Cgroup(root).free_memory_bytes() == free_memory_bytes(Cgroup(root)) == 4096 - 700


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [("max", "max", 1.0), ("max", "1400", 0.5), ("1000", "1400", 0.3), ("500", "max", 0.0)],
)
def test_the_share_that_is_left_is_that_of_the_limit_nearest_to_be_reached(tmp_path, outer, inner, expected):
    """The process's own group has used 700 bytes, and so has the one above it."""
    files = {
        "proc/self/cgroup": "0::/pod/app\n", "proc/self/mountinfo": SECOND, **second(TOP, 9000, "max"),
        **second(f"{TOP}/pod", 1000, outer), **second(f"{TOP}/pod/app", 1000, inner),
    }  # fmt: skip
    assert Cgroup(plant(tmp_path, files)).free_memory_share() == pytest.approx(expected)


def test_without_a_limit_the_machine_s_memory_is_free(tmp_path):
    files = {"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": SECOND, **second(TOP, 1000, "max")}
    assert free_memory_bytes(Cgroup(plant(tmp_path, files))) > 1 << 20
