"""What two annotations of a TFJob say: `allowance`, which the cluster's arbiter writes, and `parked`, which the AIMaster does.

A text that is none of them counts as none: both are of ours, and whoever has written it finds the job running.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

from deeprec_ext.arbiter.observed import Allowance
from deeprec_ext.decoding import built
from tfjob.model import names
from tfjob.model.spec import TFJob

TEXT_MAX = 16_384
"""Characters that are looked at."""

KEPT_MAX = 300
"""Characters of a sentence."""


@dataclass(frozen=True)
class Parked:
    """The pods of the job may go: whatever can be kept is."""

    kept: str  # one sentence: what the job goes on with
    why: str = ""  # by the AIMaster's own decision; empty: it was told to
    again_seconds: float = 0.0  # of its own decision: after so long there may be room

    def text(self) -> str:
        return json.dumps({**dataclasses.asdict(self), "kept": self.kept[:KEPT_MAX], "why": self.why[:KEPT_MAX]})


def allowance_of(job: TFJob) -> Allowance | None:
    """None: the arbiter has said nothing."""
    text = job.annotations.get(names.ALLOWANCE_ANNOTATION) or ""
    try:
        values = json.loads(text[:TEXT_MAX])
        return built(Allowance, {**values, "job": f"{job.namespace}/{job.name}"}, newer=True)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def parked_of(job: TFJob) -> Parked | None:
    """None: its AIMaster has not said so."""
    text = job.annotations.get(names.PARKED_ANNOTATION) or ""
    try:
        return built(Parked, json.loads(text[:TEXT_MAX]), newer=True)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
