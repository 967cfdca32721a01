"""Load of PS and slots, from the traced steps of all trainers.

A trace tells what one step of one trainer costs each slot and each PS, in seconds and rows. Times the steps per second of that
trainer this is a share or a rate, and the sum over the trainers is the load. A trainer that has not been traced yet counts as
the mean of those that have. What a slot costs is true wherever it lies; what a PS costs only as long as no slot moves.

One traced step says little: a PS that is throttled for a tenth of a second makes the operation that runs just then look a
hundred times as expensive as all others. So of each trainer the median of its newest traces counts.
"""

from __future__ import annotations

import statistics
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from deeprec_ext.proto import deeprec_ext_pb2 as pb

SLOT_METRICS = ("lookup_share", "update_share", "lookup_rows_per_second", "update_rows_per_second")
PS_METRICS = ("busy_share", "rpc_share", "rpc_bytes_per_second")


@dataclass(frozen=True)
class PerStep:
    """What one step of a trainer costs: [4 x slots] in the order of SLOT_METRICS per slot, [3 x PS] likewise."""

    slots: array[float]
    ps: array[float]
    epoch: int
    traces: int = 1
    """Of how many this is the median, and of how many what it says of the PS."""
    ps_traces: int = 1
    input_share: float = 0.0
    """Of the step's time, in which the trainer waited for its batch."""


RECENT = 5
"""Traces of a trainer that count: two and a half minutes at the usual rate."""


def typical(recent: Sequence[PerStep], since_epoch: int) -> PerStep:
    """The median of each cost; of two the lower one, since what disturbs a step only makes it longer.

    Args:
        recent: of one trainer, oldest first, at least one.
        since_epoch: when slots moved last: traces before say nothing of the PS, unless there are no others.
    """
    newest = recent[-1]
    fresh = [one for one in recent if one.epoch >= since_epoch and len(one.ps) == len(newest.ps)] or [newest]
    return PerStep(
        _medians([one.slots for one in recent]),
        _medians([one.ps for one in fresh]),
        newest.epoch,
        len(recent),
        len(fresh),
        statistics.median_low(one.input_share for one in fresh),
    )


def _medians(costs: Sequence[array[float]]) -> array[float]:
    middle = (len(costs) - 1) // 2
    return array("d", (sorted(values)[middle] for values in zip(*costs)))


def per_step(trace: pb.Trace, slots: int, ps: Sequence[str]) -> PerStep:
    """
    Args:
        ps: names, in the order of the result.
    """
    of_slots, of_ps = array("d", bytes(8 * 4 * slots)), array("d", bytes(8 * 3 * len(ps)))
    for use in trace.slots:
        begin = 4 * use.slot
        of_slots[begin] += use.lookup_seconds
        of_slots[begin + 1] += use.update_seconds
        of_slots[begin + 2] += use.lookup_rows
        of_slots[begin + 3] += use.update_rows
    places = {name: 3 * number for number, name in enumerate(ps)}
    for device in trace.devices:
        if (place := places.get(device.role)) is not None:
            of_ps[place] += device.busy_seconds
    for edge in trace.edges:
        for name in {edge.source, edge.target}:
            if (place := places.get(name)) is not None:
                of_ps[place + 1] += edge.seconds
                of_ps[place + 2] += edge.bytes
    waited = min(1.0, trace.input_seconds / trace.seconds) if trace.seconds > 0 else 0.0
    return PerStep(of_slots, of_ps, trace.epoch, input_share=waited)


def weighted(costs: Iterable[tuple[array[float], float]], rate: float) -> list[float]:
    """Sum of what steps cost times their rate, over trainers; scaled to `rate`, the steps per second of all of them.

    Args:
        costs: (what a step costs, steps per second) of each trainer that was traced; of one length.
    """
    total: list[float] = []
    seen = 0.0
    for cost, steps in costs:
        seen += steps
        total = [old + steps * new for old, new in zip(total, cost)] if total else [steps * new for new in cost]
    return [value * rate / seen for value in total] if seen > 0 else []


def slot_loads(traced: Mapping[str, PerStep], rates: Mapping[str, float], slots: int) -> dict[int, dict[str, float]]:
    """slot -> metrics. Empty before the first trace.

    Args:
        rates: steps per second of every trainer that trains.
    """
    found = weighted(((one.slots, rates[name]) for name, one in traced.items() if name in rates), sum(rates.values()))
    return {slot: dict(zip(SLOT_METRICS, found[4 * slot : 4 * slot + 4])) for slot in range(slots)} if found else {}


def ps_loads(
    traced: Mapping[str, PerStep], rates: Mapping[str, float], ps: Sequence[str], since_epoch: int
) -> dict[str, dict[str, float]]:
    """PS -> metrics, from the traces since slots moved last."""
    fresh = ((one.ps, rates[name]) for name, one in traced.items() if name in rates and one.epoch >= since_epoch)
    found = weighted(fresh, sum(rates.values()))
    return {name: dict(zip(PS_METRICS, found[3 * at : 3 * at + 3])) for at, name in enumerate(ps)} if found else {}
