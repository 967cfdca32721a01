"""The job as the dashboard sees it. What is dear to compute is computed once for all who ask in the same second."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from deeprec_ext.aimaster.core.clock import Clock
from deeprec_ext.aimaster.core.records import TRAINERS, Failure, Scaling
from deeprec_ext.aimaster.dashboard import picture
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.reporting.estimated import sentences
from deeprec_ext.aimaster.reporting.reply import status as make_status
from deeprec_ext.aimaster.scaling.queue import ScalingQueue
from deeprec_ext.aimaster.store.events import read_fields
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.decoding import built
from deeprec_ext.gazer.series import Series
from deeprec_ext.proto import deeprec_ext_pb2 as pb

KEPT_SECONDS = 0.9
"""How long an answer stays good: less than the second between two pictures."""
HISTORY_MAX = 200
RATE_SECONDS = 60.0
VARIABLES_MAX = 100
EDGES_SIDE_MAX = 8
"""Of trainers: more are not drawn one by one."""

T = TypeVar("T")


class Source:
    """Reads `job` and `scalings`; changes nothing."""

    def __init__(self, job: Job, scalings: ScalingQueue) -> None:
        self.job, self.scalings = job, scalings
        self._kept: dict[str, tuple[float, object, Any]] = {}
        self._rates = DataRates(job.clock)

    def _situation(self) -> object:
        """What nobody wants to see late."""
        running = self.scalings.running
        return self.job.ending, self.job.cluster.epoch, running and running.scaling.state, len(self.scalings.queue)

    async def change(self, seconds: float) -> None:
        """Until the situation is another one, at most so long."""
        before = self._situation()
        await self.job.changed.until(lambda: self._situation() != before, seconds)

    def _shared(self, name: str, make: Callable[[], T], *facts: object) -> T:
        """What was made within the last second, unless the situation or these facts are others now."""
        now, situation = self.job.clock.monotonic(), (self._situation(), facts)
        at, before, value = self._kept.get(name, (0.0, None, None))
        if before != situation or not 0 <= now - at < KEPT_SECONDS:
            value = make()
            self._kept[name] = now, situation, value
        return value

    def status(self) -> pb.StatusReply:
        return self._shared("status", lambda: make_status(self.job, self.scalings))

    def picture(self) -> dict[str, Any]:
        """The message of one second."""
        job, status, running = self.job, self.status(), self.scalings.running
        spec, most = job.spec, job.allowed.most
        limits = {"ps": (spec.min_ps, most("ps")), "workers": (spec.min_workers, most("worker"))}
        return picture.picture(
            status, now=job.clock.wall(), limits=limits, running=running.scaling if running is not None else None,
            queued=len(self.scalings.queue), sequence=self.job.store.newest_event(), data_rates=self._rates.of(status.data),
        )  # fmt: skip

    def events(self, after: int | None, limit: int) -> list[dict[str, Any]]:
        """Oldest first. `after` None: the newest ones."""
        begin = max(0, self.job.store.newest_event() - limit) if after is None else after
        return [
            {
                **read_fields(text),
                "sequence": sequence,
                "time": round(time, 3),
                "type": type_,
                "role": role,
                "epoch": epoch,
            }
            for sequence, time, type_, role, epoch, text in self.job.store.events(begin, limit)
        ]

    # ------------------------------------------------------------------------------------------------ read in a thread

    async def _read(self, name: str, read: Callable[[Store], T]) -> T:
        """What takes longer, with a connection of its own; once for all who ask in the same second."""

        def work() -> T:
            with contextlib.closing(self.job.store.reader()) as store:
                return read(store)

        def begin() -> asyncio.Task[T]:
            return asyncio.get_running_loop().create_task(asyncio.to_thread(work))

        return await asyncio.shield(self._shared(name, begin, self.job.store.newest_event()))

    async def history(self) -> dict[str, Any]:
        """The newest scalings and failures, oldest first: the tables, and what is marked on the time axis."""
        return await self._read("history", _history)

    async def decisions(self) -> list[dict[str, Any]]:
        """The newest decisions of the autoscaler, oldest first."""
        return await self._read("decisions", _decisions)

    async def estimate(self) -> list[str]:
        """What was estimated before the start, in sentences."""
        return await self._read("estimate", lambda store: sentences(store, None, running=True))

    async def edges(self) -> list[dict[str, Any]]:
        """What flows between PS and trainers, from the newest trace of each trainer: [] where they are many."""
        trainers = {
            role.name: role.gazer.get("steps_per_second") or role.heartbeat.steps_per_second
            for role in self.status().roles if role.role in TRAINERS and role.state == "running"
        }  # fmt: skip
        if len(trainers) > EDGES_SIDE_MAX:
            return []
        return await self._read("edges", lambda store: _edges(store, trainers))

    # ------------------------------------------------------------------------------------------------ small things

    def slot(self, slot: int) -> dict[str, Any] | None:
        """Its largest variables; None if there is no such slot."""
        if not 0 <= slot < self.job.spec.slots:
            return None
        variables = sorted((v for v in self.job.catalogue.variables if v.slot == slot), key=lambda v: -v.bytes)
        return {
            "slot": slot,
            "count": len(variables),
            "variables": [
                {"name": v.name, "shape": list(v.shape), "bytes": v.bytes, "update": pb.Variable.Update.Name(v.update).lower()}
                for v in variables[:VARIABLES_MAX]
            ],
        }  # fmt: skip

    def log(self, role: str) -> Path | None:
        """The log of a role of this job; None for any other name."""
        if role != "aimaster" and role not in self.job.members.records:
            return None
        return self.job.spec.workdir / "logs" / f"{role}.log"


def _history(store: Store) -> dict[str, Any]:
    rows = store.rows("SELECT json FROM failures ORDER BY id DESC LIMIT ?", (HISTORY_MAX,))
    failures = [built(Failure, json.loads(text)) for (text,) in reversed(rows)]
    return {
        "scalings": [picture.scaling_dict(Scaling.from_json(text)) for text in store.newest_scalings(HISTORY_MAX)],
        "failures": [picture.failure_dict(one) for one in failures],
    }


def _decisions(store: Store) -> list[dict[str, Any]]:
    """From the events that tell of them; what came of one, from its scalings."""
    query = (
        "SELECT time, type, json FROM events WHERE type IN ('decision', 'decision_refused', 'decision_failed') "
        "ORDER BY sequence DESC LIMIT ?"
    )
    rows = [(time, type_, read_fields(text)) for time, type_, text in store.rows(query, (HISTORY_MAX,))]
    outcomes: dict[int, str] = {}
    for (text,) in store.rows("SELECT json FROM scalings ORDER BY id DESC LIMIT ?", (HISTORY_MAX,)):
        one = Scaling.from_json(text)
        outcome = one.outcome or "under way"
        if outcomes.get(one.decision, "committed") == "committed":
            outcomes[one.decision] = outcome
    for _, type_, event in rows:
        if type_ != "decision":
            outcomes[event["number"]] = f"{type_.removeprefix('decision_')}: {event.get('reason', '')}"
    return [
        {**event, "time": round(time, 3), "outcome": outcomes.get(event["number"], "")}
        for time, type_, event in reversed(rows) if type_ == "decision"
    ]  # fmt: skip


def _edges(store: Store, trainers: Mapping[str, float]) -> list[dict[str, Any]]:
    """
    Args:
      trainers: steps per second of each.
    """
    series, found = Series(store), []
    for name, steps in trainers.items():
        for _, _, trace in series.traces(name)[-1:]:
            found += [
                {"source": edge.source, "target": edge.target, "rate": picture.number(edge.bytes * steps)}
                for edge in trace.edges
            ]
    return found


class DataRates:
    """Records per second of each dataset over the last minute, from what the pictures say."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, deque[tuple[float, int]]] = {}

    def of(self, datasets: Sequence[pb.DataStatus]) -> Mapping[str, float]:
        now = self._clock.monotonic()
        rates = {}
        for one in datasets:
            seen = self._seen.setdefault(one.name, deque(maxlen=100))
            if seen and one.trained < seen[-1][1]:
                seen.clear()  # rewound
            seen.append((now, one.trained))
            while len(seen) > 2 and now - seen[0][0] > RATE_SECONDS:
                seen.popleft()
            seconds = now - seen[0][0]
            if seconds > 0:
                rates[one.name] = (one.trained - seen[0][1]) / seconds
        self._seen = {one.name: self._seen[one.name] for one in datasets}
        return rates
