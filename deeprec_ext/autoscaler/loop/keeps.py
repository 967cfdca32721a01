"""Which of the decisions to keep the size are recorded: there is one every ten seconds, each with all that it was made from.

The first after a change is, one whose reason is of another kind, one every few minutes, and the last: so the record says why a
job kept its size, and from what that followed. A kind has the sizes in it that the reason names: where candidates take turns
one a minute is recorded, however few rules have spoken, else one every five minutes. The record's files are bounded.
"""

from __future__ import annotations

from deeprec_ext.autoscaler.observe.observed import Observed
from deeprec_ext.autoscaler.policy.decision import Decision

KEEP_RECORDED_SECONDS = 300.0
"""One is recorded so often, whatever it says, and so often of each kind of reason."""

OTHER_RECORDED_SECONDS = 60.0
"""Two of different kinds are so far apart: reasons may take turns."""


class Keeps:
    """Of one job. `left`: the newest one with what it was made from, where it is not recorded."""

    def __init__(self) -> None:
        self._recorded: dict[str, float] = {}  # kind of reason -> when, in seconds; within KEEP_RECORDED_SECONDS
        self.left: tuple[Observed, Decision] | None = None

    def due(self, observed: Observed, decision: Decision, now: float) -> bool:
        """Whether this one is recorded now; else it is `left`."""
        self._recorded = {kind: at for kind, at in self._recorded.items() if now - at < KEEP_RECORDED_SECONDS}
        newest = max(self._recorded.values(), default=float("-inf"))
        if self._recorded and (decision.kind in self._recorded or now - newest < OTHER_RECORDED_SECONDS):
            self.left = observed, decision
            return False
        self._recorded[decision.kind], self.left = now, None
        return True

    def changed(self) -> None:
        """A decision that changes something is recorded instead, and tells why by itself."""
        self._recorded, self.left = {}, None
