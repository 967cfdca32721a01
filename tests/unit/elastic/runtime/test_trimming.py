"""What a process has freed goes back to the system."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from deeprec_ext.elastic.runtime import trimming

FREES = """
import psutil
from deeprec_ext.elastic.runtime.trimming import trim
kept = [bytearray(100_000) for _ in range(3000)]
kept = kept[-1:]  # the end of the heap stays in use, so nothing goes back by itself
before = psutil.Process().memory_info().rss
trim()
print(before - psutil.Process().memory_info().rss)
"""

ARENAS = """
import ctypes, os, threading
from deeprec_ext.elastic.runtime.trimming import bound_arenas
print(bound_arenas())
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.fopen.restype = ctypes.c_void_p, ctypes.c_void_p
started, ended = threading.Barrier(65), threading.Event()
def work():
    libc.malloc(ctypes.c_size_t(10_000))  # takes an arena for its thread
    started.wait(30)
    ended.wait(30)
for _ in range(64):
    threading.Thread(target=work, daemon=True).start()
started.wait(30)
read, write = os.pipe()
libc.fdopen.restype, libc.malloc_info.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]
libc.fclose.argtypes = [ctypes.c_void_p]
file = libc.fdopen(write, b"w")
threading.Thread(target=lambda: (libc.malloc_info(0, file), libc.fclose(file))).start()
print(open(read).read().count("<heap "))
ended.set()
"""


def arenas(**environment: str) -> tuple[int, int]:
    """(how many it says it may have, how many 65 threads use)."""
    done = subprocess.run(
        [sys.executable, "-c", ARENAS], capture_output=True, text=True, timeout=60, env={**os.environ, **environment}
    )
    allowed, used = done.stdout.split() or pytest.fail(done.stderr)
    return int(allowed), int(used)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_threads_share_two_arenas_a_core() -> None:
    allowed, used = arenas()
    assert 2 <= used <= allowed <= 2 * len(os.sched_getaffinity(0))


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_the_environment_may_say_how_many_arenas() -> None:
    assert arenas(MALLOC_ARENA_MAX="3") == (0, 3)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_free_memory_below_what_is_in_use_goes_back() -> None:
    done = subprocess.run([sys.executable, "-c", FREES], capture_output=True, text=True, timeout=60)
    assert int(done.stdout) > 200e6, done.stderr


def test_a_trainer_gives_back_what_old_sessions_held(monkeypatch: pytest.MonkeyPatch) -> None:
    from deeprec_ext.elastic.session import placed

    done: list[str] = []

    class Old:
        pinned = False

        def wait_idle(self, seconds: float, *, shut: bool = False) -> bool:
            return True

        def close(self) -> None:
            done.append("closed")

    with trimming._pending:  # that of a test before this one
        pass
    trimmed = threading.Event()
    monkeypatch.setattr(trimming, "LATER_SECONDS", 0.05)
    monkeypatch.setattr(trimming, "trim", lambda: (done.append("trimmed"), trimmed.set()))
    placed.retire([Old(), Old()])  # type: ignore[list-item]
    assert done[:2] == ["closed", "closed"]
    assert trimmed.wait(10)


def test_what_was_closed_within_seconds_is_given_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from deeprec_ext.elastic.session import placed

    with trimming._pending:  # that of a test before this one
        pass
    trimmed: queue.SimpleQueue[bool] = queue.SimpleQueue()
    go_on = threading.Event()
    monkeypatch.setattr(trimming, "time", SimpleNamespace(sleep=lambda seconds: go_on.wait(60)))
    monkeypatch.setattr(trimming, "trim", lambda: trimmed.put(True))
    placed.retire([])
    assert trimming._pending.acquire(blocking=False), "nothing was closed"
    trimming._pending.release()
    for _ in range(3):
        trimming.trim_later()
    go_on.set()
    assert trimmed.get(timeout=30)
    trimming.trim_later()
    assert trimmed.get(timeout=30)
    assert trimmed.empty()


def test_it_goes_on_until_the_process_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    trimmed, ended = threading.Event(), threading.Event()
    monkeypatch.setattr(trimming, "TRIM_SECONDS", 0.001)
    monkeypatch.setattr(trimming, "trim", lambda: trimmed.set() or 0.0)
    trimming.keep_trimming(ended)
    assert trimmed.wait(10)
    ended.set()
    (thread,) = [one for one in threading.enumerate() if one.name == "deeprec-trim"] or [None]
    if thread is not None:
        thread.join(10)
        assert not thread.is_alive()
