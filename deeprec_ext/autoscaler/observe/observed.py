"""What a decision is made from, and nothing else: plain values, recorded with each decision and replayed from there.

Times are seconds since the start of the job. Workers are counted as on the command line, beside the chief; whoever computes
throughput needs `Size.trainers`. A CPU or memory of 0 means: no request was made and none is known.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

from deeprec_ext.decoding import SHOWN, built
from deeprec_ext.errors import UsageError

VERSION = 1
"""Of the recorded form. Another major form is refused by name."""


@dataclass(frozen=True)
class Size:
    """Resources of a job: counts, and what each pod of a role requests."""

    ps: int
    workers: int
    ps_cpu: float = 0.0
    worker_cpu: float = 0.0
    ps_memory_bytes: int = 0
    worker_memory_bytes: int = 0

    @property
    def trainers(self) -> int:
        """Processes that train: the chief and the workers."""
        return self.workers + 1

    @property
    def cpu(self) -> float:
        """Cores requested by all pods."""
        return self.ps * self.ps_cpu + self.trainers * self.worker_cpu

    @property
    def memory_bytes(self) -> int:
        return self.ps * self.ps_memory_bytes + self.trainers * self.worker_memory_bytes


@dataclass(frozen=True)
class Limits:
    """Never to be left, whatever a model says. 0 for CPU and memory: no limit."""

    min_ps: int = 1
    max_ps: int = 1
    min_workers: int = 0
    max_workers: int = 0
    max_ps_cpu: float = 0.0
    max_worker_cpu: float = 0.0
    max_ps_memory_bytes: int = 0
    max_worker_memory_bytes: int = 0
    total_cpu: float = 0.0  # of all pods of the job (a quota)
    total_memory_bytes: int = 0
    resizable: bool = False  # the backend can give a role another CPU or memory (by replacing its pod, or in place)


@dataclass(frozen=True)
class Window:
    """Throughput over a stretch of time in which the size did not change."""

    start: float
    seconds: float
    size: Size
    examples_per_second: float
    examples_per_step: float = 0.0
    ps_busy_share: float = 0.0  # of the busiest PS
    input_wait_share: float = 0.0  # mean over trainers
    disturbed: bool = False  # a scaling, a failure or the start falls into it
    trainer_cpu_cores: float = 0.0  # used, mean over trainers; 0: not known
    ps_cpu_cores: float = 0.0  # used, sum over PS; 0: not known
    preparing: bool = False  # a trainer built sessions meanwhile: it may be faster without


@dataclass(frozen=True)
class RoleUse:
    """The recent use of one process, means over the last minute or so."""

    name: str
    cpu_cores: float = 0.0
    cpu_limit_cores: float = 0.0
    working_set_bytes: int = 0
    memory_limit_bytes: int = 0
    memory_slope_bytes_per_second: float = 0.0
    throttled_share: float = 0.0
    step_seconds: float = 0.0  # trainers: median
    step_seconds_lasting: float = 0.0  # trainers: median over the last five minutes or so; 0: not measured
    steps_per_second: float = 0.0
    input_wait_share: float = 0.0
    busy_share: float = 0.0  # PS
    age_seconds: float = 0.0  # since it began to work
    oom_kills: int = 0
    copies_bytes: int = 0  # trainers: complete copies of a single PS' variables, in the working set


@dataclass(frozen=True)
class SlotUse:
    slot: int
    owner: str  # ps-1
    bytes: int = 0
    load: float = 0.0  # seconds of look-ups and updates per second; 0: not measured


@dataclass(frozen=True)
class Change:
    """One scaling that has ended, of ours or by hand."""

    time: float
    kind: str  # scale-up, scale-down, rebalance, replace, resize
    role: str  # ps, worker
    from_count: int
    to_count: int
    outcome: str  # committed, rolled_back, refused
    seconds: float = 0.0
    pause_seconds: float = 0.0
    bytes_moved: int = 0
    manual: bool = False
    decision: int = -1  # number of the decision it came from


@dataclass(frozen=True)
class Loss:
    """A process that died."""

    time: float
    name: str
    cause: str  # begins with killed, hung, oom, exited, evicted, preempted
    memory_limit_bytes: int = 0


@dataclass(frozen=True)
class Progress:
    """How far the job is, in examples. 0: not known."""

    done: int = 0
    total: int = 0


@dataclass(frozen=True)
class Model:
    """Facts of the user's model, from the variable catalogue and traces."""

    table_bytes: int = 0
    dense_bytes: int = 0
    fields: int = 0
    batch_size: float = 0.0
    lookups_per_step: float = 0.0
    flops_per_example: float = 0.0
    largest_slot_bytes: int = 0


@dataclass(frozen=True)
class Observed:
    """Everything `decide` may know at one moment."""

    number: int  # of the decision to be made; 0: before the start
    time: float
    size: Size
    limits: Limits
    objective: str = "fastest"
    deadline_seconds: float = 0.0  # since the start of the job; for the objective `deadline`
    model: Model = field(default_factory=Model)
    windows: tuple[Window, ...] = ()
    roles: tuple[RoleUse, ...] = ()
    slots: tuple[SlotUse, ...] = ()
    changes: tuple[Change, ...] = ()
    losses: tuple[Loss, ...] = ()
    progress: Progress = field(default_factory=Progress)
    backups: bool = True  # peer backups: every variable is held twice
    copies_bytes: int = (
        0  # memory of the trainer that keeps the copies, beside its own, when there is one PS; 0: none does
    )
    hold: bool = False  # the user does not want to be decided for
    busy: bool = False  # a scaling is under way or queued
    reclaimed: tuple[str, ...] = ()  # roles whose node will be taken away
    start: str = ""  # decision 0: how the size was estimated; empty: it was given

    def to_json(self) -> str:
        """One line; equal values give equal bytes."""
        return json.dumps({"version": VERSION, **dataclasses.asdict(self)}, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Observed:
        """Raises UsageError for another version, or what is none."""
        try:
            values = json.loads(text)
        except ValueError as error:
            raise UsageError(f"this is no recorded observation ({error!r})") from None
        try:
            return cls.from_values(values)
        except (TypeError, ValueError) as error:
            raise UsageError(f"the observation is damaged ({error})") from None

    @classmethod
    def from_values(cls, values: Any) -> Observed:
        """The same, of what the JSON is. Raises TypeError, ValueError too: which field is what."""
        if not isinstance(values, dict) or "version" not in values:
            raise UsageError(f"this is no recorded observation ({values!r:.{SHOWN}})")
        version = values["version"]
        if version != VERSION:
            raise UsageError(f"the observation has version {version}, known is {VERSION}: use another deeprec-ext")
        fields = {name: value for name, value in values.items() if name != "version"}
        return built(cls, fields, "observation", measured=True)
