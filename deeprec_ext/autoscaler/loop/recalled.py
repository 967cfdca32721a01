"""What an autoscaler knows of the time before it began, beside its record: that lies with a process that may be gone for good.

It is small, and one of the values of the job's store, so it goes where those go: to a few PS, and into the snapshot of a
cluster (`replicated`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.autoscaler.observe.observed import Size, Stood, Window
from deeprec_ext.autoscaler.outcomes.measured import newest
from deeprec_ext.decoding import built

KEY = "autoscaler"
FORETOLD_MAX = 40
"""Decisions: of older changes nobody asks what was foretold of them."""

WINDOWS_EACH, SIZES_MAX = 3, 16
STOOD_MAX = 20


@dataclass(frozen=True)
class Recalled:
    """`number`: of the next decision. `machine`: the kind of the one host; empty: not known, or there are several."""

    number: int = 0
    first: Size | None = None
    foretold: Mapping[int, float] = field(default_factory=dict)  # examples per second, by number of decision
    windows: tuple[Window, ...] = ()  # oldest first
    stood: tuple[Stood, ...] = ()
    heard: float = 0.0  # seconds since the start of the job: when it was looked at last
    machine: str = ""
    chief: str = ""  # its incarnation; empty: not known


def recall(store: Store) -> Recalled:
    """Nothing, where nothing was kept that can be read."""
    try:
        found = built(Recalled, store.get(KEY, {}), newer=True, measured=True)
        foretold = {int(number): float(rate) for number, rate in found.foretold.items()}
    except (TypeError, ValueError, AttributeError):
        return Recalled()
    return dataclasses.replace(found, foretold=foretold)


def keep(store: Store, recalled: Recalled) -> None:
    """As much of it as has a bearing on later decisions."""
    foretold = {str(number): recalled.foretold[number] for number in sorted(recalled.foretold)[-FORETOLD_MAX:]}
    windows = newest(recalled.windows, WINDOWS_EACH, SIZES_MAX, recalled.first)
    kept = dataclasses.replace(recalled, windows=windows, stood=recalled.stood[-STOOD_MAX:])
    store.put(**{KEY: {**dataclasses.asdict(kept), "foretold": foretold}})


def stood_since(stood: Sequence[Stood], since: float, until: float) -> tuple[Stood, ...]:
    """With one more, of seconds since the start of the job."""
    return (*stood, Stood(round(since, 3), round(until, 3)))[-STOOD_MAX:]
