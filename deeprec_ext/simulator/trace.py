"""Traces: which jobs come when, what they are like, and what the cluster does to them. A YAML file, read strictly.

    version: 1
    cluster: {cores: 400, memory: 1600GiB, pod_start_seconds: 35}
    jobs:
      - {name: ctr-1, arrives: 60, examples: 2.0e8, objective: fastest,
         model: {compute_core_seconds: 0.15, ps_core_seconds: 0.02},
         start: {ps: 1, workers: 1, ps_cpu: 2, worker_cpu: 2, ps_memory: 8GiB, worker_memory: 4GiB},
         limits: {max_ps: 8, max_workers: 20, resizable: true}}

Every field has a default; an unknown one is an error, so that a misspelt one is not left out in silence.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deeprec_ext.autoscaler.observe.observed import Limits, Size
from deeprec_ext.autoscaler.policy.limits import contradiction, fits
from deeprec_ext.errors import UsageError
from deeprec_ext.options import OBJECTIVES, Sizes, rows
from deeprec_ext.simulator.job_model import JobModel
from deeprec_ext.units import parse_bytes

VERSION = 1
BYTES_MAX = 64 << 20
JOBS_MAX = 100_000


@dataclass(frozen=True)
class SimulatedCluster:
    """What the jobs share. Times in seconds, rates per hour of one pod."""

    cores: float = 1e9
    memory: int = 1 << 60
    pod_start_seconds: float = 35.0  # median: scheduling, image, interpreter, session
    pod_start_scatter: float = 0.25  # of its logarithm
    bytes_per_second: float = 200e6  # at which slots move
    pause_seconds: float = 0.8  # of a change of PS
    acquire_limit_seconds: float = 300.0  # after which a change whose pods find no room is rolled back
    failures_per_hour: float = 0.0  # of one pod: it dies and is started again
    recovery_seconds: float = 2.0  # in which nobody trains after the loss of a PS
    reclaims_per_hour: float = 0.0  # of one pod on a spot host
    spot_share: float = 0.0  # of all pods
    reclaim_notice_seconds: float = 120.0
    slow_share: float = 0.0  # of hosts: a pod that lands there is slow for good
    slow_speed: float = 0.5  # of a slow host; a sound one has 1
    speed_scatter: float = 0.03  # of the logarithm of the speed of sound hosts


@dataclass(frozen=True)
class Workload:
    """One job of a trace."""

    name: str
    arrives: float = 0.0  # seconds
    examples: float = 1e8
    objective: str = "fastest"
    deadline_seconds: float = 0.0  # since the start of the job
    model: JobModel = field(default_factory=JobModel)
    start: Size = field(default_factory=lambda: Size(1, 1, 2.0, 2.0, 8 << 30, 4 << 30))
    limits: Limits = field(default_factory=lambda: Limits(1, 8, 0, 16, resizable=True))
    noise: float = 0.04  # relative scatter of a ten-second window
    bursts: float = 0.01  # share of windows in which something else takes half of the throughput
    hot_share: float = 0.0  # load of the hottest slot, beyond an even share
    neighbour_cores: float = 0.0  # used by another program on the job's host
    neighbour_after: float = 0.0  # seconds since the start of the job
    neighbour_seconds: float = 0.0


@dataclass(frozen=True)
class Trace:
    cluster: SimulatedCluster
    jobs: tuple[Workload, ...]
    name: str = ""


def load(path: Path) -> Trace:
    """Raises UsageError that names the place and what is wrong there."""
    from deeprec_ext import yamlfiles

    limits = yamlfiles.Limits(
        BYTES_MAX, depth=16, value=1_000, written=4 * BYTES_MAX, use=f"no trace of {JOBS_MAX:,} jobs needs as much"
    )
    if not os.path.exists(path):
        raise UsageError(f"{path}: no such trace; give a YAML file, or the name of one that is shipped")
    text = yamlfiles.read(path, str(path), limits, "give a YAML file, or the name of one that is shipped")
    found = yamlfiles.values(text, str(path), limits)
    try:
        return dataclasses.replace(parse(found[0] if len(found) == 1 else found), name=path.stem)
    except UsageError as error:
        raise UsageError(f"{path}: {str(error)[:500]}") from None  # it may quote what aliases stand for


def parse(values: Any) -> Trace:
    """Raises UsageError."""
    if not isinstance(values, dict) or values.get("version") != VERSION:
        found = values.get("version") if isinstance(values, dict) else type(values).__name__
        raise UsageError(f"is no trace of version {VERSION} (found {found!r})")
    if unknown := set(values) - {"version", "cluster", "jobs"}:
        raise UsageError(f"unknown field {sorted(map(str, unknown))[0]!r}; there are version, cluster, jobs")
    cluster = _made(SimulatedCluster, values.get("cluster") or {}, "cluster")
    entries = values.get("jobs")
    if not isinstance(entries, list) or not 0 < len(entries) <= JOBS_MAX:
        raise UsageError(f"jobs: a list of 1 to {JOBS_MAX} jobs is wanted")
    jobs = tuple(_job(entry, f"jobs[{number}]") for number, entry in enumerate(entries))
    if len({job.name for job in jobs}) < len(jobs):
        raise UsageError("jobs: two have the same name")
    return Trace(cluster, tuple(sorted(jobs, key=lambda job: (job.arrives, job.name))))


def _job(entry: Any, where: str) -> Workload:
    job: Workload = _made(Workload, entry, where)
    if job.objective not in OBJECTIVES:
        raise UsageError(f"{where}.objective: {job.objective!r} is none of {', '.join(OBJECTIVES)}")
    if not isinstance(job.name, str) or not 0 < len(job.name) <= 100:
        raise UsageError(f"{where}.name: a name of up to 100 letters is wanted")
    if why := contradiction(job.start, job.limits):
        raise UsageError(f"{where}.limits: {why}")
    if not fits(job.start, job.limits):
        raise UsageError(f"{where}.start: is outside of its limits")
    if job.examples <= 0 or min(job.model.batch, job.model.fixed_seconds + job.model.compute_core_seconds) <= 0:
        raise UsageError(f"{where}: examples, model.batch and the time of a step must be more than 0")
    return job


_NAMES = {row.key.replace("-", "_"): row.name for row in rows(Sizes)}
_RANGES: Mapping[str, tuple[float, float]] = {
    "parallelism": (0.01, 1000), "ps_parallelism": (0.01, 1000), "max_ps": (0, 1000), "max_workers": (0, 10_000),
    "noise": (0, 2), "bursts": (0, 1), "hot_share": (0, 1), "pod_start_seconds": (0, 86400), "pod_start_scatter": (0, 2),
    "bytes_per_second": (1, 1e18), "pause_seconds": (0, 86400), "failures_per_hour": (0, 100), "recovery_seconds": (0, 86400),
    "reclaims_per_hour": (0, 100), "spot_share": (0, 1), "slow_share": (0, 1), "slow_speed": (0.01, 1), "speed_scatter": (0, 2),
}  # fmt: skip
"""Of fields that cannot have any value from 0 on."""
_PARTS: Mapping[str, type] = {"model": JobModel, "start": Size, "limits": Limits}


def _made(kind: Any, entry: Any, where: str) -> Any:
    """A dataclass from a mapping, with every number checked."""
    if not isinstance(entry, dict):
        raise UsageError(f"{where}: a mapping is wanted, not {entry!r}")
    fields = {one.name: one for one in dataclasses.fields(kind)}
    values = {}
    for name, value in entry.items():
        found = fields.get(_NAMES.get(name, name)) if isinstance(name, str) else None
        if found is None:
            raise UsageError(f"{where}: unknown field {name!r}; there are {', '.join(fields)}")
        values[found.name] = _value(found, value, f"{where}.{name}")
    if missing := [
        one.name for one in fields.values()
        if one.name not in values and one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
    ]:  # fmt: skip
        raise UsageError(f"{where}: {missing[0]} is missing")
    return kind(**values)


def _value(found: Any, value: Any, where: str) -> Any:
    if found.name in _PARTS:
        return _made(_PARTS[found.name], value, where)
    if found.type == "str":
        return str(value)
    if found.type == "bool":
        if not isinstance(value, bool):
            raise UsageError(f"{where}: true or false is wanted, not {value!r}")
        return value
    if isinstance(value, str):
        value = _number(value, where, "bytes" in found.name or found.name == "memory")
    low, high = _RANGES.get(found.name, (0, 1e18))
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise UsageError(f"{where}: a number from {low:g} to {high:g} is wanted, not {value!r}")
    if found.type == "int":
        if value != int(value):
            raise UsageError(f"{where}: a whole number is wanted, not {value!r}")
        return int(value)
    return float(value)


def _number(text: str, where: str, is_bytes: bool) -> float:
    """YAML 1.1 reads `2e8` as a string."""
    try:
        return float(text)
    except ValueError:
        if not is_bytes:
            raise UsageError(f"{where}: a number is wanted, not {text!r}") from None
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from None
