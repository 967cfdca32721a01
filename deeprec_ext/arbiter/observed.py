"""What the arbiter decides from, and nothing else: plain values, recorded with each decision and replayed from there.

Who observes (the operator's leader, the launcher that leads a pool, the simulator) says every value. Counts of workers are the
AIMaster's: beside the chief. Times are seconds since the epoch; ages and durations are seconds. What a job may have at least
and at most, its priority and what its pods request come from who looks after it, never from its AIMaster; the AIMaster says in
its `Bid` what a size would be worth, and is believed only within these bounds.
"""

from __future__ import annotations

from dataclasses import dataclass

WORTH_MAX = 64
"""Sizes of one bid."""


@dataclass(frozen=True)
class Amount:
    """Of an extended resource."""

    name: str  # "nvidia.com/gpu"
    count: float


@dataclass(frozen=True)
class Resources:
    """Of a pod (requested), of a node (free) or of a quota (free)."""

    cpu: float = 0.0  # cores
    memory_bytes: int = 0
    others: tuple[Amount, ...] = ()


@dataclass(frozen=True)
class Count:
    """A size. Without PS `ps` is 0; workers beside the chief."""

    ps: int
    workers: int


@dataclass(frozen=True)
class Worth:
    """What one size does, by the job's throughput model; measured where it was."""

    ps: int
    workers: int
    examples_per_second: float


@dataclass(frozen=True)
class Bid:
    """What an AIMaster publishes about its job."""

    time: float
    size: Count  # that it has: processes that are wanted
    wanted: Count  # that it would have if nobody else were there
    worth: tuple[Worth, ...]  # of at most WORTH_MAX sizes between least and most; empty: no model yet
    left: float = 0.0  # examples still to be trained; 0: not known
    change_seconds: float = 0.0  # that a change of its size takes
    pause_seconds: float = 0.0  # of it, in which nobody trains
    training: bool = False
    busy: bool = False  # a scaling is under way


@dataclass(frozen=True)
class Allowance:
    """What a job may have. `runs` False: nothing, it waits (or is to give back everything, for `why`)."""

    job: str
    runs: bool
    ps: int
    workers: int
    since: float  # when it became this; of a job that has waited since it is there: its arrival
    why: str  # one sentence with its figures, for people
    last_until: float = 0.0  # until then it is the last to be given more: it left to others what it had not taken


@dataclass(frozen=True)
class Placed:
    """A pod of an elastic job that has a node."""

    role: str  # "ps", "worker", "chief", "other"
    node: str


@dataclass(frozen=True)
class Pods:
    """What each pod of a job requests. `other`: everything that does not scale together (AIMaster, evaluator)."""

    chief: Resources
    ps: Resources
    worker: Resources
    other: Resources


@dataclass(frozen=True)
class Job:
    name: str  # "namespace/name"; in a pool the run directory
    priority: int  # the value of its PriorityClass; higher goes first
    weight: float  # its share among those of one priority
    least: Count
    most: Count
    pods: Pods
    placed: tuple[Placed, ...]  # of each role in the order of their indices: the last one is taken to leave first
    queue: str  # whose quota counts for it; empty: none
    arrived: float  # since when it is there (or has waited, after it was stopped)
    started: bool  # its chief has run
    strict: bool  # all of `bid.wanted` (before a bid: of `written`) or nothing
    written: Count  # as its user wrote it
    allowance: Allowance | None  # the last that it was given
    bid: Bid | None  # None: its AIMaster has said nothing (yet)
    silent_seconds: float  # since its AIMaster was last heard
    deadline: float = 0.0  # by when its user wants it ended, seconds since the epoch; 0: none
    admitted: bool = False  # by a gang scheduler, which counts on its least: it is never stopped


@dataclass(frozen=True)
class Node:
    name: str
    free: Resources  # allocatable, without pods of others than the jobs above
    price: float = 0.0  # of an hour; 0: not known
    spot: bool = False
    pods: int = 0  # that it may hold besides those of others; 0: not known


@dataclass(frozen=True)
class Waiting:
    """A pod of somebody else that has no node for want of room."""

    name: str
    priority: int
    resources: Resources
    since: float
    nodes: tuple[str, ...] = ()  # to which it may go; empty: all


@dataclass(frozen=True)
class Quota:
    """What all jobs of one queue together may request."""

    name: str
    free: Resources  # hard limit, without pods of others than the jobs above; a resource not limited is absent: see `limits`
    limits: tuple[str, ...]  # which resources are limited: "cpu", "memory", names of others


@dataclass(frozen=True)
class Cluster:
    time: float
    nodes: tuple[Node, ...]
    waiting: tuple[Waiting, ...]
    quotas: tuple[Quota, ...]
    jobs: tuple[Job, ...]


@dataclass(frozen=True)
class Decision:
    """One for each job of the observation, in its order. `changed`: names of those whose allowance is another than before."""

    time: float
    allowances: tuple[Allowance, ...]
    changed: tuple[str, ...]
    used_share: float  # of the cores that are there for elastic jobs, when all have what they are allowed
