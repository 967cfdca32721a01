"""What graph passes may know, and what rewriting a graph yields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tensorflow.core.framework.graph_pb2 import GraphDef


@dataclass(frozen=True)
class Context:
    """Everything a pass may depend on; equal contexts and graphs give equal results."""

    slot_map: tuple[int, ...] | None
    """slot -> task number of the PS that owns it; None: a session on the spot (target ''), without a cluster."""

    tracked: Mapping[str, str] = field(default_factory=dict)
    """name of a variable on the PS (its shared name) -> name of the bitmap in which writes to it are marked."""

    swaps: int = 0
    """Number of the session, which is mixed into the seeds of random ops; 0: they draw as the graph says."""

    dedup: str = "auto"
    """Look up unique ids only: auto (where it pays), on (wherever it can), off."""

    pack: str = "off"
    """What crosses together is one message: auto (where it pays), on (wherever it can), off; see `packing`."""

    optimise: str = "auto"
    """TensorFlow's graph optimiser: auto (once for each run that recurs, for all views), off (in each session)."""

    cut: str = "auto"
    """Cut variables over slots: auto (large ones), on (whatever has rows to cut), off."""

    lazy: str = "off"
    """Optimizers write the rows of a batch alone: on, off."""

    rate: str = "none"
    """How the learning rate follows the number of trainers (`rate_scaling`); none: updates are as the script has them."""

    cut_by_chief: frozenset[str] | None = None
    """Those that the chief has cut, and into how many parts: these and no others; None: it has not said."""

    cut_before: dict[str, int] = field(default_factory=dict)
    """What sessions of this process have decided before, of any graph: they add to it."""

    worker_device: str = ""
    """The device of this process in the cluster, e.g. /job:worker/task:1."""

    resource_scope: str = ""
    """Put before shared names (iterators, queues, tables): tells two graphs of a process apart. Must not change with a swap."""


@dataclass(frozen=True)
class Report:
    """What one pass did to one graph; shown by `deeprec-ext graph`."""

    name: str
    changed: int
    """How many nodes (or devices, for the placement) it changed or added; 0 when it found nothing to do."""
    detail: str
    seconds: float


@dataclass
class Rewritten:
    """A rewritten copy of a graph and what its user must know about it."""

    definition: GraphDef
    drops: list[str]
    """Ops that destroy the named iterators; to be run before the session that made them is closed."""
    initializers: list[str]
    """Ops to run once per process, before the first step (converted one-shot iterators)."""
    marks: dict[str, list[str]]
    """write op -> its mark ops; to be run as well where the write itself is a target or fetched."""
    reports: list[Report]
