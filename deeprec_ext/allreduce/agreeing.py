"""What members say when they meet in a ring, and what follows: decided purely, by each alike from what all have said."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from deeprec_ext.allreduce.ring import LostError

ANY = -1
"""What somebody sums who looks: whatever the others do."""


class Word(NamedTuple):
    """Of one member. Who is farthest has the greatest beginning of it.

    Attributes:
      begun: the generation in which its model began; step: its last one; number, before: of the generations that summed this
        one and the one before; all -1: it has no state.
      kept: numbers of its last result that another may be given; kind_had, type_had: of what these are, and their type.
      kind: of what it sums now (`Summing`); odd, where there are gradients among it.
      may_begin: whether its state may be everybody's where nobody has summed yet.
      has_place: whether it says such a word before each sum, and can be waited for.
      asks: of its sum: the first number of each bucket, how many there are, how many of them are exact, their type.
      absent: of those who were there when it went to rest, how many are not here.
    """

    begun: int
    step: int
    number: int
    before: int
    kept: int
    kind: int
    may_begin: bool
    kind_had: int
    type_had: str
    has_place: bool
    asks: Any
    absent: int

    def told(self) -> bytes:
        return json.dumps(self).encode()


_LIKE = (0, 0, 0, 0, 0, 0, False, 0, "", False, None, 0)
"""Of what types a word is; None: any."""


def heard(said: Sequence[bytes]) -> list[Word]:
    """In the order of the ring. Raises LostError where one of them is of another release."""
    try:
        words = [Word(*json.loads(one)) for one in said]
    except (ValueError, TypeError):
        words = []
    if not words or any(
        like is not None and type(told) is not type(like) for one in words for told, like in zip(one, _LIKE)
    ):
        raise LostError("a member says what is no word of this release")
    return words


@dataclass(frozen=True)
class Agreed:
    """Of each member, in the order of the ring, where nothing else is said.

    Attributes:
      best: the first that is farthest; source: its place, or where nobody has a state that of the first that may begin; -1:
        nobody may. begins: nobody has a state.
      kind: of what is summed now.
      alike: whether it sums that, or waits; waits: it is elsewhere, and gives nothing until the others come there; late: it
        lacks the result of the last step alone; same: it has what the best has, or will have.
      may_be_behind: all that are farthest miss somebody who may have gone on.
    """

    best: Word
    source: int
    begins: bool
    kind: int
    alike: list[bool]
    waits: list[bool]
    late: list[bool]
    same: list[bool]
    may_be_behind: bool


def agreed(words: Sequence[Word]) -> Agreed:
    # Who makes no word before each sum cannot be waited for.
    wordless = [one for one in words if not one.has_place and one.step >= 0]
    best = max(wordless or words, key=lambda one: one[:5])  # the first of them; of the model that began last
    source, kind, begins = words.index(best), best.kind, best.step < 0
    if begins:  # the state of the first that may is everybody's
        source = next((rank for rank, one in enumerate(words) if one.may_begin and one.has_place == best.has_place), -1)
        kind = words[source].kind if source >= 0 else kind
    if kind == ANY:  # who looks is the first of those who have nothing
        kind = next((one.kind for one in words if one.kind != ANY), ANY)
    missed = (best.begun, best.step - 1, best.before)
    late = [
        best.kept > 0 and one[:3] == missed and not one.has_place for one in words
    ]  # else it may be elsewhere by now
    alike = [one.kind in (ANY, best.kind_had if is_late else kind) for one, is_late in zip(words, late)]
    waits = [one.has_place and best.has_place and not is_alike for one, is_alike in zip(words, alike)]
    same = [
        waiting or (one[:4] == best[:4] and (not begins or rank == source))
        for rank, (one, waiting) in enumerate(zip(words, waits))
    ]
    return Agreed(
        best, source, begins, kind, [one or waiting for one, waiting in zip(alike, waits)], waits, late, same,
        all(one.absent for one in words if one[:4] == best[:4]),
    )  # fmt: skip
