"""Looks at the running job, tick by tick: what its sizes do, and all that a decision or a bid is made from.

The autoscaler measures so; where a job has none, and an arbiter asks what its sizes are worth, this does it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from deeprec_ext.aimaster.core.records import parse_name, role_name
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.metrics.hosts import HostUse
from deeprec_ext.aimaster.scaling.queue import ScalingQueue
from deeprec_ext.aimaster.state.lock import Hold
from deeprec_ext.autoscaler.loop.observing import Latest, examples_per_step, memory_of, observe, of_a_step, own, size_of
from deeprec_ext.autoscaler.loop.recalled import Recalled, keep, recall
from deeprec_ext.autoscaler.observe.growth import Growth
from deeprec_ext.autoscaler.observe.observed import Observed, Stood, Window
from deeprec_ext.autoscaler.observe.windows import Windows
from deeprec_ext.gazer.host import machine
from deeprec_ext.proto import deeprec_ext_pb2 as pb


class Measuring:
    """`one_host`: pods to come run on the same host, which has `free_memory` for them: bytes, None: not known."""

    def __init__(
        self, job: Job, scalings: ScalingQueue, latest: Latest, *, one_host: bool = True,
        free_memory: Callable[[], int | None] = lambda: None,
    ) -> None:  # fmt: skip
        self._one_host, self._free_memory = one_host, free_memory
        self._job, self._scalings, self._latest = job, scalings, latest
        self._growth = Growth()
        self._windows = Windows(seconds=job.settings.window_seconds)
        self._machine = machine() if one_host else ""
        self._stood: tuple[Stood, ...] = ()
        self._blind = False  # the last look failed

    # ------------------------------------------------------------------------------------------------ for bids

    @property
    def windows(self) -> tuple[Window, ...]:
        """Oldest first."""
        return self._windows.all()

    @property
    def ending(self) -> bool:
        """Nobody is to come any more."""
        return self._ending()

    def look(self) -> None:
        self._look()

    def remember(self) -> None:
        """For a successor, of a job without an autoscaler."""
        chief = self._job.members.get(role_name(pb.CHIEF, 0))
        keep(self._job.store, Recalled(
            windows=self._windows.all(), heard=self._now(), machine=self._machine,
            chief=chief.incarnation if chief is not None else "",
        ))  # fmt: skip

    def recall(self) -> None:
        """What an AIMaster before this one has measured, on such a machine."""
        known, now = recall(self._job.store), self._now()
        if not self._windows.all() and (not known.machine or known.machine == self._machine):
            self._windows.remember(one for one in known.windows if one.start + one.seconds <= now)

    def seen(self, *, number: int = 1, foretold: Mapping[int, float] | None = None) -> Observed:
        """Everything, within the limits in force. `foretold`: examples per second, by number of decision."""
        return observe(
            self._job, self._scalings, number=number, windows=self._windows.all(), latest=self._latest,
            growth=self._growth, hold=self._job.held, one_host=self._one_host, free_memory_bytes=self._free_bytes(),
            foretold=foretold or {}, first=self._windows.first, stood=self._stood,
        )  # fmt: skip

    # ------------------------------------------------------------------------------------------------ one look

    def _now(self) -> float:
        return max(0.0, self._job.clock.wall() - self._job.started)

    def _look(self) -> None:
        """One tick for the windows and the growth of memory."""
        job, missed = self._job, self._blind
        self._blind = True
        self._growth.observe(
            self._now(),
            {
                m.incarnation: memory_of(m, own(job, m.name, self._latest))
                for m in job.members
                if m.admitted and not job.trainer_backups.copying(m.name)  # that it fills up now says nothing of later
            },
        )
        trainers = job.members.trainers().values()
        ps = [self._latest(name).get("busy_share", 0.0) for name in job.members.wanted(pb.PS)]
        host, (own_seconds, sum_seconds) = self._only_host(), of_a_step(job, self._latest)
        waiting = [self._latest(member.name).get("input_wait_share", 0.0) for member in trainers]
        self._windows.observe(
            self._now(), size_of(job), {m.incarnation: m.heartbeat.examples for m in trainers},
            quiet=self._quiet() and not missed,  # what was not looked at may have been disturbed
            preparing=any(member.heartbeat.preparing for member in trainers),
            examples_per_step=examples_per_step(trainers), busy_share=max(ps, default=0.0),
            input_wait_share=sum(waiting) / len(waiting) if waiting else 0.0,
            trainer_cpu={m.incarnation: m.heartbeat.cpu_seconds for m in trainers},
            ps_cpu={m.incarnation: m.heartbeat.cpu_seconds for m in job.members if m.role == pb.PS},
            host_cores=host.cores if host is not None else 0.0, others_cores=host.others_cores if host is not None else 0.0,
            own_seconds=own_seconds, sum_seconds=sum_seconds,
        )  # fmt: skip
        self._blind = False

    def _only_host(self) -> HostUse | None:
        """The one that all PS and trainers are on; None: there are several, of which one alone may have told, or none has."""
        hosts, members = self._job.metrics.hosts, self._job.members
        host = next(iter(hosts.values())) if len(hosts) == 1 else None
        there = sum(member.admitted and (member.role == pb.PS or member.is_trainer) for member in members)
        return host if host is not None and host.ps + host.trainers == there else None

    def _free_bytes(self) -> int:
        """0: not known; of a machine that has none left one byte is."""
        free = self._free_memory()
        return 0 if free is None else max(1, free)

    def _quiet(self) -> bool:
        """Every process of the present size trains and is believed, and nothing else is going on."""
        job = self._job
        if not job.quiet(Hold.MARKS, Hold.SCALING):
            return False
        trainers = job.members.trainers()
        wanted = [*job.members.wanted(pb.CHIEF), *job.members.wanted(pb.WORKER)]
        return all(
            name in trainers and _only_trains(trainers[name].heartbeat) and not job.suspects.has(trainers[name])
            for name in wanted
        )

    def _ending(self) -> bool:
        """Whether a trainer's script has ended well: the others will. Nobody is missing, and nobody is to come."""
        members = self._job.members
        ended = {record.name for record in members.records.values() if record.state == "exited"}
        ended |= {member.name for member in members if member.said_goodbye and member.exit_code == 0}
        return any(members.records[name].wanted and parse_name(name)[0] in (pb.CHIEF, pb.WORKER) for name in ended)


def _only_trains(heartbeat: pb.Heartbeat) -> bool:
    return heartbeat.training and heartbeat.step_epoch > 0
