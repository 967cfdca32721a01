"""What becomes of a job for whose processes there is no room. Pure, with the time as an argument.

| of the job | it waits for | then |
|---|---|---|
| strict, and it has trained | `STRICT_SECONDS` | it is parked: all go, with everything kept, until there may be room |
| strict, before that | the same | the same: no two jobs keep what the other lacks; after `max_wait` in all it fails |
| dynamic, before its first view | `max_wait` | it begins with its least PS and workers |
| dynamic, with the least, and no room for it | `max_wait` again | it fails |
| dynamic, once it has trained | | goes on with those that there are, as ever |

Processes that a scaling adds are the scaling's: it is rolled back. Where the job belongs to a gang, the scheduler holds nothing
for it before all fit, and it is not parked before it has trained.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from deeprec_ext.units import format_seconds

STRICT_SECONDS = 30.0
"""A cluster's scheduler looks again every few seconds, and a pod that was lost takes some to be made anew."""

AGAIN_SECONDS, AGAIN_SECONDS_MAX = 60.0, 900.0
"""Until it is tried again; each time in a row twice as long."""

NAMED = 3


class What(enum.Enum):
    GO_ON = "go on"
    PARK = "park"
    LEAST = "begin with the least"
    FAIL = "fail"


@dataclass(frozen=True)
class Job:
    """At one moment."""

    strict: bool
    max_wait_seconds: float  # 0: for ever
    trained: bool  # now, or at any time
    formed: bool  # there was a first view
    gang: bool
    at_least: bool  # begins with its least already
    waited_seconds: float  # since it has begun, or has begun with its least
    waiting: Mapping[str, tuple[float, str]]  # wanted, and no scaling's: without room for so many seconds, and why
    tries: int = 0  # times in a row that it was parked by itself


@dataclass(frozen=True)
class Verdict:
    what: What
    why: str = ""
    again_seconds: float = 0.0


GO_ON = Verdict(What.GO_ON)


def judge(job: Job) -> Verdict:
    if not job.waiting:
        return GO_ON
    if not job.trained and 0 < job.max_wait_seconds <= job.waited_seconds:
        names = _named({name: why for name, (_, why) in job.waiting.items()})
        why = f"there was no room for {names} within {format_seconds(job.max_wait_seconds)} (max-wait)"
        return Verdict(What.FAIL if job.strict or job.at_least or job.formed else What.LEAST, why)
    late = {name: why for name, (seconds, why) in job.waiting.items() if seconds >= STRICT_SECONDS}
    if job.strict and late and (job.trained or not job.gang):
        again = min(AGAIN_SECONDS * 2**job.tries, AGAIN_SECONDS_MAX)
        return Verdict(What.PARK, f"strict, and there is no room for {_named(late)}", again)
    return GO_ON


def _named(waiting: Mapping[str, str]) -> str:
    names = sorted(waiting)
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    why = next((waiting[name] for name in names if waiting[name]), "")
    return ", ".join(names[:NAMED]) + more + (f" ({why})" if why else "")
