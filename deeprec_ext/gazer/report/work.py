"""What traced steps tell: the heaviest ops, the transfers between processes, the tables behind a slot's load."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from deeprec_ext.gazer.report.lines import Windows, natural
from deeprec_ext.gazer.report.story import Table, Traced

TRAINERS = "trainers"


@dataclass(frozen=True)
class Op:
    """One node of the user's graph, per traced step. What runs on trainers is one op, whoever ran it."""

    name: str
    type: str
    role: str  # ps-1, or TRAINERS
    slot: int  # -1: none
    seconds: float


@dataclass(frozen=True)
class Transfer:
    """Tensors from one process to another, per traced step of the trainer among them."""

    source: str
    target: str
    bytes: float
    tensors: float
    seconds: float


def within(traces: Iterable[Traced], windows: Windows) -> list[Traced]:
    return [one for one in traces if any(start <= one.time <= end for start, end in windows)]


def is_trainer(role: str) -> bool:
    return role.startswith(("chief-", "worker-"))


def heaviest(traces: Sequence[Traced]) -> list[Op]:
    """Heaviest first. A trace has its heaviest ops only: in those where an op is missing it counts as 0."""
    seconds: dict[tuple[str, str, str, int], float] = defaultdict(float)
    for one in traces:
        for op in one.trace.ops:
            role = TRAINERS if is_trainer(op.role) else op.role
            seconds[op.name, op.type, role, op.slot if role != TRAINERS else -1] += op.seconds
    ops = [Op(*key, total / len(traces)) for key, total in seconds.items()]
    return sorted(ops, key=lambda op: (-op.seconds, op.name, op.role))


def transfers(traces: Sequence[Traced]) -> list[Transfer]:
    """Longest first."""
    steps: dict[str, int] = defaultdict(int)
    sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for one in traces:
        steps[one.role] += 1
        for edge in one.trace.edges:
            total = sums[edge.source, edge.target]
            total[0] += edge.bytes
            total[1] += edge.tensors
            total[2] += edge.seconds
    found = []
    for (source, target), (count, tensors, seconds) in sums.items():
        number = steps.get(source) or steps.get(target) or len(traces)
        found.append(Transfer(source, target, count / number, tensors / number, seconds / number))
    return sorted(found, key=lambda one: (-one.seconds, natural(one.source), natural(one.target)))


def transfer_shares(traces: Sequence[Traced]) -> list[float]:
    """Of each traced step, the share of its time in which the busiest connection of its trainer was at work."""
    return [
        min(1.0, max((edge.seconds for edge in one.trace.edges), default=0.0) / one.trace.seconds)
        for one in traces
        if one.trace.seconds > 0
    ]


def input_shares(traces: Sequence[Traced]) -> list[float]:
    """Of each traced step, the share of its time in ops that wait for the input pipeline."""
    return [min(1.0, one.trace.input_seconds / one.trace.seconds) for one in traces if one.trace.seconds > 0]


def median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else 0.0


def table_of(slot: int, tables: Sequence[Table], traces: Sequence[Traced]) -> tuple[str, float]:
    """The table that most of the slot's work is for, and its share of what can be told apart; ("", 0.0) without tables.

    An op belongs to the table whose name is part of its own (`Adagrad/update_C1/embedding/...`), the longest such name.
    Where the names of the slot's heavy ops tell nothing, it is the largest table by its share of the bytes.
    """
    if not tables:
        return "", 0.0
    names = sorted((table.name for table in tables), key=len, reverse=True)
    seconds: dict[str, float] = defaultdict(float)
    for one in traces:
        for op in one.trace.ops:
            if op.slot == slot and (name := next((name for name in names if name in op.name), "")):
                seconds[name] += op.seconds
    if not sum(seconds.values()):
        return tables[0].name, tables[0].bytes / max(1, sum(table.bytes for table in tables))
    name = max(seconds, key=lambda one: (seconds[one], one))
    return name, seconds[name] / sum(seconds.values())
