"""The annotation `parked` of a TFJob: the word of its AIMaster that the pods may go."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

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


def parked_of(job: TFJob) -> Parked | None:
    """None: its AIMaster has not said so; what is no such word counts as none."""
    text = job.annotations.get(names.PARKED_ANNOTATION) or ""
    try:
        return built(Parked, json.loads(text[:TEXT_MAX]), newer=True)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
