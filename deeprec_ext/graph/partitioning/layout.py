"""Into how many parts a variable is cut, where they lie and what they are called. Pure, and the same in every role."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEAST_BYTES = 2_000_000
"""What is smaller stays whole: on one PS more or less it makes no difference, and each part costs a message in each step."""

PART_BYTES = 1_000_000
"""Until there are `USUAL_PARTS` a part has at least so much."""

USUAL_PARTS = 8
"""Enough for 4 PS to have a quarter each and for 3 to have 3/8; more only make steps slower (DeepFM with all of its 26
tables cut: 48 ms in 8 parts, 26 in 2)."""

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
    known: frozenset[str] | None = None
    """Shared names of the variables that the chief has cut, and no others; None: nobody has decided before."""
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


def layout_of(dimensions: Sequence[int], partitioning: Partitioning, divided: bool = False) -> Layout | None:
    """None: it stays as it is. `divided`: it is a part of what the script has partitioned."""
    if partitioning.mode == "off" or partitioning.slots < 2 or not dimensions:
        return None
    size = math.prod(dimensions) * ELEMENT_BYTES
    least, part = (LEAST_BYTES, PART_BYTES) if partitioning.mode != "on" else (ALWAYS_BYTES, ALWAYS_BYTES // 2)
    if size < least or (divided and size <= LARGE_PART_BYTES):
        return None
    count = 2
    while not divided and count < USUAL_PARTS and count * 2 * part <= size:
        count *= 2  # 2, 4, 8: so 2 and 4 PS have the same of it
    count = min(max(count, -(-size // LARGE_PART_BYTES)), partitioning.slots, dimensions[0])
    block = -(-dimensions[0] // count) if count > 1 else 0
    layout = Layout(tuple(dimensions), block) if block else None
    return layout if layout is not None and layout.count > 1 else None


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
