"""Certificates that should have been renewed long ago: a warning, and a notice in status while it lasts.

The AIMaster renews none (`security.lifetimes` says who does); it is there when those who do so have gone, or cannot.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

from deeprec_ext.aimaster.job.notices import Notice
from deeprec_ext.aimaster.state.shared import JobState
from deeprec_ext.security import lifetimes
from deeprec_ext.security.renewing import names_in

log = logging.getLogger(__name__)

CODE = "certificates"


class Expiring:
    """On the job's event loop."""

    def __init__(self, job: JobState, certs: str | None, clock: Callable[[], float] = time.time) -> None:
        """`clock`: by which certificates end, the machine's."""
        self._job, self._certs, self._clock = job, Path(certs) if certs is not None else None, clock
        self._late: tuple[lifetimes.Life, Path] | None = None
        self._since = 0.0  # Unix seconds

    async def run(self) -> None:
        """Runs for ever; never raises."""
        while True:
            wait = lifetimes.LOOK_SECONDS
            try:
                wait = self.look(await asyncio.to_thread(self.first))
            except Exception:  # training has nothing to do with it
                log.exception("certificates cannot be looked at")
            await asyncio.sleep(wait)

    def first(self) -> tuple[lifetimes.Life, Path] | None:
        """Whichever ends first, of a thousand files on one machine; None: there is none (no TLS)."""
        return lifetimes.earliest(self._certs, ["ca", *names_in(self._certs)]) if self._certs is not None else None

    def look(self, first: tuple[lifetimes.Life, Path] | None) -> float:
        """Tells what has become late; seconds until the next look."""
        now, was = self._clock(), self._late
        self._late = first if first is not None and first[0].late <= now else None
        if self._late is not None and was is None:
            self._since = now
            (notice,) = self.notices()
            self._job.event("warning", text=str(notice))
        if (self._late is None) != (was is None):
            self._job.changed.notify()
        if self._late is not None:
            return lifetimes.AGAIN_SECONDS
        return lifetimes.pause(first[0].late, now) if first is not None else lifetimes.LOOK_SECONDS

    def notices(self) -> tuple[Notice, ...]:
        """For status, while it lasts."""
        if self._late is None:
            return ()
        life, path = self._late
        text = (
            f"the certificate {path} expires at {lifetimes.shown(life.ends)}, and was not renewed at "
            f"{lifetimes.shown(life.due)}; from then on nobody who connects to the AIMaster gets through"
        )
        return (Notice(CODE, text, lifetimes.REMEDY, roles=("aimaster",), time=self._since),)
