"""Why a job has what it has, for people: one sentence with its figures, the same as long as that lasts."""

from __future__ import annotations

from deeprec_ext.arbiter.curve import Size
from deeprec_ext.arbiter.observed import Job, Waiting
from deeprec_ext.arbiter.room import CPU, MEMORY, PODS, UNLIMITED
from deeprec_ext.arbiter.seating import CHIEF, OTHER, PS, WORKER, Party, Seating
from deeprec_ext.printable import printable
from deeprec_ext.units import counted, format_bytes

LOST = "the room of some of its pods is gone"
STARTS = "starts with its least"
GROWS = "room was free"
DEADLINE = "to make its deadline"
EVENS = "it gains more by them than others lose"
GAVE_EQUALS = "others gain more by them"
NAME_SHOWN = 80
ROLES = {CHIEF: "chief", PS: "PS", WORKER: "worker", OTHER: "AIMaster and other pods"}


def gave_way(pod: Waiting) -> str:
    return f"gave way to waiting pod {printable(pod.name)[:NAME_SHOWN]} of priority {pod.priority}"


def gave_to(job: Job) -> str:
    return f"gave way to {printable(job.name)[:NAME_SHOWN]} of priority {job.priority}"


def sized(size: Size) -> str:
    """`2 PS, 1 worker and the chief`."""
    parts = ([counted(size[0], "PS")] if size[0] else []) + ([counted(size[1], "worker")] if size[1] else [])
    return (", ".join(parts) + " and the chief") if parts else "the chief alone"


def runs(party: Party, size: Size) -> str:
    before = party.present
    if before is not None and party.allowed is not None:
        before = party.allowed[1]
    now = sized(size)
    if before is None:
        return f"started with {now}" + (", its least" if size == party.least else "")
    if size == before:
        return f"has {now}"
    reason = f": {party.note}" if party.note else ""
    if size[0] >= before[0] and size[1] >= before[1]:
        gain = party.curve.value(size) - party.curve.value(before)
        by = f", {100 * (2.718281828 ** min(gain, 20.0) - 1):+.0f} % by its model" if party.curve.has_model else ""
        return f"grew from {sized(before)} to {now}{by}{reason}"
    return f"went from {sized(before)} to {now}{reason}"


def lacks(seating: Seating, party: Party) -> str:
    role = party.shortage or WORKER
    return f"goes on with what it has: no room for a {ROLES[role]} of {_amount(seating, party, role)}"


def waits(seating: Seating, party: Party, place: int, never: str | None, with_higher: float) -> str:
    """`waits for 3.0 cores: 2.0 of 16.0 free; first in line`."""
    need = sum(party.shapes[role][CPU] * count for role, count in _least(party)) / 1000
    whole = seating.sums[CPU] / 1000
    if never is not None:
        return f"never fits: {_never(seating, party, never, need)}"
    role = party.shortage or CHIEF
    at = _short(seating, party, role)
    free = [one[at] for one in seating.room.free]
    quota = seating.limits.get(party.quota)
    left = seating.quotas.get(party.quota)
    if (
        quota is not None
        and left is not None
        and any(
            sum(party.shapes[one][dim] * count for one, count in _least(party)) > left[dim] for dim in range(len(left))
        )
    ):
        limited = next(
            dim for dim in range(len(left)) if sum(party.shapes[one][dim] * n for one, n in _least(party)) > left[dim]
        )
        wanted = sum(party.shapes[one][limited] * n for one, n in _least(party))
        text = (
            f"waits for {_of(seating, limited, wanted)} of quota {printable(party.quota)[:NAME_SHOWN]}: "
            f"{_of(seating, limited, max(0, left[limited]))} of {_of(seating, limited, quota[limited])} free"
        )
    else:
        wanted = sum(party.shapes[one][at] * n for one, n in _least(party))
        together = sum(max(0, one) for one in free)
        if wanted <= together:
            best = max((max(0, one) for one in free), default=0)
            text = (
                f"waits for {_of(seating, at, party.shapes[role][at])} on one node for a {ROLES[role]}: "
                f"at most {_of(seating, at, best)} free there, {_of(seating, at, together)} together"
            )
        else:
            text = (
                f"waits for {_of(seating, at, wanted)}: {_of(seating, at, together)} of "
                f"{_of(seating, at, seating.sums[at])} free"
            )
    if with_higher > 0 and whole > 0:
        text += f", {with_higher:.1f} cores with higher priorities"
    return f"{text}; {_line(place)}"


def _least(party: Party) -> list[tuple[str, int]]:
    return [(CHIEF, 1), (OTHER, party.pods[OTHER]), (PS, party.least[0]), (WORKER, party.least[1])]


def _line(place: int) -> str:
    """Counts of those before it are rounded: not every start is to be told to all that wait."""
    if place == 0:
        return "first in line"
    if place < 10:
        return f"behind {counted(place, 'other')}"
    return f"behind more than {10 ** (len(str(place)) - 1) * int(str(place)[0]):,} others"


def _short(seating: Seating, party: Party, role: str) -> int:
    """Which resource lacks for a pod of this role: the one of which it needs the largest share of what is free on a node."""
    shape = party.shapes[role]
    dims = range(len(shape))
    wanted = [sum(party.shapes[one][dim] * count for one, count in _least(party)) for dim in dims]
    together = [sum(max(0, one[dim]) for one in seating.room.free) for dim in dims]
    over = [dim for dim in dims if wanted[dim] > together[dim]]
    if over:
        return max(over, key=lambda dim: (wanted[dim] / max(1, together[dim]), -dim))
    best = [max((one[dim] for one in seating.room.free), default=0) for dim in dims]
    return max(dims, key=lambda dim: (shape[dim] / max(1, best[dim]) if dim != PODS or best[dim] < 1 else 0.0, -dim))


def _never(seating: Seating, party: Party, role: str, need: float) -> str:
    if not seating.whole:
        return f"its least of {need:.1f} cores, and there is no node"
    limit = seating.limits.get(party.quota)
    counts = _least(party)
    for dim in range(len(seating.scale.names)):
        wanted = sum(party.shapes[one][dim] * count for one, count in counts)
        if limit is not None and limit[dim] < UNLIMITED and wanted > limit[dim]:
            return (
                f"its least of {_of(seating, dim, wanted)} is more than quota {printable(party.quota)[:NAME_SHOWN]} "
                f"has, {_of(seating, dim, limit[dim])}"
            )
    for dim in range(len(seating.scale.names)):
        wanted = sum(party.shapes[one][dim] * count for one, count in counts)
        if wanted > seating.sums[dim]:
            together = _of(seating, dim, seating.sums[dim])
            return f"its least of {_of(seating, dim, wanted)}, and all nodes together have {together}"
    shape = party.shapes[role]
    for dim in range(len(seating.scale.names)):
        largest = max(one[dim] for one in seating.whole)
        if shape[dim] > largest:
            return f"a {ROLES[role]} of {_of(seating, dim, shape[dim])}, and the largest node has {_of(seating, dim, largest)}"
    amount = _amount(seating, party, role)
    return f"a {ROLES[role]} of {amount} beside the other pods of its least ({need:.1f} cores), on no set of nodes"


def _amount(seating: Seating, party: Party, role: str) -> str:
    shape = party.shapes[role]
    dims = [dim for dim in range(len(shape)) if shape[dim] and dim != PODS] or [PODS]
    return " and ".join(_of(seating, dim, shape[dim]) for dim in dims[:3])


def _of(seating: Seating, dim: int, value: float) -> str:
    if dim == CPU:
        return f"{value / 1000:.1f} cores"
    if dim == MEMORY:
        return format_bytes(value)
    if dim == PODS:
        return counted(int(value), "pod")
    return f"{value / 1000:g} {printable(seating.scale.names[dim])[:NAME_SHOWN]}"
