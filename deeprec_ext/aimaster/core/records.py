"""Names and immutable records that the other modules of the AIMaster share."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass

from deeprec_ext.decoding import alike, built
from deeprec_ext.errors import UsageError
from deeprec_ext.options import JobSpec
from deeprec_ext.proto import deeprec_ext_pb2 as pb

ROLE_NAMES: dict[str, pb.Role] = {"ps": pb.PS, "chief": pb.CHIEF, "worker": pb.WORKER, "evaluator": pb.EVALUATOR}
TRAINERS = (pb.CHIEF, pb.WORKER)

KINDS_KEY, KINDS_MAX = "machine_kinds", 20
"""Of the store: of which kinds the machines were that PS and trainers have registered from; the first so many."""


def role_name(role: pb.Role, index: int) -> str:
    """`(PS, 2)` → `ps-2`."""
    prefix = next((name for name, value in ROLE_NAMES.items() if value == role), None)
    if prefix is None or index < 0:
        raise UsageError(f"role {role} with index {index} is none of {', '.join(ROLE_NAMES)}")
    return f"{prefix}-{index}"


def parse_name(name: str) -> tuple[pb.Role, int]:
    """`ps-2` → `(PS, 2)`. Raises UsageError."""
    match = re.fullmatch(r"(ps|chief|worker|evaluator)-(\d{1,6})", name)
    if not match:
        raise UsageError(f"{name!r} is no role of a job; write for example ps-1 or worker-0")
    return ROLE_NAMES[match[1]], int(match[2])


def _of_role(names: tuple[str, ...], role: pb.Role) -> tuple[str, ...]:
    return tuple(name for name in names if parse_name(name)[0] == role)


@dataclass(frozen=True)
class Requests:
    """CPU (cores) and memory (bytes) that each pod of a role requests; 0: no request."""

    ps_cpu: float = 0.0
    worker_cpu: float = 0.0
    ps_memory_bytes: int = 0
    worker_memory_bytes: int = 0

    @classmethod
    def of(cls, spec: JobSpec) -> Requests:
        return cls(spec.ps_cpu, spec.worker_cpu, spec.ps_memory_bytes, spec.worker_memory_bytes)


@dataclass(frozen=True)
class PsInfo:
    """One parameter server of a view."""

    task: int
    name: str
    address: str
    incarnation: str

    def to_proto(self) -> pb.PsMember:
        return pb.PsMember(task=self.task, name=self.name, address=self.address, incarnation=self.incarnation)


@dataclass(frozen=True)
class RoleRecord:
    """The durable part of what is known about a name."""

    name: str
    state: str = "requested"  # requested, starting, running, leaving, exited, failed
    incarnation: str = ""
    task: int = -1
    address: str = ""
    pid: int = 0  # of the process that registered
    pod_pid: int = 0  # of the process that the backend started
    restarts: int = 0
    wanted: bool = True  # False once it was told to leave, or its pod deleted

    @property
    def role(self) -> pb.Role:
        return parse_name(self.name)[0]

    @property
    def index(self) -> int:
        return parse_name(self.name)[1]

    @property
    def takes_part(self) -> bool:
        """It has registered and been admitted, and is not known to be gone."""
        return self.state in ("running", "leaving")

    @property
    def ended(self) -> bool:
        return self.state in ("exited", "failed")


GIVEN_UP = "given-up"
"""Kind of a scaling that was none: a worker's restarts were used up, and the job goes on without it."""

ARBITER = "arbiter"
"""Of a cluster or a pool: who has asked for a scaling (`Scaling.requested_by`) that is neither a user's nor a decision's."""


@dataclass(frozen=True)
class Scaling:
    """One request and what became of it; kept for ever, the source of status and summary."""

    id: int
    kind: str  # scale-up, scale-down, rebalance, replace, resize, given-up
    role: str  # ps, worker
    want: int = -1  # wanted count; -1 for rebalance and replace
    replace: str = ""
    asked_reason: str = ""
    from_count: int = 0
    to_count: int = 0
    workers_from: int = 0  # a change of PS that changes the workers in the same commit; the same count: it does not
    workers_to: int = 0
    state: str = "STEADY"  # of the machine; STEADY with no outcome: queued
    detail: str = "queued"
    outcome: str = ""
    reason: str = ""
    epoch: int = 0
    added: tuple[str, ...] = ()
    drained: tuple[str, ...] = ()
    old_map: tuple[int, ...] = ()
    new_map: tuple[int, ...] = ()
    targets: tuple[PsInfo, ...] = ()  # the PS of the new view
    old_ps: tuple[PsInfo, ...] = ()  # and of the old one; unknown where the store was lost
    marked: bool = False  # Mark was, or may have been, sent
    armed: bool = False  # Copy was, or may have been, sent
    bytes_moved: int = 0
    bytes_resent: int = 0
    slots_moved: int = 0
    pause_seconds: tuple[float, ...] = ()  # of the workers that told it; of many, a sample with the longest
    pauses_heard: int = 0
    pause_cause: str = ""  # of the longest
    gate_waits: int = 0
    started: float = 0.0  # Unix seconds
    seconds: float = 0.0
    decision: int = -1  # number of the autoscaler's decision it comes from; -1: somebody asked for it
    weights: tuple[float, ...] = ()  # rebalance: load per slot to balance by; empty: bytes
    requested_by: str = ""  # ARBITER; empty: a user, or `decision`

    @property
    def both(self) -> bool:
        """It changes PS and workers together: `role`, `kind` and the counts are those of the PS."""
        return self.workers_from != self.workers_to

    def changes(self, role: pb.Role) -> bool:
        """Whether processes of this role may come or go by it."""
        return ROLE_NAMES[self.role] == role or (self.both and role == pb.WORKER)

    @property
    def grows(self) -> dict[str, int]:
        """Role → count, of those that become more."""
        counts = {self.role: (self.from_count, self.to_count)}
        if self.both:
            counts["worker"] = self.workers_from, self.workers_to
        return {role: after for role, (before, after) in counts.items() if after > before}

    @property
    def added_ps(self) -> tuple[str, ...]:
        return _of_role(self.added, pb.PS)

    @property
    def drained_ps(self) -> tuple[str, ...]:
        return _of_role(self.drained, pb.PS)

    @property
    def joining(self) -> tuple[str, ...]:
        """Workers that begin with the view that a change of PS ends with."""
        return _of_role(self.added, pb.WORKER) if self.role == "ps" else ()

    @property
    def leaving_workers(self) -> tuple[str, ...]:
        return _of_role(self.drained, pb.WORKER)

    @property
    def returning(self) -> bool:
        """A PS that was lost and promoted away is back, and gets slots again: it stays, whatever becomes of this."""
        return self.kind == "replace" and not self.replace

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @property
    def asked(self) -> bool:
        """A user asked for it: it is neither of a decision, nor the arbiter's, nor what a loss has made of the job."""
        return self.decision < 0 and not self.returning and self.kind != GIVEN_UP and not self.requested_by

    @staticmethod
    def from_json(text: str) -> Scaling:
        return built(Scaling, json.loads(text))

    def to_proto(self) -> pb.ScalingStatus:
        return alike(pb.ScalingStatus, self)


AWAY = "scaled away"
"""By what a failure has `recovered` of which nobody waits for it any more: somebody has asked for fewer workers since."""


@dataclass(frozen=True)
class Failure:
    """Something died or hung; the times are Unix seconds, the durations as summary.json defines them."""

    id: int
    name: str
    cause: str
    died: float
    detected_seconds: float
    recovered_seconds: float | None = None
    steps_lost: int = 0  # by which the model went back as a whole
    recovered_by: str = ""  # promotion, holder, disk backup, checkpoint; AWAY; empty: a restart
    backup_age_seconds: float = 0.0  # promotion, holder: updates of the lost slots since then are forgotten
    stale_records: int = 0  # promotion, holder: records acknowledged since then
    steps_missing: int = 0  # promotion, holder: global steps made since then
    pause_seconds: tuple[float, ...] = ()  # of a PS: how long trainers stood still, the longest first
    memory_limit_bytes: int = 0  # that it had: of its container, else as requested; 0: none
