"""Where finished jobs are kept: a file of the user's, or the service of a cluster."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import Union

from deeprec_ext.autoscaler.history.history import Finished, History, HistoryError, NoHistoryError
from deeprec_ext.history.client import SCHEME, SECONDS, Service, service_at
from deeprec_ext.units import counted

log = logging.getLogger(__name__)

Place = Union[Path, Service]


def place_at(text: str, certificates: Path | None = None) -> Place:
    """A file, or `https://HOST:PORT`. Raises UsageError."""
    return service_at(text, certificates) if text.startswith(SCHEME) else Path(text).expanduser()


def jobs_of(place: Place | None, script: str) -> list[Finished]:
    """From which the first size of a job of this script is estimated. Raises HistoryError; NoHistoryError for None."""
    if place is None:
        raise NoHistoryError
    if isinstance(place, Service):
        return _of_service(place, script)
    with contextlib.closing(History(place, read_only=True)) as history:
        found = history.jobs()
    if history.left_out:
        text = f"{counted(history.left_out, 'job')} of {place} cannot be read"
        if not found:
            raise HistoryError(text)
        log.warning("%s: left out", text)
    return found


def _of_service(service: Service, script: str) -> list[Finished]:
    """The newest of the script, then the newest of all: another script may have the same model."""
    found = service.jobs(script=script, seconds=SECONDS / 2)[0]
    with contextlib.suppress(HistoryError):
        numbers = {one.number for one in found}
        found += [one for one in service.jobs(seconds=SECONDS / 2)[0] if one.number not in numbers]
    return [one.job for one in found]
