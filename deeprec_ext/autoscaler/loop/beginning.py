"""With what a job begins whose size nobody has named: decided by the model that its chief declares, before that is made. Of a
job without PS nothing is declared: it begins with what was estimated when it was started."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from deeprec_ext.aimaster.core.records import role_name
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.autoscaler.history.estimates import Estimates, Like, estimate, lines, ps_memory
from deeprec_ext.autoscaler.history.history import Finished, NoHistoryError, of_strategy
from deeprec_ext.autoscaler.history.regression import JOBS_MIN, learners_loaded
from deeprec_ext.autoscaler.history.start import Start, at_least, first_size
from deeprec_ext.autoscaler.loop.observing import limits_now, size_of
from deeprec_ext.autoscaler.model.memory_model import Layout
from deeprec_ext.autoscaler.observe.features import declared_model, described, fingerprint_of
from deeprec_ext.autoscaler.observe.observed import Model, Size
from deeprec_ext.gazer.host import machine, processors
from deeprec_ext.history.client import within
from deeprec_ext.proto import deeprec_ext_pb2 as pb

log = logging.getLogger(__name__)
T = TypeVar("T")

DECLARE_LIMIT_SECONDS, SAID_SECONDS = 3600.0, 300.0
"""How long the first view waits for the declaration, from when the chief runs (before, it may wait for a node), and how often
it says so: a script may prepare its data before it has a graph, and nobody can train before it has one. Then the job begins as
its script alone lets expect."""

READ_SECONDS, LOAD_SECONDS, ESTIMATE_SECONDS, FIGURES_SECONDS = 10.0, 30.0, 10.0, 120.0
"""Reading the finished jobs, and loading the libraries of estimates, both beside the start of the chief; computing a size, for
which training waits; and figures of that size, for which nobody waits."""

TEXT_MAX, UNREAD_MAX = 1000, 200
"""Characters of an event, and of the reason of a size that say why there is no history."""


class Beginning:
    """Args:
    jobs: reads the finished jobs; may raise, and take its time. NoHistoryError: there are none to be read.
    free_bytes: memory that the one host has left; None: not known, or there are several.
    one_host: all processes run here; else on machines of the kind that the chief tells of its own.
    """

    def __init__(
        self, job: Job, jobs: Callable[[], Sequence[Finished]], *, one_host: bool = True,
        free_bytes: Callable[[], int | None] = lambda: None,
    ) -> None:  # fmt: skip
        self._job, self._jobs, self._free_bytes = job, jobs, free_bytes
        self._here, self._cores = (machine(), float(len(processors()))) if one_host else ("", 0.0)
        self._finished: Sequence[Finished] = ()  # once they are read
        self._unread = ""  # why there are none
        self._like: tuple[Like, ...] = ()
        self.written: Size | None = None  # what somebody has written: it counts where no job is like this one
        self.decided: Callable[[Start], None] = lambda start: None
        self.chief_runs: Callable[[], bool] = lambda: True

    @property
    def _machine(self) -> str:
        chief = self._job.members.get(role_name(pb.CHIEF, 0))
        return self._here or (chief.machine_kind if chief is not None else "")

    async def decide(self) -> Start | None:
        """None: no model was declared, or nothing could be made of it; why is told."""
        job = self._job
        reading = asyncio.ensure_future(asyncio.to_thread(within, LOAD_SECONDS, self._read, "of finished jobs"))

        def heard() -> bool:
            return job.declared.heard or bool(job.ending)

        await job.changed.until(lambda: heard() or self.chief_runs(), None)  # without it there is no job
        if not await self._declared(heard):
            self._tell(f"the chief has declared no model within {DECLARE_LIMIT_SECONDS:g} s")
        model = job.declared.model
        jobs = self._finished = await self._read_by(reading)
        if model is None and job.declared.heard and not job.ending:
            self._tell(f"the chief declares no model ({job.declared.why_not or 'it does not say why'})")
        if model is None or job.ending:
            return None
        start: Start | None
        try:
            start = await asyncio.to_thread(
                within, ESTIMATE_SECONDS, lambda: self._estimated(model, jobs), "of finished jobs"
            )
        except Exception as error:
            log.warning("the first size was not estimated from finished jobs", exc_info=True)
            start = await self._without_jobs(model, f"nothing could be made of the finished jobs in time ({error})")
        if start is None:
            return None
        self._like = start.like
        self.decided(start)
        return start

    async def _declared(self, heard: Callable[[], bool]) -> bool:
        waited = 0.0
        while not await self._job.changed.until(heard, min(SAID_SECONDS, DECLARE_LIMIT_SECONDS - waited)):
            waited += SAID_SECONDS
            if waited >= DECLARE_LIMIT_SECONDS:
                return False
            self._job.event("warning", text=f"the chief has no graph yet, after {waited:g} s: PS wait for it")
        return True

    async def _without_jobs(self, model: pb.Declaration, why: str) -> Start | None:
        """From the declared variables alone, which need their PS all the same."""
        self._unread = why[:UNREAD_MAX]
        try:
            return await asyncio.to_thread(self._estimated, model, ())
        except Exception as error:
            log.warning("the first size was not estimated", exc_info=True)
            self._tell(f"nothing could be made of the declared model: {error}")
            return None

    async def _read_by(self, reading: asyncio.Future[Sequence[Finished]]) -> Sequence[Finished]:
        """No jobs, where they cannot be read: the declared variables need their PS all the same."""
        try:
            return await reading
        except Exception as error:
            log.warning(
                "the finished jobs cannot be read, or what learns from them cannot be loaded in time", exc_info=True
            )
            if not self._finished:
                self._unread = f"the finished jobs cannot be read ({error})"[:UNREAD_MAX]
                self._job.event(
                    "warning", text=f"the finished jobs cannot be read, the job begins without them: {error}"[:500]
                )
            return self._finished

    async def foretell(self, size: Size) -> None:
        """Keeps what a job of this size is thought to use, for its end. Beside its start, which waits for no figure: also of
        jobs which the start could not wait for."""
        model = self._job.declared.model
        if model is None:
            return
        found = await self._foretold(model, size, self._finished)
        if found is None and self._finished:
            found = await self._foretold(model, size, ())
        if found is not None:
            self._job.declared.foretell(dataclasses.replace(found, like=self._like))
            self._job.event("estimated", text="; ".join(lines(found))[:TEXT_MAX])

    async def _foretold(self, model: pb.Declaration, size: Size, jobs: Sequence[Finished]) -> Estimates | None:
        try:
            return await _in_own_thread(lambda: self._figures(model, size, jobs), FIGURES_SECONDS)
        except Exception:
            log.warning("what the job will use was not estimated from %d finished jobs", len(jobs), exc_info=True)
            return None

    def _figures(self, declared: pb.Declaration, size: Size, jobs: Sequence[Finished]) -> Estimates:
        slots, catalogue = self._job.spec.slots, declared.catalogue
        return estimate(
            declared_model(declared, slots), size, jobs, layout=Layout.of(catalogue, slots),
            fingerprint=fingerprint_of(catalogue), backups=self._job.choices.peer,
            checkpoints=not declared.no_checkpoints, machine=self._machine, cores=self._cores,
            computes=declared.computes,
        )  # fmt: skip

    def _read(self) -> Sequence[Finished]:
        """While the chief still builds its graph."""
        jobs: Sequence[Finished] = ()
        try:
            jobs = of_strategy(within(READ_SECONDS, self._jobs, "of finished jobs"), sums=False)
        except NoHistoryError as error:
            self._unread = str(error)
        self._finished = jobs
        try:
            self._learn_ahead(jobs)
        except Exception:
            log.warning("nothing was learnt ahead of finished jobs", exc_info=True)
        return jobs

    def _learn_ahead(self, jobs: Sequence[Finished]) -> None:
        """Loads the libraries that estimates need, and learns what is asked if the model is that of the script's last job."""
        script = self._job.spec.script
        last = next((job for job in jobs if script and job.script == script), None)
        model = last.model if last is not None else Model.unknown()
        self._size(model, jobs, pb.Catalogue())
        if len(jobs) >= JOBS_MIN:
            learners_loaded()
        if last is not None:
            layout = Layout.of(pb.Catalogue(), self._job.spec.slots)
            ps_memory(model, jobs, layout, fingerprint=last.fingerprint, backups=self._job.choices.peer)

    def _estimated(self, model: pb.Declaration, jobs: Sequence[Finished]) -> Start:
        start = self._size(
            declared_model(model, self._job.spec.slots), jobs, model.catalogue, checkpoints=not model.no_checkpoints
        )
        start = dataclasses.replace(start, reason=f"{described(model)}: {start.reason}")
        return start if self.written is None else at_least(start, self.written)

    def _size(
        self, model: Model, jobs: Sequence[Finished], catalogue: pb.Catalogue, *, checkpoints: bool = True
    ) -> Start:
        """In a thread: reads what does not change."""
        spec = self._job.spec
        return first_size(
            model, limits_now(self._job), jobs, script=spec.script, requests=size_of(self._job),
            backups=self._job.choices.peer, checkpoints=checkpoints, layout=Layout.of(catalogue, spec.slots),
            fingerprint=fingerprint_of(catalogue), machine=self._machine, cores=self._cores,
            free_bytes=self._free_bytes() or 0, unread=self._unread,
        )  # fmt: skip

    def _tell(self, why: str) -> None:
        log.warning("%s; the job begins with the size that its script alone lets expect", why)
        self._job.event("warning", text=f"{why}: the job begins with the size that its script alone lets expect"[:500])


async def _in_own_thread(call: Callable[[], T], seconds: float) -> T:
    """As `within`, of what nobody waits for: a process that ends leaves the thread behind, where asyncio waits for its own."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[T] = loop.create_future()

    def end(result: T | None, error: BaseException | None) -> None:
        if not found.done():
            found.set_result(cast("T", result)) if error is None else found.set_exception(error)

    def run() -> None:
        told: tuple[T | None, BaseException | None]
        try:
            told = call(), None
        except BaseException as error:
            told = None, error
        with contextlib.suppress(RuntimeError):  # the loop is over
            loop.call_soon_threadsafe(end, *told)

    threading.Thread(target=run, name="figures", daemon=True).start()
    return await asyncio.wait_for(found, seconds)
