"""What happened so far, counted: scalings, failures, pauses, recoveries, warnings; for counters and histograms.

Counted from the event log, each event once and for ever: the tally is stored with the number of the last event it has seen,
and the next AIMaster goes on from there. So no counter goes back, and none counts anything twice.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from deeprec_ext.aimaster.core.records import GIVEN_UP
from deeprec_ext.aimaster.store.events import read_fields
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.gazer.metrics import PAUSE_BUCKETS
from deeprec_ext.units import saturated

KEY = "gazer_tally"
PAGE, PAGES_AT_ONCE = 500, 20

ROLES = ("ps", "chief", "worker", "evaluator")
KINDS = ("scale-up", "scale-down", "rebalance", "replace", "resize", GIVEN_UP)
OUTCOMES = ("committed", "rolled_back", "refused")
CAUSES = ("killed", "hung", "oom", "exited", "evicted")
OTHER = "other"


@dataclass
class Observed:
    """A histogram over PAUSE_BUCKETS; one more bucket for what is above all."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(PAUSE_BUCKETS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(PAUSE_BUCKETS, seconds)] += 1
        self.total += seconds


@dataclass
class Tally:
    """Keys are words of the lists above, several joined by a blank."""

    after: int = 0  # sequence number of the last event counted
    scalings: Counter[str] = field(default_factory=Counter)  # role kind outcome
    failures: Counter[str] = field(default_factory=Counter)  # role cause
    pauses: Observed = field(default_factory=Observed)
    recoveries: dict[str, Observed] = field(default_factory=dict)  # role
    moved_bytes: int = 0
    lost_steps: int = 0
    warnings: int = 0

    # ------------------------------------------------------------------------------------------------ stored

    def to_dict(self) -> dict[str, Any]:
        return {
            **vars(self), "pauses": vars(self.pauses), "recoveries": {role: vars(one) for role, one in self.recoveries.items()}
        }  # fmt: skip

    @staticmethod
    def load(store: Store) -> Tally:
        """What the last AIMaster stored; from nothing where it stored nothing, or with other buckets."""
        values = store.get(KEY)
        if values is None or len(values["pauses"]["counts"]) != len(PAUSE_BUCKETS) + 1:
            return Tally()
        return Tally(
            **{
                **values,
                "scalings": Counter(values["scalings"]),
                "failures": Counter(values["failures"]),
                "pauses": Observed(**values["pauses"]),
                "recoveries": {role: Observed(**one) for role, one in values["recoveries"].items()},
            }
        )

    def save(self, store: Store) -> None:
        store.put(**{KEY: self.to_dict()})

    # ------------------------------------------------------------------------------------------------ counting

    def catch_up(self, store: Store) -> None:
        """Counts what has happened since the last time, some thousand events at most."""
        for _ in range(PAGES_AT_ONCE):
            page = store.events(self.after, PAGE)
            for sequence, _, type_, role, _, text in page:
                self.after = sequence
                handler = getattr(self, f"_on_{type_}", None)
                if handler is not None:
                    handler(role, read_fields(text))
            if len(page) < PAGE:
                return

    def _on_scaling_ended(self, _: str, event: dict[str, Any]) -> None:
        self.scalings[" ".join((_one_of(event.get("target"), ROLES), _one_of(event.get("kind"), KINDS),
                                _one_of(event.get("outcome"), OUTCOMES)))] += 1  # fmt: skip
        self.moved_bytes = _more(self.moved_bytes, event.get("bytes_moved"))
        self.moved_bytes = _more(self.moved_bytes, event.get("bytes_resent"))

    def _on_pause(self, _: str, event: dict[str, Any]) -> None:
        self.pauses.add(_seconds(event))

    def _on_failure(self, role: str, event: dict[str, Any]) -> None:
        cause = str(event.get("cause", "")).partition(" ")[0]
        self.failures[f"{kind_of(role)} {_one_of(cause, CAUSES)}"] += 1

    def _on_recovered(self, role: str, event: dict[str, Any]) -> None:
        self.recoveries.setdefault(kind_of(role), Observed()).add(_seconds(event))
        self.lost_steps = _more(self.lost_steps, event.get("steps_lost"))

    def _on_warning(self, _: str, __: dict[str, Any]) -> None:
        self.warnings += 1


def kind_of(name: str) -> str:
    """`ps-2` → `ps`."""
    return _one_of(name.partition("-")[0], ROLES)


def _more(sum_: int, value: object) -> int:
    """Saturates; what is no count is none."""
    return saturated(sum_ + max(0, value)) if isinstance(value, int) else sum_


def _seconds(event: dict[str, Any]) -> float:
    value = event.get("seconds")
    return max(0.0, float(value)) if isinstance(value, (int, float)) and math.isfinite(value) else 0.0


def _one_of(word: object, words: tuple[str, ...]) -> str:
    """Labels have few values, whatever somebody writes into an event."""
    return word if isinstance(word, str) and word in words else OTHER
