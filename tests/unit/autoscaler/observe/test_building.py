"""The one builder of observations."""

from __future__ import annotations

from deeprec_ext.autoscaler.observe import building
from deeprec_ext.autoscaler.observe.observed import Change, Limits, Model, Progress, Size
from tests.unit.autoscaler.facts import fact


def test_many_replacements_crowd_out_no_change_of_size():
    by_hand = fact(Change, 1.0, "scale-up", "worker", 1, 2, "committed", manual=True)
    replaced = [fact(Change, 2.0 + at, "replace", "worker", 2, 2, "committed") for at in range(100)]
    last = fact(Change, 200.0, "scale-up", "ps", 1, 2, "committed")
    seen = building.observation(
        number=1, time=300.0, size=Size(2, 2), limits=Limits(), objective="fastest", deadline_seconds=0.0,
        model=Model.unknown(), windows=(), roles=(), hosts=(), one_host=False, slots=(),
        changes=[by_hand, *replaced, last], losses=(), progress=Progress(0, 0), backups=True, copies_bytes=0, hold=False,
        busy=False, reclaimed=(), first=None, stood=(),
        local_batch=False,
    )  # fmt: skip
    assert seen.changes == (by_hand, *replaced[-building.CHANGES_KEPT :], last)
