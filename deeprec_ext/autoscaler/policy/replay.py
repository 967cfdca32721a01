"""Decisions made again from their record: the same inputs give the same decision bit for bit, or a difference is shown."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deeprec_ext.autoscaler.policy.decide import decide
from deeprec_ext.autoscaler.policy.decision import Decision
from deeprec_ext.autoscaler.policy.record import Entry
from deeprec_ext.autoscaler.policy.thresholds import Policy


@dataclass(frozen=True)
class Replayed:
    """One decision of the record, and the one made now. `damaged`: the observation is not the one it was made from."""

    entry: Entry
    decision: Decision
    damaged: bool

    @property
    def differences(self) -> dict[str, tuple[Any, Any]]:
        """Field → (recorded, now)."""
        old, new = json.loads(self.entry.decision.to_json()), json.loads(self.decision.to_json())
        return {name: (old[name], new[name]) for name in old if old[name] != new[name]}

    @property
    def same(self) -> bool:
        return not self.damaged and self.decision.to_json() == self.entry.decision.to_json()


def replay(entries: Sequence[Entry], policy: Policy | None = None) -> list[Replayed]:
    """Args: policy: instead of the one that was recorded with each decision."""
    found = []
    for entry in entries:
        decision = decide(entry.observed, policy if policy is not None else entry.policy)
        damaged = entry.inputs != entry.decision.inputs
        found.append(Replayed(entry, dataclasses.replace(decision, inputs=entry.inputs), damaged))
    return found
