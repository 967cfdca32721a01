"""Notices that a node, and what runs there, is about to go: PS and workers are replaced while they still live.

Two signs: a taint of the node, which needs the right to watch nodes (optional: without it, once in the log and off), and
the pod's own deletion by somebody else, whose grace is time to move. A chief cannot be replaced; when it goes its successor
attaches to the live model. Beside Kubeflow nobody can, as a pod of another name cannot take its place.

Where nothing is free for the replacement of a PS, a disk backup is written of what there is before it goes, if there is a place
for one: with its node its slots may be lost, and with other nodes that go the peer backups of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Protocol

from deeprec_ext.aimaster.core.records import parse_name
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.metrics.cost import Priced
from deeprec_ext.aimaster.scaling.queue import ScalingQueue
from deeprec_ext.aimaster.scaling.requests import leaving
from deeprec_ext.aimaster.state.lock import Hold
from deeprec_ext.errors import DeepRecError
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.retries import Sleep
from tfjob.api.client import Api, ForbiddenError
from tfjob.api.watching import changes
from tfjob.model.kinds import NODES, Manifest
from tfjob.model.quantities import parse_quantity

log = logging.getLogger(__name__)

TAINTS = (
    "ToBeDeletedByClusterAutoscaler",  # Cluster Autoscaler, before it drains a node
    "karpenter.sh/disrupted",  # Karpenter from 1.0 on
    "karpenter.sh/disruption",  # before 1.0
    "aws-node-termination-handler/spot-itn",  # AWS Node Termination Handler: two minutes
    "aws-node-termination-handler/rebalance-recommendation",
    "aws-node-termination-handler/scheduled-maintenance",
    "aws-node-termination-handler/asg-lifecycle-termination",
    "cloud.google.com/impending-node-termination",  # GKE, spot and preemptible
    "node.cloudprovider.kubernetes.io/shutdown",  # cloud controller managers
)

ROOM_SECONDS, LOOK_SECONDS = 5.0, 0.5
"""How long a replacement may take to find a node before a backup is written, and how often it is looked at. Notices are of half
a minute and more."""

NOTICE_SECONDS = 120.0
"""After that its node has gone."""

QUIET_SECONDS = 10.0
"""For the replacement to be rolled back: no backup is written while slots are about to move."""

ALIVE_SECONDS = 3.0
"""After a deletion: whoever ends at the first signal (a PS at once, a trainer when `sent_away` has it so) is gone by then, and
the kubelet has said so; it is failed over instead."""


def priced(node: Manifest, label: str) -> Priced:
    """What it costs by its labels, or annotations of these names, and what it has."""
    metadata = node["metadata"]
    said = {**(metadata.get("annotations") or {}), **(metadata.get("labels") or {})}
    prefix, slash, name = label.rpartition("/")
    there = (node.get("status") or {}).get("allocatable") or {}
    return Priced(
        _number(said.get(label)), _number(said.get(f"{prefix}{slash}on-demand-{name}")), _number(there.get("cpu")),
        int(_number(there.get("memory"))),
    )  # fmt: skip


def _number(text: object) -> float:
    """0: it is none."""
    try:
        return max(0.0, float(parse_quantity(str(text))))
    except ValueError:
        return 0.0


class Cluster(Protocol):
    def pods_on(self, node: str) -> list[str]:
        """Names of the pods that run there."""

    def runs(self, name: str) -> bool:
        """Whether this pod runs."""

    def unplaced(self) -> Mapping[str, str]:
        """Pods that are to run and have no node → why."""


class Reclaim:
    def __init__(
        self, api: Api, job: Job, scalings: ScalingQueue, cluster: Cluster, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._api, self._job, self._scalings, self._cluster, self._sleep = api, job, scalings, cluster, sleep
        self._going: dict[str, str] = {}  # node → taint
        self.prices: dict[str, Priced] = {}  # of the nodes; empty where they may not be watched
        self._answering: dict[str, asyncio.Task[None]] = {}

    async def watch(self) -> None:
        """Nodes, for ever; returns when that is not allowed."""
        try:
            async for kind, what in changes(self._api, NODES, None, sleep=self._sleep):
                for node in what if isinstance(what, list) else [what]:
                    self._look(kind, node)
        except ForbiddenError as error:
            log.info("nodes are not watched, reclaim notices come from pods alone: %s", error)

    def _look(self, kind: str, node: Manifest) -> None:
        name = node["metadata"]["name"]
        self.prices[name] = priced(node, self._job.settings.price_label)
        if kind == "DELETED":
            self.prices.pop(name, None)
        keys = [taint.get("key", "") for taint in (node.get("spec") or {}).get("taints") or []]
        taint = next((key for key in TAINTS if key in keys), "")
        if kind == "DELETED" or not taint:
            if self._going.pop(name, "") and kind != "DELETED":
                for role in self._cluster.pods_on(name):
                    self._job.reclaimed.pop(role, None)
        elif self._going.get(name) != taint:
            self._going[name] = taint
            for role in self._cluster.pods_on(name):
                self.notice(role, f"node {name} has the taint {taint}")

    def deleted(self, name: str, why: str) -> None:
        """Somebody else has deleted this pod, which still runs."""
        self.notice(name, why, ALIVE_SECONDS, deleted=True)

    def notice(self, name: str, why: str, alive_seconds: float = 0.0, *, deleted: bool = False) -> None:
        """This pod is about to go. Once per pod while it is being answered.

        The autoscaler is told, too: where a replacement fails, it asks for the next one.
        """
        member, record = self._job.members.get(name), self._job.members.record(name)
        known = record.incarnation if record is not None and record.takes_part else ""
        known = known if member is None else member.incarnation
        if self._job.spec.own_pods and (known or deleted):
            self._job.reclaimed[name] = known
        if name not in self._answering:
            task = asyncio.get_running_loop().create_task(self._answer(name, why, alive_seconds))
            self._answering[name] = task
            task.add_done_callback(lambda _: self._answered(name))

    def _answered(self, name: str) -> None:
        self._answering.pop(name, None)
        if self._job.reclaimed.get(name) == "":  # the next of its name may come
            self._job.reclaimed.pop(name)
            self._job.changed.notify()

    async def _answer(self, name: str, why: str, alive_seconds: float) -> None:
        role, job = parse_name(name)[0], self._job
        if job.reclaimed.get(name) == "":  # it does not join any more, and ends or is ended
            await job.changed.until(lambda: not self._cluster.runs(name), NOTICE_SECONDS)
            return
        await self._sleep(alive_seconds)
        record = job.members.record(name)
        if (
            job.ending
            or job.lock.held(Hold.STOPPING)
            or record is None
            or not record.wanted
            or not self._cluster.runs(name)
        ):
            return
        if not job.spec.own_pods and any(one.changes(role) and not one.outcome for one in self._scalings.records()):
            return  # Kubeflow deletes it because a user has lowered `replicas`: it leaves by that scaling
        answer = "it is replaced in time"
        if role not in (pb.PS, pb.WORKER) or not job.spec.own_pods:
            answer = "it is started again elsewhere when it has gone"
        elif any(one.replace == name and not one.outcome for one in self._scalings.records()):
            return
        elif name in leaving(job, "ps" if role == pb.PS else "worker"):
            answer = "it leaves before others: the job has more than the arbiter allows"
        else:
            answer = await self._replace(name, why) or answer
        job.event("reclaimed", name, reason=why, answer=answer)
        if role == pb.PS and job.spec.own_pods and job.choices.disk_path and await self._nothing_is_free(name):
            await self._write_a_backup(name, why)

    async def _replace(self, name: str, why: str) -> str:
        """What is told where that is not possible."""
        try:
            await self._scalings.request(pb.ScaleRequest(replace=name, reason=why))
        except DeepRecError as error:
            return f"it is not replaced: {error}"
        return ""

    async def _nothing_is_free(self, name: str) -> bool:
        """Whether the replacement of this PS, once it is its turn, finds no node for a while."""
        without = 0.0
        for _ in range(round(NOTICE_SECONDS / LOOK_SECONDS)):
            await self._sleep(LOOK_SECONDS)
            if not self._cluster.runs(name) or not any(one.replace == name for one in self._scalings.under_way()):
                return False
            run, asked = self._scalings.running, self._job.lock.names(Hold.NEW_PODS)
            if run is None or run.scaling.replace != name or not asked:
                continue  # others are replaced first
            if not asked & set(self._cluster.unplaced()):
                return False
            without += LOOK_SECONDS
            if without >= ROOM_SECONDS:
                return True
        return False

    async def _write_a_backup(self, name: str, why: str) -> None:
        """Of this moment; the replacement is tried again after it, for room may come."""
        job = self._job
        self._scalings.abort("nothing is free for the replacement: a disk backup is written first")

        def quiet() -> bool:
            return self._scalings.running is None and job.quiet(Hold.VIEWS, Hold.GATE, Hold.MARKS, Hold.CHANGE)

        if await job.changed.until(quiet, QUIET_SECONDS):
            done = await job.disk.cut()
            job.event("reclaim_backup", name, reason=why, written=done)
        if self._cluster.runs(name) and not job.ending and not job.lock.held(Hold.STOPPING):
            await self._replace(name, why)

    def close(self) -> None:
        for task in list(self._answering.values()):
            task.cancel()
