"""How much of the AIMaster one process may take with what it says: messages, bytes, and time of the one loop that all share.

Who takes more is not refused: it is read more slowly, so what it says waits on its own side (gRPC's flow control), and costs
neither memory here nor the others' turn. Honest processes say a few messages a second and never meet this.
"""

from __future__ import annotations

from dataclasses import dataclass

PER_SECOND = 1000.0
"""Units. A message is one; a script that reports metrics in each step says some hundreds a second."""

BURST = 4000.0
"""Units that may come at once: after a break everything is told again."""

UNIT_BYTES = 4096
"""... of a message are another unit."""

SHARE = 0.2
"""Of the loop's time that handling one process' messages may take in the long run."""

STALL_SECONDS = 0.2
"""Counted of one message at the most: what took longer stood still, for disk or processor; the message is not why."""

WAIT_MAX_SECONDS = 0.5
"""At a time: a process that is not read is silent meanwhile, and 3 s of silence end a PS."""


@dataclass
class Allowance:
    """Of one process, over all its streams. Pure: monotonic time is an argument."""

    left: float = BURST
    at: float | None = None

    def spend(self, size: int, seconds: float, now: float) -> float:
        """One message of so many bytes was handled in so many seconds. Returns how long to wait before the next is read."""
        if self.at is not None:
            self.left = min(BURST, self.left + max(0.0, now - self.at) * PER_SECOND)
        self.at = now
        cost = max(1.0 + size / UNIT_BYTES, min(seconds, STALL_SECONDS) / SHARE * PER_SECOND)
        self.left = max(-BURST, self.left - cost)
        return min(WAIT_MAX_SECONDS, max(0.0, -self.left / PER_SECOND))
