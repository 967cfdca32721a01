"""What the trainers of one name have done since this AIMaster began, for counters: it only grows."""

from __future__ import annotations

from dataclasses import dataclass, field

from deeprec_ext.gazer import values
from deeprec_ext.proto import deeprec_ext_pb2 as pb


@dataclass
class Totals:
    """Over all incarnations. `histogram`: steps per bucket of STEP_BUCKETS; empty before the first."""

    steps: int = 0
    examples: int = 0
    gate_wait_seconds: float = 0.0
    input_wait_seconds: float = 0.0
    histogram: list[int] = field(default_factory=list)
    histogram_seconds: float = 0.0

    def add(self, sample: pb.StepSample) -> bool:
        """One interval. False: it makes no sense, and is not counted."""
        numbers = (sample.steps, sample.examples, sample.gate_wait_seconds, sample.input_wait_seconds)
        if not all(map(values.usable, numbers)):
            return False
        self.steps += sample.steps
        self.examples += sample.examples
        self.gate_wait_seconds += sample.gate_wait_seconds
        self.input_wait_seconds += sample.input_wait_seconds
        counts = values.histogram(sample)
        if counts:
            self.histogram = [old + new for old, new in zip(self.histogram or [0] * len(counts), counts)]
            self.histogram_seconds += sample.histogram_seconds if values.usable(sample.histogram_seconds) else 0.0
        return True
