"""What a report is made from: plain values, read from a run directory by `deeprec_ext.launch.records.story`.

Times are Unix seconds, durations seconds, sizes bytes. Texts (names of roles, errors, events, the command) come from the job
and are untrusted: whoever prints them escapes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from deeprec_ext.gazer.series import Line
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.units import format_scaling

ENDED, RUNNING, CRASHED = "ended", "running", "crashed"


@dataclass(frozen=True)
class Scaling:
    """One request for another size and what became of it."""

    kind: str  # scale-up, scale-down, rebalance, replace
    role: str  # ps, worker
    started: float  # 0: it never began
    seconds: float
    outcome: str  # committed, rolled_back, refused, not_begun; empty: unfinished
    reason: str = ""
    from_count: int = 0
    to_count: int = 0
    pause_seconds: tuple[float, ...] = ()  # one per worker that reported
    bytes_moved: int = 0
    bytes_resent: int = 0
    slots_moved: int = 0
    pause_cause: str = ""  # of the longest pause, with seconds
    cut_short: bool = False  # by the end of the job
    workers_from: int = 0  # of a change of PS that changes the workers as well; the same twice: it does not
    workers_to: int = 0
    requested_by: str = ""  # arbiter; empty: a user, the autoscaler

    @property
    def title(self) -> str:
        counts, workers = (self.from_count, self.to_count), (self.workers_from, self.workers_to)
        return format_scaling(self.kind, self.role, counts, workers)


AWAY = "scaled away"
"""By what a failure has `recovered` of which nobody waits for it any more: fewer were asked for."""


@dataclass(frozen=True)
class Failure:
    """A process that died or hung."""

    role: str  # ps-1
    cause: str  # begins with killed, hung, oom, exited or evicted
    died: float
    detected_seconds: float
    recovered_seconds: float | None
    recovered_by: str = ""  # promotion, holder, disk backup, checkpoint, AWAY; empty: a restart
    steps_lost: int = 0
    backup_age_seconds: float = 0.0
    stale_records: int = 0
    steps_missing: int = 0  # of the lost slots alone


@dataclass(frozen=True)
class Suspect:
    """One process said what cannot be, and was not believed about others until it had been replaced."""

    role: str  # worker-1; as far as it is known
    time: float  # of the first offence
    what: str
    offences: int  # at least: the 1st, 10th, 100th is told


@dataclass(frozen=True)
class Decision:
    """What the AIMaster decided by itself, and why."""

    time: float
    action: str
    reason: str
    outcome: str = ""
    before: float = 0.0  # examples per second as the model has it; 0: it says nothing
    predicted: float = 0.0  # after it
    number: int = 0  # as the autoscaler's record has it, from 0


@dataclass(frozen=True)
class Request:
    """What each process of a kind asks for, and is held to. 0: it shares what there is with others, or nothing is known."""

    cores: float = 0.0
    memory_bytes: float = 0.0


@dataclass(frozen=True)
class Table:
    """One variable on a slot; a part of a partitioned variable is one of its own."""

    name: str
    bytes: int
    rows: int
    by_rows: bool  # False: copied whole in the pause


@dataclass(frozen=True)
class Placement:
    """Who owned which slot from a moment on."""

    time: float
    owners: tuple[str, ...]  # [S] names of PS


@dataclass(frozen=True)
class Event:
    time: float
    type: str
    role: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """What it says in words, if it does."""
        said = str(self.fields.get("text") or self.fields.get("reason") or self.fields.get("error") or "")
        return f"{said}: {self.remedy}" if self.remedy else said

    @property
    def remedy(self) -> str:
        """Of a notice."""
        return str(self.fields.get("remedy") or "")


@dataclass(frozen=True)
class Traced:
    """One traced step of a trainer."""

    time: float
    role: str
    trace: pb.Trace


@dataclass(frozen=True)
class Log:
    """The end of what a role that failed has written."""

    role: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Story:
    """A run, from its command to its last sample. Everything but `job` may be missing."""

    job: str
    directory: str = ""
    state: str = ENDED
    status: str = ""  # succeeded, failed, stopped; empty: not ended in order
    reason: str = ""
    began: float = 0.0  # of this start of the launcher
    ended: float = 0.0  # while it runs: now; when it crashed: the last sign of life
    resumed: bool = False
    steps: int = 0
    examples: int = 0
    command: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)
    settings: tuple[tuple[str, str, str], ...] = ()  # name, value, default: those that differ
    starts: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # role -> started, of these restarted
    metrics: Mapping[str, float] = field(default_factory=dict)
    data: Mapping[str, Any] | None = None  # as in summary.json
    scalings: tuple[Scaling, ...] = ()
    failures: tuple[Failure, ...] = ()
    decisions: tuple[Decision, ...] = ()
    brought: str = ""  # by the decisions, in a sentence; empty: none has changed a size
    estimate: tuple[str, ...] = ()  # of its size before the start, and what came of it: sentences without a full stop
    events: tuple[Event, ...] = ()  # warnings, backups, starts and ends of processes
    lines: tuple[Line, ...] = ()
    traces: tuple[Traced, ...] = ()
    placements: tuple[Placement, ...] = ()  # oldest first
    tables: Mapping[int, tuple[Table, ...]] = field(default_factory=dict)  # slot -> largest first
    warnings: tuple[str, ...] = ()  # of the variable catalogue
    peer_backup: bool = False  # wanted, and somebody could keep them
    disk_backup: str = ""
    disk_backup_seconds: float = 0.0
    requests: Mapping[str, Request] = field(default_factory=dict)  # by kind of role
    missing: tuple[str, ...] = ()  # what could not be read, and why: said in the report
    logs: tuple[Log, ...] = ()

    @property
    def suspects(self) -> tuple[Suspect, ...]:
        """Oldest first. Each first offence is another process' or nobody's that is known."""
        found: list[Suspect] = []
        for event in self.events:
            if event.type != "suspect":
                continue
            offences = event.fields.get("offences")
            offences = offences if isinstance(offences, int) else 1
            same = [number for number, one in enumerate(found) if one.role == event.role]
            if offences > 1 and same:
                found[same[-1]] = replace(found[same[-1]], offences=offences)
            else:
                role = event.role or str(event.fields.get("certificate") or "") or "a process that is not known"
                found.append(Suspect(role, event.time, str(event.fields.get("what") or ""), offences))
        return tuple(found)

    def is_of_catalogue(self, event: Event) -> bool:
        """Whether it is a notice of what the catalogue warns of as well."""
        text = str(event.fields.get("text") or "")
        return event.type == "notice" and bool(text) and any(one.startswith(text) for one in self.warnings)

    @property
    def seconds(self) -> float:
        return max(0.0, self.ended - self.began)

    @property
    def in_step(self) -> bool:
        """A job without PS."""
        return self.limits.get("slots") == 0

    @property
    def slots(self) -> int:
        return len(self.placements[-1].owners) if self.placements else 0
