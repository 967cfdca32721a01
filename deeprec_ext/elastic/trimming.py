"""Memory that a process has freed goes back to the system: a PS every now and then, a trainer when it has closed old sessions.

glibc keeps what is freed in its arenas. Initialising a table needs its values twice for a moment, and so does a copy of a slot
or a refresh of a backup: afterwards a PS with 256 MB of variables had 150 MB that nobody used, and whoever sizes pods by
what they use paid for it. `malloc_trim` (malloc_trim(3)) gives back whole free pages of all arenas; what a step frees and
takes again is faulted in anew at the next step, every now and then.
"""

from __future__ import annotations

import ctypes
import logging
import threading
import time

log = logging.getLogger("deeprec_ext")

TRIM_SECONDS = 20.0
"""Between two calls: each costs milliseconds where there is little to give back."""

SLOW_SECONDS = 0.2


def trim() -> float:
    """Gives back what is free; seconds it took. Nothing happens where there is no glibc."""
    function = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if function is None:
        return 0.0
    began = time.monotonic()
    function(ctypes.c_size_t(0))
    return time.monotonic() - began


def keep_trimming(ended: threading.Event) -> None:
    """In the background, until then."""

    def work() -> None:
        while not ended.wait(TRIM_SECONDS):
            seconds = trim()
            if seconds > SLOW_SECONDS:
                log.info("giving free memory back to the system took %.2f s", seconds)

    threading.Thread(target=work, name="deeprec-trim", daemon=True).start()
