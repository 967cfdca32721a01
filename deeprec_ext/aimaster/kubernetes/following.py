"""The TFJob of the job: what its user asks for by changing it, and what the AIMaster writes back.

`spec.tfReplicaSpecs.*.replicas` is what runs, and the annotation `aimaster.deeprec.io/scaled-to` notes that the AIMaster wrote
it: a number that differs from the note is its user's, a request to scale by hand. When the request has ended, one way or the
other, both say again what runs. Each patch names the version it was made for, so nothing that a user writes is overwritten
unseen.

It is the way to and from the cluster's arbiter, too (`Exchange`), by two annotations: who is given an allowance is asked, by
that, what its sizes are worth.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from deeprec_ext.aimaster.core.records import parse_name
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.kubernetes.naming import Naming
from deeprec_ext.aimaster.metrics import cost
from deeprec_ext.aimaster.reporting.reply import job_state
from deeprec_ext.aimaster.scaling.queue import ScalingQueue
from deeprec_ext.aimaster.state.lock import Hold
from deeprec_ext.arbiter.observed import Bid
from deeprec_ext.arbiter.wire import bid_text
from deeprec_ext.errors import DeepRecError, UnreachableError
from deeprec_ext.options import Sizes
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.retries import Sleep, pauses
from tfjob.api.client import Api, ApiError, ConflictError, ForbiddenError, NotFoundError
from tfjob.api.watching import changes
from tfjob.model import names
from tfjob.model.conditions import SUSPENDED, SUSPENDING, condition, is_true, reason_of
from tfjob.model.kinds import TFJOBS, Manifest
from tfjob.model.parked import Parked
from tfjob.model.scaler import Asked as Scaler
from tfjob.model.scaler import asked as asked_by_scaler

log = logging.getLogger(__name__)

HOLD = names.ANNOTATION_PREFIX + "hold"
HOLD_KEY = "hold_annotation"
SCALER_KEY = "scaler"
"""Whose size the job was asked for last, and how many workers it had wanted before."""

TICK_SECONDS, STATUS_SECONDS = 1.0, 5.0
"""How often sizes are compared, and how often the line of status may change: every change wakes whoever watches TFJobs."""

PATCH_TRIES, PARKED_SECONDS_MAX = 3, 30.0
"""Tries of the last line of status; between two of the word that everything is kept, at the most."""


@dataclass(frozen=True)
class Asked:
    """What the manifest says. Sizes are the TFJob's own, by `PS` and `Worker`."""

    version: str
    keys: Mapping[str, str] = field(default_factory=dict)  # type → as the user spelled it
    sizes: Mapping[str, int] = field(default_factory=dict)
    noted: Mapping[str, int] = field(default_factory=dict)  # empty: nothing is noted yet
    hold: str = ""
    status: str = ""
    going: str = ""  # why nothing may be made any more
    strange: str = ""  # of a job without PS: the key under which somebody has written some, which stay as they are
    parks: str = ""  # why its pods are about to go for a while: what there is has to be kept
    allowance: str | None = None  # as the arbiter wrote it
    leaving: tuple[str, ...] = ()  # workers that a ScaleIn has named, where it is what the present size comes from
    scaler: Scaler = Scaler()  # noqa: RUF009  (frozen)  the last ScaleOut or ScaleIn


def read(manifest: Manifest, *, sums: bool = False, own_pods: bool = False) -> Asked:
    """`sums`: of a job without PS. `own_pods`: our operator says in the status when pods go; else they go with `suspend`."""
    metadata, spec = manifest["metadata"], manifest.get("spec") or {}
    annotations = metadata.get("annotations") or {}
    specs = {key.lower(): (key, value or {}) for key, value in (spec.get("tfReplicaSpecs") or {}).items()}
    strange = specs.pop("ps", ("", {}))[0] if sums else ""
    keys = {name: specs[kind][0] for kind, name in (("ps", names.PS), ("worker", names.WORKER)) if kind in specs}
    sizes = {name: int(specs[name.lower()][1].get("replicas", 1)) for name in keys}
    status = manifest.get("status") or {}
    told = condition(status, SUSPENDED) or {}
    parks = str(told.get("message") or "") if own_pods and told.get("reason") == reason_of(SUSPENDING) else ""
    suspended = is_true(status, SUSPENDED) if own_pods else (spec.get("runPolicy") or {}).get("suspend")
    going = "it is deleted" if metadata.get("deletionTimestamp") else "it is suspended" if suspended else ""
    scaler = asked_by_scaler(manifest)
    return Asked(
        metadata.get("resourceVersion", ""), keys, sizes, _noted(annotations.get(names.SCALED_TO_ANNOTATION, "")),
        annotations.get(HOLD, "").strip().lower(), annotations.get(names.STATUS_ANNOTATION, ""), going, strange, parks,
        annotations.get(names.ALLOWANCE_ANNOTATION), scaler.leaving if scaler.after == sizes.get(names.WORKER) else (),
        scaler,
    )  # fmt: skip


def _noted(text: str) -> dict[str, int]:
    """Empty where somebody has written what is no note."""
    try:
        return {str(kind): int(count) for kind, count in json.loads(text or "{}").items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def _scaler(found: object) -> tuple[str, int]:
    if not isinstance(found, list) or len(found) != 2:
        raise TypeError(f"{found!r:.60} is no scaler")
    return str(found[0]), int(found[1])


def status_line(state: str, sizes: Mapping[str, int], step: int, examples_per_second: float, why: str = "") -> str:
    """`PS 3, workers 2, step 1200, 350 examples/s`; other states than training first, with what they wait for. Of a job without
    PS `sizes` has none."""
    parts = [f"PS {sizes['PS']}" if "PS" in sizes else "in step", f"workers {sizes.get('Worker', 0)}", f"step {step}"]
    if examples_per_second:
        parts.append(
            f"{examples_per_second:.3g} examples/s"
            if examples_per_second < 100
            else f"{examples_per_second:.0f} examples/s"
        )
    return ("" if state == "training" else f"{state}: ") + ", ".join(parts) + (f"; {why}" if why else "")


class Cluster(Protocol):
    closed: bool

    def waiting(self) -> Mapping[str, str]:
        """Pods that do not run yet → why."""


class Follower:
    def __init__(
        self, api: Api, namespace: str, naming: Naming, job: Job, scalings: ScalingQueue, cluster: Cluster,
        sleep: Sleep = asyncio.sleep, written: Sizes | None = None,
    ) -> None:  # fmt: skip
        """Beside Kubeflow (not `job.spec.own_pods`) `replicas` is not only told: pods up to that index exist.

        `written`: the sizes that the TFJob was found with, where the job has begun with others.
        """
        self._api, self._namespace, self._naming = api, namespace, naming
        self._job, self._scalings, self._cluster, self._sleep = job, scalings, cluster, sleep
        self._written = job.spec if written is None else written
        self._latest: Asked | None = None
        self._asked: dict[str, int] = {}  # what a user wrote and has been asked for
        self._refused = ""  # what `Asked.strange` was when it was said
        self._status_at = float("-inf")
        self.park: Callable[[str], None] = lambda why: None
        """Its pods are about to go; comes back at once. Called with every look."""

        self._parked = ""  # the line of status, once everything is kept
        self._worth = ""  # that is to be written
        self._looked = asyncio.Event()  # since the allowance was read last

    # ------------------------------------------------------------------------------------------------ the arbiter

    @property
    def is_read(self) -> bool:
        return self._latest is not None and self._latest.allowance is not None

    async def publish(self, bid: Bid) -> None:
        """With what else is to be written; a conflict costs a second, and the newest is written."""
        self._worth = bid_text(bid)

    async def allowances(self) -> AsyncIterator[str | None]:
        known: str | None = ""  # other than what the TFJob can say: at first everything is news
        while True:
            await self._looked.wait()
            self._looked.clear()
            if self._latest is not None and self._latest.allowance != known:
                known = self._latest.allowance
                yield known

    # ------------------------------------------------------------------------------------------------ reading

    async def watch(self) -> None:
        """Runs for ever."""
        fields = f"metadata.name={self._naming.name}"
        async for kind, what in changes(self._api, TFJOBS, self._namespace, fields=fields, sleep=self._sleep):
            found = what if isinstance(what, list) else [what]
            if kind == "DELETED" or not found:
                self._go("it is deleted")
            for manifest in found if kind != "DELETED" else ():
                await self.look(manifest)

    async def look(self, manifest: Manifest) -> None:
        """One version of the TFJob."""
        self._latest = asked = self._read(manifest)
        self._looked.set()
        if asked.going:
            self._go(asked.going)
            return
        if asked.parks:
            self.park(asked.parks)
        if self._cluster.closed:  # whoever asks for something hears it from the next AIMaster
            return
        self._hold(asked)
        self._refuse(asked.strange)
        self._take_back(asked.scaler)
        written = self._written
        noted = asked.noted or {names.PS: written.ps, names.WORKER: written.workers + self._chiefs(names.WORKER)}
        wanted = {k: want for k, want in asked.sizes.items() if want != self._asked.get(k, noted.get(k, want))}
        if wanted:
            self._asked |= wanted
            if asked.scaler.uid and not asked.scaler.failed and wanted.get(names.WORKER) == asked.scaler.after:
                self._job.store.put(**{SCALER_KEY: [asked.scaler.uid, self._job.allowed.back("worker") or 0]})
            await self._request(wanted, asked.leaving if names.WORKER in wanted else ())

    def wrote(self, manifest: Manifest, kind: str) -> None:
        """`replicas` of this type was written by ourselves, with its note: what a user had asked for there is done with."""
        self._asked.pop(kind, None)
        self._latest = self._read(manifest)

    def _read(self, manifest: Manifest) -> Asked:
        spec = self._job.spec
        return read(manifest, sums=spec.sums, own_pods=spec.own_pods)

    def _refuse(self, strange: str) -> None:
        """PS in a job without them, said once."""
        if strange and strange != self._refused:
            why = f"this job has no PS (strategy allreduce) and makes none; leave out spec.tfReplicaSpecs.{strange}"
            self._job.event("request_refused", reason=why, asked=strange)
        self._refused = strange

    def _go(self, why: str) -> None:
        if not self._cluster.closed:
            log.warning("the TFJob goes: %s; nothing is started any more", why)
        self._cluster.closed = True
        self._job.lock.take("the TFJob", Hold.STOPPING)

    def _hold(self, asked: Asked) -> None:
        """The annotation counts when it changes: `scale --hold` may say something else meanwhile."""
        store = self._job.store
        if asked.hold != store.get(HOLD_KEY, ""):
            store.put(**{HOLD_KEY: asked.hold})
            self._job.hold(asked.hold == "true", f"annotation {HOLD}")

    def _take_back(self, scaler: Scaler) -> None:
        """What a ScaleOut that has failed had asked for is wanted no more; but what it wanted before, or what there is.
        Where somebody has asked for another size since, that stays."""
        if not scaler.failed:
            return
        uid, before = self._job.store.read(SCALER_KEY, _scaler, ("", 0))
        if uid != scaler.uid:
            return
        self._job.store.put(**{SCALER_KEY: None})
        chiefs = self._chiefs(names.WORKER)
        wants = max(before, scaler.before - chiefs, len(self._job.members.wanted(pb.WORKER)))
        if wants < scaler.after - chiefs == self._job.allowed.back("worker"):
            self._job.allowed.remember({"worker": wants})
            self._job.event(
                "request_taken_back", asked=f"{scaler.after - chiefs} workers", reason=f"{scaler.by} has failed"
            )

    async def _request(self, wanted: Mapping[str, int], leaving: tuple[str, ...]) -> None:
        """What was changed by one edit is one scaling. Beside Kubeflow the highest indices leave, whoever is named."""
        leaving = leaving if self._job.spec.own_pods else ()
        request, asked = pb.ScaleRequest(reason="kubectl"), ", ".join(f"{n} {kind}" for kind, n in wanted.items())
        for kind, want in wanted.items():
            setattr(request, "ps" if kind == names.PS else "workers", max(0, want - self._chiefs(kind)))
        try:
            reply = await self._scalings.request(request, leaving=leaving)
            log.info("the TFJob asks for %s: %s", asked, reply.message)
        except DeepRecError as error:
            self._job.event("request_refused", reason=str(error), asked=asked)

    # ------------------------------------------------------------------------------------------------ writing

    async def report(self) -> None:
        """Runs for ever: sizes when they have changed, and the line of status."""
        while True:
            await self._sleep(TICK_SECONDS)
            try:
                await self.write()
            except ForbiddenError as error:
                log.warning("the TFJob does not say what runs: %s", error)
                return
            except (ApiError, UnreachableError) as error:
                log.debug("the TFJob could not be patched: %s", error)

    async def write(self) -> None:
        """One look. Raises ApiError, UnreachableError."""
        asked, patch = self._latest, self._changes()
        if asked is None or asked.going or not patch:
            return
        annotations = patch["metadata"]["annotations"]
        try:
            after = await self._patch({**patch, "metadata": {**patch["metadata"], "resourceVersion": asked.version}})
        except ConflictError:
            return  # the watch brings what it has become
        if names.STATUS_ANNOTATION in annotations:
            self._status_at = self._job.clock.monotonic()
        if names.SCALED_TO_ANNOTATION in annotations:
            self._asked.clear()
        if annotations.get(names.WORTH_ANNOTATION) == self._worth:
            self._worth = ""
        if self._latest is asked:
            self._latest = self._read(after)

    def _changes(self) -> Manifest:
        """The patch that is due; empty: none."""
        asked, job = self._latest, self._job
        if asked is None:
            return {}
        annotations: dict[str, str] = {}
        specs: dict[str, Any] = {}
        sizes = {kind: count for kind, count in self.sizes().items() if kind in asked.keys}
        if self._still() and (sizes != dict(asked.noted) or sizes != dict(asked.sizes)):
            annotations[names.SCALED_TO_ANNOTATION] = json.dumps(sizes)
            specs = {asked.keys[kind]: {"replicas": n} for kind, n in sizes.items() if n != asked.sizes[kind]}
        line = self.line()
        if line != asked.status and job.clock.monotonic() - self._status_at >= STATUS_SECONDS:
            annotations[names.STATUS_ANNOTATION] = line
        if self._worth:
            annotations[names.WORTH_ANNOTATION] = self._worth
        if not annotations:
            return {}
        return {"metadata": {"annotations": annotations}, **({"spec": {"tfReplicaSpecs": specs}} if specs else {})}

    def _still(self) -> bool:
        """Nothing is being changed: what runs is what there will be."""
        scalings = self._scalings
        busy = scalings.queue or scalings.running is not None or scalings.interrupted
        return self._job.cluster.formed and not busy and not self._job.ending

    def sizes(self) -> dict[str, int]:
        """What there is to be; who has ended by itself is one of them."""
        ps = {} if self._job.spec.sums else {names.PS: self._count(pb.PS)}
        return {**ps, names.WORKER: self._count(pb.WORKER) + self._chiefs(names.WORKER)}

    def _count(self, role: pb.Role) -> int:
        """Beside Kubeflow up to the highest index: it would delete that one, and not the one that is missing in between."""
        found = self._job.members.wanted(role)
        return len(found) if self._job.spec.own_pods else max((parse_name(name)[1] + 1 for name in found), default=0)

    def _chiefs(self, kind: str) -> int:
        """Worker 0 of a TFJob without a chief is none of the AIMaster's workers."""
        return int(kind == names.WORKER and not self._naming.chief)

    async def say_parked(self, kept: str, why: str = "", again_seconds: float = 0.0) -> bool:
        """Everything is kept: the operator may take the pods away. Tried for ever: nothing else can go on before it is said.
        False: it could not be said before the operator wanted it no more.

        Args:
            why: by this AIMaster's own decision; empty: the operator's.
            again_seconds: of its own decision: until there may be room.
        """
        rate, parked = 0.0, Parked(kept, why, again_seconds)
        self._parked = status_line(
            "parked", self.sizes(), self._job.members.step, rate, "; ".join(filter(None, (why, kept)))
        )
        annotations = {names.PARKED_ANNOTATION: parked.text(), names.STATUS_ANNOTATION: self._parked}
        waits = pauses(TICK_SECONDS, PARKED_SECONDS_MAX)
        while not await self._try({"metadata": {"annotations": annotations}}):
            asked = self._latest
            if not why and asked is not None and not (asked.parks or asked.going):
                return False
            await self._sleep(next(waits))
        return True

    def line(self) -> str:
        if self._parked:
            return self._parked
        job = self._job
        rate = sum(member.heartbeat.examples_per_second for member in job.members.trainers().values())
        state, why = job_state(job, self._scalings), job.failure
        if state in ("starting", "scaling"):
            why = "; ".join(f"{name}: {reason}" for name, reason in sorted(self._cluster.waiting().items())[:3])
        if job.ending and (found := job.store.get(cost.TOLD)):
            why = "; ".join(filter(None, (why, cost.sentence(found))))
        return status_line(state, self.sizes(), job.members.step, rate, why)

    async def conclude(self) -> None:
        """The last line of status. Bounded; without an answer the pods alone tell how it ended."""
        await self._insist({"metadata": {"annotations": {names.STATUS_ANNOTATION: self.line()}}}, PATCH_TRIES)

    async def _insist(self, patch: Manifest, tries: int) -> None:
        for _ in range(tries):
            if await self._try(patch):
                return
            await self._sleep(TICK_SECONDS)

    async def _try(self, patch: Manifest) -> bool:
        """Whether it is written, or there is nothing any more that could be."""
        try:
            await self._patch(patch)
        except NotFoundError:
            pass
        except (ApiError, UnreachableError) as error:
            log.warning("the TFJob does not say how the job stands: %s", error)
            return False
        return True

    async def _patch(self, patch: Manifest) -> Manifest:
        return await self._api.patch(TFJOBS, self._namespace, self._naming.name, patch)
