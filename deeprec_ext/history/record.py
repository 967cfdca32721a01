"""One job as it lies in the database and goes over the network: JSON, of which a record is made only where all of it is sane.

What is read was written by others, perhaps long ago, perhaps to do harm: a length, a count or a figure that no job has is
refused before anything is computed from it.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from deeprec_ext.autoscaler.history.history import WINDOWS_MAX, Finished
from deeprec_ext.bounds import MOST
from deeprec_ext.decoding import built
from deeprec_ext.errors import UsageError

BYTES_MAX = 64 << 10
"""Of one record: 40 windows take 20 KiB."""

TEXT_MAX = 253
"""Characters of a name, as Kubernetes has them."""

COEFFICIENTS_MAX = 32
FIGURE_MAX = 1e18
"""Byte-seconds of a job of a thousand processes over a month are a thousandth of it. Sums of them stay exact enough."""


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


def complaint(job: Finished) -> str:
    """What no job has; empty: all of it may be so."""
    if len(job.windows) > WINDOWS_MAX:
        return f"it has {len(job.windows)} windows; the most are {WINDOWS_MAX}"
    if len(job.fitted.coefficients) > COEFFICIENTS_MAX:
        return f"its model has {len(job.fitted.coefficients)} coefficients"
    for name, value in _leaves(dataclasses.asdict(job), ""):
        if isinstance(value, str):
            if len(value) > TEXT_MAX:
                return f"{name} has {len(value):,} characters; the most are {TEXT_MAX}"
            if "\0" in value or value != value.encode(errors="ignore").decode():
                return f"{name} has characters that no text has"
        elif not isinstance(value, bool) and value is not None:
            if not math.isfinite(value) or abs(value) > FIGURE_MAX:
                return f"{name} is {value}"
            if value < 0 and not name.endswith("saved_seconds"):
                return f"{name} is {value}: below 0"
    if job.finished > 100 * MOST["seconds"]:
        return f"it ended {job.finished:.0f} seconds after 1970"
    for window in job.windows:
        if window.size.ps > MOST["PS"] or window.size.workers > MOST["workers"] or window.size.ps < 1:
            return f"it had {window.size.ps} PS and {window.size.workers} workers"
    return ""


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _leaves(one, f"{name}.{key}" if name else key)
    elif isinstance(value, (list, tuple)):
        for number, one in enumerate(value):
            yield from _leaves(one, f"{name}[{number}]")
    else:
        yield name, value
