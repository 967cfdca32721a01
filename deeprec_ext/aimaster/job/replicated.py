"""What a few PS keep in memory for an AIMaster that has lost its store: what only the AIMaster knows, some seconds old.

Agents know the cluster, the model and their own part of the data by themselves (`Known`). They do not know since when the job
runs, what was asked for and measured, which variables and which records processes had that are gone. That is small, so it is
sent to the PS that have served longest, whenever it has changed, and they give it back when they are asked (`rebuilding`).
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import hashlib
import itertools
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deeprec_ext.aimaster.core.records import Failure, Scaling
from deeprec_ext.aimaster.ledger import Ledger
from deeprec_ext.aimaster.membership.members import Member
from deeprec_ext.aimaster.state.shared import JobState
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.aimaster.store.storefile import TRANSACTIONS
from deeprec_ext.decoding import built
from deeprec_ext.proto import deeprec_ext_pb2 as pb

REPLICAS = 3
"""PS that keep a copy: the memory of all may die with their processes, of three hardly at once."""

SECONDS = 5.0
PAUSE_SECONDS = 0.25
"""It is sent so often when it has changed; at once, but not more often than every so many seconds, when somebody leaves."""

VALUE_BYTES_MAX = 16 << 20
SCALINGS_KEPT, FAILURES_KEPT = 200, 200

JOB, CATALOGUE = "job", "catalogue"
_NOT_KEPT = (
    "catalogues_told", "cluster", "aimaster_incarnation", "ledger_lease", "ledger_history", "rebuilt", "ring_secret",
    TRANSACTIONS,
)  # fmt: skip
"""Agents know these better, or they mean nothing to another AIMaster, or nobody is to read them where copies lie (the secret of
rings: the next one makes another). The last one changes with every sample of Gazer."""

_PACKED_BYTES_MAX = 64 << 20


@dataclass(frozen=True)
class Kept:
    """The history of a job, as the PS give it back."""

    meta: Mapping[str, Any] = field(default_factory=dict)
    wish: bytes = b""
    scalings: tuple[Scaling, ...] = ()
    failures: tuple[Failure, ...] = ()
    examples: Mapping[str, int] = field(default_factory=dict)


def pack(store: Store) -> bytes:
    values = {
        "meta": {key: value for key, value in store.everything().items() if key not in _NOT_KEPT},
        "wish": base64.b64encode(store.blob("backup_wish")).decode(),
        "scalings": store.newest_scalings(SCALINGS_KEPT),
        "failures": [dataclasses.asdict(failure) for failure in store.failures(FAILURES_KEPT)],
        "examples": store.totals(),
    }
    return zlib.compress(json.dumps(values, sort_keys=True, separators=(",", ":")).encode(), 1)


def unpack(packed: bytes) -> Kept:
    """Empty or damaged bytes are as good as none. Fields that this version does not know are left out."""
    if not packed:
        return Kept()
    try:
        values = json.loads(zlib.decompressobj().decompress(packed, _PACKED_BYTES_MAX))
        return Kept(
            meta=dict(values["meta"]), wish=base64.b64decode(values["wish"]),
            scalings=tuple(Scaling.from_json(text) for text in values["scalings"]),
            failures=tuple(built(Failure, one, newer=True) for one in values["failures"]),
            examples={str(who): int(count) for who, count in values["examples"].items()},
        )  # fmt: skip
    except (zlib.error, ValueError, KeyError, TypeError, AttributeError):
        return Kept()


def newest(remembered: list[pb.Remember]) -> dict[str, bytes]:
    """Key → value, from several PS."""
    best: dict[str, pb.Remember] = {}
    for one in remembered:
        if one.key not in best or best[one.key].number < one.number:
            best[one.key] = one
    return {key: one.value for key, one in best.items()}


class ReplicatedState:
    """`job.replicated`."""

    def __init__(self, job: JobState, ledger: Ledger) -> None:
        self._job, self._ledger = job, ledger
        self._numbers = itertools.count(job.incarnation * 1_000_000_000)
        self._sent: dict[tuple[str, int], dict[str, bytes]] = {}  # (holder, its stream) -> key -> digest

    def remember(self) -> list[pb.Remember]:
        """What is to be kept, as it is now."""
        number, values = next(self._numbers), {JOB: pack(self._job.store), **self._ledger.replica()}
        return [pb.Remember(key=key, number=number, value=value) for key, value in values.items()]

    async def run(self) -> None:
        """Runs for ever."""
        while True:
            waiting = asyncio.ensure_future(self._job.unreplicated.wait())
            try:  # not wait_for: before Python 3.12 it swallows a cancellation that comes together with the result
                await asyncio.wait({waiting}, timeout=SECONDS)
            finally:
                waiting.cancel()
            if self._job.cluster.live:  # else it stays noted: what was decided before must not wait for the next time
                self._job.unreplicated.clear()
                self.send()
            await asyncio.sleep(PAUSE_SECONDS)

    def send(self) -> None:
        """What has changed, to those who do not have it."""
        catalogue = self._job.catalogues.known.SerializeToString()
        values = {JOB: pack(self._job.store), CATALOGUE: catalogue, **self._ledger.replica()}
        values = {key: value for key, value in values.items() if len(value) <= VALUE_BYTES_MAX}
        digests = {key: hashlib.blake2b(value, digest_size=16).digest() for key, value in values.items()}
        number, known = next(self._numbers), self._sent
        self._sent = {}
        for holder in self._holders():
            place = holder.incarnation, holder.outbox.generation
            before = known.get(place, {})
            self._sent[place] = digests
            for key in digests.keys() | before.keys():
                if digests.get(key) != before.get(key):
                    value = pb.Remember(key=key, number=number, value=values.get(key, b""))
                    message = pb.MasterMessage(aimaster_incarnation=self._job.incarnation, remember=value)
                    holder.outbox.put(message, f"remember {key}")

    def _holders(self) -> list[Member]:
        found = []
        for ps in sorted(self._job.cluster.ps, key=lambda ps: ps.task):
            member = self._job.members.get(ps.name)
            if member is not None and member.admitted and member.incarnation == ps.incarnation:
                found.append(member)
        return found[:REPLICAS]
