"""Calm: why a change for throughput or cost must wait. What is urgent (memory, lost hosts) does not ask here.

Flapping is bounded whatever is measured: a role changes its direction at most `reversals_per_hour` times within an hour. What
the arbiter of a cluster takes and gives back counts for nothing here: it is calm by itself.
"""

from __future__ import annotations

from deeprec_ext.aimaster.core.records import GIVEN_UP
from deeprec_ext.autoscaler.observe.observed import Change, Size, Window
from deeprec_ext.autoscaler.outcomes.measured import Key, key_of
from deeprec_ext.autoscaler.policy.evidence import HOUR, Evidence
from deeprec_ext.units import format_seconds

COUNTS = ("scale-up", "scale-down")
OF_LOSSES = ("replace", GIVEN_UP)
"""Kinds of changes that follow from a process that was lost, or is to go: none was made for throughput or cost."""

RESIZES_PER_HOUR = 8
"""A request is halved or raised by half at a time: so many steps span more than a factor of ten."""


def any_change(evidence: Evidence) -> str:
    """Why the job must not go to any other size now; empty when it may to some."""
    held = [by_hand(evidence, role) for role in (("worker",) if evidence.limits.sums else ("ps", "worker"))]
    if all(held):
        return " and ".join(held)
    ours = [one for one in evidence.past(seconds=HOUR) if not (one.manual or one.arbiter) and one.kind not in OF_LOSSES]
    if len(ours) >= evidence.policy.changes_per_hour:
        return f"{len(ours)} changes were made within the hour"
    policy = evidence.policy
    return _too_young(evidence, min(policy.up_cooldown_seconds, policy.down_cooldown_seconds))


def blocked(evidence: Evidence, size: Size) -> str:
    """Why the job must not go to `size` now; empty when it may."""
    for role, before, after in _counts(evidence.size, size):
        if after != before and (
            why := by_hand(evidence, role, after) or _role(evidence, role, 1 if after > before else -1)
        ):
            return why
    requests_differ = key_of(size)[2:] != key_of(evidence.size)[2:] or _memory(size) != _memory(evidence.size)
    if requests_differ and (why := _requests(evidence)):
        return why
    old, policy = evidence.size, evidence.policy
    grows = any(new > before for new, before in zip(key_of(size), key_of(old)))
    return any_change(evidence) or _too_young(
        evidence, policy.up_cooldown_seconds if grows else policy.down_cooldown_seconds
    )


def manual(evidence: Evidence, role: str) -> float:
    """Seconds since somebody set the count of a role by hand, while that still counts; else 0. The other role's is free."""
    past = evidence.past(seconds=evidence.policy.manual_seconds, role=role)
    ages = [evidence.now - change.time for change in past if change.manual and change.kind in COUNTS]
    return max(1e-3, min(ages)) if ages else 0.0


def by_hand(evidence: Evidence, role: str, count: int | None = None) -> str:
    """Why a role does not get this count now, for how long, and who can change that; empty: it may, as far as that goes."""
    since = manual(evidence, role)
    if not since:
        return ""
    name, flag = ("PS", "--ps") if role == "ps" else ("workers", "--workers")
    left = max(0.0, evidence.policy.manual_seconds - since)
    return (
        f"the number of {name} was set by hand {format_seconds(since)} ago, and is left alone for {format_seconds(left)} more "
        f"(`deeprec-ext scale DIR {flag} {'N' if count is None else count}` changes it now)"
    )


def failed(evidence: Evidence, role: str, kinds: tuple[str, ...]) -> str:
    """Why one must wait after failures of the same kind in a row; empty: one need not."""
    row = []
    for change in reversed(evidence.observed.changes):
        if change.role == role and change.kind in kinds:
            if change.outcome == "committed":
                break
            row.append(change)
    if not row:
        return ""
    wait = min(HOUR, evidence.policy.failed_seconds * 2.0 ** min(len(row) - 1, 10))
    left = row[0].time + wait - evidence.now
    if left <= 0:
        return ""
    return f"the last {row[0].kind} of {role} was {row[0].outcome.replace('_', ' ')}; the next try is in {format_seconds(left)}"


# ------------------------------------------------------------------------------------------------------- internals


def _counts(old: Size, new: Size) -> tuple[tuple[str, int, int], ...]:
    return ("ps", old.ps, new.ps), ("worker", old.workers, new.workers)


def _memory(size: Size) -> tuple[int, int]:
    return size.ps_memory_bytes, size.worker_memory_bytes


def _role(evidence: Evidence, role: str, direction: int) -> str:
    policy = evidence.policy
    if why := failed(evidence, role, ("scale-up",) if direction > 0 else ("scale-down",)):
        return why
    moves = _moves(evidence, role)
    if not moves or _direction(moves[-1]) == direction:
        return ""
    if why := flips(evidence, role, policy.reversals_per_hour):
        return why
    age = evidence.now - moves[-1].time
    if age < policy.reverse_seconds and not _regretted(evidence, moves[-1]):
        what = "grew" if direction < 0 else "shrank"
        return f"{role} {what} only {format_seconds(age)} ago"
    return ""


def flips(evidence: Evidence, role: str, most: int) -> str:
    """Whether a role has changed its direction so often within the hour; empty if not."""
    moves = _moves(evidence, role)
    count = sum(
        _direction(earlier) != _direction(later) and evidence.now - later.time <= HOUR
        for earlier, later in zip(moves, moves[1:])
    )
    return f"{role} changed direction {count} times within the hour" if count >= most else ""


def _moves(evidence: Evidence, role: str) -> list[Change]:
    return [
        change for change in evidence.past(role=role)
        if change.kind in COUNTS and change.to_count != change.from_count and not change.arbiter
    ]  # fmt: skip


def _direction(change: Change) -> int:
    return 1 if change.to_count > change.from_count else -1


def _regretted(evidence: Evidence, change: Change) -> bool:
    """Whether the windows since the last change of a role show that it did not bring what it was made for."""
    before = evidence.measured.get(_before(evidence.size, change))
    now = evidence.present
    if before is None or now is None or min(before.windows, now.windows) < evidence.policy.windows_min:
        return False
    gained = now.rate / before.rate - 1
    if _direction(change) > 0:
        return gained < evidence.policy.gain_min
    return gained < -2 * evidence.policy.marginal_loss - evidence.error(evidence.size)


def _before(size: Size, change: Change) -> Key:
    ps = change.from_count if change.role == "ps" else size.ps
    workers = change.from_count if change.role == "worker" else size.workers
    return ps, workers, size.ps_cpu, size.worker_cpu


def _requests(evidence: Evidence) -> str:
    """Requests have no record of their directions; so they are counted, by the windows and by the record."""
    past = [change for change in evidence.past(seconds=HOUR) if change.kind == "resize" and not change.manual]
    count = max(len(past), _resizes(evidence.windows, evidence.now))
    if count >= RESIZES_PER_HOUR:
        return f"requests were changed {count} times within the hour"
    return failed(evidence, "ps", ("resize",)) or failed(evidence, "worker", ("resize",))


def _resizes(windows: tuple[Window, ...], now: float) -> int:
    keys = [key_of(window.size)[2:] for window in windows if now - window.start <= HOUR]
    return sum(earlier != later for earlier, later in zip(keys, keys[1:]))


def _too_young(evidence: Evidence, seconds: float) -> str:
    left = evidence.changed_at + seconds - evidence.now
    return f"the last change is not old enough, {format_seconds(left)} to wait" if left > 0 else ""
