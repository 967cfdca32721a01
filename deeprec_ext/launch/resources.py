"""What a pod requests and is held to: CPU and memory, as the user writes them and as the protocol carries them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deeprec_ext.errors import UsageError
from deeprec_ext.proto import deeprec_ext_pb2 as pb2
from deeprec_ext.units import format_bytes, parse_bytes, parse_cores

CPU_MIN = 0.01
"""Cores. The kernel gives a group at least 1 ms of each 100 ms."""

MEMORY_MIN_BYTES = 64 << 20
"""Below that not even the interpreter of a role starts."""


@dataclass(frozen=True)
class Resources:
    """Of one pod. 0: no request, no limit."""

    cpu: float = 0.0  # cores
    memory_bytes: int = 0

    def changed(self, other: Resources) -> Resources:
        """`other`, where it says something."""
        return Resources(other.cpu or self.cpu, other.memory_bytes or self.memory_bytes)

    @classmethod
    def from_proto(cls, message: pb2.Resources) -> Resources:
        return cls(message.cpu, message.memory_bytes)

    def to_proto(self) -> pb2.Resources:
        return pb2.Resources(cpu=self.cpu, memory_bytes=self.memory_bytes)

    def __bool__(self) -> bool:
        return bool(self.cpu or self.memory_bytes)

    def __str__(self) -> str:
        words = [f"{self.cpu:g} cores"] if self.cpu else []
        return " and ".join([*words, *([format_bytes(self.memory_bytes)] if self.memory_bytes else [])]) or "no limit"


@dataclass(frozen=True)
class Requests:
    """Of each PS, and of each other role that trains or evaluates."""

    ps: Resources = field(default_factory=Resources)
    worker: Resources = field(default_factory=Resources)

    def of(self, role: str) -> Resources:
        """Of `ps`, `chief`, `worker`, `evaluator`. The AIMaster is not limited: the job stands or falls with it."""
        return self.ps if role == "ps" else Resources() if role == "aimaster" else self.worker

    def __bool__(self) -> bool:
        return bool(self.ps) or bool(self.worker)


@dataclass(frozen=True)
class Ceilings:
    """How far `--autoscale` may raise what a pod requests, and what all pods may request together. 0: not said."""

    ps: Resources = field(default_factory=Resources)
    worker: Resources = field(default_factory=Resources)
    total: Resources = field(default_factory=Resources)

    def __bool__(self) -> bool:
        return bool(self.ps) or bool(self.worker) or bool(self.total)

    def start(self, requests: Requests) -> Requests:
        """What pods request at first: as the user said, and where nothing was said but a ceiling, that."""
        return Requests(self.ps.changed(requests.ps), self.worker.changed(requests.worker))


def parse_ceilings(requests: Requests, flags: Mapping[str, Any]) -> Ceilings:
    """The flags of `run`, `--max-ps-cpu 2` and so on; None: not given. Raises UsageError with the flag to change."""
    found = Ceilings(*(_resources(which, flags) for which in ("max-ps", "max-worker", "total")))
    for role, most, start in (("ps", found.ps, requests.ps), ("worker", found.worker, requests.worker)):
        if 0 < most.cpu < start.cpu:
            raise UsageError(f"--{role}-cpu {start.cpu:g}: is more than --max-{role}-cpu {most.cpu:g}")
        if 0 < most.memory_bytes < start.memory_bytes:
            raise UsageError(
                f"--{role}-memory {format_bytes(start.memory_bytes)}: is more than "
                f"--max-{role}-memory {format_bytes(most.memory_bytes)}"
            )
    return found


def parse_requests(flags: Mapping[str, Any]) -> Requests:
    """The flags of `run`, `--ps-cpu 0.5` and so on; None: not given. Raises UsageError with the flag to change."""
    return Requests(_resources("ps", flags), _resources("worker", flags))


def _resources(which: str, flags: Mapping[str, Any]) -> Resources:
    cpu, memory = (flags.get(f"{which}_{what}".replace("-", "_")) for what in ("cpu", "memory"))
    return Resources(_cpu(f"--{which}-cpu", cpu), _memory(f"--{which}-memory", memory))


def check(resources: Resources) -> Resources:
    """What came by the protocol. Raises UsageError."""
    if resources.cpu and not CPU_MIN <= resources.cpu < 1e6:
        raise UsageError(f"{resources.cpu:g} cores: must be {CPU_MIN:g} or more")
    if resources.memory_bytes and not MEMORY_MIN_BYTES <= resources.memory_bytes < 1 << 60:
        raise UsageError(f"{resources.memory_bytes} bytes of memory: must be {format_bytes(MEMORY_MIN_BYTES)} or more")
    return resources


def _cpu(flag: str, text: str | None) -> float:
    if text is None:
        return 0.0
    try:
        cores = parse_cores(text)
    except ValueError as error:
        raise UsageError(f"{flag} {error}") from None
    if cores < CPU_MIN:
        raise UsageError(f"{flag} {text}: must be {CPU_MIN:g} (10m) or more")
    return check(Resources(cpu=cores)).cpu


def _memory(flag: str, text: str | None) -> int:
    if text is None:
        return 0
    if text.strip().replace(".", "", 1).isdigit():
        raise UsageError(f"{flag} {text}: bytes, MB or GB? Write the unit, for example {text.strip()}GiB or 512MiB")
    try:
        size = parse_bytes(text)
    except ValueError as error:
        raise UsageError(f"{flag} {error}") from None
    if size < MEMORY_MIN_BYTES:
        raise UsageError(f"{flag} {text}: no role starts with less than {MEMORY_MIN_BYTES >> 20}MiB")
    return check(Resources(memory_bytes=size)).memory_bytes
