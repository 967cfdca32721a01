"""What became of scalings that had not ended when their job did. Pure."""

from __future__ import annotations

from deeprec_ext.aimaster.core.records import Scaling
from deeprec_ext.aimaster.scaling.machine import ENDED, STOPPED, State, before_commit

NOT_BEGUN = "not_begun"


def outcome_of(scaling: Scaling) -> tuple[str, str]:
    """(outcome, reason), of a job that has ended: queued is `not_begun`, decided is `committed`, between is `rolled_back`."""
    if scaling.outcome:
        return scaling.outcome, scaling.reason
    state = State(scaling.state)
    if state is State.STEADY:
        return NOT_BEGUN, "the job ended before its turn came"
    return ("rolled_back" if before_commit(state) else "committed"), f"the job ended in {scaling.state}"


def cut_short(scaling: Scaling) -> bool:
    """Whether its job has ended before it did: nobody is to ask for it again."""
    return outcome_of(scaling)[0] != scaling.outcome or scaling.reason.endswith((ENDED, STOPPED))


def seconds_of(scaling: Scaling, ended: float) -> float:
    """How long it took, or went on until the job ended.

    Args:
        ended: Unix seconds of the last that is known of the job.
    """
    if scaling.outcome or not scaling.started:
        return scaling.seconds
    return max(0.0, ended - scaling.started)


def counts_of(scaling: Scaling) -> tuple[int | None, int | None]:
    """(from, to). None: nobody knows; what does not ask for a size gets its counts when its turn comes."""
    if scaling.from_count or scaling.to_count:
        return scaling.from_count, scaling.to_count
    return None, None
