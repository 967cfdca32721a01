"""One job as it lies in the database and goes over the network: JSON, of which a record is made only where all of it is sane.

What is read was written by others, perhaps long ago, perhaps to do harm: a length, a count or a figure that no job has is
refused before anything is computed from it.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from deeprec_ext.autoscaler.history.history import Finished
from deeprec_ext.autoscaler.history.possible import WINDOWS_MAX, complaint
from deeprec_ext.decoding import built
from deeprec_ext.errors import UsageError

BYTES_MAX = 64 << 10
"""Of one record: 40 windows take 20 KiB."""


class RecordError(UsageError):
    """This is no record of a job; the message says which field is what."""


@dataclass(frozen=True)
class Kept:
    """A job with its place in the database. `namespace`: whose it is; empty: of a history that knows none."""

    number: int
    namespace: str
    job: Finished


def to_text(job: Finished) -> str:
    """Raises RecordError for what nobody would read."""
    windows = tuple(sorted(job.windows, key=lambda window: -window.seconds)[:WINDOWS_MAX])
    job = dataclasses.replace(job, windows=windows)
    try:
        text = json.dumps(dataclasses.asdict(job), allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        raise RecordError(f"the job cannot be written down: {error}") from None
    from_text(text)
    return text


def from_text(text: str) -> Finished:
    """Raises RecordError."""
    if len(text) > BYTES_MAX:
        raise RecordError(f"a record of {len(text):,} characters: the most are {BYTES_MAX:,}")
    try:
        return from_values(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise RecordError(f"this is no JSON: {str(error)[:200]}") from None


def from_values(values: Any) -> Finished:
    """The same, of what the JSON is. What a later release has added is left out. Raises RecordError."""
    try:
        job = built(Finished, values, newer=True, measured=True)
    except (TypeError, ValueError, KeyError) as error:
        raise RecordError(f"this is no record of a job: {str(error)[:200]}") from None
    if why := complaint(job):
        raise RecordError(f"this is no record of a job: {why}")
    return job
