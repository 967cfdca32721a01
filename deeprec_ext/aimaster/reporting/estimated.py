"""What was estimated of a job before its first variable existed, and what came of it."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from deeprec_ext.aimaster.state.declared import estimates_in
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.autoscaler.history.estimates import Estimates, Figure, heard, said, used
from deeprec_ext.autoscaler.history.finished import finished_job
from deeprec_ext.autoscaler.history.history import Finished
from deeprec_ext.errors import DeepRecError
from deeprec_ext.units import counted


def foretold(
    store: Store, directory: Path | None, status: str = "", seconds: float = 0.0
) -> list[tuple[Figure, float | str]]:
    """Each figure, and what was used (a text: why that is not known).

    Args:
        directory: of the run, whose time series say what was used; None: nothing does.
        status, seconds: of the job, where it has ended.
    """
    told = estimates_in(store)
    return [] if told is None else list(_compared(told, directory, status, seconds))


def _compared(
    told: Estimates, directory: Path | None, status: str, seconds: float
) -> Iterator[tuple[Figure, float | str]]:
    job: Finished | None = None
    if directory is not None:
        with contextlib.suppress(DeepRecError, OSError, sqlite3.Error):
            job = finished_job(directory, script="", status=status, seconds=seconds, finished=0.0, requested=told.size)
    for one in told.figures:
        yield one, used(one, told.size, job) if job is not None else "nothing was measured of the job"


def sentences(store: Store, directory: Path | None, *, running: bool = False) -> list[str]:
    """For people, without full stops; empty: nothing was estimated.

    Args:
        running: the job has not ended: nothing is final of what it used.
    """
    told = estimates_in(store)
    if told is None:
        return []
    size = f"{told.size.ps} PS and {counted(told.size.workers, 'worker')}"
    alike = f"; by {heard(told.like)}" if told.like else "; no job like it was known"
    return [
        f"it begins with {size}{alike}",
        *(said(*one, running=running) for one in _compared(told, directory, "", 0.0)),
    ]
