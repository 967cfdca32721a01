"""Gazer's part in the AIMaster (`job.metrics`): keeps what processes report, and writes it down as time series.

Reports come every few seconds from every process. What they tell is kept as the newest values; once per interval all of them,
with what follows for PS, slots and the job, become one row of the series. Nothing depends on it: reports that make no sense
are counted and ignored, and a store that cannot be written costs samples, not the job.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import statistics
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from deeprec_ext.aimaster.ledger import Ledger
from deeprec_ext.aimaster.membership.members import Member
from deeprec_ext.aimaster.metrics.hosts import HostUse, OnHost, hosts_of
from deeprec_ext.aimaster.metrics.lasting import Lasting
from deeprec_ext.aimaster.metrics.questions import Reading, to_reply
from deeprec_ext.aimaster.metrics.tally import Tally
from deeprec_ext.aimaster.metrics.totals import Totals
from deeprec_ext.aimaster.placement.slots import slot_bytes, slot_rows
from deeprec_ext.aimaster.state.shared import JobState
from deeprec_ext.gazer import loads, values
from deeprec_ext.gazer.process import ProcessReader
from deeprec_ext.gazer.series import Series
from deeprec_ext.gazer.series_lines import Line
from deeprec_ext.proto import deeprec_ext_pb2 as pb

log = logging.getLogger(__name__)

STALE_INTERVALS = 2.5
"""A value that is older than so many intervals is not the present one any more."""

TRACES_PER_REPORT, TRACES_WAITING_MAX, TRACES_WRITTEN_AT_ONCE = 2, 256, 50
TROUBLES_MAX, TEXT_MAX = 3, 500
"""Lines per incarnation about parts of Gazer that are off there, and characters of one."""

HOSTS_MAX = 10_000
"""Hosts that a job has been on and that have a number; nobody tells of further ones."""

CHECKPOINT_SECONDS = 30.0
"""How often the store's log is copied into its database, in a thread. Else a commit would do so now and then, on the loop."""


@dataclass
class _Seen:
    """What one incarnation has reported."""

    incarnation: str
    at: float  # monotonic
    every: float = 0.0  # seconds between its reports; a script may want others than the job
    process: pb.ProcessSample | None = None
    host: pb.HostSample | None = None
    of_host: dict[str, float] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)
    touched: dict[int, float] = field(default_factory=dict)  # slot -> rows per second
    steps: Lasting = field(default_factory=Lasting)
    troubles: int = 0


class MetricsCollector:
    """On the job's event loop."""

    def __init__(self, job: JobState, ledger: Ledger) -> None:
        self._job, self._ledger = job, ledger
        self.series = Series(job.store)
        self.totals: dict[str, Totals] = {}
        self.tally = Tally.load(job.store)
        self._tallied = self.tally.after  # as stored
        self.reports = self.ignored = 0  # since this AIMaster began
        self.trained_records = 0  # likewise
        self.flush_seconds = 0.0
        self._trained: int | None = None
        self._seen: dict[str, _Seen] = {}
        self._recent: dict[str, deque[loads.PerStep]] = {}  # trainer -> its newest traces
        self._traced: dict[str, loads.PerStep] = {}  # trainer -> what is typical of them
        self._traces: deque[tuple[float, str, bytes]] = deque(maxlen=TRACES_WAITING_MAX)
        self._latest: dict[str, dict[str, float]] = {}
        self.hosts: Mapping[str, HostUse] = {}
        """By `host-0`: those that processes of the job run on, over the last interval."""
        self._host_numbers: dict[str, int] = {}  # place -> number, in the order in which they were seen first
        self._facts: dict[str, pb.RoleStatus] = {}
        self._own: tuple[float, pb.ProcessSample] | None = None
        self._reader = ProcessReader()
        self._model: tuple[pb.Catalogue, dict[int, dict[str, float]]] | None = None
        self._placement: tuple[object, int] = (None, 0)  # of slots and PS, and the epoch since when it is so
        self._checkpointed = job.clock.monotonic()
        self._broken = False
        self._reading = Reading(job.store)

    # ------------------------------------------------------------------------------------------------ reports

    def receive(self, member: Member, report: pb.GazerReport) -> None:
        """One report of a member that is not fenced."""
        self.reports += 1
        now, seconds = self._job.clock.monotonic(), values.interval(report)
        seen = self._seen.get(member.name)
        if seen is None or seen.incarnation != member.incarnation:
            self._forget_traces(member.name)
            seen = self._seen[member.name] = _Seen(member.incarnation, now)
        seen.at, seen.every = now, seconds
        seen.values = {}
        if report.HasField("process"):
            seen.values.update(values.process_values(report.process, seen.process, seconds))
            seen.process = report.process
        if report.HasField("host"):
            seen.of_host = values.host_values(report.host, seen.host, seconds)
            seen.host = report.host
        if member.is_trainer:
            if report.HasField("steps"):
                seen.values.update(values.step_values(report.steps, seconds))
                if "step_seconds" in seen.values:
                    seen.steps.add(now, seen.values["step_seconds"] - seen.values.get("sum_seconds", 0.0))
                self.ignored += not self.totals.setdefault(member.name, Totals()).add(report.steps)
            for trace in islice(report.traces, TRACES_PER_REPORT):
                self._take(member.name, trace)
        elif member.role == pb.PS and seconds > 0:
            slots = self._job.spec.slots
            seen.touched = {
                one.slot: one.rows_touched / seconds for one in islice(report.touched, slots)
                if 0 <= one.slot < slots and values.usable(one.rows_touched)
            }  # fmt: skip
        if report.trouble and seen.troubles < TROUBLES_MAX:
            seen.troubles += 1
            self._job.event("warning", member.name, text=report.trouble[:TEXT_MAX])

    def _take(self, trainer: str, trace: pb.Trace) -> None:
        job = self._job
        if not values.trace_is_sound(trace, job.spec.slots):
            self.ignored += 1
            return
        recent = self._recent.setdefault(trainer, deque(maxlen=loads.RECENT))
        recent.append(loads.per_step(trace, job.spec.slots, self._ps()))
        self._traced[trainer] = loads.typical(recent, self._placed_since())
        self._traces.append((job.clock.wall(), trainer, trace.SerializeToString()))

    def _forget_traces(self, trainer: str) -> None:
        self._recent.pop(trainer, None)
        self._traced.pop(trainer, None)

    def slot_traces(self) -> int:
        """Of how many traced steps of a trainer the load of the slots is the median; of most trainers."""
        return statistics.median_low([one.traces for one in self._traced.values()] or [0])

    def ps_traces(self) -> int:
        """The same of the load of the PS, with the slots they have now."""
        since = self._placed_since()
        return statistics.median_low([one.ps_traces for one in self._traced.values() if one.epoch >= since] or [0])

    # ------------------------------------------------------------------------------------------------ newest values

    def latest(self, subject: str) -> Mapping[str, float]:
        """Newest value of each metric of a role, a slot (`slot-3`) or the `job`; empty where nothing is known."""
        return self._latest.get(subject, {})

    def facts(self, name: str) -> pb.RoleStatus:
        """`process` and `gazer` of a role, to be merged into its status; made once per interval, asked for often."""
        if (facts := self._facts.get(name)) is None:
            facts = self._facts[name] = pb.RoleStatus(gazer=self.latest(name))
            if (process := self.process(name)) is not None:
                facts.process.CopyFrom(process)
        return facts

    def process(self, name: str) -> pb.ProcessSample | None:
        """The newest sample of the present incarnation, or of the AIMaster itself."""
        if name == "aimaster":
            return self._own[1] if self._own is not None else None
        seen, member = self._seen.get(name), self._job.members.get(name)
        return seen.process if seen and member is not None and seen.incarnation == member.incarnation else None

    def shares_limits(self, name: str) -> bool:
        """Whether the container of this process, as its newest sample says, is that of others too. It may have died since."""
        seen = self._seen.get(name)
        return seen is not None and seen.process is not None and seen.process.shared_limits

    def lasting_step_seconds(self, name: str) -> float:
        """Of the present incarnation, without sums, the median over the last minutes; 0: it has not been here for so long."""
        seen, member = self._seen.get(name), self._job.members.get(name)
        if seen is None or member is None or seen.incarnation != member.incarnation:
            return 0.0
        return seen.steps.median(self._job.clock.monotonic())

    # ------------------------------------------------------------------------------------------------ what follows

    def _ps(self) -> list[str]:
        return [ps.name for ps in self._job.cluster.ps]

    async def derive(self) -> dict[str, dict[str, float]]:
        """Everything that is known at about this moment: subject -> metric -> value."""
        job = self._job
        now, usual = job.clock.monotonic(), job.settings.gazer_seconds
        current = {name: seen for name, seen in self._seen.items()
                   if now - seen.at <= STALE_INTERVALS * max(usual, seen.every)
                   and self._is_present(name, seen.incarnation)}  # fmt: skip
        found = {name: dict(seen.values) for name, seen in current.items()}
        rates = {
            name: rate for name in job.members.trainers() if (rate := found.get(name, {}).get("steps_per_second", 0.0))
        }
        traced, ps, since, slots = dict(self._traced), self._ps(), self._placed_since(), job.spec.slots
        for name in rates.keys() & traced.keys():  # of an input that is no elastic dataset only traces know
            waited = found[name].get("input_wait_share", 0.0)
            found[name]["input_wait_share"] = max(waited, traced[name].input_share)
        of_ps, of_slots = await asyncio.to_thread(  # of a thousand trainers: a twentieth of a second
            lambda: (loads.ps_loads(traced, rates, ps, since), loads.slot_loads(traced, rates, slots))
        )
        for name, more in of_ps.items():
            found.setdefault(name, {}).update(more)
        found.update(self._slots(of_slots, current))
        self.hosts = self._of_hosts(current)
        for name, use in self.hosts.items():
            found[name] = {"cores": use.cores, "job_cores": use.job_cores, "others_cores": use.others_cores}
        found["job"] = self._of_job(found)
        found["aimaster"] = self._of_aimaster()
        return found

    def _is_present(self, name: str, incarnation: str) -> bool:
        member = self._job.members.get(name)
        return member is not None and member.incarnation == incarnation

    def _placed_since(self) -> int:
        """The epoch since when slots lie where they do: what a PS cost before says nothing about it now."""
        cluster = self._job.cluster
        placement = (cluster.slot_map, tuple((ps.name, ps.task) for ps in cluster.ps))
        if placement != self._placement[0]:
            self._placement = (placement, cluster.epoch)
        return self._placement[1]

    def _slots(
        self, of_slots: Mapping[int, Mapping[str, float]], current: Mapping[str, _Seen]
    ) -> dict[str, dict[str, float]]:
        found = {slot: dict(known) for slot, known in self._of_model().items()}
        for slot, more in of_slots.items():
            found.setdefault(slot, {}).update(more)
        for seen in current.values():
            for slot, rate in seen.touched.items():
                known = found.setdefault(slot, {})
                known["touched_rows_per_second"] = known.get("touched_rows_per_second", 0.0) + rate
        return {f"slot-{slot}": known for slot, known in found.items()}

    def _of_model(self) -> dict[int, dict[str, float]]:
        """slot -> bytes and rows, of the present catalogue."""
        catalogue, slots = self._job.catalogue, self._job.spec.slots
        if self._model is None or self._model[0] is not catalogue:
            sizes, rows = slot_bytes(catalogue.variables, slots), slot_rows(catalogue.variables, slots)
            known = {slot: {"bytes": float(sizes[slot]), "rows": float(rows[slot])} for slot in range(slots)}
            self._model = (catalogue, known if catalogue.variables else {})
        return self._model[1]

    def _of_hosts(self, current: Mapping[str, _Seen]) -> dict[str, HostUse]:
        """By `host-0`, numbered in the order in which they were seen first."""
        taking_part = [
            (member, current.get(member.name)) for member in self._job.members
            if (member.role == pb.PS or member.is_trainer) and member.admitted
        ]  # fmt: skip
        found = {}
        for place, use in hosts_of(
            OnHost(
                member.place,
                member.role == pb.PS,
                seen.values.get("cpu_cores", 0.0) if seen is not None else member.cpu_percent / 100,
                seen.of_host if seen is not None else {},
                frozenset(seen.host.processors) if seen is not None and seen.host is not None else frozenset(),
            )
            for member, seen in taking_part
        ).items():
            if len(self._host_numbers) < HOSTS_MAX:
                self._host_numbers.setdefault(place, len(self._host_numbers))
            if place in self._host_numbers:
                found[f"host-{self._host_numbers[place]}"] = use
        return found

    def _of_job(self, found: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        job = self._job
        trainers = [found.get(name, {}) for name in job.members.trainers()]
        datasets = [one.trained for one in self._ledger.status() if one.purpose == "train" and not one.steps]
        if self._trained is not None:
            self.trained_records += max(0, sum(datasets) - self._trained)  # less after a restore
        self._trained = sum(datasets)
        known = {
            "ps": float(len(job.cluster.ps)), "workers": float(len(job.workers())), "step": float(job.members.step),
            "steps_per_second": job.spec.steps_rate([one.get("steps_per_second", 0.0) for one in trainers]),
        }  # fmt: skip
        if any("examples_per_second" in one for one in trainers):
            known["examples_per_second"] = sum(one.get("examples_per_second", 0.0) for one in trainers)
        return known | {"trained_records": float(sum(datasets))} if datasets else known

    def _of_aimaster(self) -> dict[str, float]:
        now, own = self._job.clock.monotonic(), self._reader.read()
        before, self._own = self._own, (now, own)
        return values.process_values(own, before[1] if before else None, now - before[0] if before else 0.0)

    # ------------------------------------------------------------------------------------------------ the series

    async def run(self) -> None:
        """Runs for ever; never raises."""
        interval = self._job.settings.gazer_seconds
        while interval > 0:
            await asyncio.sleep(interval)
            try:
                await self.flush()
                self._broken = False
            except Exception as error:
                self.series = Series(self._job.store)  # what it knew of the tables may have been rolled back
                if not self._broken:
                    log.exception("Gazer's samples are not recorded")
                    with contextlib.suppress(sqlite3.Error):  # the same disk
                        self._job.event("warning", text=f"Gazer's samples are not recorded: {error}"[:TEXT_MAX])
                self._broken = True
        await asyncio.Event().wait()

    async def flush(self) -> None:
        """One row of the series, the traces that wait, and the coarser rows that are due. Raises sqlite3.Error."""
        job = self._job
        began = time.perf_counter()
        self._forget()
        self._latest, self._facts = await self.derive(), {}
        now = job.clock.wall()
        with job.store.transaction():
            self.series.append(now, self._latest)
            self.tally.catch_up(job.store)
            if self.tally.after != self._tallied:
                self.tally.save(job.store)
            for _ in range(min(len(self._traces), TRACES_WRITTEN_AT_ONCE)):
                self.series.add_trace(*self._traces.popleft())
        self._tallied = self.tally.after
        self.flush_seconds = time.perf_counter() - began
        while (due := self.series.next_merge(now)) is not None:
            row = await asyncio.to_thread(due.row)  # of a thousand roles: a tenth of a second
            with job.store.transaction():
                self.series.finish(due, row)
        await self._checkpoint()

    def _forget(self) -> None:
        """What incarnations reported that are gone."""
        for name in [name for name, seen in self._seen.items() if not self._is_present(name, seen.incarnation)]:
            del self._seen[name]
            self._forget_traces(name)

    async def _checkpoint(self) -> None:
        now = self._job.clock.monotonic()
        if now - self._checkpointed >= CHECKPOINT_SECONDS:
            self._checkpointed = now
            try:
                await asyncio.to_thread(self._job.store.checkpoint)
            except sqlite3.Error as error:
                log.debug("no checkpoint of the store: %s", error)

    async def query(
        self, subjects: Sequence[str] = (), metrics: Sequence[str] = (), since: float = 0.0, until: float = 0.0,
        points: int = 500,
    ) -> list[Line]:  # fmt: skip
        """As Series.query, in a thread: a day of a large job takes a while."""
        return await self._reading.read(lambda series: series.query(subjects, metrics, since, until, points))

    async def series_reply(self, request: pb.SeriesRequest) -> pb.SeriesReply:
        """The answer to Admin.Series."""
        return await self._reading.read(lambda series: to_reply(series, request))
