"""Why a process is over, in the words of `failures` in summary.json; each begins with a word of `metrics.tally.CAUSES`."""

from __future__ import annotations

KILLED_CODE = 128 + 9

HUNG, GONE = "hung", "exited or cut off: its connection broke, and it did not come back"
"""Of who was given up for its silence: it was there and said nothing, or nobody has seen what became of it (yet)."""

WITH_THE_JOB = "ended with the job"
NOT_WANTED = "stopped: it is not wanted any more"
"""Of who was told to end, by a signal that is our own doing."""

STOPPED_CODES = (0, 128 + 15, KILLED_CODE)
"""How a process ends that is told to, and one that does not do so in time."""


def cause_of_exit(exit_code: int, told: str = "") -> str:
    """`137` → `killed by signal 9`, unless the backend knows better (`oom: memory limit of 2.0 GB`)."""
    if told:
        return told
    if exit_code > 128:
        return f"killed by signal {exit_code - 128}"
    return f"exited with code {exit_code}"
