"""A story with what several parts of the report ask of it: when training ran undisturbed, and where the load was then."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

from deeprec_ext.gazer.report.lines import Lines, Windows, length, without
from deeprec_ext.gazer.report.ps_load import Loads, measure
from deeprec_ext.gazer.report.story import Story

T = TypeVar("T")

WARM_UP_SECONDS = 10.0
"""After the first step of a job, and of each trainer: sessions are prepared, caches and input queues fill."""

SETTLE_SECONDS = 5.0
"""After a scaling or a recovery: trainers catch up, and a sample may begin before and end after it."""


class Case:
    """Computed when asked for, once."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.lines = Lines(story.lines)
        self._known: dict[object, Any] = {}

    def once(self, function: Callable[[Case], T]) -> T:
        """What a pure function says of this case; the second time from memory."""
        if function not in self._known:
            self._known[function] = function(self)
        found: T = self._known[function]
        return found

    @cached_property
    def trainers(self) -> list[str]:
        """Names of the processes that have trained, the chief first."""
        return self.lines.subjects("steps_per_second", "chief-") + self.lines.subjects("steps_per_second", "worker-")

    @cached_property
    def one_host(self) -> bool:
        """Whether all processes are known to have run on one machine: no network was between them."""
        return len(self.lines.subjects("cores", "host-")) == 1

    @cached_property
    def training(self) -> Windows:
        """From the first step of any trainer to the last; empty without samples."""
        spans = [span for name in self.trainers for span in self.lines.spans(name, "steps_per_second") if span.mean > 0]
        return ((min(span.start for span in spans), max(span.end for span in spans)),) if spans else ()

    @cached_property
    def disturbances(self) -> tuple[tuple[float, float], ...]:
        """Scalings and failures, with the time it takes to settle after them."""
        story = self.story
        scalings = [(one.started, one.started + one.seconds) for one in story.scalings if one.started]
        failures = [
            (one.died, one.died + one.recovered_seconds if one.recovered_seconds is not None else story.ended)
            for one in story.failures
        ]
        return tuple((start, end + SETTLE_SECONDS) for start, end in [*scalings, *failures])

    @cached_property
    def calm(self) -> Windows:
        """Training without the warm-up, scalings and failures: what findings are drawn from."""
        if not self.training:
            return ()
        ((start, end),) = self.training
        return without(((start + WARM_UP_SECONDS, end),), self.disturbances) if end > start + WARM_UP_SECONDS else ()

    def calm_of(self, trainer: str) -> Windows:
        """Of one that may have come later, or gone earlier: its own first and last step count."""
        spans = [span for span in self.lines.spans(trainer, "steps_per_second") if span.mean > 0]
        if not spans:
            return ()
        first, last = spans[0].start + WARM_UP_SECONDS, spans[-1].end
        clipped = ((max(start, first), min(end, last)) for start, end in self.calm)
        return tuple((start, end) for start, end in clipped if end > start)

    @cached_property
    def placed(self) -> Windows:
        """The calm time of the last slot map that had some; all calm time where slot maps are not known."""
        placements = self.story.placements
        if not placements:
            return self.calm
        ends = [*(later.time for later in placements[1:]), float("inf")]
        for placement, end in sorted(zip(placements, ends), key=lambda pair: -pair[0].time):
            part = without(self.calm, ((float("-inf"), placement.time), (end, float("inf"))))
            if length(part) >= PLACED_SECONDS:
                return part
        return ()

    @cached_property
    def loads(self) -> Loads | None:
        """Of PS and slots under the slot map of `placed`; None where nothing was measured."""
        return measure(self.story, self.lines, self.placed, self.trainers)


PLACED_SECONDS = 10.0
"""A slot map that was in use for less has left no trace worth naming."""
