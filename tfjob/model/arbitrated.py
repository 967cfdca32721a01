"""What AIMaster and arbiter tell each other in annotations of a TFJob: bids and allowances, as JSON.

Anybody who may write the TFJob may write these, so they are read as what a stranger has written: what is not as it should be
counts as if it were not there, and who reads is told why.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from typing import TypeVar

from deeprec_ext.arbiter.observed import WORTH_MAX, Allowance, Bid, Count
from deeprec_ext.decoding import built
from tfjob.model.names import ALLOWANCE_ANNOTATION, WORTH_ANNOTATION
from tfjob.model.spec import REPLICAS_MAX

BYTES_MAX = 8 << 10
"""Of one of them. All annotations of an object together may have 256 KiB."""

WHY_MAX = 1000
"""Characters of an allowance's reason."""

T = TypeVar("T")


def bid_of(annotations: Mapping[str, str]) -> tuple[Bid | None, str]:
    """What the job's AIMaster has published, and why it cannot be read; (None, ""): nothing yet."""
    return _read(Bid, annotations.get(WORTH_ANNOTATION), {})


def allowance_of(annotations: Mapping[str, str], job: str) -> tuple[Allowance | None, str]:
    """What the job was allowed last, and why that cannot be read. `job`: as `Allowance.job` is to be."""
    return _read(Allowance, annotations.get(ALLOWANCE_ANNOTATION), {"job": job})


def written_bid(bid: Bid) -> str:
    """For the annotation. Raises ValueError where it is too long."""
    return _written(dataclasses.asdict(bid))


def written_allowance(allowance: Allowance) -> str:
    """For the annotation; without the job's name, which the TFJob has."""
    values = dataclasses.asdict(allowance)
    del values["job"]
    return _written({**values, "since": round(allowance.since, 3), "why": allowance.why[:WHY_MAX]})


def same(one: Allowance | None, other: Allowance | None) -> bool:
    """Whether both allow the same; the sentence that explains it may be another."""
    return _size(one) == _size(other)


def _size(one: Allowance | None) -> tuple[object, ...]:
    if one is None:
        return ()
    return (True, one.ps, one.workers) if one.runs else (False,)


def _written(values: object) -> str:
    text = json.dumps(values, separators=(",", ":"), ensure_ascii=False)
    if len(text.encode()) > BYTES_MAX:
        raise ValueError(f"{len(text.encode()):,} bytes; an annotation of ours has at most {BYTES_MAX:,}")
    return text


def _read(kind: type[T], text: str | None, more: Mapping[str, object]) -> tuple[T | None, str]:
    if not text:
        return None, ""
    try:
        if len(text) > BYTES_MAX:
            raise ValueError(f"it has {len(text):,} characters")
        values = json.loads(text)
        found = built(kind, {**values, **more} if isinstance(values, dict) else values, newer=True)
        for complaint in _complaints(found):
            raise ValueError(complaint)
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        return None, str(error)[:WHY_MAX]
    return found, ""


def _complaints(found: object) -> Iterator[str]:
    """What its types do not say."""
    for name, value in vars(found).items():
        if isinstance(value, (int, float)) and not isinstance(value, bool) and not 0 <= value < math.inf:
            yield f"{name} is {value}"
        if isinstance(value, Count) and not (0 <= value.ps <= REPLICAS_MAX and 0 <= value.workers <= REPLICAS_MAX):
            yield f"{name} is {value.ps} PS, {value.workers} workers"
    if isinstance(found, Allowance) and max(found.ps, found.workers) > REPLICAS_MAX:
        yield f"it allows {found.ps} PS, {found.workers} workers"
    if isinstance(found, Bid):
        if len(found.worth) > WORTH_MAX:
            yield f"it has {len(found.worth)} sizes, more than {WORTH_MAX}"
        for one in found.worth:
            fits = 0 <= one.ps <= REPLICAS_MAX and 0 <= one.workers <= REPLICAS_MAX
            if not fits or not 0 <= one.examples_per_second < math.inf:
                yield f"worth has {one.ps} PS, {one.workers} workers with {one.examples_per_second} examples a second"
