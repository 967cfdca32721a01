"""What a process finds about itself, on a fake /proc and on the real one."""

from __future__ import annotations

import os

import pytest

from deeprec_ext.gazer.process import NEIGHBOURS_EVERY, ProcessReader
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.gazer.trees import SECOND, groups, plant, stat

NET = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 900 1 0 0 0 0 0 0 900 1 0 0 0 0 0 0
"""
ETH = "  eth0: 1000 1 0 0 0 0 0 0 30 1 0 0 0 0 0 0\n  eth1:200 1 0 0 0 0 0 0 4 1 0 0 0 0 0 0\n"


def container(procs: str, **processes: str) -> dict[str, str]:
    return {
        "proc/self/cgroup": "0::/\n", "proc/self/mountinfo": SECOND, "proc/self/stat": stat(42, 7),
        **groups("sys/fs/cgroup", cgroup__type="domain\n", cgroup__procs=procs),
        **{f"proc/{name[1:]}/stat": text for name, text in processes.items()},
    }  # fmt: skip


def test_cpu_memory_threads_and_files(tmp_path):
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    root = plant(tmp_path, {
        "proc/self/stat": stat(42, 1, 3 * ticks, ticks, threads=17, pages=5, name="py) (thon"),
        "proc/self/fd/0": "", "proc/self/fd/1": "", "proc/self/fd/7": "",
    })  # fmt: skip
    sample = ProcessReader(root).read()
    assert (sample.cpu_seconds, sample.rss_bytes, sample.threads, sample.open_files) == (4.0, 5 * page, 17, 3)


@pytest.mark.parametrize("text, expected", [(NET + ETH, (1200, 34)), (NET, (900, 900)), ("", (0, 0)), ("x: y", (0, 0))])
def test_the_loopback_device_counts_only_alone(tmp_path, text, expected):
    sample = ProcessReader(plant(tmp_path, {"proc/self/net/dev": text})).read()
    assert (sample.received_bytes, sample.sent_bytes) == expected


def test_a_container_with_only_this_process_its_parent_and_its_children_is_its_own(tmp_path):
    files = container(
        "1\n7\n42\n50\n51\n", _1=stat(1, 0), _7=stat(7, 1), _42=stat(42, 7), _50=stat(50, 42), _51=stat(51, 50)
    )
    assert not ProcessReader(plant(tmp_path, files)).read().shared_limits


def test_a_container_with_a_process_of_somebody_else_is_shared(tmp_path):
    files = container("1\n7\n42\n43\n", _1=stat(1, 0), _7=stat(7, 1), _42=stat(42, 7), _43=stat(43, 7))
    reader = ProcessReader(plant(tmp_path, files))
    assert reader.read().shared_limits
    (tmp_path / "proc/43/stat").unlink()  # it has ended
    assert [reader.read().shared_limits for _ in range(NEIGHBOURS_EVERY)] == [True] * (NEIGHBOURS_EVERY - 1) + [False]


def test_a_process_without_a_container_shares_the_machine(tmp_path):
    assert ProcessReader(plant(tmp_path, {"proc/self/stat": stat(42, 1)})).read().shared_limits


@pytest.mark.parametrize("text", ["", "nonsense", "42 (a", "42 (a) S", "42 (a) S " + "x " * 40])
def test_an_unreadable_proc_gives_zeros(tmp_path, text):
    sample = ProcessReader(plant(tmp_path, {"proc/self/stat": text} if text else {})).read()
    assert sample == pb.ProcessSample(shared_limits=True)


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="no /proc")
def test_the_real_process():
    sample = ProcessReader().read()
    assert sample.rss_bytes > 1 << 20 and sample.threads >= 1 and sample.open_files >= 1
