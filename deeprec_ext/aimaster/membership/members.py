"""Who takes part: names, their incarnations, their heartbeats and who has been silent for too long.

A name may come back with another incarnation; the old one is then *fenced*: remembered, its stream closed, whatever it
still says ignored. Durable facts are `RoleRecord`s in the store; heartbeats live in memory only.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from deeprec_ext.aimaster.core.clock import Clock
from deeprec_ext.aimaster.core.records import KINDS_KEY, KINDS_MAX, TRAINERS, RoleRecord
from deeprec_ext.aimaster.membership.allowance import Allowance
from deeprec_ext.aimaster.membership.commands import Outbox
from deeprec_ext.aimaster.membership.globalstep import GlobalStep
from deeprec_ext.aimaster.membership.plausible import EXAMPLES_PER_SECOND_MAX, Count
from deeprec_ext.aimaster.membership.progress import Progress
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.decoding import alike
from deeprec_ext.errors import StaleError
from deeprec_ext.options import Settings
from deeprec_ext.proto import deeprec_ext_pb2 as pb

OWN_END_SECONDS = 10.0
"""A process that outlives its script ends itself after `end_limit_seconds`. So long later somebody else does it: it is
stopped, or has no such timer."""

WORKING_PERCENT, WORKED_SECONDS = 20.0, 60.0
"""Of a core, in one interval between heartbeats: who has used so much within so long works on something."""

CPU_BEATS = 0.5
"""Of two heartbeats that come sooner, one at a step and one that is due, nobody knows how busy the time between them was."""

OF_EVERY_PROCESS = ("rss_bytes", "cpu_seconds", "crowd", "late_seconds", "epoch")
"""What a heartbeat tells of a process that does not train."""


@dataclass
class Member:
    """A registered incarnation; in memory."""

    name: str
    role: pb.Role
    incarnation: str
    address: str
    outbox: Outbox
    seen: float  # monotonic, of the last sign of life
    pod_pid: int = 0
    task: int = -1
    admitted: bool = False  # Register was answered: it takes part
    said_goodbye: bool = False  # Finished
    exit_code: int | None = None  # that it is going to have, as it said then
    error: str = ""  # with which its script has ended
    outstays: float | None = None  # monotonic: from when on its process should be gone
    stream_lost: float | None = None  # monotonic
    heartbeat: pb.Heartbeat = field(default_factory=pb.Heartbeat)
    heartbeat_at: float | None = None
    cpu_percent: float = 0.0
    allowance: Allowance = field(default_factory=Allowance)
    slowed: bool = False  # it has said more than is taken from one process, and that was told
    worked_at: float | None = None  # monotonic, of the last heartbeat that told of work
    began: float | None = None  # monotonic: a PS was admitted, a trainer had made a step; None: not yet
    stepped: float | None = None  # monotonic, of the last heartbeat that told of a step
    examples: Count = field(default_factory=lambda: Count(EXAMPLES_PER_SECOND_MAX))
    known_epoch: int = 0
    resident: frozenset[int] = frozenset()  # slots that a PS held whole when it registered
    ring: str = ""  # in a job without PS: where others reach it; empty: it cannot sum yet, or any more
    parted: bool = False  # it sums no more, for now
    returns: int = 0  # so often it has come back to sum
    host: str = ""
    machine: str = ""  # the same for all that run on one kernel
    machine_kind: str = ""  # as `gazer.host.machine` there tells; empty: not known
    pid_namespace: str = ""

    @property
    def place(self) -> str:
        """What ends with its machine: the kernel it runs on, where it told. A pod's host name is the pod's own."""
        return self.machine or self.host or self.name

    @property
    def is_trainer(self) -> bool:
        return self.role in TRAINERS

    def age_seconds(self, now: float) -> float:
        """Since it began to work, as far as this AIMaster has seen it; 0: it does not yet."""
        return max(0.0, now - self.began) if self.began is not None else 0.0

    def stepless_seconds(self, now: float) -> float:
        """Since a trainer made its last step; 0 where it has no session to make steps in."""
        return max(0.0, now - self.stepped) if self.stepped is not None and self.heartbeat.training else 0.0

    def is_busy(self, now: float) -> bool:
        """Whether it does something, be it no training. A chief that talks does: its disk may be slow, and it is believed."""
        if self.heartbeat_at is None or now - self.heartbeat_at > WORKED_SECONDS:
            return False
        return self.role == pb.CHIEF or (self.worked_at is not None and now - self.worked_at <= WORKED_SECONDS)


class Members:
    """The registry. `clock` is injected: tests move it by hand. `in_step`: all stand still for the slowest, so the silence of a
    trainer is that of a PS."""

    def __init__(self, store: Store, settings: Settings, clock: Clock, *, in_step: bool = False) -> None:
        self._store, self._settings, self._clock, self._in_step = store, settings, clock, in_step
        self.records: dict[str, RoleRecord] = {record.name: record for record in store.roles()}
        self._members: dict[str, Member] = {}
        self._step = GlobalStep(int(store.get("step", 0)))
        self.last_step = int(store.get("last_step", 0))
        self.doubted: Callable[[Member, str], None] = lambda member, what: None  # who counts what cannot be
        self._unsaved: dict[str, int] = {}  # incarnation -> examples
        self.progress = Progress()
        self.trained: set[str] = set()  # names that have made a step in this AIMaster's time
        self._goodbyes: dict[str, int | None] = store.get(
            "goodbyes", {}
        )  # incarnation -> exit code, of those there are

    # ------------------------------------------------------------------------------------------------ records

    def record(self, name: str) -> RoleRecord | None:
        return self.records.get(name)

    def save(self, record: RoleRecord) -> RoleRecord:
        self.records[record.name] = record
        self._store.save_role(record)
        return record

    def update(self, name: str, **changes: object) -> RoleRecord:
        return self.save(dataclasses.replace(self.records[name], **changes))  # type: ignore[arg-type]

    def request(self, name: str) -> RoleRecord:
        """A pod of this name is going to be asked for."""
        old = self.records.get(name)
        return self.save(RoleRecord(name, restarts=old.restarts if old else 0))

    def wanted(self, role: pb.Role) -> list[str]:
        """Names of the role that shall be there, in order of index."""
        records = [record for record in self.records.values() if record.role == role and record.wanted]
        return [record.name for record in sorted(records, key=lambda record: record.index)]

    # ------------------------------------------------------------------------------------------------ members

    def get(self, name: str) -> Member | None:
        return self._members.get(name)

    def by_incarnation(self, incarnation: str) -> Member | None:
        return next((member for member in self._members.values() if member.incarnation == incarnation), None)

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._members.values()))

    def trainers(self) -> dict[str, Member]:
        """Chief and workers that take part, by name. The evaluator never trains and is not among them."""
        return {m.name: m for m in self._members.values() if m.is_trainer and m.admitted and not m.said_goodbye}

    def ps(self) -> dict[int, Member]:
        """Admitted PS by task, be they of the view or not."""
        return {m.task: m for m in self._members.values() if m.role == pb.PS and m.admitted}

    @property
    def has_trained(self) -> bool:
        """Whether anybody has made a step, now or in the time of an AIMaster before this one."""
        return bool(self.trained) or self.highest_step > 0

    @property
    def are_training(self) -> bool:
        """Whether one that is there has made a step, or may have: some are still to come back to this AIMaster. Not where a run
        is resumed."""
        return self.one_has_trained or bool(self.missing_trainers())

    @property
    def one_has_trained(self) -> bool:
        """Whether one that is there has made a step, as this AIMaster has seen."""
        return any(one.began is not None for one in self.trainers().values())

    def missing_trainers(self) -> list[str]:
        """Those that took part when the last AIMaster died, and have not registered with this one."""
        roles = (pb.CHIEF, pb.WORKER)
        return [
            record.name for record in self.records.values()
            if record.role in roles and record.takes_part and record.name not in self._members
        ]  # fmt: skip

    def arrive(self, request: pb.RegisterRequest, name: str) -> Member:
        """Registers an incarnation; the same one again keeps what it has. Raises StaleError for a fenced one.

        The caller has made sure that there is a record of the name.
        """
        if self._store.is_fenced(request.incarnation):
            raise StaleError(f"{name} {request.incarnation[:8]} has been replaced and may not come back: end it")
        now, record = self._clock.monotonic(), self.records[name]
        old = self._members.get(name)
        if old is not None and old.incarnation == request.incarnation:
            old.seen, old.address, old.known_epoch = now, request.address, request.known_epoch
            old.resident = frozenset(request.resident_slots)
            return old
        if old is not None:
            self.drop(name, "replaced by a new incarnation")
        elif record.incarnation and record.incarnation != request.incarnation:
            self._store.fence(record.incarnation, name)
        known = record.incarnation == request.incarnation
        member = Member(
            name=name, role=request.role, incarnation=request.incarnation, address=request.address,
            outbox=Outbox(name), seen=now, pod_pid=record.pod_pid, task=record.task if known else -1,
            known_epoch=request.known_epoch, resident=frozenset(request.resident_slots), host=request.host,
            machine=request.machine, machine_kind=request.machine_kind, pid_namespace=request.pid_namespace,
            admitted=known and record.takes_part,
        )  # fmt: skip
        self._members[name] = member
        if request.role != pb.EVALUATOR:
            self._note_kind(request.machine_kind)
        state = record.state if known and not record.ended else "starting" if record.wanted else "leaving"
        changed = dataclasses.replace(
            record, state=state, incarnation=request.incarnation, address=request.address, pid=request.pid,
            task=member.task,
        )  # fmt: skip
        self.save(changed)
        return member

    def _note_kind(self, kind: str) -> None:
        """Of the machines on which the model is held and trained, for the history of jobs."""
        kinds = self._store.get(KINDS_KEY, [])
        if kind not in kinds and len(kinds) < KINDS_MAX:
            self._store.put(**{KINDS_KEY: [*kinds, kind]})

    def admit(self, member: Member) -> None:
        member.admitted = True
        member.seen = self._clock.monotonic()
        if member.role == pb.PS and member.began is None:
            member.began = member.seen
        record = self.records[member.name]
        if record.state != "running" or record.task != member.task:
            self.update(member.name, state="running" if record.wanted else "leaving", task=member.task)

    def drop(self, name: str, reason: str) -> Member | None:
        """The incarnation that holds the name is over: fenced, and whoever waits for it is told."""
        member = self._members.pop(name, None)
        if member is not None:
            self._store.fence(member.incarnation, name)
            member.outbox.close(reason)
        return member

    # ------------------------------------------------------------------------------------------------ heartbeats

    def sign_of_life(self, member: Member) -> None:
        member.seen = self._clock.monotonic()

    def beat(self, member: Member, heartbeat: pb.Heartbeat) -> None:
        now = self._clock.monotonic()
        if member.heartbeat_at is not None and now - member.heartbeat_at > CPU_BEATS * self._settings.heartbeat_seconds:
            used = heartbeat.cpu_seconds - member.heartbeat.cpu_seconds
            member.cpu_percent = max(0.0, 100 * used / (now - member.heartbeat_at))
            if member.cpu_percent >= WORKING_PERCENT:
                member.worked_at = now
        member.seen = member.heartbeat_at = now
        if member.role == pb.PS:
            heartbeat = self._of_ps(member, heartbeat)
        before, member.heartbeat = member.heartbeat, heartbeat
        if heartbeat.training:
            self.trained.add(member.name)
            if member.began is None:
                member.began = now
            if not before.training or (heartbeat.step, heartbeat.examples) != (before.step, before.examples):
                member.stepped = now
        if member.is_trainer:
            if heartbeat.step:
                self.reached(heartbeat.step, member)
            self.progress.note(now, self.step)
            if heartbeat.last_step and (member.role == pb.CHIEF or not self.last_step):
                self.last_step = heartbeat.last_step
        if heartbeat.examples and member.role != pb.EVALUATOR:
            if member.examples.believes(heartbeat.examples, now):
                self._unsaved[member.incarnation] = heartbeat.examples
            else:
                self.doubted(member, f"heartbeat.examples is {heartbeat.examples}, more than it can have trained")

    def _of_ps(self, member: Member, told: pb.Heartbeat) -> pb.Heartbeat:
        """It makes no steps: what it says of them counts nowhere, and is told."""
        good = pb.Heartbeat(**{name: getattr(told, name) for name in OF_EVERY_PROCESS})
        if good != told:
            names = sorted(field.name for field, _ in told.ListFields() if field.name not in OF_EVERY_PROCESS)
            self.doubted(member, f"a PS makes no steps, and tells heartbeat.{', heartbeat.'.join(names)}")
        return good

    def silent(self, share: float = 1.0, least: float = 0.0) -> list[tuple[Member, float, float]]:
        """Members that were silent for longer than this share of their limit, and than the least number of seconds, with the
        seconds of silence and the limit."""
        now = self._clock.monotonic()
        late = []
        for member in self._members.values():
            settings = self._settings
            short = self.is_short(member)
            limit = settings.ps_heartbeat_limit_seconds if short else settings.worker_heartbeat_limit_seconds
            if member.admitted and not member.said_goodbye and now - member.seen > max(least, share * limit):
                late.append((member, now - member.seen, limit))
        return late

    def is_short(self, member: Member) -> bool:
        """Whether others stand still while it is silent."""
        return member.role == pb.PS or (self._in_step and member.is_trainer)

    def goodbye(self, member: Member, exit_code: int | None) -> None:
        """Its script has ended; None: nobody knows with which exit code."""
        member.said_goodbye, member.exit_code = True, exit_code
        if member.outstays is None:
            member.outstays = self._clock.monotonic() + self._settings.end_limit_seconds + OWN_END_SECONDS
        there = {record.incarnation for record in self.records.values()}
        self._goodbyes = {one: code for one, code in self._goodbyes.items() if one in there}
        self._goodbyes[member.incarnation] = exit_code
        self._store.put(goodbyes=self._goodbyes)

    def recall_goodbyes(self) -> None:
        """The AIMaster before this one heard that these scripts have ended: they do not register again, and are not missed."""
        for record in self.records.values():
            if record.incarnation in self._goodbyes and record.takes_part and record.name not in self._members:
                outbox = Outbox(record.name)
                member = alike(Member, record, outbox=outbox, seen=self._clock.monotonic(), admitted=True)
                self._members[record.name] = member
                self.goodbye(member, self._goodbyes[record.incarnation])

    def outstaying(self) -> list[Member]:
        """Whose process should be gone and is not; each once."""
        now = self._clock.monotonic()
        late = [one for one in self._members.values() if one.outstays is not None and now > one.outstays]
        for member in late:
            member.outstays = math.inf
        return late

    def forgive(self, seconds: float) -> None:
        """The AIMaster itself stood still for so long: nobody is late because of that."""
        for member in self._members.values():
            member.seen += seconds
            if member.outstays is not None:
                member.outstays += seconds
            if member.stepped is not None:
                member.stepped += seconds

    def flush(self) -> None:
        """Writes what heartbeats told since the last time, in one transaction."""
        unsaved, self._unsaved = self._unsaved, {}
        with self._store.transaction():
            self._store.save_totals(unsaved.items())
            steps = {"step": self.highest_step, "present_step": self.step, "last_step": self.last_step}
            if any(self._store.get(name, 0) != step for name, step in steps.items()):
                self._store.put(**steps)

    @property
    def step(self) -> int:
        """The highest step that a trainer reported since the model was live; before one did, the highest ever."""
        return self._step.value

    @property
    def highest_step(self) -> int:
        return self._step.highest

    def reached(self, step: int, member: Member) -> bool:
        """A trainer has seen this step; whether that can be."""
        believed, doubts = self._step.hear(member.name, step, self._clock.monotonic(), chief=member.role == pb.CHIEF)
        for name, what in doubts:
            if (doubted := self._members.get(name)) is not None:
                self.doubted(doubted, what)
        return believed

    def restored(self, step: int) -> None:
        """The model is live from this step, which may be before what was reached."""
        self._step.restored(step, self._clock.monotonic())
        self.progress.restored()
