"""What makes a TFJob elastic: the annotations `aimaster.deeprec.io/*`, named as the flags of `deeprec-ext run`.

Counts of workers are replicas of `Worker`, as the TFJob counts them: in a job without Chief or Master worker 0 is the chief.
What is handed on is counted as the AIMaster counts: workers beside the chief.

`spec.replicas` moves when the job is scaled. So what is filled in for limits that were not given comes from the sizes the
job was first seen with (the annotation `started-with`), and once the AIMaster has noted what it runs (`scaled-to`), another
number in `spec.replicas` is a request, which the AIMaster judges.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from deeprec_ext.layout import LAYOUTS, OTHER_NAMES, layout_called
from deeprec_ext.options import BAD_RECORDS, OBJECTIVES
from deeprec_ext.units import parse_bytes, parse_cores, parse_duration
from tfjob.model import names
from tfjob.model.spec import REPLICAS_MAX, InvalidError, TFJob

OPTIONS = (
    "enabled", "min-ps", "max-ps", "min-workers", "max-workers", "slots", "objective", "deadline", "autoscale", "hold",
    "backup", "package", "state-volume", "max-ps-cpu", "max-worker-cpu", "max-ps-memory", "max-worker-memory",
    "total-cpu", "total-memory", "strict", "layout", "reachable-from", "bad-records",
)  # fmt: skip
OURS = ("status", "scaled-to", "started-with", "restarts", "restart-policies")
"""Written by operator and AIMaster; a user reads them."""

CORES_MAX, BYTES_MAX, SECONDS_MAX, SLOTS_MAX = 100_000, 1 << 60, 3650 * 86_400.0, 100_000
"""What is more than any cluster has is a slip of the pen."""

TEXT_MAX = 1024
"""Characters of one annotation of ours."""

PACKAGES = ("inject", "image")
_DEFAULT_MAX, _DEFAULT_SLOTS = 4, 8
_CLAIM = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")

T = TypeVar("T")


@dataclass(frozen=True)
class Elastic:
    """One elastic job. `workers` are those beside the chief; memory in bytes, CPU in cores, 0: not said."""

    ps: int
    workers: int
    evaluator: bool
    slots: int
    min_ps: int
    max_ps: int
    min_workers: int
    max_workers: int
    settings: tuple[tuple[str, str], ...] = ()
    """Of the AIMaster (`--setting name=value`): autoscale, objective, deadline_seconds, peer_backup, disk_backup, strict,
    bad_records."""

    hold: bool = False
    layout: str = ""
    """One of `deeprec_ext.layout.LAYOUTS`; empty: as the TFJob calls its chief, and as the script's text says."""

    package: str = "inject"
    state_volume: str = ""
    reachable_from: tuple[str, ...] = ()
    """Namespaces whose pods reach the job's page and what its containers serve, beside the job's own pods."""

    max_ps_cpu: float = 0.0
    max_worker_cpu: float = 0.0
    max_ps_memory: int = 0
    max_worker_memory: int = 0
    total_cpu: float = 0.0
    total_memory: int = 0

    def least(self, job: TFJob) -> dict[str, int]:
        """Of each type so many that it trains: its gang. Not as many as it runs at the moment: then a full cluster would keep
        the pod back that is to replace a lost one, because the gang, a worker of which was given up, is not whole."""
        found = {job.chief or names.WORKER: 1, names.PS: self.min_ps}
        found[names.WORKER] = found.get(names.WORKER, 0) + self.min_workers
        return {type_: count for type_, count in found.items() if count}

    @property
    def autoscale(self) -> bool:
        return ("autoscale", "true") in self.settings


SIZES_OF_PODS = ("max-ps-cpu", "max-worker-cpu", "max-ps-memory", "max-worker-memory")
"""Of use only where the AIMaster makes the pods itself."""


def is_elastic(job: TFJob) -> bool:
    """Whether the job was started as an elastic one: it stays that, whatever becomes of `enabled`."""
    return names.STARTED_WITH_ANNOTATION in job.annotations


def parse(job: TFJob) -> tuple[Elastic | None, tuple[str, ...]]:
    """What the annotations ask for (None: an ordinary job), and warnings: keys that are not known.

    Raises InvalidError for what contradicts itself or the spec.
    """
    given = _Given(job)
    if not given.boolean("enabled") and not is_elastic(job):
        return None, given.warnings()
    _check_job(job)
    package = given.text("package") or PACKAGES[0]
    if package not in PACKAGES:
        raise given.error("package", f"write {' or '.join(PACKAGES)}")
    layout = layout_called(given.text("layout"))
    if layout in ("auto", ""):
        layout = ""
    elif layout not in LAYOUTS:
        raise given.error(
            "layout", f"write auto, {', '.join((*LAYOUTS, *OTHER_NAMES)[:-1])} or {(*LAYOUTS, *OTHER_NAMES)[-1]}"
        )
    claim = given.text("state-volume")
    if claim and not _CLAIM.fullmatch(claim):
        raise given.error("state-volume", "must be the name of a PersistentVolumeClaim")
    limits = _limits(job, given)
    _check_name(job, limits)
    found = Elastic(
        ps=limits.ps, workers=limits.workers, evaluator=job.replicas(names.EVALUATOR) > 0, slots=limits.slots,
        min_ps=limits.min_ps, max_ps=limits.max_ps, min_workers=limits.min_workers, max_workers=limits.max_workers,
        settings=(*_autoscale(given), *_backup(given), *_strict(given), *_bad_records(given)),
        hold=given.boolean("hold"), layout=layout,
        package=package, state_volume=claim, reachable_from=_reachable_from(given),
        max_ps_cpu=given.cores("max-ps-cpu"), max_worker_cpu=given.cores("max-worker-cpu"),
        max_ps_memory=given.bytes("max-ps-memory"), max_worker_memory=given.bytes("max-worker-memory"),
        total_cpu=given.cores("total-cpu"), total_memory=given.bytes("total-memory"),
    )  # fmt: skip
    return found, given.warnings()


def sizes(job: TFJob, annotation: str) -> dict[str, int]:
    """`{"PS": 3, "Worker": 2}` as `scaled-to` or `started-with` has it; what it does not say is as in the spec."""
    found = {type_: spec.replicas for type_, spec in job.specs.items()}
    try:
        noted = json.loads(job.annotations.get(annotation) or "{}")
        found.update({str(type_): int(count) for type_, count in noted.items() if type_ in found})
        if not all(0 <= count <= REPLICAS_MAX for count in found.values()):
            raise ValueError
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        raise InvalidError(
            f"metadata.annotations[{annotation}]", 'is broken; remove it (it is written by us: {"PS": 3, "Worker": 2})'
        ) from None
    return found


def started_with(job: TFJob) -> str:
    """The annotation of that name, for a job that has none yet."""
    return json.dumps({type_: spec.replicas for type_, spec in job.specs.items()})


# ---------------------------------------------------------------------------------------------------- rules


def _check_job(job: TFJob) -> None:
    if not job.replicas(names.PS):
        where = job.specs[names.PS].path + ".replicas" if names.PS in job.specs else "spec.tfReplicaSpecs"
        raise InvalidError(where, "an elastic job needs at least 1 PS: the model lives there")
    if not job.chief and not job.replicas(names.WORKER):
        raise InvalidError("spec.tfReplicaSpecs", "an elastic job needs a Chief, a Master, or at least 1 Worker")
    if job.replicas(names.EVALUATOR) > 1:
        path = job.specs[names.EVALUATOR].path
        raise InvalidError(f"{path}.replicas", "an elastic job has at most 1 Evaluator")
    if job.success_policy == "AllWorkers":
        raise InvalidError(
            "spec.successPolicy",
            "AllWorkers contradicts an elastic job, whose workers come and go; it ends with its chief",
        )


def _check_name(job: TFJob, limits: _Limits) -> None:
    """The pods to come have names, too."""
    workers = limits.max_workers + (not job.chief)
    longest = max(
        names.aimaster_name(job.name), names.pod_name(job.name, names.PS, limits.max_ps - 1),
        names.pod_name(job.name, names.WORKER, max(0, workers - 1)), key=len,
    )  # fmt: skip
    if len(longest) > names.NAME_MAX:
        raise InvalidError(
            "metadata.name", f"is too long: the pod {longest} would have more than {names.NAME_MAX} characters"
        )


@dataclass(frozen=True)
class _Limits:
    """As the AIMaster counts."""

    ps: int
    workers: int
    slots: int
    min_ps: int
    max_ps: int
    min_workers: int
    max_workers: int


def _limits(job: TFJob, given: _Given) -> _Limits:
    beside = 0 if job.chief else 1  # worker 0 is the chief
    first, now = sizes(job, names.STARTED_WITH_ANNOTATION), sizes(job, names.SCALED_TO_ANNOTATION)
    ps, workers = now[names.PS], now.get(names.WORKER, beside)
    slots = given.whole("slots", least=1, most=SLOTS_MAX)
    usual = max(first[names.PS], _DEFAULT_MAX)
    max_ps = given.whole("max-ps", least=1)
    if max_ps is None:
        max_ps = usual if slots is None else max(first[names.PS], min(usual, slots))
    max_workers = given.whole("max-workers", least=beside)
    if names.WORKER not in job.specs:
        if max_workers:
            raise given.error(
                "max-workers", "the job has no Worker to make them of; add one, with replicas: 0 if you like"
            )
        max_workers = 0
    elif max_workers is None:
        max_workers = max(first[names.WORKER], _DEFAULT_MAX + beside)
    min_ps, min_workers = given.whole("min-ps", least=1) or 1, given.whole("min-workers", least=beside) or beside
    if slots is None:
        slots = max(_DEFAULT_SLOTS, 2 * max_ps)
    elif slots < max_ps:
        raise given.error("slots", f"max-ps is {max_ps}, and a PS needs at least one slot; raise slots or lower max-ps")
    _check_range(job, given, names.PS, "ps", min_ps, ps, max_ps)
    _check_range(job, given, names.WORKER, "workers", min_workers, workers, max_workers)
    return _Limits(ps, workers - beside, slots, min_ps, max_ps, min_workers - beside, max_workers - beside)


def _check_range(job: TFJob, given: _Given, type_: str, name: str, least: int, count: int, most: int) -> None:
    if least > most:
        raise given.error(f"min-{name}", f"is more than max-{name} {most}")
    if not least <= count <= most:
        path = f"{job.specs[type_].path}.replicas"  # without workers there is nothing that could be out of range
        raise InvalidError(path, f"is {count}; must lie between min-{name} {least} and max-{name} {most} (annotations)")


def _reachable_from(given: _Given) -> tuple[str, ...]:
    words = tuple(word.strip() for word in given.text("reachable-from").split(",") if word.strip())
    if not all(names.is_dns_label(word) for word in words):
        raise given.error("reachable-from", 'write names of namespaces: "monitoring,ingress"')
    return words


def _strict(given: _Given) -> tuple[tuple[str, str], ...]:
    return (("strict", "true"),) if given.boolean("strict") else ()


def _bad_records(given: _Given) -> tuple[tuple[str, str], ...]:
    text = given.text("bad-records")
    if text and text not in BAD_RECORDS:
        raise given.error("bad-records", f"write {' or '.join(BAD_RECORDS)}")
    return (("bad_records", text),) if text else ()


def _autoscale(given: _Given) -> tuple[tuple[str, str], ...]:
    objective, deadline = given.text("objective"), given.text("deadline")
    if not given.boolean("autoscale"):
        for key in ("objective", "deadline"):
            if given.text(key):
                raise given.error(key, 'says what autoscale is after; add autoscale: "true"')
        return ()
    objective = objective or ("deadline" if deadline else "fastest")
    if objective not in OBJECTIVES:
        raise given.error("objective", f"write {', '.join(OBJECTIVES)}")
    if objective == "deadline" and not deadline:
        raise given.error("objective", 'needs the annotation deadline, for example "2h"')
    if deadline and objective != "deadline":
        raise given.error("deadline", f"contradicts the objective {objective}; leave one of them out")
    found = (("autoscale", "true"), ("objective", objective))
    seconds = given.seconds("deadline")
    return found if seconds is None else (*found, ("deadline_seconds", f"{seconds:g}"))


def _backup(given: _Given) -> tuple[tuple[str, str], ...]:
    """`off`, `peer`, `disk=DIR`, `peer,disk=DIR`: what is not named is off. Nothing said: the defaults count."""
    text = given.text("backup")
    if not text:
        return ()
    peer, disk = "off", "off"
    for word in text.split(",") if text != "off" else ():
        kind, equals, path = word.partition("=")
        if kind == "peer" and not equals:
            peer = "on"
        elif kind == "disk" and ("://" in path or path.startswith("/")):
            disk = path
        else:
            raise given.error(
                "backup", "write off, peer, disk=DIR or peer,disk=DIR, DIR absolute: every pod has to see it"
            )
    return ("peer_backup", peer), ("disk_backup", disk)


# ---------------------------------------------------------------------------------------------------- values


class _Given:
    """The annotations under our prefix, without it."""

    def __init__(self, job: TFJob) -> None:
        prefix = names.ANNOTATION_PREFIX
        found = {key[len(prefix) :]: value for key, value in job.annotations.items() if key.startswith(prefix)}
        self._values: Mapping[str, str] = {key: str(value).strip() for key, value in found.items()}
        for key, value in self._values.items():
            if key in OPTIONS and len(value) > TEXT_MAX:
                where = f"metadata.annotations[{names.ANNOTATION_PREFIX}{key}]"
                raise InvalidError(where, f"has {len(value)} characters; must have {TEXT_MAX} or less")

    def warnings(self) -> tuple[str, ...]:
        found = []
        for key in sorted(set(self._values) - {*OPTIONS, *OURS}):
            near = difflib.get_close_matches(key, OPTIONS, n=1, cutoff=0.0)[0]
            found.append(f"annotation {names.ANNOTATION_PREFIX}{key} is not known and does nothing; is {near} meant?")
        return tuple(found)

    def error(self, key: str, message: str) -> InvalidError:
        return InvalidError(
            f"metadata.annotations[{names.ANNOTATION_PREFIX}{key}]", f"is {self._values.get(key, '')!r}; {message}"
        )

    def text(self, key: str) -> str:
        return self._values.get(key, "")

    def value(self, key: str, convert: Callable[[str], T]) -> T | None:
        text = self.text(key)
        if not text:
            return None
        try:
            return convert(text)
        except ValueError as error:
            raise self.error(key, str(error)) from None

    def boolean(self, key: str) -> bool:
        found = {"": False, "true": True, "false": False}.get(self.text(key).lower())
        if found is None:
            raise self.error(key, 'write "true" or "false"')
        return found

    def whole(self, key: str, *, least: int, most: int = REPLICAS_MAX) -> int | None:
        text = self.text(key)
        if not text:
            return None
        if not re.fullmatch(r"[0-9]{1,9}", text) or not least <= int(text) <= most:
            raise self.error(key, f"must be a whole number from {least} to {most}")
        return int(text)

    def cores(self, key: str) -> float:
        return self._bounded(key, parse_cores, CORES_MAX, f"{CORES_MAX} cores") or 0.0

    def bytes(self, key: str) -> int:
        return int(self._bounded(key, parse_bytes, BYTES_MAX, "1 EiB") or 0)

    def seconds(self, key: str) -> float | None:
        return self._bounded(key, parse_duration, SECONDS_MAX, "3650d")

    def _bounded(self, key: str, convert: Callable[[str], float], most: float, said: str) -> float | None:
        try:
            found = self.value(key, convert)
        except OverflowError:
            found = math.inf
        if found is not None and not 0 <= found <= most:  # not a number is no amount either
            raise self.error(key, f"must be {said} or less")
        return found
