"""The state that all parts of a job share: its record, the agreed cluster, and how a view reaches everybody.

Everything runs on one asyncio loop, so state changes between two awaits are atomic. Whoever changes it calls
`changed.notify()`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from deeprec_ext.aimaster.core.clock import Clock, SystemClock
from deeprec_ext.aimaster.core.records import Requests
from deeprec_ext.aimaster.core.signals import Signal
from deeprec_ext.aimaster.membership.commands import Commander
from deeprec_ext.aimaster.membership.members import Member, Members
from deeprec_ext.aimaster.membership.view import AgreedCluster, advance
from deeprec_ext.aimaster.state.allowed import Allowed
from deeprec_ext.aimaster.state.catalogues import Catalogues, tables_fingerprint
from deeprec_ext.aimaster.state.choices import BackupChoices
from deeprec_ext.aimaster.state.declared import Declared
from deeprec_ext.aimaster.state.lock import Hold, Lock
from deeprec_ext.aimaster.state.suspects import Suspects
from deeprec_ext.aimaster.store.events import EventLog
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.decoding import built
from deeprec_ext.options import JobSpec, rate_factor
from deeprec_ext.proto import deeprec_ext_pb2 as pb

log = logging.getLogger(__name__)

PUBLISH_DELAY_SECONDS, PUBLISH_DELAY_PER_MEMBER_SECONDS = 0.1, 0.002
"""Workers often come in crowds: their views are merged, and nobody waits for such a view, but where a ring is lost: then all
do, and only the second part stays. What is sent grows with the square of the members (a list of n workers to n agents: 60 MB
for 1 000), so the delay grows with them too."""


RING_AGAIN_SECONDS, RINGS_LOST_MAX, RING_LIVED_SECONDS = 0.05, 6, 60.0
"""Before a ring of the same members is made anew: one of them may be about to be missed. Twice as long each time, up to so many
times, where the one before has not lived for so long; at once, when one is missed."""

LOOK_SECONDS = 0.01
"""Between two looks whether a delay is over before its time."""

RING_SECRET_BYTES = 32
FAILURE_MAX = 500
UNTOLD_KEY = "aside_untold"
"""What was set aside before there was a job that could tell it: lines."""


async def _nowhere_else() -> None:
    """The store is a file that outlives this process."""


class JobState:
    """What `Job` has beside its parts; parts take it, and those below them that they use."""

    def __init__(self, spec: JobSpec, store: Store, clock: Clock | None = None) -> None:
        self.spec, self.store = spec, store
        self.settings = spec.settings
        self.clock = clock or SystemClock(store.newest_time())
        self.resumed = store.get("aimaster_incarnation") is not None
        self.settled = False  # who took part before this AIMaster has come back, or has been given up
        self.incarnation = store.next_incarnation()
        self.commander = Commander(self.incarnation)
        self.events = EventLog(store, spec.workdir / "events.jsonl", self.clock)
        self.members = Members(store, spec.settings, self.clock, in_step=spec.sums)
        self.cluster = store.read("cluster", AgreedCluster.from_json, AgreedCluster())
        self.catalogues = Catalogues(store, spec.slots)
        self.catalogue = self.catalogues.present
        self.declared = Declared(store)
        self.ending: str = store.get("ending", "")  # finishing, finished, failed
        self.failure: str = store.get("failure", "")
        self.changed = Signal()
        self.lock = Lock(self.clock.monotonic)
        self._marked_for: str = store.get("marks", "")  # fingerprint of the tables that are marked; asked often
        self._tables = self.catalogue, tables_fingerprint(self.catalogue)
        self.backup_map: tuple[int, ...] = ()  # slot -> who would take it over, as published
        self.requests = Requests.of(spec)  # a run that is resumed starts with those of its command
        if not spec.resume:
            self.requests = store.read("requests", lambda found: built(Requests, found), self.requests)
        self.choices = BackupChoices(spec, store)
        self.allowed = Allowed(spec, store)
        self.suspects = Suspects(self.members, store, self.clock, self.event)
        self.members.doubted = self.suspects.note
        self.dashboard = ""  # URL of the web page, while it is served
        self.reclaimed: dict[str, str] = {}  # name → incarnation of whose host will be taken away (where that is told)
        self.stale: asyncio.Event = asyncio.Event()  # a newer AIMaster exists: end
        self.unreplicated = (
            asyncio.Event()
        )  # something that nobody else will know: PS are told of it (`job.replicated`)
        self.also_replicated: Callable[[], None] = lambda: None  # whoever else keeps something
        self.keep_elsewhere: Callable[[], Awaitable[None]] = _nowhere_else  # part of `keep`
        self._failed: dict[str, int] = {}  # what has failed at somebody's message -> how often
        self._published: object = []  # the first view is made without trainers, and nobody needs to be told that again
        self._ring_lost, self._rings_lost = False, 0  # of the present view; one soon after the other
        self._ring_since = -RING_LIVED_SECONDS  # monotonic: of the present view
        self._ring_members: tuple[str, ...] = ()  # of the present view
        self._has_model: frozenset[str] = frozenset()  # incarnations of the last view that had any
        self._publishing: asyncio.Task[None] | None = None
        if store.get("started") is None:
            store.put(started=self.clock.wall(), job=spec.name, slots=spec.slots)
        self.started: float = store.get("started")

    def tell_quarantined(self) -> None:
        """What the store could not read back is told once, and never read again."""
        untold: list[str] = self.store.get(UNTOLD_KEY) or []
        lines, self.store.quarantined = [*untold, *self.store.quarantined], []
        if untold:
            self.store.put(**{UNTOLD_KEY: None})
        for line in lines:
            log.error("set aside, for it cannot be read back: %s", line)
            self.event("stored_set_aside", what=line)

    def replicate_soon(self) -> None:
        """Somebody goes, or something was decided, that nobody else will know."""
        self.unreplicated.set()
        self.also_replicated()

    async def stored(self, timeout_seconds: float | None = None) -> bool:
        """Waits until the store's file has everything that was written; whether it came to that in time."""
        return await self.changed.until(lambda: not self.store.behind, timeout_seconds)

    async def keep(self) -> None:
        """Between a decision and its first effect: waits until it outlives this process, however long that takes."""
        await self.stored()
        await self.keep_elsewhere()

    def event(self, type_: str, role: str = "", **fields: Any) -> None:
        self.events.add(type_, role, self.cluster.epoch, **fields)

    def handler_failed(self, what: str, error: BaseException, role: str = "") -> None:
        """A defect of ours that somebody's message has found: told, and survived. Of one that comes again and again, seldom."""
        self._failed[what] = count = self._failed.get(what, 0) + 1
        if count & (count - 1) == 0:  # the first, 2nd, 4th, 8th ...
            line = f"{type(error).__name__}: {error}"[:FAILURE_MAX]
            self.event("handler_failed", role, what=what, error=line, times=count)

    # ------------------------------------------------------------------------------------------------ the cluster

    def workers(self) -> list[pb.WorkerMember]:
        """Trainers that take part and shall stay, as views list them."""
        staying = [
            m for m in self.members.trainers().values()
            if self.members.records[m.name].wanted and (m.ring or not self.spec.sums)
        ]  # fmt: skip
        staying.sort(key=lambda m: m.name)
        return [pb.WorkerMember(name=m.name, incarnation=m.incarnation, address=m.ring) for m in staying]

    @property
    def ring_secret(self) -> bytes:
        """Of a job without PS: what its members know each other by; made once."""
        if (known := self.store.get("ring_secret")) is None:
            known = secrets.token_hex(RING_SECRET_BYTES)
            self.store.put(ring_secret=known)
        return bytes.fromhex(known)

    def view(self) -> pb.View:
        view = self.cluster.to_proto(self.workers())
        view.backup_map.extend(self.backup_map)
        return view

    def set_cluster(self, cluster: AgreedCluster) -> None:
        """Persists it; does not tell anybody."""
        new_epoch = cluster.epoch != self.cluster.epoch
        self.cluster = cluster
        with self.store.transaction():
            self.store.put(cluster=cluster.to_json())
            if new_epoch:
                self.store.save_view(cluster.epoch, self.clock.wall(), self.view().SerializeToString())
        self.changed.notify()

    def set_requests(self, requests: Requests) -> None:
        """What each pod of a role requests from now on."""
        self.requests = requests
        self.store.put(requests=dataclasses.asdict(requests))

    @property
    def held(self) -> bool:
        """The user's veto on the autoscaler; survives this process."""
        return bool(self.store.get("hold", False))

    def hold(self, held: bool, reason: str) -> None:
        if held != self.held:
            self.store.put(hold=held)
            self.event("autoscale_held" if held else "autoscale_released", reason=reason)

    # ------------------------------------------------------------------------------------------------ backups

    @property
    def marks_on(self) -> bool:
        """Whether every trainer marks every table of the present catalogue, at any time."""
        if self._tables[0] is not self.catalogue:
            self._tables = self.catalogue, tables_fingerprint(self.catalogue)
        return bool(self.catalogue.fingerprint) and self._marked_for == self._tables[1]

    def set_marked(self, slots: tuple[int, ...]) -> None:
        """Who registers from now on marks these slots' tables from its first step on."""
        self.set_cluster(dataclasses.replace(self.cluster, marked=slots))

    def marks_are_on(self, catalogue: pb.Catalogue | None = None) -> None:
        """Of this catalogue: while trainers began to mark there may have come another one."""
        self._remember_marks(tables_fingerprint(catalogue or self.catalogue))

    def marks_are_off(self) -> None:
        self._remember_marks("")

    def _remember_marks(self, fingerprint: str) -> None:
        self._marked_for = fingerprint
        self.store.put(marks=fingerprint)

    def publish(self, *, without: frozenset[str] = frozenset()) -> None:
        """Sends the present view to everybody who takes part, except to `without` (they get it as a Commit).

        One that the store's file does not have yet is sent when it has it.
        """
        if self.store.behind:
            self.store.after_commit(self.publish)
            return
        view = self.view()
        self.event("view_published", ps=len(view.ps), workers=len(view.workers), generation=view.generation)
        self._tell_rate()
        self._published, self._ring_lost, self._ring_since = self._membership(), False, self.clock.monotonic()
        if self.spec.sums:
            self._ring_members = tuple(worker.name for worker in view.workers)
        if self._ring_members:
            self._tell_new_model({worker.incarnation for worker in view.workers})
        message = pb.MasterMessage(aimaster_incarnation=self.incarnation, publish=pb.Publish(view=view))
        wire = message.SerializeToString()  # once, not once per agent
        for member in self.members:
            if member.admitted and member.name not in without:
                member.outbox.put(wire, "publish")

    def learning_rate(self) -> float:
        """What the trainers of a job with PS multiply theirs by, once they have come there; 1: it is the script's."""
        settings = self.settings
        return 1.0 if self.spec.sums else rate_factor(settings.rate_scaling, len(self.workers()), settings.rate_base)

    def _tell_rate(self) -> None:
        now, before = self.learning_rate(), self.store.get("learning_rate", 1.0)
        if now != before:
            self.store.put(learning_rate=now)
            self.event(
                "learning_rate", factor=round(now, 6), before=round(before, 6), trainers=len(self.workers()),
                rate_scaling=self.settings.rate_scaling,
            )  # fmt: skip

    def _tell_new_model(self, there: set[str]) -> None:
        if self._has_model and not self._has_model & there:
            self.event(
                "warning", text="nobody is there any more who had the model: it begins with what was kept of it, or with what "
                "the script has. Where records do not go back with it (ledger_rewound), they go on where they were; begin the "
                "job anew to train it on all of them"
            )  # fmt: skip
        self._has_model = frozenset(there)

    def advance(self, **changes: Any) -> None:
        """A new epoch with these changes, published at once."""
        self.set_cluster(advance(dataclasses.replace(self.cluster, **changes)))
        self.publish()

    def _membership(self) -> object:
        return [(worker.name, worker.incarnation, worker.address) for worker in self.workers()]

    @property
    def ring_members(self) -> tuple[str, ...]:
        """Names of a job without PS, in the order in which they sum: of the view that was published last; before this AIMaster
        has published one, of that to come."""
        return self._ring_members or tuple(worker.name for worker in self.workers())

    @property
    def ring_seconds(self) -> float:
        """Since it was; 0: this AIMaster has published none."""
        return self.clock.monotonic() - self._ring_since if self._ring_members else 0.0

    @property
    def ring_is_lost(self) -> bool:
        """That of the present view: somebody has said so."""
        return self._ring_lost

    def ring_lost(self) -> None:
        """That of the present view: another view will come, with others or the same."""
        self._ring_lost = True
        self.publish_soon()

    def publish_soon(self) -> None:
        """The workers may have changed: a new epoch a little later, unless a scaling is going to publish one."""
        if self._publishing is None or self._publishing.done():
            self._publishing = asyncio.get_running_loop().create_task(self._publish_later())

    async def _publish_later(self) -> None:
        await asyncio.sleep(PUBLISH_DELAY_PER_MEMBER_SECONDS * len(self.members))
        await _sleep(PUBLISH_DELAY_SECONDS, lambda: self._ring_lost)
        if (
            self.spec.sums and not self.settled
        ):  # who took part is on its way back: it would be left out, and begin anew
            return
        same = self._membership() == self._published
        if self._ring_lost and same:  # once more, of the same members: perhaps one is about to be missed
            lived = self.clock.monotonic() - self._ring_since
            self._rings_lost = 0 if lived > RING_LIVED_SECONDS else min(self._rings_lost + 1, RINGS_LOST_MAX)
            await _sleep(RING_AGAIN_SECONDS * 2**self._rings_lost, lambda: self._membership() != self._published)
        if self.cluster.formed and not self.lock.held(Hold.VIEWS) and self.view_is_due:
            self._ring_lost = False
            self.advance()

    @property
    def view_is_due(self) -> bool:
        """Whether the workers are others than in the view that was published last, or their ring is lost."""
        return self._ring_lost or self._membership() != self._published

    def send(self, members: Mapping[str, Member], **command: Any) -> dict[str, asyncio.Future[pb.Ack]]:
        """The same command to each: `send(job.members.trainers(), pause=pb.Pause(...))`."""
        return {name: self.commander.send(member.outbox, **command) for name, member in members.items()}

    def notice(self, scaling_id: int, phase: pb.ScalingNotice.Phase) -> None:
        notice = pb.ScalingNotice(scaling_id=scaling_id, phase=phase)
        wire = pb.MasterMessage(aimaster_incarnation=self.incarnation, scaling=notice).SerializeToString()
        for member in self.members.trainers().values():
            member.outbox.put(wire)

    # ------------------------------------------------------------------------------------------------ the end

    def end(self, state: str, reason: str = "") -> None:
        """`finishing`, `finished` or `failed`; the first failure and the last state count."""
        if self.ending in ("finished", "failed") and state != "finished":
            return
        self.ending = self.ending if self.ending == "failed" else state
        self.failure = self.failure or reason
        self.store.put(ending=self.ending, failure=self.failure)
        self.event(f"job_{state}", reason=reason)
        self.changed.notify()

    def quiet(self, *holds: Hold) -> bool:
        """Whether the model is live, no PS is lost, the job is not ending, and nobody holds any of these."""
        return self.cluster.live and not self.cluster.lost and not self.ending and not self.lock.held(*holds)

    def variable_slots(self) -> set[int]:
        """Slots that have variables: the others need no backup."""
        return {variable.slot for variable in self.catalogue.variables}


async def _sleep(seconds: float, over: Callable[[], bool]) -> None:
    """So long, or until it is over."""
    end = time.monotonic() + seconds
    while not over() and (left := end - time.monotonic()) > 0:
        await asyncio.sleep(min(left, LOOK_SECONDS))
