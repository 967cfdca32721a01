"""How fast the machine is at this moment, by a fixed piece of work.

A virtual machine shares its processors with others: the same job then needs 1.6 times the CPU seconds for the same work for
some minutes, and no process on this machine shows why. Who compares measurements minutes apart does this piece of work
meanwhile, and compares what would have been at one speed.
"""

from __future__ import annotations

import hashlib
import time

_SOURCE, _TARGET = bytes(1 << 18), bytearray(1 << 18)


def probe() -> float:
    """CPU seconds (about half a millisecond) of this thread for a bit of copying, hashing and interpreting."""
    began = time.thread_time()
    for _ in range(4):
        _TARGET[:] = _SOURCE
    hashlib.sha256(_SOURCE[: 1 << 16]).digest()
    total = 0
    for number in range(8000):
        total += number * number
    return time.thread_time() - began
