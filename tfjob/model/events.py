"""Kubernetes Events: what `kubectl describe tfjob` shows."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from tfjob.model.kinds import Manifest
from tfjob.model.times import stamp

MESSAGE_MAX = 1024
"""Characters; the server takes no more."""

FORBIDDEN = "Forbidden"
"""Reason of what is told of rights that are too narrow, and of quotas that are used up."""


class Event(NamedTuple):
    """About a TFJob."""

    type: str  # Normal or Warning
    reason: str
    message: str

    def manifest(self, metadata: Manifest, about: Manifest, component: str, when: datetime) -> Manifest:
        """A core/v1 Event.

        Args:
            about: the `involvedObject`.
            component: who says it.
        """
        time = stamp(when)
        return {
            "apiVersion": "v1", "kind": "Event", "metadata": metadata, "involvedObject": about,
            "type": self.type, "reason": self.reason, "message": self.message[:MESSAGE_MAX],
            "source": {"component": component}, "firstTimestamp": time, "lastTimestamp": time, "count": 1,
        }  # fmt: skip
