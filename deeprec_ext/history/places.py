"""Where finished jobs are kept, as `--history` names it everywhere: a file of the user's, the service of a cluster, or the
database behind one, which `jobs` alone reads itself: a job would need its password, and has no namespace there."""

from __future__ import annotations

import contextlib
import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Union

from deeprec_ext.autoscaler.history.history import Finished, History, HistoryError, NoHistoryError
from deeprec_ext.errors import UsageError
from deeprec_ext.history.client import SCHEME, SECONDS, Service, service_at
from deeprec_ext.units import counted

log = logging.getLogger(__name__)

OFF = "off"
"""No finished jobs are read, and this one is not kept."""

DATABASES = ("sqlite", "postgresql")
WAYS = f"give a file, or {SCHEME}HOST:PORT with --history-certs DIR"
BY_JOBS = "sqlite:////DIR/history.db or postgresql://USER@HOST/NAME"

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/{1,2}")
"""With one slash as well: `https:/x` is a slip, and no directory that anybody has."""


@dataclass(frozen=True)
class DatabaseUrl:
    """May have a password in it: it is not repeated."""

    text: str


Place = Union[Path, Service]


def named(text: str, certificates: Path | None = None) -> Place | DatabaseUrl:
    """What `--history` names, for who reads it. Raises UsageError for what is none of these."""
    if text.startswith(SCHEME):
        return service_at(text, certificates)
    if certificates is not None:
        raise UsageError(f"--history-certs {certificates}: goes with --history {SCHEME}HOST:PORT")
    if not text:
        raise UsageError(f"--history: names nothing; {WAYS}, or leave it out")
    if (url := _URL.match(text)) is None:
        return Path(text).expanduser()
    if url[1].partition("+")[0] in DATABASES and url[0].endswith("//"):
        return DatabaseUrl(text)
    raise UsageError(f"--history {url[0]}…: no history of jobs is asked like that; {WAYS}; `jobs` also reads {BY_JOBS}")


def place_at(text: str, certificates: Path | None = None) -> Place:
    """The same for a job, which reads it and is added to it. Raises UsageError."""
    found = named(text, certificates)
    if isinstance(found, DatabaseUrl):
        raise UsageError(
            f"--history {text.partition(':')[0]}://…: only `jobs` reads a database itself; {WAYS}, of the "
            "`deeprec-ext history` that serves this one"
        )
    return found


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
