"""The snapshot in the ConfigMap `<job>-aimaster-state`: written at once where something hangs on it, else a moment later.

Each write names the version it replaces, so two AIMasters cannot both write: the one with the lower incarnation finds out, and
ends. An API server that does not answer holds nobody up for long: agents know what the snapshot lacks.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import time
from collections.abc import Mapping
from typing import Union

from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.kubernetes.snapshot import (
    Snapshot,
    SnapshotError,
    core,
    describe,
    pack,
    restore,
    take,
    unpack,
)
from deeprec_ext.aimaster.pods.backend import PodBackend
from deeprec_ext.aimaster.rebuilding import opening, rebuild_if_lost
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.errors import StaleError, UnreachableError
from deeprec_ext.options import JobSpec
from deeprec_ext.retries import Sleep, retried
from tfjob.api.client import Api, ApiError, ConflictError, ForbiddenError, NotFoundError
from tfjob.model.kinds import CONFIG_MAPS, Manifest

log = logging.getLogger(__name__)

KEY = "state"
SUMMARY, DECISIONS, REPORT = "summary.json", "decisions.json", "report.md"
PACKED_REPORTS = {"html": "report.html.gz", "json": "report.json.gz"}
"""What is kept of a job that has ended, the most important first: what does not fit is left out."""

Content = Union[str, bytes]
"""Of a file: bytes are kept as `binaryData`."""

BYTES_MAX = 1_000_000
"""The server takes 1 MiB of a ConfigMap's data, and the keys count."""

SOON_SECONDS = 1.0
"""Between two writes, when somebody has come or gone or something was decided."""

PROGRESS_SECONDS = 5.0
"""Between two writes, when only training has gone on. What is acknowledged meanwhile by somebody who dies with the AIMaster is
trained again."""

DECISION_SECONDS = 0.5
"""How long a decision waits for its write: within the margin of the pause's lease (`commit_margin_seconds`). After that it is
acted on all the same: the agents who acted are its witnesses."""

CLAIM_SECONDS, TRIES = 60.0, 3


class Keeper:
    def __init__(
        self, api: Api, namespace: str, name: str, *, holder: str, owner: Manifest, labels: dict[str, str],
        sleep: Sleep = asyncio.sleep,
    ) -> None:  # fmt: skip
        """Args:
        name: of the ConfigMap.
        holder: of this process, as no other has it.
        owner: an owner reference.
        """
        self._api, self._namespace, self._name, self._holder = api, namespace, name, holder
        self._owner, self._labels, self._sleep = owner, labels, sleep
        self._version = ""  # of the ConfigMap; empty: it does not exist
        self._job: Job | None = None
        self._written: Snapshot | None = None
        self._writing = asyncio.Lock()
        self._wake = asyncio.Event()
        self._said = ""  # the last complaint: said once
        self._files: Mapping[str, Content] = {}  # at the end of the job
        self.summary = ""  # as found: the job has ended before

    async def load(self) -> Snapshot | None:
        """What there is; nothing, if it is of an earlier job of this name. Raises SnapshotError, ApiError, UnreachableError."""
        try:
            found = await self._api.get(CONFIG_MAPS, self._namespace, self._name)
        except NotFoundError:
            self._version = ""
            return None
        self._version = found["metadata"]["resourceVersion"]
        owners = [one.get("uid") for one in found["metadata"].get("ownerReferences") or []]
        if self._owner.get("uid") not in owners:
            return None
        self.summary = (found.get("data") or {}).get(SUMMARY, "")
        packed = (found.get("binaryData") or {}).get(KEY)
        return unpack(base64.b64decode(packed)) if packed else None

    async def claim(self, job: Job) -> None:
        """The first write: from now on an older AIMaster is stale. Raises StaleError, UnreachableError."""
        self._job = job
        try:
            await retried(self._write, _may_be_kept, CLAIM_SECONDS, sleep=self._sleep)
        except (ApiError, UnreachableError) as error:
            raise UnreachableError(f"the state of the job cannot be kept in a ConfigMap: {error}") from error
        job.keep_elsewhere, job.also_replicated = self.keep, self.soon

    def soon(self) -> None:
        self._wake.set()

    async def keep(self) -> None:
        """What is decided now is written, or `DECISION_SECONDS` are over. Raises StaleError."""
        writing = asyncio.ensure_future(self._write())
        await asyncio.wait({writing}, timeout=DECISION_SECONDS)
        if not writing.done():
            log.warning("the decision is not in the ConfigMap yet; going on")
            writing.add_done_callback(self._late)
            return
        try:
            writing.result()
        except (ApiError, UnreachableError, SnapshotError) as error:
            self._complain(str(error))

    def _late(self, writing: asyncio.Future[None]) -> None:
        if not writing.cancelled() and (error := writing.exception()) is not None:
            self._complain(str(error))

    async def conclude(self, files: Mapping[str, Content]) -> None:
        """The last write, with the summary of the run and what goes with it, where it outlives the pod."""
        self._files = files
        await self.keep()

    async def run(self) -> None:
        """For ever; ends with StaleError."""
        waited = 0.0
        while True:
            await self._sleep(SOON_SECONDS)
            waited += SOON_SECONDS
            assert self._job is not None
            if self._wake.is_set() or waited >= PROGRESS_SECONDS or self._decided():
                try:
                    await self._write()
                    waited = 0.0
                except (ApiError, UnreachableError, SnapshotError) as error:
                    self._complain(str(error))

    def _decided(self) -> bool:
        assert self._job is not None
        return self._written is None or core(self._job) != self._written.core

    async def _write(self) -> None:
        """Raises StaleError, SnapshotError, ApiError, UnreachableError."""
        async with self._writing:
            job = self._job
            assert job is not None
            self._wake.clear()
            snapshot = take(job, self._holder)
            if self._written is not None and snapshot.says(self._written) and not self._files:
                return
            packed, left_out = pack(snapshot)
            if left_out:
                self._complain(describe(left_out))
            for left in range(TRIES, -1, -1):
                try:
                    self._version = await self._put(packed)
                    break
                except (ConflictError, NotFoundError):
                    if not left:
                        raise
                await self._look(job)
            self._written = snapshot

    async def _put(self, packed: bytes) -> str:
        metadata = {
            "name": self._name, "labels": self._labels, "ownerReferences": [self._owner],
            **({"resourceVersion": self._version} if self._version else {}),
        }  # fmt: skip
        files = _fitting(self._files, BYTES_MAX - len(packed))
        texts = {name: one for name, one in files.items() if isinstance(one, str)}
        others = {name: one for name, one in files.items() if isinstance(one, bytes)}
        body = {
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
            "binaryData": {name: base64.b64encode(one).decode() for name, one in {KEY: packed, **others}.items()},
            **({"data": texts} if texts else {}),
        }  # fmt: skip
        put = self._api.replace if self._version else self._api.create
        made = await put(CONFIG_MAPS, self._namespace, body)
        return str(made["metadata"]["resourceVersion"])

    async def _look(self, job: Job) -> None:
        """Somebody else has written. Raises StaleError when it is an AIMaster that this one may not overrule."""
        try:
            found = await self.load()
        except SnapshotError as error:
            log.warning("the ConfigMap was damaged by somebody and is written again: %s", error)
            return
        if found is not None and found.holder != self._holder and found.incarnation >= job.incarnation:
            job.stale.set()
            raise StaleError(
                f"AIMaster {found.incarnation} keeps the state of this job; this one is {job.incarnation}, and ends"
            )

    def _complain(self, text: str) -> None:
        """As an event, once; the last good snapshot stays."""
        if text != self._said and self._job is not None:
            self._said = text
            self._job.event("warning", text=text)


def _may_be_kept(error: Exception) -> bool:
    return isinstance(error, (ApiError, UnreachableError)) and not isinstance(error, ForbiddenError)


def _fitting(files: Mapping[str, Content], room: int) -> dict[str, Content]:
    """Those that fit, in their order."""
    found: dict[str, Content] = {}
    for name, one in files.items():
        size = len(one.encode() if isinstance(one, str) else one)
        if size <= room:
            found[name] = one
            room -= size
    return found


async def bring_back(
    spec: JobSpec, backend: PodBackend, certs: str | None, listen: str, snapshot: Snapshot | None
) -> None:
    """Before the AIMaster starts: its store, if this pod has none, from agents that live and the snapshot, or from that alone.

    Raises StaleError when the store is older than the snapshot, UsageError and UnreachableError as `rebuild_if_lost`.
    """
    opening.quarantine_what_went_back(opening.store_of(spec))
    with contextlib.closing(Store(spec.workdir / "aimaster.db")) as store:
        mine = int(store.get("aimaster_incarnation", 0))
    if snapshot is not None and 0 < mine < snapshot.incarnation:
        raise StaleError(f"AIMaster {snapshot.incarnation} has gone on with this job; the store here is of {mine}")
    if await rebuild_if_lost(spec, backend, certs, listen, snapshot.stored if snapshot is not None else None):
        return
    if snapshot is not None and not mine:
        log.warning("nobody is left to ask: going on from the snapshot of AIMaster %d", snapshot.incarnation)
        with contextlib.closing(Store(spec.workdir / "aimaster.db")) as store:
            restore(store, snapshot, time.time())
