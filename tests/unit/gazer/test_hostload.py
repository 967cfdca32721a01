import os
import signal
import subprocess
import sys
from pathlib import Path

from deeprec_ext.gazer import hostload


def test_the_kernel_tells_how_long_a_thread_waited_for_the_processor() -> None:
    began = hostload.queued_seconds(f"/proc/{os.getpid()}")
    assert 0 < began <= hostload.queued_seconds(f"/proc/{os.getpid()}")
    assert hostload.queued_seconds("/proc/0") == 0.0


def test_processes_of_one_machine_and_one_namespace_know_each_other() -> None:
    told = subprocess.run(
        [sys.executable, "-c", "from deeprec_ext.gazer import hostload as h; print(h.machine()); print(h.pid_namespace())"],
        capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3],
    ).stdout.splitlines()  # fmt: skip
    assert told == [hostload.machine(), hostload.pid_namespace()]


def test_the_run_queue_is_counted_for_each_processor(tmp_path: Path) -> None:
    (tmp_path / "loadavg").write_text("40.12 20.03 3.05 50/812 4711\n")
    assert hostload.crowd(str(tmp_path)) == 50 / (os.cpu_count() or 1)
    (tmp_path / "loadavg").write_text("what")
    assert hostload.crowd(str(tmp_path)) == 0.0


def test_an_averaged_crowd_follows_slowly(monkeypatch) -> None:
    now = [100.0]
    monkeypatch.setattr(hostload.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(hostload, "crowd", lambda: 20.0)
    averaged = hostload.Crowd()
    assert averaged.sample() == 20.0
    monkeypatch.setattr(hostload, "crowd", lambda: 0.0)
    now[0] += 0.5
    assert 17 < averaged.sample() < 20
    now[0] += 60
    assert averaged.sample() < 0.1


def test_a_look_tells_a_stopped_process_from_a_sleeping_and_a_working_one() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time\nwhile True: time.sleep(0.01)"])
    try:
        assert not (look := hostload.look(child.pid)) or not look.stopped
        os.kill(child.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        look = hostload.look(child.pid)
        assert look is not None and look.stopped and not look.ready
    finally:
        child.kill()
        child.wait()
    assert hostload.look(child.pid) is None
    before = hostload.look(os.getpid())
    while (
        (after := hostload.look(os.getpid())) is not None and before and after.worked_seconds == before.worked_seconds
    ):
        pass  # it works
    assert after is not None and before is not None and not after.stopped and after.ready
    assert after.queued_seconds >= before.queued_seconds


def test_the_most_that_something_was_late_by_is_known_for_ten_seconds() -> None:
    lateness = hostload.Lateness()
    assert [lateness.add(now, late) for now, late in ((0, 0.1), (1, 3.0), (2, 0.5), (9, 1.0))] == [0.1, 3.0, 3.0, 3.0]
    assert [lateness.add(now, 0.0) for now in (11, 12, 19, 30)] == [3.0, 1.0, 1.0, 0.0]
