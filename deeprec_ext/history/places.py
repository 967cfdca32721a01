"""Where finished jobs are kept: a file of the user's, or the service of a cluster."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Union

from deeprec_ext.autoscaler.history.history import Finished, History, NoHistoryError
from deeprec_ext.history.client import SCHEME, Service, service_at

Place = Union[Path, Service]


def place_at(text: str, certificates: Path | None = None) -> Place:
    """A file, or `https://HOST:PORT`. Raises UsageError."""
    return service_at(text, certificates) if text.startswith(SCHEME) else Path(text).expanduser()


def jobs_of(place: Place | None, script: str) -> list[Finished]:
    """From which the first size of a job of this script is estimated. Raises HistoryError; NoHistoryError for None."""
    if place is None:
        raise NoHistoryError
    if isinstance(place, Service):
        return [one.job for one in place.jobs(script=script)[0]]
    with contextlib.closing(History(place, read_only=True)) as history:
        return history.jobs()
