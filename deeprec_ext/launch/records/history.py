"""The launcher's side of the history of jobs: the first size of a job from it, and a job into it at the end."""

from __future__ import annotations

import time
from pathlib import Path

from deeprec_ext.autoscaler.history.finished import LIMITS, finished_job
from deeprec_ext.autoscaler.history.history import History, default_path
from deeprec_ext.autoscaler.history.start import Start, first_size
from deeprec_ext.autoscaler.observe import observed
from deeprec_ext.launch.limits import Limits
from deeprec_ext.launch.resources import Ceilings, Requests

OFF = "off"
NO_CEILINGS = Ceilings()


def history_path(text: str | None) -> Path | None:
    """`--history`: a file, or `off`; not given: the user's own. One that is named must be usable: raises HistoryError."""
    if text is None:
        return default_path()
    if text == OFF:
        return None
    path = Path(text).expanduser()
    History(path).close()
    return path


def estimate(
    path: Path | None, script: str, limits: Limits, requests: Requests, ceilings: Ceilings = NO_CEILINGS, *, backups: bool
) -> Start:  # fmt: skip
    """Where a job starts whose size nobody has named. Nothing is known of its model yet, but what its script needed before.

    Raises HistoryError.
    """
    bounds = bounds_of(limits, ceilings)
    jobs = []
    if path is not None:
        history = History(path, read_only=True)
        jobs = history.jobs()
        history.close()
    return first_size(
        observed.Model.unknown(), bounds, jobs, script=script, requests=size_of(requests), backups=backups
    )


def bounds_of(limits: Limits, ceilings: Ceilings) -> observed.Limits:
    return observed.Limits(
        limits.min_ps, limits.max_ps, limits.min_workers, limits.max_workers, ceilings.ps.cpu, ceilings.worker.cpu,
        ceilings.ps.memory_bytes, ceilings.worker.memory_bytes, ceilings.total.cpu, ceilings.total.memory_bytes,
    )  # fmt: skip


def size_of(requests: Requests, ps: int = 1, workers: int = 0) -> observed.Size:
    return observed.Size(
        ps, workers, requests.ps.cpu, requests.worker.cpu, requests.ps.memory_bytes, requests.worker.memory_bytes
    )


def remember(
    path: Path, workdir: Path, *, script: str, status: str, seconds: float, requests: Requests, backups: bool
) -> bool:
    """Adds the job that has just ended; False: it has nothing to teach. Raises HistoryError, StoreError, sqlite3.Error."""
    requested = size_of(requests)
    job = finished_job(
        workdir, script=script, status=status, seconds=seconds, finished=time.time(), backups=backups,
        limited=frozenset(name for name in LIMITS if getattr(requested, name)),
    )  # fmt: skip
    if job is None or not job.windows:
        return False
    history = History(path)
    try:
        history.add(job)
    finally:
        history.close()
    return True
