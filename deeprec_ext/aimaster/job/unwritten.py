"""What the AIMaster cannot write: tried again now and then, shown in status while it lasts, an event when it is over."""

from __future__ import annotations

import asyncio
import logging
import time

from deeprec_ext.aimaster.job.notices import Notice
from deeprec_ext.aimaster.state.shared import JobState
from deeprec_ext.units import format_seconds

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
COPY_SECONDS = 60.0
"""How old the copy of the store may get, while anything changes."""

CODE = "not-written"


class Unwritten:
    """On the job's event loop."""

    def __init__(self, job: JobState) -> None:
        self._job = job
        self._since: float | None = None  # monotonic
        self._at = 0.0  # Unix seconds
        self._why = ""
        self._copied = job.clock.monotonic()
        self._copying: asyncio.Future[None] | None = None

    async def run(self) -> None:
        """Runs for ever; never raises."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                self.look()
                self._copy()
            except Exception:  # what waited has been called, and did not bear it: the next ones are called all the same
                log.exception("after a write")

    def look(self) -> None:
        """Tries again, and tells who waits."""
        job = self._job
        if (why := self._behind()) and self._since is None:
            self._since, self._at = job.clock.monotonic(), job.clock.wall()
        self._why = why or self._why
        job.store.try_again()
        job.events.try_again()
        if self._since is None:
            return
        self._why = self._behind() or self._why
        if not self._behind():
            seconds, self._since = job.clock.monotonic() - self._since, None
            job.event("written_again", seconds=round(seconds, 1), text=self._why)
        job.changed.notify()

    def _behind(self) -> str:
        store, events = self._job.store.behind, self._job.events.behind
        return f"aimaster.db: {store}" if store else events

    def notices(self) -> tuple[Notice, ...]:
        """For status, while it lasts."""
        job = self._job
        if self._since is None:
            return ()
        lasted = format_seconds(job.clock.monotonic() - self._since)
        at = time.strftime("%H:%M:%S", time.localtime(self._at))
        text = (
            f"the run directory cannot be written since {at} ({lasted}): {self._why}; scalings, recoveries and new data "
            "leases wait, training goes on as far as leases reach"
        )
        remedy = (
            f"free space on the file system of {job.spec.workdir}, or make it writable again; the job goes on by itself"
        )
        return (Notice(CODE, text, remedy, roles=("aimaster",), time=self._at),)

    def _copy(self) -> None:
        now = self._job.clock.monotonic()
        if now - self._copied < COPY_SECONDS or self._job.store.behind or (self._copying and not self._copying.done()):
            return
        self._copied = now
        self._copying = asyncio.get_running_loop().run_in_executor(None, self._job.store.copy)
        self._copying.add_done_callback(lambda future: future.cancelled() or future.exception())  # it is tried again
