"""The launcher's side of the history of jobs: the first size of a job from it, and a job into it at the end."""

from __future__ import annotations

import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from deeprec_ext.autoscaler.history.finished import finished_job
from deeprec_ext.autoscaler.history.history import Finished, History, NoHistoryError, default_path
from deeprec_ext.autoscaler.history.start import Start, first_size
from deeprec_ext.autoscaler.observe import observed
from deeprec_ext.autoscaler.policy.record import account_in
from deeprec_ext.autoscaler.policy.thresholds import Policy
from deeprec_ext.gazer.host import machine, processors
from deeprec_ext.history.client import SECONDS, Service, within
from deeprec_ext.history.places import OFF, Place, jobs_of, place_at
from deeprec_ext.launch.limits import Limits
from deeprec_ext.launch.resources import Ceilings, Requests
from deeprec_ext.launch.workdir import try_file

log = logging.getLogger(__name__)

NO_CEILINGS = Ceilings()


NOTHING_TO_TEACH = (
    "it has not trained for 20 s on end at one size, or nobody knows how many records a step has "
    "(ElasticTrainingHook(examples_per_step=...) or elastic_dataset say so)"
)


def history_place(text: str | None, certificates: Path | None = None) -> Place | None:
    """`--history`: a file, `https://HOST:PORT`, or `off`; not given: the user's own file. Raises UsageError.

    A file that is named must be usable, and is not made yet: nothing may start after all. A service need not answer: a job
    starts without it.
    """
    if certificates is None and text in (None, OFF):
        return default_path() if text is None else None
    place = place_at(text or "", certificates)
    if isinstance(place, Path):
        History(place, read_only=True).close()
        if not place.exists():
            try_file(place, "--history")
    return place


def estimate(
    place: Place | None, script: str, limits: Limits, requests: Requests, ceilings: Ceilings = NO_CEILINGS, *, backups: bool,
    here: bool = True,
) -> Start:  # fmt: skip
    """What is started at once of a job whose size nobody has named: nothing is known of its model yet, but what its script
    needed before. With how much it begins the AIMaster decides by the declared model (`autoscaler.loop.beginning`); without PS
    with this.

    A history that cannot be read keeps no job from starting: it is said, and the job starts without.

    Args:
        here: on this machine; else nobody knows yet on which.
    """
    kind, cores = (machine(), len(processors())) if here else ("", 0)

    def begin(jobs: Sequence[Finished], unread: str) -> Start:
        return first_size(
            observed.Model.unknown(), bounds_of(limits, ceilings), jobs, script=script, requests=size_of(requests),
            backups=backups, machine=kind, cores=cores, unread=unread,
        )  # fmt: skip

    return started(begin, *readable_jobs(place, script))[0]


def started(
    begin: Callable[[Sequence[Finished], str], Start], jobs: Sequence[Finished], unread: str
) -> tuple[Start, Sequence[Finished]]:
    """The first size, and the jobs by which it was chosen: none, where nothing can be made of them.

    Args:
        begin: of finished jobs, and why there are none.
    """
    try:
        return begin(jobs, unread), jobs
    except Exception as error:
        if not jobs:
            raise
        log.warning("nothing can be made of the finished jobs", exc_info=True)
        return begin((), f"nothing can be made of the finished jobs ({error})"), ()


def readable_jobs(place: Place | None, script: str) -> tuple[list[Finished], str]:
    """The finished jobs, and why there are none; empty: they could be read. Takes SECONDS at most, whatever the disk does."""
    try:
        return within(SECONDS, lambda: jobs_of(place, script), str(place)), ""
    except NoHistoryError as error:
        return [], str(error)
    except Exception as error:
        return [], f"the finished jobs cannot be read ({error})"


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
    place: Place, workdir: Path, *, script: str, status: str, seconds: float, requests: Requests, backups: bool,
    name: str = "", autoscaled: bool = False, local_batch: bool = False,
) -> bool:  # fmt: skip
    """Adds the job that has just ended; False: it has nothing to teach. Raises HistoryError, StoreError, sqlite3.Error."""
    job = finished_job(
        workdir, script=script, status=status, seconds=seconds, finished=time.time(), backups=backups,
        requested=size_of(requests), name=name, autoscaled=autoscaled, disturbance=Policy().disturbance,
        recorded=account_in(workdir) if autoscaled else None, local_batch=local_batch,
    )  # fmt: skip
    if job is None or not job.windows:
        return False
    if isinstance(place, Service):
        return place.add(f"{name}-{secrets.token_hex(8)}", job)  # a run directory's name is no job's own
    with contextlib.closing(History(place)) as history:
        history.add(job)
    return True
