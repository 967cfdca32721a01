"""What a process has freed goes back to the system."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from deeprec_ext.elastic import trimming

FREES = """
import psutil
from deeprec_ext.elastic.trimming import trim
kept = [bytearray(100_000) for _ in range(3000)]
kept = kept[-1:]  # the end of the heap stays in use, so nothing goes back by itself
before = psutil.Process().memory_info().rss
trim()
print(before - psutil.Process().memory_info().rss)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_free_memory_below_what_is_in_use_goes_back() -> None:
    done = subprocess.run([sys.executable, "-c", FREES], capture_output=True, text=True, timeout=60)
    assert int(done.stdout) > 200e6, done.stderr


def test_a_trainer_gives_back_what_old_sessions_held(monkeypatch: pytest.MonkeyPatch) -> None:
    from deeprec_ext.elastic import placed

    done: list[str] = []

    class Old:
        pinned = False

        def wait_idle(self, seconds: float, *, shut: bool = False) -> bool:
            return True

        def close(self) -> None:
            done.append("closed")

    monkeypatch.setattr(placed, "trim", lambda: done.append("trimmed"))
    placed.retire([Old(), Old()])  # type: ignore[list-item]
    assert done == ["closed", "closed", "trimmed"]


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
