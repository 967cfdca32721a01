"""What the decisions of a job have brought, from all that was observed of it: for the summary, the report and `decisions`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from deeprec_ext.autoscaler.observe.observed import Change, Observed, Window
from deeprec_ext.autoscaler.outcomes.account import STOOD_SECONDS, Account, account, stood
from deeprec_ext.autoscaler.outcomes.conditions import comparable
from deeprec_ext.autoscaler.outcomes.trials import Trial, stays, trials
from deeprec_ext.units import counted, format_rate, format_seconds, sized

WRONG_MAX = 3
"""Wrong decisions that are told one by one in a sentence."""


@dataclass(frozen=True)
class Brought:
    """Of all changes since the first one."""

    account: Account
    windows: int
    wrong: tuple[Trial, ...]  # changes that did not bring what was foretold, oldest first
    changes: int
    by_hand: int  # of these, by no decision

    def to_values(self) -> dict[str, Any]:
        """As summary.json has it."""
        (ps, workers), found = self.account.first, self.account
        return {
            "first": {"ps": ps, "workers": workers}, "seconds": round(found.seconds, 1),
            "examples_per_second_first": round(found.first_rate, 3), "examples_per_second": round(found.rate, 3),
            "gained": round(found.gained, 4), "seconds_gained": round(-found.lost_seconds, 1), "by_hand": self.by_hand,
            "wrong": [
                {
                    "decision": one.number, "from": list(one.before), "to": list(one.after), "predicted": _share(one.foretold),
                    "gained": _share(one.gained),
                }
                for one in self.wrong
            ],
        }  # fmt: skip

    def sentence(self) -> str:
        found = self.account
        ahead = format_seconds(abs(found.lost_seconds))
        text = (
            f"{format_rate(found.rate)} examples/s since the first change, against {format_rate(found.first_rate)} at "
            f"{sized(*found.first)} "
            f"({found.gained:+.1%}, in {counted(self.windows, 'window')}): the job is {ahead} "
            f"{'behind' if found.lost_seconds > 0 else 'ahead of'} where it would be"
        )
        if self.by_hand:
            verb = "was" if self.by_hand == 1 else "were"
            text += f"; {self.by_hand} of {counted(self.changes, 'change')} {verb} made by hand"
        if not self.wrong:
            return f"{text}; no decision was wrong"
        told = "; ".join(map(_told, self.wrong[:WRONG_MAX]))
        more = f" and {len(self.wrong) - WRONG_MAX} more" if len(self.wrong) > WRONG_MAX else ""
        return f"{text}; wrong: {told}{more}"


def brought(observed: Sequence[Observed], disturbance: float, until: float = 0.0) -> Brought | None:
    """Args:
    observed: what decisions were made from, oldest first: each has the newest windows and changes of its time.
    disturbance: as the policy has it: share of throughput that a change takes while it goes on.
    until: seconds since the start of the job; at least until the last observation.

    None: no size was ever changed, or nothing was measured at the first one.
    """
    if not observed:
        return None
    seen: dict[float, Window] = {window.start: window for one in observed for window in one.windows}
    windows = comparable([seen[start] for start in sorted(seen)])
    made: dict[tuple[float, str], Change] = {(one.time, one.role): one for each in observed for one in each.changes}
    first = next((one.first for one in observed if one.first is not None), None)
    past = stays(observed[-1].size, [made[key] for key in sorted(made)], first)
    changes = list(made.values())
    found = account(
        past, windows, max(until, observed[-1].time), disturbance, stood(_heard(observed, seen.values(), changes))
    )
    if len(past) < 2 or not found.first_rate:
        return None
    wrong = tuple(one for one in trials(past, windows) if one.failed)
    return Brought(found, len(windows), wrong, len(past) - 1, sum(stay.by_hand for stay in past[1:]))


def _heard(observed: Sequence[Observed], windows: Iterable[Window], changes: Sequence[Change]) -> list[float]:
    """Times at which the job was there: decisions are recorded every few minutes, and changes may take as long."""
    times = {one.time for one in observed}
    times.update(time for window in windows for time in (window.start, window.start + window.seconds))
    for change in changes:
        times.update(change.time - back for back in range(0, max(1, int(change.seconds)), int(STOOD_SECONDS / 2)))
    return sorted(times)


def _share(value: float | None) -> float | None:
    return round(value, 4) if value is not None else None


def _told(one: Trial) -> str:
    gained = f"brought {one.gained:+.0%}" if one.gained is not None else "was taken back"
    foretold = f" where {one.foretold:+.0%} was predicted" if one.foretold is not None else ""
    return f"decision {one.number} to {sized(*one.after)} {gained}{foretold}"
