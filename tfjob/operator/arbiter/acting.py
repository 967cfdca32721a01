"""Looks at the cluster, lets `decide` decide, and writes the allowances that have changed; only while we lead.

An allowance is written with the version of the TFJob that was looked at. Where that has changed, the newer one is read: if its
allowance is still the one that the decision was made from, it is written all the same, else somebody else has decided, and the
job is looked at again. An API server that does not answer changes nothing: what was not written is decided anew.

A job that is suspended, and whose pods have gone, is told that it may have nothing: resumed, it waits like others, as its room
may be somebody else's by then.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deeprec_ext.arbiter.deciding import decide
from deeprec_ext.arbiter.observed import Allowance, Cluster, Decision, Job, Resources
from deeprec_ext.arbiter.record import Record
from deeprec_ext.arbiter.rules import Rules
from deeprec_ext.arbiter.wire import WHY_MAX, allowance_text
from deeprec_ext.errors import DeepRecError, UnreachableError
from deeprec_ext.units import sized
from tfjob.api.client import Api, ApiError, ConflictError, NotFoundError
from tfjob.arbiting.bidders import KUEUE_LABEL, Bidder, bidder_of, is_suspended
from tfjob.arbiting.observing import Labels, key_of, observe
from tfjob.arbiting.problems import Capacities, problems
from tfjob.arbiting.seen import AIMASTER, Key
from tfjob.model import names
from tfjob.model.arbitrated import allowance_of, same
from tfjob.model.events import Event
from tfjob.model.kinds import TFJOBS, Manifest
from tfjob.operator.arbiter.undoing import take_back
from tfjob.operator.arbiter.watching import Watch
from tfjob.operator.controller import Controller
from tfjob.operator.informer import version_of
from tfjob.operator.sight import Namespaces
from tfjob.pods import gang

log = logging.getLogger(__name__)

LEAST_SECONDS = 1.0
"""Between two decisions."""

SHARE = 5.0
"""So many times what a look took is waited until the next (at most `IDLE_SECONDS`), unless a pod has begun to wait for room."""

IDLE_SECONDS = 5.0
"""Where nothing changes: time passes for what is to settle, for deadlines, and for who is silent."""

PROBLEMS_SECONDS = 10.0
"""How often what is wrong with jobs is looked for."""

WORDS_SECONDS = 60.0
"""How often at most an allowance is written that is the same in other words."""

WRITE_TRIES = 5
"""Of an AIMaster that writes its status meanwhile."""

RESTS = "it is suspended: resumed, it waits until there is room"
"""Why such a job may have nothing."""

ALLOWED, WAITS = "ArbiterAllowed", "ArbiterWaits"
"""Reasons of the Events."""


@dataclass(frozen=True)
class ArbiterOptions:
    """
    Args:
        dry_run: decides and tells, and writes nothing.
        record: file of what was decided from what; None: none.
        aimaster: what the pod of each AIMaster requests.
        scheduler: the gang scheduler; empty: none.
    """

    rules: Rules = field(default_factory=Rules)
    dry_run: bool = False
    labels: Labels = field(default_factory=Labels)
    record: Path | None = None
    aimaster: Resources = field(default_factory=Resources)
    scheduler: str = ""


@dataclass
class Figures:
    """Since the start; shown as metrics."""

    decisions: int = 0
    seconds: float = 0.0
    writes: int = 0
    conflicts: int = 0
    failed: int = 0


class Arbiter:
    """`watch` sees, `act` acts; both for ever."""

    def __init__(self, api: Api, controller: Controller, namespaces: Namespaces, options: ArbiterOptions) -> None:
        self._api, self._controller, self._options = api, controller, options
        self._changed = asyncio.Event()
        self.watch = Watch(api, namespaces, options.labels, self._changed.set, controller.missing)
        controller.changed = self._changed.set
        controller.undecided = self.undecided
        self.missing = controller.missing
        self._undecided: frozenset[Key] = frozenset()
        self._bidders: dict[Key, tuple[Manifest, Bidder | None]] = {}
        self._told: dict[str, Allowance] = {}  # of a dry run: what jobs would have been allowed
        self._worded: dict[str, float] = {}  # since when the allowance of a job is in its words
        self._rested: dict[Key, float] = {}  # when a job was last seen suspended: since then it waits
        self._record = Record(options.record, options.rules) if options.record is not None else None
        self._problems_at = -PROBLEMS_SECONDS
        self.figures = Figures()
        self.last: tuple[Cluster, Decision] | None = None
        """The last look, while we lead."""

    @property
    def dry_run(self) -> bool:
        return self._options.dry_run

    # ------------------------------------------------------------------------------------------------ what there is

    def bidders(self) -> list[Bidder]:
        """Of all jobs that are to be decided about; read again only where the job has changed."""
        found = {}
        for key, manifest in self._controller.jobs.items():
            if not self._controller.sees(key[0]):  # what its pods have is not known
                continue
            known = self._bidders.get(key)
            if known is None or known[0] is not manifest:
                known = manifest, bidder_of(manifest, self._options.aimaster)
            found[key] = known
        self._bidders = found
        self._rested = {key: at for key, at in self._rested.items() if key in found}
        every = [self._since_resumed(bidder) for _, bidder in found.values() if bidder is not None]
        if self._options.dry_run:
            return [dataclasses.replace(one, allowance=self._told.get(one.name, one.allowance)) for one in every]
        return every

    def _since_resumed(self, bidder: Bidder) -> Bidder:
        """It does not wait since it was suspended."""
        allowance = bidder.allowance
        if allowance is None or allowance.why != RESTS:
            self._rested.pop(bidder.key, None)
            return bidder
        since = max(allowance.since, self._rested.get(bidder.key, 0.0))
        return dataclasses.replace(bidder, arrived=since, allowance=dataclasses.replace(allowance, since=since))

    def cluster(self, now: float) -> Cluster:
        found = observe(self.watch.seen(self.bidders()), now)
        if not (admitted := self._admitted()):
            return found
        jobs = (dataclasses.replace(job, admitted=job.name in admitted) for job in found.jobs)
        return dataclasses.replace(found, jobs=tuple(jobs))

    def undecided(self, key: Key) -> bool:
        """As of the last look: nobody knows of its room."""
        return not self._options.dry_run and key in self._undecided

    async def _leave(self, cluster: Cluster) -> None:
        """What jobs that cannot be decided about were allowed before is taken back, so that none is held by the last word of
        nobody; those that are new need not wait for a word."""
        decided = {job.name for job in cluster.jobs}
        before, self._undecided = self._undecided, frozenset(
            key for key, (_, bidder) in self._bidders.items() if bidder is not None and bidder.name not in decided
        )  # fmt: skip
        for key in self._undecided - before:
            self._controller.queue.add(key)
        if not self._options.dry_run:
            for key in sorted(self._undecided):
                await take_back(self._api, self._controller, key, "nobody knows how much room there is")

    def _admitted(self) -> set[str]:
        """Jobs whose gang a scheduler has admitted: it has counted on their least, and would make the pods again. So only what
        is above that is taken from them, and whole gangs are left to Volcano, the coscheduling plugin or Kueue."""
        found = set()
        for key, (manifest, bidder) in self._bidders.items():
            labels = manifest["metadata"].get("labels") or {}
            group = self._controller.pod_group(key) if self._options.scheduler else None
            by_group = group is not None and gang.admitted(group, self._options.scheduler)
            if bidder is not None and (
                by_group or KUEUE_LABEL in labels
            ):  # Kueue suspends those that it has not admitted
                found.add(bidder.name)
        return found

    # ------------------------------------------------------------------------------------------------ acting

    async def act(self) -> None:
        """For ever; only while we lead."""
        await self._controller.listed.wait()
        await self.watch.wait()
        took, again = 0.0, False
        try:
            while True:
                self._changed.clear()
                waiting = len(self.watch.pods.waiting)
                began = time.monotonic()
                try:
                    again = not await self.look(time.time())
                except (DeepRecError, asyncio.TimeoutError) as error:
                    log.warning("the arbiter could not act: %s; trying again", error)
                    again = True
                except Exception:
                    log.exception("the arbiter could not decide; trying again")
                    self.figures.failed += 1
                    again = True
                took = time.monotonic() - began
                await self._pause(began, took, waiting, again)
        finally:
            self.last, self._undecided = None, frozenset()

    async def _pause(self, began: float, took: float, waiting: int, again: bool) -> None:
        """Until the next look is due: at once when something has changed, but a second after the last one at the least."""
        if not again:
            # Not by `wait_for`: before Python 3.12 it may swallow that we are cancelled: who has lost the lease would go on.
            timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._changed.set)
            try:
                await self._changed.wait()
            finally:
                timer.cancel()
        least = began + LEAST_SECONDS
        rest = began + max(LEAST_SECONDS, min(SHARE * took, IDLE_SECONDS))
        while (now := time.monotonic()) < rest:
            if now >= least and len(self.watch.pods.waiting) > waiting:
                return
            await asyncio.sleep(min(rest - now, max(0.05, least - now)))

    async def look(self, now: float) -> bool:
        """One look at the cluster and what follows from it; whether all of it could be written. Raises DeepRecError."""
        began = time.perf_counter()
        cluster = self.cluster(now)
        observed = time.perf_counter() - began
        loop = asyncio.get_running_loop()
        began = time.perf_counter()
        decision = await loop.run_in_executor(None, decide, cluster, self._options.rules)
        self.figures.decisions += 1
        self.figures.seconds += observed + time.perf_counter() - began
        if self._record is not None:
            self._record.add(cluster, decision)
        self.last = cluster, decision
        await self._leave(cluster)
        written = await self._write(cluster, decision)
        if time.monotonic() - self._problems_at >= PROBLEMS_SECONDS:
            self._problems_at = time.monotonic()
            await self._tell_problems(cluster)
        return written

    async def _write(self, cluster: Cluster, decision: Decision) -> bool:
        changed = set(decision.changed)
        self._worded = {job.name: self._worded[job.name] for job in cluster.jobs if job.name in self._worded}
        jobs = {job.name: job for job in cluster.jobs}
        wanted = [
            (jobs[one.job], one) for one in decision.allowances if one.job in changed and self._due(jobs[one.job], one)
        ]
        for job, one in wanted:
            dry = "dry run: " if self._options.dry_run else ""
            log.info("%s%s %s", dry, job.name, told(job, one).message)
            if self._options.dry_run:
                self._told[one.job] = one
        if self._options.dry_run:
            self._told = {name: one for name, one in self._told.items() if name in jobs}
            return True
        work = [self._allow(job, one) for job, one in wanted] + [
            self._rest(*one, cluster.time) for one in self._resting()
        ]
        results = await asyncio.gather(*work, return_exceptions=True)
        failed = [one for one in results if isinstance(one, BaseException)]
        self.figures.failed += len(failed)
        for error in failed:
            if not isinstance(error, (ApiError, UnreachableError, asyncio.TimeoutError)):
                raise error
        if failed:
            log.warning("%d of %d allowances were not written: %s; deciding again", len(failed), len(work), failed[0])
        return not failed

    def _due(self, job: Job, allowance: Allowance) -> bool:
        """Whether it is to be written now. Other words for the same size (a job waits, and there is more room than before, but
        too little still) are not worth a write each second."""
        before, now = job.allowance, time.monotonic()
        if before is not None and before.since > allowance.since + 1:
            return True  # somebody else has written it: a time that is still to come
        if before is not None and same(before, allowance) and before.why == allowance.why[:WHY_MAX]:
            return False
        since = self._worded.setdefault(job.name, now)
        rested = before is not None and before.why == RESTS
        if same(job.allowance, allowance) and now - since < WORDS_SECONDS and not rested:
            return False
        self._worded[job.name] = now
        return True

    async def _allow(self, job: Job, allowance: Allowance) -> None:
        """Raises ApiError, UnreachableError."""
        key = key_of(job.name)
        manifest, text = self._controller.jobs.get(key), allowance_text(allowance)
        if manifest is None:
            return
        seen, uid = _allowance(manifest), manifest["metadata"].get("uid")
        for _ in range(WRITE_TRIES):
            metadata = {
                "annotations": {names.ALLOWANCE_ANNOTATION: text}, "resourceVersion": version_of(manifest),
            }  # fmt: skip
            try:
                written = await self._api.patch(TFJOBS, *key, {"metadata": metadata})
            except NotFoundError:
                return
            except ConflictError:
                self.figures.conflicts += 1
                try:
                    manifest = await self._api.get(TFJOBS, *key)
                except NotFoundError:
                    return
                if (_allowance(manifest), manifest["metadata"].get("uid")) != (seen, uid):
                    self._controller.job_changed(manifest)
                    return
                continue
            self.figures.writes += 1
            self._controller.job_changed(written)
            if not same(job.allowance, allowance):
                await self._controller.recorder.done(written, [told(job, allowance)])
            return
        self._changed.set()

    def _resting(self) -> list[tuple[Key, Manifest]]:
        """Jobs that are suspended, have no pods any more, and would start at once when they are resumed."""
        found = []
        for key, (manifest, bidder) in self._bidders.items():
            if bidder is not None or not is_suspended(manifest) or not self.watch.knows_room(key[0]):
                continue
            self._rested[key] = time.time()
            begun = _allowance(manifest) or (manifest.get("status") or {}).get("startTime")
            allowed = allowance_of(manifest["metadata"].get("annotations") or {}, "/".join(key))[0]
            pods = self.watch.pods.of_jobs.get(key, {}).values()
            if begun and (allowed is None or allowed.runs) and all(pod.type == AIMASTER for pod in pods):
                found.append((key, manifest))
        return found

    async def _rest(self, key: Key, manifest: Manifest, now: float) -> None:
        """Only of the version that was seen: one that has changed may have been resumed, and is looked at again. Raises
        ApiError, UnreachableError."""
        text = allowance_text(Allowance("/".join(key), False, 0, 0, now, RESTS))
        metadata = {"annotations": {names.ALLOWANCE_ANNOTATION: text}, "resourceVersion": version_of(manifest)}
        try:
            written = await self._api.patch(TFJOBS, *key, {"metadata": metadata})
        except (ConflictError, NotFoundError):  # the watch shows what it is now
            return
        self.figures.writes += 1
        self._controller.job_changed(written)

    async def _tell_problems(self, cluster: Cluster) -> None:
        if self._options.dry_run:
            return
        bidders = [bidder for _, bidder in self._bidders.values() if bidder is not None]
        seen, jobs = self.watch.seen(bidders), {job.name: job for job in cluster.jobs}
        capacities = Capacities(seen)
        for one in bidders:
            for event in problems(one, jobs.get(one.name), seen, capacities):
                if (manifest := self._controller.jobs.get(one.key)) is not None:
                    await self._controller.recorder.state(manifest, event)


def told(job: Job, allowance: Allowance) -> Event:
    """What `kubectl describe tfjob` shows of it."""
    before = job.allowance
    if not allowance.runs:
        return Event("Normal", WAITS, f"nothing at present: {allowance.why}")
    was = f" (before: {shown(before)})" if before is not None and not same(before, allowance) else ""
    return Event("Normal", ALLOWED, f"{shown(allowance)}{was}: {allowance.why}")


def shown(allowance: Allowance) -> str:
    return sized(allowance.ps, allowance.workers) if allowance.runs else "nothing"


def _allowance(manifest: Manifest) -> str:
    annotations: Mapping[str, str] = manifest["metadata"].get("annotations") or {}
    return annotations.get(names.ALLOWANCE_ANNOTATION, "")
