"""What a decision is made from, and nothing else: plain values, recorded with each decision and replayed from there.

Times are seconds since the start of the job. Workers are counted as on the command line, beside the chief; whoever computes
throughput needs `Size.trainers`. A CPU or memory of 0 means: no request was made and none is known.

What is measured has no default: who observes (`building.py`, for a job and a simulated one) says every value, and a field
that nobody fills is an error at once. `ABSENT` is for records alone: what one says that was written before a field was.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from deeprec_ext.decoding import SHOWN, built
from deeprec_ext.errors import UsageError

LEVEL = 0.3
"""Share of the host's cores, of one level of the load of others: twice what makes another load."""

VERSION, READABLE = 2, (1, 2)
"""Of the recorded form; another one is refused by name. 1: fields had defaults, `ABSENT` by now."""


@dataclass(frozen=True)
class Size:
    """Resources of a job: counts, and what each pod of a role requests. Without PS there are 0."""

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

    @property
    def sums(self) -> bool:
        """Whether the job has no PS, nor ever will: its workers sum what they have, step by step."""
        return self.max_ps == 0

    @property
    def least_ps(self) -> int:
        return 0 if self.sums else max(1, self.min_ps)


@dataclass(frozen=True)
class Window:
    """Throughput over a stretch of time in which the size did not change and nothing disturbed it."""

    ABSENT: ClassVar[Mapping[str, Any]] = {
        "examples_per_step": 0.0, "ps_busy_share": 0.0, "input_wait_share": 0.0, "trainer_cpu_cores": 0.0,
        "ps_cpu_cores": 0.0, "ps_cpu_most_cores": 0.0, "preparing": False, "host_cores": 0.0, "others_cores": 0.0,
        "own_seconds": 0.0, "sum_seconds": 0.0,
    }  # fmt: skip
    GONE: ClassVar[tuple[str, ...]] = ("disturbed",)

    start: float
    seconds: float
    size: Size
    examples_per_second: float
    examples_per_step: float  # of one trainer; 0: not known
    ps_busy_share: float  # of the busiest PS; 0: not measured
    input_wait_share: float  # mean over trainers
    trainer_cpu_cores: float  # used, mean over trainers; 0: not known
    ps_cpu_cores: float  # used, sum over PS; 0: not known
    ps_cpu_most_cores: float  # used by the busiest PS; 0: not known
    preparing: bool  # a trainer built sessions meanwhile: it may be faster without
    host_cores: float  # of the one host that all PS and trainers ran on; 0: they had several, or it is not known
    others_cores: float  # of these, used by others
    own_seconds: float  # without PS: of a step, the slowest worker's without its sum; 0: not known
    sum_seconds: float  # without PS: of a step, the shortest sum of any worker: the ring's own time

    @property
    def level(self) -> int:
        """Of the load of others, coarsely: what a size did under one says nothing of another, so windows of each are kept."""
        share = self.others_cores / self.host_cores if self.host_cores > 0 else 0.0
        return round(min(max(share, 0.0), 1.0) / LEVEL) if math.isfinite(share) else 0


@dataclass(frozen=True)
class RoleUse:
    """The recent use of one process, means over the last minute or so."""

    ABSENT: ClassVar[Mapping[str, Any]] = {
        "cpu_cores": 0.0, "cpu_limit_cores": 0.0, "working_set_bytes": 0, "memory_limit_bytes": 0,
        "memory_slope_bytes_per_second": 0.0, "throttled_share": 0.0, "step_seconds": 0.0, "step_seconds_lasting": 0.0,
        "steps_per_second": 0.0, "stepless_seconds": 0.0, "input_wait_share": 0.0, "busy_share": 0.0, "age_seconds": 0.0,
        "copies_bytes": 0, "sum_seconds": 0.0,
    }  # fmt: skip
    GONE: ClassVar[tuple[str, ...]] = ("oom_kills",)

    name: str
    cpu_cores: float
    cpu_limit_cores: float  # 0: none
    working_set_bytes: int
    memory_limit_bytes: int  # 0: none
    memory_slope_bytes_per_second: float
    throttled_share: float
    step_seconds: float  # trainers: median
    step_seconds_lasting: float  # trainers: `own_seconds` over the last five minutes; 0: not measured for long enough
    steps_per_second: float  # trainers
    stepless_seconds: float  # trainers: since the last step
    input_wait_share: float  # trainers
    busy_share: float  # PS; 0: not measured
    age_seconds: float  # since it began to work: a PS to serve, a trainer to make steps; 0: it does not yet
    copies_bytes: int  # trainers: complete copies of a single PS' variables, in the working set
    sum_seconds: float  # workers without PS: of a step, spent in sums with the others, who may be waited for

    @property
    def own_seconds(self) -> float:
        """Of a step, what nobody else is waited for in: without PS all workers' steps take the same."""
        return max(0.0, self.step_seconds - self.sum_seconds)


@dataclass(frozen=True)
class Host:
    """A machine that processes of the job run on, over the last seconds."""

    ABSENT: ClassVar[Mapping[str, Any]] = {"free_memory_bytes": 0}

    name: str  # host-0, in the order in which they were seen first
    cores: float  # that the job's processes there may use together: processors, or a lower quota
    job_cores: float  # used by PS and trainers
    others_cores: float  # used by everybody else
    ps: int
    trainers: int
    free_memory_bytes: int  # that processes to come may take; 0: not known

    @property
    def free_cores(self) -> float:
        """What others leave to PS and trainers."""
        return max(0.0, self.cores - self.others_cores)


@dataclass(frozen=True)
class SlotUse:
    ABSENT: ClassVar[Mapping[str, Any]] = {"bytes": 0, "load": 0.0}

    slot: int
    owner: str  # ps-1
    bytes: int
    load: float  # seconds of look-ups and updates per second; 0: not measured


@dataclass(frozen=True)
class Change:
    """One scaling that has ended, of ours or by hand."""

    ABSENT: ClassVar[Mapping[str, Any]] = {
        "seconds": 0.0, "pause_seconds": 0.0, "bytes_moved": 0, "manual": False, "decision": -1,
        "foretold": 0.0, "arbiter": False,
    }  # fmt: skip

    time: float
    kind: str  # scale-up, scale-down, rebalance, replace, resize, given-up
    role: str  # ps, worker
    from_count: int
    to_count: int
    outcome: str  # committed, rolled_back, refused
    seconds: float
    pause_seconds: float
    bytes_moved: int
    manual: bool
    decision: int  # number of the decision it came from; -1: of none
    foretold: float  # examples per second that the decision predicted; 0: none
    arbiter: bool  # the cluster's, or the pool's, has asked for it: nobody thought it better for this job


@dataclass(frozen=True)
class Loss:
    """A process that died."""

    ABSENT: ClassVar[Mapping[str, Any]] = {"memory_limit_bytes": 0}

    time: float
    name: str
    cause: str  # begins with killed, hung, oom, exited, evicted, preempted
    memory_limit_bytes: int  # that it had; 0: none


@dataclass(frozen=True)
class Progress:
    """How far the job is, in examples. 0: not known."""

    ABSENT: ClassVar[Mapping[str, Any]] = {"done": 0, "total": 0}

    done: int
    total: int


@dataclass(frozen=True)
class Model:
    """Facts of the user's model, from the variable catalogue and traces. 0: not known."""

    ABSENT: ClassVar[Mapping[str, Any]] = {
        "table_bytes": 0, "dense_bytes": 0, "fields": 0, "batch_size": 0.0, "lookups_per_step": 0.0,
        "flops_per_example": 0.0, "largest_slot_bytes": 0, "variables": 0, "row_bytes": 0.0, "optimizer_slots": 0.0,
    }  # fmt: skip

    table_bytes: int
    dense_bytes: int
    fields: int
    batch_size: float
    lookups_per_step: float
    flops_per_example: float
    largest_slot_bytes: int
    variables: int  # that are trained; parts of one are one
    row_bytes: float  # mean over the rows of tables, optimizer slots included
    optimizer_slots: float  # their bytes ÷ those of the variables that are trained

    @classmethod
    def unknown(cls) -> Model:
        """Of a job of which nobody knows anything."""
        return cls(**cls.ABSENT)


@dataclass(frozen=True)
class Stood:
    """A stretch in which nobody trained: the job was stopped, and begun again. Seconds since its start."""

    start: float
    end: float


@dataclass(frozen=True)
class Observed:
    """Everything `decide` may know at one moment."""

    ABSENT: ClassVar[Mapping[str, Any]] = {
        "objective": "fastest", "deadline_seconds": 0.0, "model": Model.unknown(), "windows": (), "roles": (), "hosts": (),
        "one_host": False, "slots": (), "changes": (), "losses": (), "progress": Progress(0, 0), "backups": True,
        "copies_bytes": 0, "hold": False, "busy": False, "reclaimed": (), "start": "", "first": None,
        "stood": (), "local_batch": False,
    }  # fmt: skip

    number: int  # of the decision to be made; 0: before the start
    time: float
    size: Size
    limits: Limits
    objective: str
    deadline_seconds: float  # since the start of the job; for the objective `deadline`
    model: Model
    windows: tuple[Window, ...]
    roles: tuple[RoleUse, ...]
    hosts: tuple[Host, ...]  # empty: not known
    one_host: bool  # processes to come run on the host of the others; else on one that has room
    slots: tuple[SlotUse, ...]
    changes: tuple[Change, ...]
    losses: tuple[Loss, ...]
    progress: Progress
    backups: bool  # peer backups: every variable is held twice
    copies_bytes: int  # memory of the trainer that keeps the copies, beside its own, when there is one PS; 0: none does
    hold: bool  # the user does not want to be decided for
    busy: bool  # a scaling is under way or queued
    reclaimed: tuple[str, ...]  # roles whose host will be taken away
    start: str  # decision 0: how the size was estimated; empty: it was given
    first: Size | None  # with which the job began; None: not known
    stood: tuple[Stood, ...]  # oldest first
    local_batch: bool  # without PS: each worker has a batch of its own, else its part of that of a step

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
        if version not in READABLE:
            known = " and ".join(map(str, READABLE))
            raise UsageError(f"the observation has version {version}, known are {known}: use another deeprec-ext")
        fields = {name: value for name, value in values.items() if name != "version"}
        return built(cls, fields, "observation", measured=True)
