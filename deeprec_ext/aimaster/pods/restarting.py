"""Whether a role that has ended is started again: a pure function of what is known at its end.

| it ended | and | then |
|---|---|---|
| anything | it was deleted, or the job is ending | done |
| any way | it is the AIMaster | again at once; the job fails when it never served or uses up its restarts |
| exit code 0 | | done |
| killed by a signal | restarts left (`restarts_max`) | again, after a backoff |
| exit code ≠ 0, chief, worker or evaluator | the script has not trained a step yet | the job fails: it would die again |
| exit code ≠ 0 | nothing can be written at present | again, every few seconds, and it does not count |
| exit code ≠ 0, chief | the same exception at the same line as its process before, and hardly trained since | the job fails |
| exit code ≠ 0 | fewer than 3 such restarts | again, after a backoff |
| restarts used up | chief, or nothing has trained yet | the job fails |
| restarts used up | worker or evaluator | given up; the AIMaster sees it exited, and the job goes on without it |
| restarts used up | PS | given up; the AIMaster sees it exited, rolls back the scaling that it came with, or ends the job |
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

ERROR_RESTARTS_MAX = 3
"""A program that fails by itself will most likely fail again: fewer attempts than after a kill."""

HARDLY_SECONDS = 60.0
"""A chief that has trained for less since it was started again, and fails by the same exception at the same line, would do so
once more. One that has trained for longer has perhaps met another record, or moment, of the kind."""

_BACKOFF_MAX_SECONDS = 5.0


class Action(Enum):
    DONE = "done"
    RESTART = "restart"
    GIVE_UP = "give up"
    FAIL_JOB = "fail the job"


@dataclass(frozen=True)
class Ended:
    """The end of one process, and what the backend of pods knows about its role and job."""

    role: str  # aimaster, ps, chief, worker, evaluator
    exit_code: int  # 128 + number for a signal
    by_signal: bool
    deleted: bool  # stopped on purpose, or the job is ending
    trained: bool  # the role has trained a step in this job; for all but a chief: or any other trainer has
    served: bool  # AIMaster: it has answered at least once
    restarts: int  # restarts of this name so far
    error_restarts: int  # of these, after an exit code ≠ 0
    restarts_max: int
    cause: str = ""  # where the exit code does not tell (out of memory)
    raised_at: str = ""  # by what exception of its script, and where (`tracebacks.raised_at`); empty: not known
    raised_before: str = ""  # the same of the process before it; empty: it was killed, too
    trained_seconds: float = 0.0  # since its own first step; 0: it has made none
    unwritten: bool = False  # the run directory cannot be written now, as far as the backend knows


@dataclass(frozen=True)
class Verdict:
    action: Action
    delay_seconds: float = 0.0
    reason: str = ""
    counts: bool = True  # among the restarts that there are


def decide(ended: Ended) -> Verdict:
    """The table above."""
    how = f"was killed ({ended.cause})" if ended.cause else describe_exit(ended.exit_code)
    if ended.deleted:
        return Verdict(Action.DONE)
    if ended.role == "aimaster":
        if not ended.served and not ended.by_signal:
            return Verdict(Action.FAIL_JOB, reason=f"{how} before it had started")
        if ended.restarts >= ended.restarts_max:
            return Verdict(Action.FAIL_JOB, reason=f"{how} after {ended.restarts} restarts")
        return Verdict(Action.RESTART, reason=how)
    if ended.exit_code == 0:
        return Verdict(Action.DONE)
    if not ended.by_signal and not ended.trained and ended.role != "ps":
        return Verdict(Action.FAIL_JOB, reason=f"{how} before its first training step")
    if ended.unwritten and not ended.by_signal:
        return Verdict(Action.RESTART, _BACKOFF_MAX_SECONDS, how, counts=False)
    same = bool(ended.raised_at) and ended.raised_at == ended.raised_before and ended.trained_seconds < HARDLY_SECONDS
    if ended.role == "chief" and same and not ended.by_signal:
        return Verdict(Action.FAIL_JOB, reason=f"{how} twice, at the same line of its script")
    limit = ended.restarts_max if ended.by_signal else min(ERROR_RESTARTS_MAX, ended.restarts_max)
    if (ended.restarts if ended.by_signal else ended.error_restarts) < limit:
        return Verdict(Action.RESTART, backoff_seconds(ended.restarts), how)
    reason = f"{how} after {ended.restarts} restarts"
    if ended.role == "chief" or not ended.trained:
        return Verdict(Action.FAIL_JOB, reason=reason)
    return Verdict(Action.GIVE_UP, reason=reason)


def backoff_seconds(restarts: int) -> float:
    """The first restart is at once (an accident), later ones wait 0.5, 1, 2, 4, 5, 5, … s (a condition)."""
    return 0.0 if restarts == 0 else min(0.25 * 2**restarts, _BACKOFF_MAX_SECONDS)


def describe_exit(exit_code: int) -> str:
    """`137` → "was killed by SIGKILL", `1` → "exited with code 1"."""
    from signal import Signals

    if exit_code > 128:
        try:
            return f"was killed by {Signals(exit_code - 128).name}"
        except ValueError:
            pass
    return f"exited with code {exit_code}"
