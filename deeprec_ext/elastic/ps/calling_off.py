"""Writing that its AIMaster does not want any more: it has outlived its limit, and something older is to be restored.

The number of a command is its identity: numbers grow over all AIMasters of a job. So nothing has to come in order: a command
that was called off before it came, over a stream that broke meanwhile, does not begin.
"""

from __future__ import annotations

from collections.abc import Callable

from deeprec_ext.errors import DeepRecError


class CalledOffError(DeepRecError):
    """What was being written is not wanted any more."""


class CallingOff:
    """Which commands of one kind count. Told by the agent's thread, asked by those who write."""

    def __init__(self) -> None:
        self._below = 0

    def call_off(self, number: int) -> None:
        """All with a lower number."""
        self._below = max(self._below, number)

    begins = call_off  # of several that write the same variables the last one counts

    def is_off(self, number: int) -> bool:
        return number < self._below


def still_wanted(called_off: Callable[[], bool]) -> None:
    """Before each run that writes. Raises CalledOffError."""
    if called_off():
        raise CalledOffError("called off: the AIMaster does not wait for it any more")
