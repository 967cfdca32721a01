"""Into how many parts a variable is cut, where they lie and what they are called. Pure, and the same in every role."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

LEAST_BYTES = 2_000_000
"""What is smaller stays whole: on one PS more or less it makes no difference, and each part costs look-ups in each step."""

SHARES = 4
"""A slot's equal share of all bytes is so many pieces: what is no larger than one stays whole, what is larger is cut into as
many parts as it has pieces, and not more. So there are few parts for each slot, however many tables there are."""

PART_BYTES = 1_000_000
"""Until there are `USUAL_PARTS` a part has at least so much."""

USUAL_PARTS = 8
"""Enough for 4 PS to have a quarter each and for 3 to have 3/8."""

LARGE_PART_BYTES = 64 << 20
"""Beyond that a variable is cut into more parts, up to one per slot: as much moves in a fraction of a second."""

ELEMENT_BYTES = 4
"""Sizes are counted as if of float32: a variable and its optimizer's slots are cut alike whatever their types."""

ALWAYS_BYTES = 128 << 10
"""With `on`: the least size, and of a part half of it, so that parts are still marked by rows."""


@dataclass(frozen=True)
class Partitioning:
    """What the cutting of a graph depends on besides the graph."""

    slots: int
    mode: str = "auto"
    """auto: what is large; on: whatever is worth a bitmap; off."""
    known: Mapping[str, int] | None = None
    """Shared names of the variables that the chief has cut, and no others, with the number of parts (0: it does not say); of
    what was in parts by the script and is one, 1, and its slot under its name with `joining.SLOT`. None: nobody has decided
    before."""
    before: dict[str, int] = field(default_factory=dict)
    """The same of all that was decided before, of a smaller graph or of another one; 1 part: it is whole."""
    divided: frozenset[str] = frozenset()
    """Shared names of variables that are parts already, of what the script has partitioned: cut only where a part is larger
    than any of ours would be."""


@dataclass(frozen=True)
class Layout:
    """Rows [i x block, (i + 1) x block) are part i; the last one may be smaller."""

    dimensions: tuple[int, ...]
    block: int

    @property
    def rows(self) -> int:
        return self.dimensions[0]

    @property
    def count(self) -> int:
        return -(-self.rows // self.block)

    def begin(self, part: int) -> int:
        return part * self.block

    def size(self, part: int) -> int:
        return min(self.block, self.rows - part * self.block)

    def shape(self, part: int) -> tuple[int, ...]:
        return (self.size(part), *self.dimensions[1:])


def divided_of(saved: Mapping[str, tuple[str, str]]) -> frozenset[str]:
    """Of variables by shared name, with what a checkpoint calls them (name, slice), those that the script has partitioned."""
    return frozenset(name for name, (_, part) in saved.items() if part and not _is_all(part))


def _is_all(part: str) -> bool:
    """Whether a slice is the whole tensor, as of a partitioner that has left it in one piece."""
    *sizes, last = part.split()
    return all(one in ("-", f"0,{size}") for one, size in zip(last.split(":"), sizes))


def size_of(dimensions: Sequence[int]) -> int:
    """Bytes, as they are counted here."""
    return math.prod(dimensions) * ELEMENT_BYTES


def in_parts(dimensions: Sequence[int], count: int) -> Layout | None:
    """None: it cannot be cut, or there is nothing to cut."""
    block = -(-dimensions[0] // count) if count > 1 and dimensions and dimensions[0] else 0
    layout = Layout(tuple(dimensions), block) if block else None
    return layout if layout is not None and layout.count > 1 else None


def layout_of(
    dimensions: Sequence[int], partitioning: Partitioning, divided: bool = False, total: int = 0
) -> Layout | None:
    """None: it stays as it is.

    Args:
      divided: it is a part of what the script has partitioned.
      total: bytes of all variables, as `size_of` counts them; 0: it is cut by its own size alone.
    """
    if partitioning.mode == "off" or partitioning.slots < 2 or not dimensions:
        return None
    size = size_of(dimensions)
    least, part = (LEAST_BYTES, PART_BYTES) if partitioning.mode != "on" else (ALWAYS_BYTES, ALWAYS_BYTES // 2)
    if size < least or (divided and size <= LARGE_PART_BYTES):
        return None
    count = 2
    while not divided and count < USUAL_PARTS and count * 2 * part <= size:
        count *= 2  # 2, 4, 8: so 2 and 4 PS have the same of it
    count = max(count, -(-size // LARGE_PART_BYTES))
    if total and partitioning.mode == "auto":
        pieces = -(-size * SHARES * partitioning.slots // total)
        count = min(count, next((few for few in (1, 2, 4) if pieces <= few), pieces))
    return in_parts(dimensions, min(count, partitioning.slots, dimensions[0]))


def part_name(name: str, part: int, count: int) -> str:
    """The shared name of a part. No variable of a user is called so: names of ops have no @."""
    return f"{name}/part_{part}@{count}"


def sub_slice(whole: str, layout: Layout, part: int) -> str:
    """Saver's `shape_and_slice` of a part, of a variable that is itself saved as the slice `whole` (empty: it is all).

    Raises ValueError for a slice nobody can read.
    """
    if not whole:
        sizes = [str(size) for size in layout.dimensions]
        spec = ["-"] * len(sizes)
    else:
        *sizes, last = whole.split()
        spec = last.split(":")
    if len(spec) != len(layout.dimensions) or len(sizes) != len(spec):
        raise ValueError(f"slice {whole!r} of a variable of shape {list(layout.dimensions)}")
    first = 0 if spec[0] == "-" else int(spec[0].split(",")[0])
    full = [f"0,{size}" if one == "-" else one for one, size in zip(spec, sizes)]
    full[0] = f"{first + layout.begin(part)},{layout.size(part)}"
    return " ".join([*sizes, ":".join(full)])
