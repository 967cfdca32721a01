"""The history of the cluster's jobs: how a TFJob begins by it, and what is added when it has ended.

Nothing here keeps a job from beginning or from ending: every look has its time, and whatever goes wrong (no service, one that
is slow, or that lies) is one line, with which the job goes on as it is written.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from deeprec_ext.aimaster.core.records import Requests
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.kubernetes.backend import KubernetesBackend
from deeprec_ext.aimaster.kubernetes.kept import Size as Amounts
from deeprec_ext.aimaster.kubernetes.written import Source
from deeprec_ext.autoscaler.history.finished import finished_job
from deeprec_ext.autoscaler.history.history import Finished
from deeprec_ext.autoscaler.history.start import CPU_HEADROOM, HEADROOM, Start, describe, first_size
from deeprec_ext.autoscaler.loop.observing import limits_of
from deeprec_ext.autoscaler.observe.observed import Model, Size
from deeprec_ext.autoscaler.policy.record import account_in
from deeprec_ext.autoscaler.policy.thresholds import Policy
from deeprec_ext.decoding import alike, built
from deeprec_ext.history.client import SCHEME, SECONDS, Service, service_at, within
from deeprec_ext.history.places import jobs_of
from deeprec_ext.layout import script_name
from deeprec_ext.options import JobSpec
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.units import format_bytes
from tfjob.model import names
from tfjob.model.kinds import Manifest
from tfjob.model.spec import TFJob

log = logging.getLogger(__name__)

ESTIMATE_SECONDS = 10.0
"""Reading the jobs and computing a size. The libraries for that are loaded here for the first time: a few seconds."""

READ_SECONDS = 20.0
"""Reading what the job has left behind. The operator waits two minutes for the end of the AIMaster."""

TOLD_MAX = 500
KEY = "history_requests"
"""Of the store: what pods request besides, until it is given up."""

MARGINS = f"{CPU_HEADROOM - 1:.0%} more CPU, {HEADROOM - 1:.0%} more memory"

SHELLS = ("sh", "bash", "ash", "dash")


class Remembering:
    """`of` makes it; `first` before the job exists, `begin` once it does, `decided` before its first view, `end` when it has
    ended. None of them raises."""

    def __init__(self, service: Service | None, job: TFJob, uid: str, why_not: str = "") -> None:
        self._service, self._job, self._uid = service, job, uid
        self.script = script_of(job)
        self._start: Start | None = None
        self._read: Sequence[Finished] | None = None
        self._given_up = False
        self._said = why_not  # one line, told when there is a job to tell it of

    @classmethod
    def of(cls, source: Source, address: str | None, certificates: Path | None) -> Remembering:
        """Args:
        address, certificates: from the operator, where the job is annotated for it, and the cluster has a history.
        """
        why_not, service = "", None
        if source.elastic.history and not address:
            why_not = "the history is asked for, and the operator was started without one (--history)"
        elif address:
            try:
                service = service_at(f"{SCHEME}{address}", certificates)
            except Exception as error:
                why_not = f"the history is not used: {error}"
        return cls(service, source.job, source.owner["uid"], why_not)

    def estimates(self, spec: JobSpec) -> bool:
        """Whether the AIMaster decides on the first size. Beside Kubeflow the pods are there before it is."""
        return spec.settings.autoscale and spec.own_pods

    def jobs(self) -> Sequence[Finished]:
        """Of the same script, and of others; read once; blocks. Raises HistoryError; NoHistoryError: none is kept."""
        if self._read is None:
            self._read = jobs_of(self._service, self.script)
        return self._read

    async def first(self, spec: JobSpec) -> JobSpec:
        """With what is started at once, before the model is declared: the size that jobs of the same script needed, within the
        job's limits; as it is where nothing is known."""
        if self._service is None or not spec.settings.autoscale:
            return spec
        if not self.estimates(spec):
            self._said = "the first size is as written: beside Kubeflow its pods are there before the AIMaster is"
            return spec
        try:
            jobs = await asyncio.to_thread(self.jobs)
            requests = Size(1, 0, spec.ps_cpu, spec.worker_cpu, spec.ps_memory_bytes, spec.worker_memory_bytes)
            backups = spec.settings.peer_backup != "off"
            start = await asyncio.to_thread(
                within, ESTIMATE_SECONDS,
                lambda: first_size(
                    Model.unknown(), limits_of(spec), jobs, script=self.script, requests=requests, backups=backups
                ),
                f"{self._service} (its jobs)",
            )  # fmt: skip
        except Exception as error:
            self._read = ()  # it is not asked again
            self._said = f"the history is not used, the job begins as it is written: {error}"
            log.warning("%s", self._said)
            return spec
        if not start.jobs:
            log.info("the history: %s", start.reason)
            return spec
        log.info("the history: %s", describe(start))
        self._start = start
        reason = f"from the history of the cluster: {start.reason}"
        return dataclasses.replace(spec, ps=start.size.ps, workers=start.size.workers, start=reason)

    def begin(self, job: Job, backend: KubernetesBackend) -> None:
        """What pods are to request, by this AIMaster's estimate or an earlier one's; and what has gone wrong so far."""
        if self._said:
            _tell(job, self._said)
        found = _asked(job)
        if self._start is not None and self._start.requests is not None:
            found = self._ask(job, self._start, found)
        _hand(backend, found)

        def give_up(why: str) -> None:
            self._given_up = True
            job.store.put(**{KEY: dataclasses.asdict(Requests())})
            _tell(job, f"the history's requests are given up: {why}")

        backend.given_up = give_up

    def decided(self, start: Start, job: Job, backend: KubernetesBackend) -> None:
        """By the declared model: what pods to come are to request. Those that are there keep what they have."""
        if start.requests is None or self._given_up:
            return
        try:
            before = _asked(job)
            _hand(backend, self._ask(job, start, before, "; the memory of PS follows from the declared variables"))
        except Exception as error:
            log.warning("the requests of pods stay as they are", exc_info=True)
            _tell(job, f"the requests of pods stay as they are: {error}")

    def _ask(self, job: Job, start: Start, before: Requests, ground: str = "") -> Requests:
        """Kept, and told when it is another than before."""
        assert start.requests is not None
        asked = alike(Requests, start.requests)
        if (words := _in_words(start.requests)) and asked != before:
            job.store.put(**{KEY: dataclasses.asdict(asked)})
            several = "a job like it" if start.jobs == 1 else f"{start.jobs} jobs like it"
            like = "the nearest of its script" if start.unlike else several
            why = f"what {like} used, and {MARGINS}{ground}" if start.jobs else f"no job like it has ended{ground}"
            _tell(job, f"{words}: {why}; no limit holds them to it")
        return asked if words else before

    async def end(self, job: Job) -> None:
        """Adds the job."""
        if self._service is None:
            return
        try:
            asked = _asked(job)
            told = await asyncio.to_thread(
                within, READ_SECONDS + SECONDS, lambda: self._add(job.spec, bool(job.failure), job, asked), str(self._service)
            )  # fmt: skip
            log.info("the history: %s", told)
        except Exception as error:
            log.warning("the job is not kept in the history: %s", error)

    def _add(self, spec: JobSpec, failed: bool, job: Job, asked: Requests) -> str:
        assert self._service is not None
        now = time.time()
        found = finished_job(
            spec.workdir, script=self.script, status="failed" if failed else "succeeded",
            seconds=max(0.0, now - job.started), finished=now,
            requested=Size(1, 0, spec.ps_cpu, spec.worker_cpu, spec.ps_memory_bytes, spec.worker_memory_bytes),
            backups=spec.settings.peer_backup != "off", name=self._job.name, autoscaled=spec.settings.autoscale,
            disturbance=Policy().disturbance, reserved=alike(Size, asked, ps=1, workers=0),
            recorded=account_in(spec.workdir) if spec.settings.autoscale else None,
            local_batch=spec.settings.step_batch == "each",
        )  # fmt: skip
        if found is None or not found.windows:
            return "the job trained too little to be kept"
        return "the job is kept" if self._service.add(self._uid, found) else "the job was kept already"


def _asked(job: Job) -> Requests:
    """What pods request by the history."""
    return job.store.read(KEY, lambda values: built(Requests, values), Requests())


def _hand(backend: KubernetesBackend, asked: Requests) -> None:
    backend.estimates = {
        "ps": Amounts(asked.ps_cpu, asked.ps_memory_bytes), "worker": Amounts(asked.worker_cpu, asked.worker_memory_bytes)
    }  # fmt: skip


def _tell(job: Job, text: str) -> None:
    """In `status` and report, and as an Event. The user shall know; nothing is to be done."""
    job.notices.add("aimaster", pb.Notice(code="history", text=text[:TOLD_MAX], mended=True))


def _in_words(asked: Size) -> str:
    """`each PS requests 0.36 cores and 2.7 GB, each trainer requests 1.5 cores`; empty where nothing is requested."""
    parts = []
    for who, cpu, memory in (
        ("PS requests", asked.ps_cpu, asked.ps_memory_bytes), ("trainer requests", asked.worker_cpu, asked.worker_memory_bytes)
    ):  # fmt: skip
        amounts = [f"{cpu:g} cores"] * bool(cpu) + [format_bytes(memory)] * bool(memory)
        parts += [f"each {who} {' and '.join(amounts)}"] if amounts else []
    return ", ".join(parts)


def script_of(job: TFJob) -> str:
    """What tells jobs of one script from others: the script that its trainers run, else their image without its tag."""
    if words := _unwrapped(command_of(job)):
        return script_name(words)
    image = str(_trainer(job).get("image", "")).rpartition("/")[2]
    return image.partition("@")[0].partition(":")[0] or "job"


def command_of(job: TFJob) -> list[str]:
    """What its chief runs; empty: what its image says."""
    container = _trainer(job)
    return [str(word) for word in (*(container.get("command") or ()), *(container.get("args") or ()))]


def _trainer(job: TFJob) -> Manifest:
    """The container of the chief that trains."""
    containers = job.specs[job.chief or names.WORKER].template["spec"]["containers"]
    return next(one for one in containers if one.get("name") == names.CONTAINER)


def _unwrapped(words: Sequence[str]) -> list[str]:
    """Of `sh -c "python train.py --x"` what the shell runs."""
    if len(words) >= 3 and Path(words[0]).name in SHELLS and words[1].startswith("-") and words[1].endswith("c"):
        try:
            return shlex.split(words[2], comments=True)
        except ValueError:
            return words[2].split()
    return list(words)
