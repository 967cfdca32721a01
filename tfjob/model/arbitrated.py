"""What AIMaster and arbiter tell each other in annotations of a TFJob: bids and allowances (`deeprec_ext.arbiter.wire`).

Anybody who may write the TFJob may write these: what is not as it should be counts as if it were not there, and who reads is
told why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from deeprec_ext.arbiter import wire
from deeprec_ext.arbiter.observed import Allowance, Bid
from tfjob.model.names import ALLOWANCE_ANNOTATION, WORTH_ANNOTATION

T = TypeVar("T")


def bid_of(annotations: Mapping[str, str]) -> tuple[Bid | None, str]:
    """What the job's AIMaster has published, and why it cannot be read; (None, ""): nothing yet."""
    return _of(annotations.get(WORTH_ANNOTATION), wire.read_bid)


def allowance_of(annotations: Mapping[str, str], job: str) -> tuple[Allowance | None, str]:
    """What the job was allowed last, and why that cannot be read. `job`: as `Allowance.job` is to be."""
    return _of(annotations.get(ALLOWANCE_ANNOTATION), lambda text: wire.read_allowance(text, job))


def same(one: Allowance | None, other: Allowance | None) -> bool:
    """Whether both allow the same; the sentence that explains it may be another."""
    return _size(one) == _size(other)


def _size(one: Allowance | None) -> tuple[object, ...]:
    if one is None:
        return ()
    return (True, one.ps, one.workers) if one.runs else (False,)


def _of(text: str | None, read: Callable[[str], T]) -> tuple[T | None, str]:
    if not text:
        return None, ""
    try:
        return read(text), ""
    except ValueError as error:
        return None, str(error)
