"""The autoscaler: looks at the job, asks the policy, records, carries out through scalings, and writes down what came of it.

It owns no mechanism: a decision becomes ordinary scalings (and resizes), which roll back by themselves when they fail. A
request by hand goes the same way and always counts; while it is under way, or the user holds, nothing is decided.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from deeprec_ext.aimaster.core.records import role_name
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.scaling.queue import ScalingQueue
from deeprec_ext.aimaster.scaling.requests import present
from deeprec_ext.aimaster.state.lock import Hold
from deeprec_ext.autoscaler.history.start import Start
from deeprec_ext.autoscaler.loop.keeps import KEEP_RECORDED_SECONDS, Keeps
from deeprec_ext.autoscaler.loop.measuring import Measuring
from deeprec_ext.autoscaler.loop.observing import Latest, limits_now, size_of
from deeprec_ext.autoscaler.loop.recalled import Recalled, keep, recall, stood_since
from deeprec_ext.autoscaler.observe import building
from deeprec_ext.autoscaler.observe.observed import Observed, Size, Window
from deeprec_ext.autoscaler.outcomes.account import STOOD_SECONDS
from deeprec_ext.autoscaler.outcomes.measured import key_of
from deeprec_ext.autoscaler.policy.decision import Decision
from deeprec_ext.errors import UsageError, one_line
from deeprec_ext.proto import deeprec_ext_pb2 as pb

log = logging.getLogger(__name__)

TICK_SECONDS = 1.0

SAY_AGAIN_SECONDS = 600.0
"""What fails at every tick is said so often."""

WINDOWS_OF_OUTCOME = 2
"""From so many at its size, what a change has brought is told; from fewer, where the job goes on to another size."""

REPLACED_MAX = 24
"""Replacements of one decision: the queue of scalings has room for them, and for requests by hand."""


class Record(Protocol):
    """Where decisions are written down."""

    def add(self, observed: Observed, decision: Decision) -> None: ...

    def outcome(self, number: int, outcome: str, reason: str, examples_per_second: float) -> None: ...

    def tell(self, after: int, limit: int) -> list[str]: ...

    def foretold(self) -> dict[int, float]: ...

    def last(self) -> tuple[tuple[Window, ...], Size | None]: ...

    next_number: int


@dataclass
class _Pending:
    """A decision whose scalings have not all ended, or whose effect is not measured yet."""

    decision: Decision
    open: set[int] = field(default_factory=set)  # numbers of scalings
    ends: list[tuple[str, str]] = field(default_factory=list)  # (outcome, reason) of each part of it that has ended
    ended_at: float | None = None  # seconds since the start of the job


class Autoscaler(Measuring):
    """`run` for ever. `decide` is pure; the record is what `plan --replay` reads."""

    def __init__(
        self, job: Job, scalings: ScalingQueue, resize: Callable[[str, float, int], Awaitable[None]], latest: Latest,
        decide: Callable[[Observed], Decision], record: Record, *, resizes_in_place: bool = True, one_host: bool = True,
        free_memory: Callable[[], int | None] = lambda: None,
    ) -> None:  # fmt: skip
        """`resizes_in_place`: else `resize` says how pods to come are, and those that are there are replaced.

        `one_host`: pods to come run on the same host, which has `free_memory` for them: bytes, None: not known.
        """
        super().__init__(job, scalings, latest, one_host=one_host, free_memory=free_memory)
        self._resize, self._resizes_in_place = resize, resizes_in_place
        self._decide, self._record = decide, record
        self._foretold = record.foretold()
        known, first = record.last()
        self._windows.first = first
        self._windows.remember(one for one in known if one.start + one.seconds <= self._now())
        self._recalled = False
        self._pending: _Pending | None = None
        self._keeps = Keeps()
        self._due = 0.0  # seconds since the start of the job
        self._said: dict[type[Exception], float] = {}
        self.latest_decision: Decision | None = None

    def start(self, estimated: Start | None = None) -> Size:
        """Decision 0: the size of the first view. It is made once; an AIMaster that comes back to it makes it again.

        Args:
            estimated: from the declared model; None: the specification's.
        """
        job = self._job
        count = estimated.size if estimated is not None else Size(job.spec.ps, job.spec.workers)
        size = Size(count.ps, count.workers, **dataclasses.asdict(job.requests))
        observed = building.before_the_start(
            size=size, limits=limits_now(job), objective=job.settings.objective,
            deadline_seconds=job.settings.deadline_seconds, backups=job.choices.peer,
            start=estimated.reason if estimated is not None else job.spec.start,
        )  # fmt: skip
        decision = self._decide(observed)
        self._windows.first = decision.size
        if self._record.next_number == 0:
            self._note(observed, decision)
            self._tell(decision)
        return decision.size

    def _note(self, observed: Observed, decision: Decision) -> None:
        """In the record, and what a successor without it has to know in the store."""
        self._record.add(observed, decision)
        chief = self._job.members.get(role_name(pb.CHIEF, 0))
        keep(self._job.store, Recalled(
            self._record.next_number, self._windows.first, self._foretold, self._windows.all(), self._stood, observed.time,
            self._machine, chief.incarnation if chief is not None else "",
        ))  # fmt: skip

    def _recall(self) -> None:
        """What was before this AIMaster, once the job is there: its record may be gone, the job may have stood, and it may be
        on another machine, where no size does what it did."""
        job, now = self._job, self._now()
        known, ours = recall(job.store), [one.decision for one in self._scalings.records()]
        self._record.next_number = max(self._record.next_number, known.number, 1 + max(ours, default=-1))
        self._foretold = {**known.foretold, **self._foretold}
        self._windows.first = self._windows.first or known.first
        heard = max([known.heard, *(one.start + one.seconds for one in (*known.windows, *self._windows.all()))])
        if known.machine != self._machine and known.machine and self._machine:
            self._windows.forget()
        elif not self._windows.all():
            self._windows.remember(one for one in known.windows if one.start + one.seconds <= now)
        self._stood, chief = known.stood, job.members.get(role_name(pb.CHIEF, 0))
        began_anew = (
            chief is not None and chief.incarnation != known.chief
        )  # else it has trained on without an AIMaster
        if heard and began_anew and now - heard > KEEP_RECORDED_SECONDS + STOOD_SECONDS:
            self._stood = stood_since(self._stood, heard, now)

    # ------------------------------------------------------------------------------------------------ the loop

    async def run(self) -> None:
        try:
            while True:
                await asyncio.sleep(TICK_SECONDS)
                try:
                    await self._turn()
                except Exception as error:  # training goes on without decisions; the next look may fare better
                    self._say(error)
        finally:
            self._note_last()

    async def _turn(self) -> None:
        """One tick. After a look or a follow-up that failed nothing is decided: it would be from what is no more so."""
        if not self._recalled and self._job.settled and self._job.cluster.live:
            self._recalled = True
            self._recall()
        self._look()
        self._follow_up()
        if self._over():
            self._note_last()
            return
        now, measured = self._now(), self._windows.fresh()
        if (measured or now >= self._due) and self._job.cluster.live:
            self._due = now + self._job.settings.decide_seconds
            await self.decide_now()

    def _over(self) -> bool:
        """What is seen of the job from now on is its end."""
        return bool(self._job.ending) or self._job.lock.held(Hold.STOPPING) or self._ending()

    def _note_last(self) -> None:
        """The last decision to keep the size, with what it was made from: nobody could ask a job that has ended why."""
        left, self._keeps.left = self._keeps.left, None
        if left is None or left[1].number != self._record.next_number:
            return
        try:
            self._note(*left)
        except Exception:
            log.exception("the last decision is not recorded")

    def _say(self, error: Exception) -> None:
        now = self._now()
        if now < self._said.get(type(error), float("-inf")) + SAY_AGAIN_SECONDS:
            return
        self._said[type(error)] = now
        log.error("the autoscaler could not look at the job, or decide", exc_info=error)
        text = f"the autoscaler has failed and tries again; until then the size stays as it is: {one_line(error)}"
        try:
            self._job.event("warning", text=text)
        except Exception:
            log.exception("nor could it be told")

    # ------------------------------------------------------------------------------------------------ deciding

    def observed(self) -> Observed:
        return self.seen(number=self._record.next_number, foretold=self._foretold)

    async def preview(self) -> tuple[Decision, Observed]:
        """What would be decided now, and from what; nothing is done or recorded."""
        observed = self.observed()
        return await asyncio.to_thread(self._decide, observed), observed

    async def recorded(self, after: int, limit: int) -> list[str]:
        """The first `limit` decisions with a number above `after`, as JSON: {"at", "decision", "outcome" or null}."""
        return self._record.tell(after, limit)

    async def decide_now(self) -> Decision | None:
        """One look; None while the last decision is still being carried out."""
        if (self._pending is not None and self._pending.ended_at is None) or self._ending():
            return None
        observed = self.observed()
        decision = await asyncio.to_thread(self._decide, observed)
        if self._job.held and not observed.hold:
            return None  # the user has held it while we thought
        self.latest_decision = decision
        if decision.action == "keep":
            if self._keeps.due(observed, decision, self._now()):
                self._note(observed, decision)
            return decision
        if self._scalings.running is not None or self._scalings.queue or size_of(self._job) != observed.size:
            return None  # somebody was quicker while we thought, and may be done already
        self._conclude()
        self._foretold[decision.number] = decision.prediction.examples_per_second
        self._note(observed, decision)
        self._keeps.changed()
        self._tell(decision)
        await self._carry_out(decision)
        return decision

    def _tell(self, decision: Decision) -> None:
        """As an event: what the dashboard shows; the record beside it has the rest."""
        predicted = decision.prediction
        self._job.event(
            "decision", number=decision.number, action=decision.action, reason=decision.reason, ps=decision.size.ps,
            workers=decision.size.workers, before=round(predicted.before, 1),
            predicted=round(predicted.examples_per_second, 1),
        )  # fmt: skip

    # ------------------------------------------------------------------------------------------------ carrying out

    async def _carry_out(self, decision: Decision) -> None:
        """What goes wrong is the decision's outcome; what was queued before goes on, and is waited for."""
        self._pending = pending = _Pending(decision)
        before = max((one.id for one in self._scalings.records()), default=0)
        requests: list[tuple[pb.ScaleRequest, tuple[float, ...]]] = []
        trouble = "", ""
        try:
            resized = await self._resize_roles(decision)
            requests = _requests(decision, size_of(self._job))
            if not self._resizes_in_place:
                requests += self._replacements(decision, resized)
            for request, weights in requests:
                await self._scalings.request(request, decision=decision.number, weights=weights)
        except UsageError as error:
            trouble = "refused", str(error)
        except Exception as error:
            log.exception("decision %d could not be carried out", decision.number)
            trouble = "failed", one_line(error)
        ours = [one for one in self._scalings.records() if one.decision == decision.number and one.id > before]
        pending.open = {one.id for one in ours if one.kind != "resize"}
        if trouble[0] and not 0 < len(requests) <= len(pending.open):  # else all of it was queued before the error
            pending.ends.append(trouble)
        self._settle(pending)
        if pending.ends and pending.ends[0] == trouble:
            self._job.event(f"decision_{trouble[0]}", number=decision.number, reason=trouble[1])

    async def _resize_roles(self, decision: Decision) -> list[str]:
        """CPU and memory per pod, where they differ from what is requested now; which roles.

        Raises UsageError where that cannot be, UnreachableError where nobody answers.
        """
        job, size, resized = self._job, decision.size, []
        for role in ("ps", "worker"):
            names = f"{role}_cpu", f"{role}_memory_bytes"
            cpu, memory = wanted = tuple(getattr(size, name) for name in names)
            if wanted == tuple(getattr(job.requests, name) for name in names):
                continue
            began, reason = job.clock.wall(), f"decision {decision.number}: {decision.reason}"
            try:
                await self._resize(role, cpu, memory)
            except UsageError as error:
                self._scalings.resized(role, decision.number, reason, began, "refused", str(error))
                raise
            except Exception as error:
                why = f"it is not known whether it was done: {one_line(error)}"
                self._scalings.resized(role, decision.number, reason, began, "refused", why)
                raise
            job.set_requests(dataclasses.replace(job.requests, **dict(zip(names, wanted))))
            self._scalings.resized(role, decision.number, reason, began, "committed")
            resized.append(role)
        return resized

    def _replacements(self, decision: Decision, roles: list[str]) -> list[tuple[pb.ScaleRequest, tuple[float, ...]]]:
        """One by one, PS before workers. The chief, and what is too much for the queue, take the new size when they end."""
        reason = f"decision {decision.number}: {decision.reason}"
        names = [
            *(present(self._job, pb.PS)[: decision.size.ps] if "ps" in roles else ()),
            *(present(self._job, pb.WORKER)[: decision.size.workers] if "worker" in roles else ()),
        ]
        return [(pb.ScaleRequest(replace=name, reason=reason), ()) for name in names[:REPLACED_MAX]]

    def _follow_up(self) -> None:
        """Notes how the scalings of the last decision ended, and what throughput came of it."""
        pending = self._pending
        if pending is None:
            return
        if pending.ended_at is None:
            self._settle(pending)
            return
        left = any(one.start >= pending.ended_at and not _of(pending, one) for one in self._windows.all())
        measured = len(self._measured(pending)) == WINDOWS_OF_OUTCOME
        if left or measured or self._ending() or _together(pending.ends)[0] != "committed":
            self._conclude()

    def _settle(self, pending: _Pending) -> None:
        """Takes over what has ended of it since."""
        ended = pending.open - {one.id for one in self._scalings.under_way()}
        known = {one.id: one for one in self._scalings.ended}
        if not ended <= known.keys():  # the queue knows the newest
            known = {one.id: one for one in self._job.store.scalings()}
        for number in sorted(ended):
            one = known.get(number)
            end = (one.outcome, one.reason) if one is not None and one.outcome else None
            pending.ends.append(end or ("failed", f"it is not known how scaling {number} has ended"))
        pending.open -= ended
        if not pending.open:
            pending.ended_at = self._now()

    def _conclude(self) -> None:
        """The last decision's outcome, with what was measured since it was carried out, at the size it led to (0: nothing)."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        rates = self._measured(pending)
        self._record.outcome(
            pending.decision.number, *_together(pending.ends), statistics.median(rates) if rates else 0.0
        )

    def _measured(self, pending: _Pending) -> list[float]:
        """Examples per second of the first windows at the size that a change led to; those that are clear, where some are."""
        if pending.ended_at is None or _together(pending.ends)[0] != "committed":
            return []
        after = [one for one in self._windows.all() if one.start >= pending.ended_at and _of(pending, one)]
        clear = [one for one in after if not one.preparing] or after
        return [one.examples_per_second for one in clear[:WINDOWS_OF_OUTCOME]]


def _of(pending: _Pending, window: Window) -> bool:
    return key_of(window.size) == key_of(pending.decision.size)


def _requests(decision: Decision, present: Size) -> list[tuple[pb.ScaleRequest, tuple[float, ...]]]:
    """What leads from the present size to the decided one: PS and workers change in one scaling."""
    reason = f"decision {decision.number}: {decision.reason}"
    if decision.action == "rebalance":
        return [(pb.ScaleRequest(rebalance=True, reason=reason), decision.slot_weights)]
    if decision.action == "replace":
        return [(pb.ScaleRequest(replace=decision.replace, reason=reason), ())]
    ps = decision.size.ps if decision.size.ps != present.ps else None
    workers = decision.size.workers if decision.size.workers != present.workers else None
    if ps is None and workers is None:
        return []
    weights = decision.slot_weights if ps is not None else ()
    return [(pb.ScaleRequest(ps=ps, workers=workers, reason=reason), weights)]


def _together(ends: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """The worst (outcome, reason) of several; of none, committed: nothing had to be done."""
    for outcome in ("failed", "rolled_back", "refused"):
        for end in ends:
            if end[0] == outcome:
                return end
    return "committed", ""
