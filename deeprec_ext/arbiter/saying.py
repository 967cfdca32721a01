"""Why a job has what it has, for people: one sentence with its figures, the same as long as that lasts."""

from __future__ import annotations

from deeprec_ext.arbiter.curve import Size
from deeprec_ext.arbiter.observed import Job, Waiting
from deeprec_ext.arbiter.room import CPU, MEMORY, PODS, UNLIMITED
from deeprec_ext.arbiter.seating import CHIEF, OTHER, PS, WORKER, Party, Seating, Shortage
from deeprec_ext.printable import printable
from deeprec_ext.units import counted, format_memory

LOST = "the room of some of its pods is gone"
STARTS = "starts with its least"
GROWS = "room was free"
TRIES = "room was free, and it wants to try"
DEADLINE = "to make its deadline"
EVENS = "it gains more by them than others lose"
GAVE_EQUALS = "others gain more by them"
NOT_TAKEN = "others have what it has not taken"
GOES_ON = "goes on with what it has"
NOT_YET = "nothing has been decided for it yet"
"""Of a job without an allowance: no arbiter runs, or it has not looked yet."""

NAME_SHOWN = 80
FIGURES = 10
"""Of those that wait, who is told what is free: with each change of it they are told anew, a write each."""
ROLES = {CHIEF: "chief", PS: "PS", WORKER: "worker", OTHER: "pod beside them"}


def need(why: str) -> str:
    """Of a sentence that begins with `waits`, what is needed: where it is said already that somebody waits."""
    if why.startswith("waits for "):
        return f"needs {why[len('waits for ') :]}"
    return why[len("waits: ") :] if why.startswith("waits: ") else why


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


def lacks(seating: Seating, party: Party, short: Shortage | None) -> str:
    if short is None:
        return f"{GOES_ON}: some of its least has just lost its room"
    return f"{GOES_ON}: no room for a {ROLES[short.role]} of {_amount(seating, party, short.role)}"


def waits(
    seating: Seating, party: Party, short: Shortage | None, place: int, with_higher: float, kept_for: Party | None
) -> str:
    """`waits for 3.0 cores: 2.0 of 16.0 cores free; first in line`."""
    if short is None:
        text = (
            f"waits: room is kept for {printable(kept_for.job.name)[:NAME_SHOWN]}"
            if kept_for is not None
            else "waits: there is room, and it may start when what has just changed has settled"
        )
        return f"{text}; {_line(place)}"
    dims = range(len(short.needs))
    limited = [at for at in dims if short.needs[at] > short.quota[at]]
    over = [at for at in dims if short.needs[at] > short.free[at]]
    if limited:
        at = limited[0]
        limit = seating.limits[party.quota][at]
        text = (
            f"waits for {_of(seating, at, short.needs[at])} of quota {printable(party.quota)[:NAME_SHOWN]}: "
            f"{_part(seating, at, max(0, short.quota[at]), limit)} free"
        )
    elif over:
        at = max(over, key=lambda one: (short.needs[one] / max(1, short.free[one]), -one))
        free = _part(seating, at, short.free[at], seating.sums[at])
        text = f"waits for {_of(seating, at, short.needs[at])}: {free} free"
    else:
        shape = party.shapes[short.role]
        at = next((one for one in dims if shape[one] > short.best[one]), CPU)
        text = f"waits for {_amount(seating, party, short.role)} on one node for a {ROLES[short.role]}: "
        text += f"{_part(seating, at, short.free[at], seating.sums[at])} free, "
        most = f"at most {_of(seating, at, max(0, short.best[at]))} on a node"
        text += most if shape[at] > short.best[at] else "on no node all of it"
    if with_higher > 0:
        text += f", {with_higher:.1f} cores with higher priorities"
    return f"{text}; {_line(place)}"


def waits_behind(seating: Seating, party: Party, place: int) -> str:
    """Of one that is not soon in turn: what it waits for, and how many are before it."""
    need = sum(party.shapes[role][CPU] * count for role, count in _least(party))
    return f"waits for {_of(seating, CPU, need)}; {_line(place)}"


def _least(party: Party) -> list[tuple[str, int]]:
    return [(CHIEF, 1), (OTHER, party.pods[OTHER]), (PS, party.least[0]), (WORKER, party.least[1])]


def _line(place: int) -> str:
    """Counts of those before it are rounded: not every start is to be told to all that wait."""
    if place == 0:
        return "first in line"
    if place < FIGURES:
        return f"behind {counted(place, 'other')}"
    return f"behind more than {10 ** (len(str(place)) - 1) * int(str(place)[0]):,} others"


def never(seating: Seating, party: Party, role: str) -> str:
    """`never fits: its least of 40.0 cores, and all nodes together have 16.0 cores`."""
    return f"never fits: {_never(seating, party, role)}"


def _never(seating: Seating, party: Party, role: str) -> str:
    need = sum(party.shapes[one][CPU] * count for one, count in _least(party)) / 1000
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


def _part(seating: Seating, dim: int, value: float, whole: float) -> str:
    """`2.0 of 16.0 cores`."""
    number, _, unit = _of(seating, dim, whole).partition(" ")
    part, _, of_part = _of(seating, dim, value).partition(" ")
    return (
        f"{part} of {number} {unit}"
        if of_part.rstrip("s") == unit.rstrip("s")
        else f"{part} {of_part} of {number} {unit}"
    )


def _of(seating: Seating, dim: int, value: float) -> str:
    if dim == CPU:
        return f"{value / 1000:.1f} cores"
    if dim == MEMORY:
        return format_memory(value)
    if dim == PODS:
        return counted(int(value), "pod")
    return f"{value / 1000:g} {printable(seating.scale.names[dim])[:NAME_SHOWN]}"
