"""Memory that a process has freed goes back to the system: a PS every now and then, a trainer once it has closed
old sessions.

glibc keeps what is freed in its arenas. Initialising a table needs its values twice for a moment, and so does a copy of a slot
or a refresh of a backup: afterwards a PS with 256 MB of variables had 150 MB that nobody used, and whoever sizes pods by
what they use paid for it. `malloc_trim` (malloc_trim(3)) gives back whole free pages of all arenas; what a step frees and
takes again is faulted in anew at the next step, every now and then.

What lies between pieces still in use it cannot give back, and every arena has its own: glibc makes 8 of them for each core of
the machine, the hundreds of threads of a TensorFlow server use them all, and each keeps what the busiest moment left in it.
`bound_arenas` lets a PS have two for each core it may use.
"""

from __future__ import annotations

import ctypes
import logging
import math
import os
import threading
import time

from deeprec_ext.gazer.cgroup import Cgroup

log = logging.getLogger("deeprec_ext")

TRIM_SECONDS = 20.0
"""Between two calls: each costs milliseconds where there is little to give back."""

SLOW_SECONDS = 0.2

LATER_SECONDS = 5.0
"""A trainer has steps to make when it has closed sessions, the first on a new view: where the heap is large each call takes
0.1 to 0.3 s, in which nobody can take from, or give to, the arena that is looked through."""

ARENAS_A_CORE = 2
"""With one a core threads waited for each other: a PS needed 2 % more processor time a step, with two nothing to speak of
(docs/benchmarks.md, Long)."""

_M_ARENA_MAX = -8  # malloc.h


def bound_arenas() -> int:
    """Of this process, before it has many threads; returns how many it may have, 0 where nothing was done: the environment
    says so itself (MALLOC_ARENA_MAX), or there is no glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or "MALLOC_ARENA_MAX" in os.environ:
        return 0
    cores = min(Cgroup().sample().cpu_limit_cores or math.inf, len(os.sched_getaffinity(0)))
    arenas = ARENAS_A_CORE * max(1, math.ceil(cores))
    return arenas if mallopt(_M_ARENA_MAX, arenas) else 0


def trim() -> float:
    """Gives back what is free; seconds it took. Nothing happens where there is no glibc."""
    function = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if function is None:
        return 0.0
    began = time.monotonic()
    function(ctypes.c_size_t(0))
    return time.monotonic() - began


_pending = threading.Lock()


def trim_later() -> None:
    """In a few seconds, once for all who ask until then."""
    if not _pending.acquire(blocking=False):
        return

    def work() -> None:
        time.sleep(LATER_SECONDS)
        _pending.release()
        trim()

    try:
        threading.Thread(target=work, name="deeprec-trim", daemon=True).start()
    except RuntimeError:  # no thread can be begun any more: the process ends
        _pending.release()


def keep_trimming(ended: threading.Event) -> None:
    """In the background, until then."""

    def work() -> None:
        while not ended.wait(TRIM_SECONDS):
            seconds = trim()
            if seconds > SLOW_SECONDS:
                log.info("giving free memory back to the system took %.2f s", seconds)

    threading.Thread(target=work, name="deeprec-trim", daemon=True).start()
