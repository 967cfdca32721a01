"""What AIMaster and arbiter tell each other, bids one way and allowances the other, as JSON: in files of a pool, and in
annotations of a TFJob. Who reads takes nobody's word: whatever is not as it should be is refused whole.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from deeprec_ext.arbiter.observed import WORTH_MAX, Allowance, Bid
from deeprec_ext.bounds import within
from deeprec_ext.decoding import built
from deeprec_ext.printable import printable

TEXT_MAX = 8 << 10
"""Characters of a bid, and of an allowance: all annotations of an object together may have 256 KiB."""

WHY_MAX = 500
"""Characters of the reason of an allowance."""

T = TypeVar("T")


def bid_text(bid: Bid) -> str:
    """At most TEXT_MAX characters."""
    text = _json(dataclasses.asdict(bid))
    if len(text) > TEXT_MAX:  # numbers of absurd length
        text = _json(dataclasses.asdict(dataclasses.replace(bid, worth=bid.worth[: len(bid.worth) // 2])))
    return text


def allowance_text(allowance: Allowance) -> str:
    """Without the job's name: where it is written tells whose it is."""
    values = dataclasses.asdict(allowance)
    del values["job"]
    return _json({**values, "since": round(allowance.since, 3), "why": allowance.why[:WHY_MAX]})


def read_bid(text: str) -> Bid:
    """Raises ValueError with what is wrong."""
    found = _read(Bid, text, {})
    if len(found.worth) > WORTH_MAX:
        raise ValueError(f"it has {len(found.worth)} sizes, more than {WORTH_MAX}")
    _check_counts([found.size, found.wanted, *found.worth])
    _check_numbers(found)
    for one in found.worth:
        _check_numbers(one)
    return found


def read_allowance(text: str, job: str) -> Allowance:
    """Raises ValueError with what is wrong. `job`: whose it is."""
    found = _read(Allowance, text, {"job": job})
    _check_counts([found])
    _check_numbers(found)
    return dataclasses.replace(found, why=printable(found.why)[:WHY_MAX])


def _json(values: Any) -> str:
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False)


def _read(kind: type[T], text: str, more: Mapping[str, object]) -> T:
    if len(text) > TEXT_MAX:
        raise ValueError(f"it has more than {TEXT_MAX} characters")
    try:
        return built(kind, {**json.loads(text), **more}, newer=True)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise ValueError(f"it is none ({printable(str(error))[:200]})") from None


def _check_counts(sizes: Iterable[Any]) -> None:
    for one in sizes:
        for count, kind in ((one.ps, "PS"), (one.workers, "workers")):
            if not count >= 0 or not within(count, kind):
                raise ValueError(f"{count} {kind} cannot be")


def _check_numbers(found: object) -> None:
    for name, value in vars(found).items():
        if isinstance(value, (int, float)) and not 0 <= value < math.inf:
            raise ValueError(f"{name} is {value}")
