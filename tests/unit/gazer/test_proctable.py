"""Who belongs to whom, and since when: on a fake /proc and with real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from deeprec_ext.gazer.proctable import TICKS_A_SECOND, descendants, started
from tests.unit.gazer.trees import plant, stat


def test_families_go_down_to_the_last_generation_and_stay_apart(tmp_path):
    parents = {1: 0, 7: 1, 42: 7, 43: 7, 50: 42, 51: 50, 8: 1, 9: 8}
    proc = plant(tmp_path, {f"{pid}/stat": stat(pid, parent) for pid, parent in parents.items()})
    assert descendants(7, proc) == [42, 43, 50, 51]
    assert descendants(51, proc) == []
    assert descendants(99, proc) == []


def test_real_processes_and_what_they_have_started(wait_until):
    with subprocess.Popen(
        [sys.executable, "-c", "import subprocess; subprocess.run(['cat'])"], stdin=subprocess.PIPE
    ) as one:
        two = wait_until(lambda: descendants(one.pid), what="its child")
        assert len(two) == 1
        assert set(descendants(os.getpid())) >= {one.pid, *two}
        assert 0 < started(os.getpid()) <= started(one.pid) <= started(two[0])
        assert started(two[0]) / TICKS_A_SECOND <= time.clock_gettime(time.CLOCK_BOOTTIME)
        assert one.stdin is not None
        one.stdin.close()
    assert started(one.pid) == 0


def test_the_start_of_a_process_does_not_move_with_the_clock(tmp_path):
    proc = plant(tmp_path, {"42/stat": stat(42, 7, start=6018481), "stat": "btime 1795344821\n"})
    assert started(42, proc) == 6018481
    (tmp_path / "stat").write_text("btime 1795344822\n")
    assert started(42, proc) == 6018481
    assert started(43, proc) == 0
