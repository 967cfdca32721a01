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
from typing import Any

from deeprec_ext.bounds import MOST
from deeprec_ext.layout import layout_called
from deeprec_ext.options import (
    DEFAULT_MAX,
    Option,
    Settings,
    Sizes,
    all_rows,
    backup_said,
    filled_in,
    one_of,
    rate_complaint,
    rows,
    written,
)
from deeprec_ext.units import parse_bytes, parse_cores, parse_duration
from tfjob.model import names
from tfjob.model.spec import REPLICAS_MAX, InvalidError, TFJob

OURS = ("status", "scaled-to", "started-with", "restarts", "restart-policies", "worth", "allowance")
"""Written by operator and AIMaster; a user reads them."""

SUBMITTED = ("estimate",)
"""Written by `deeprec-ext submit`, into a job's manifest."""

CORES_MAX, BYTES_MAX, SECONDS_MAX, SLOTS_MAX = 100_000, 1 << 60, 3650 * 86_400.0, 100_000
"""What is more than any cluster has is a slip of the pen."""

TEXT_MAX = 1024
"""Characters of one annotation of ours."""

_CLAIM = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")

OF_PS = ("slots", "min-ps", "max-ps", "max-ps-cpu", "max-ps-memory")
"""Of no use in a job without PS."""

_AMOUNTS: Mapping[str, tuple[Callable[[str], float], float, str]] = {
    "cores": (parse_cores, CORES_MAX, f"{CORES_MAX} cores"),
    "bytes": (parse_bytes, BYTES_MAX, "1 EiB"),
    "seconds": (parse_duration, SECONDS_MAX, "3650d"),
    "number": (float, MOST["number"], f"{MOST['number']:,}"),
}
"""Unit → how it is read, the most, and that in words."""


@dataclass(frozen=True)
class Elastic(Sizes):
    """One elastic job."""

    settings: tuple[tuple[str, str], ...] = ()
    """Of the AIMaster (`--setting name=value`): autoscale, objective, deadline_seconds, peer_backup, disk_backup, strict,
    bad_records."""

    hold: bool = False
    history: bool = False
    layout: str = ""
    """One of `deeprec_ext.layout.LAYOUTS`; empty: as the TFJob calls its chief, and as the script's text says."""

    package: str = "inject"
    state_volume: str = ""
    reachable_from: tuple[str, ...] = ()
    """Namespaces whose pods reach the job's page and what its containers serve, beside the job's own pods."""

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
    sums = given.said("strategy") == "allreduce"
    _check_job(job, sums)
    if sums:
        _check_without_ps(job, given)
    if complaint := rate_complaint(given.said("rate-scaling"), sums):
        raise given.error("rate-scaling", complaint)
    layout = layout_called(given.said("layout") or "auto")
    claim = given.text("state-volume")
    if claim and not _CLAIM.fullmatch(claim):
        raise given.error("state-volume", "must be the name of a PersistentVolumeClaim")
    limits = _limits(job, given, sums)
    _check_name(job, limits)
    amounts = {row.name: given.value(row) for row in rows(Sizes) if row.annotation and row.unit in ("cores", "bytes")}
    found = Elastic(
        **{**vars(limits), **{name: value for name, value in amounts.items() if value is not None}},
        settings=(*_settings(given).items(), *_backup(given).items()),
        hold=given.boolean("hold"), history=given.boolean("history"),
        layout="" if layout == "auto" else layout, package=given.said("package") or "inject",
        state_volume=claim, reachable_from=_reachable_from(given),
    )  # fmt: skip
    return found, given.warnings()


def known() -> list[str]:
    """Keys of the annotations that are options."""
    return [row.key for row in all_rows() if row.annotation]


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


def _check_job(job: TFJob, sums: bool) -> None:
    if not sums and not job.replicas(names.PS):
        where = job.specs[names.PS].path + ".replicas" if names.PS in job.specs else "spec.tfReplicaSpecs"
        allreduce = f'{names.ANNOTATION_PREFIX}strategy: "allreduce"'
        raise InvalidError(
            where, f"an elastic job needs at least 1 PS: the model lives there; or annotate it with {allreduce}"
        )
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


def _check_without_ps(job: TFJob, given: _Given) -> None:
    """Of a job whose chief and workers sum what they have."""
    if names.PS in job.specs:
        raise given.error(
            "strategy",
            f"such a job has no PS: leave out {job.specs[names.PS].path}, or this annotation to train with PS",
        )
    if names.EVALUATOR in job.specs:
        raise given.error(
            "strategy",
            f"an evaluator has no part in sums: leave out {job.specs[names.EVALUATOR].path}, and evaluate in the script",
        )
    for key in OF_PS:
        if given.text(key):
            raise given.error(key, "a job with strategy allreduce has no PS; leave this annotation out")


def _check_name(job: TFJob, limits: Sizes) -> None:
    """The pods to come have names, too."""
    workers = limits.max_workers + (not job.chief)
    longest = max(
        names.aimaster_name(job.name), names.pod_name(job.name, names.PS, max(0, limits.max_ps - 1)),
        names.pod_name(job.name, names.WORKER, max(0, workers - 1)), key=len,
    )  # fmt: skip
    if len(longest) > names.NAME_MAX:
        raise InvalidError(
            "metadata.name", f"is too long: the pod {longest} would have more than {names.NAME_MAX} characters"
        )


def _limits(job: TFJob, given: _Given, sums: bool) -> Sizes:
    """As the AIMaster counts."""
    beside = 0 if job.chief else 1  # worker 0 is the chief
    first, now = sizes(job, names.STARTED_WITH_ANNOTATION), sizes(job, names.SCALED_TO_ANNOTATION)
    workers = now.get(names.WORKER, beside)
    max_workers = given.whole("max-workers", least=beside)
    if names.WORKER not in job.specs:
        if max_workers:
            raise given.error(
                "max-workers", "the job has no Worker to make them of; add one, with replicas: 0 if you like"
            )
        max_workers = 0
    elif max_workers is None:
        max_workers = max(first[names.WORKER], DEFAULT_MAX + beside)
    min_workers = given.whole("min-workers", least=beside) or beside
    ps, slots, min_ps, max_ps = (0, 0, 0, 0) if sums else _limits_of_ps(job, given, first[names.PS], now[names.PS])
    _check_range(job, given, names.WORKER, "workers", min_workers, workers, max_workers)
    return Sizes(
        ps, workers - beside, slots, min_ps, max_ps, min_workers - beside, max_workers - beside,
        evaluator=job.replicas(names.EVALUATOR) > 0,
    )  # fmt: skip


def _limits_of_ps(job: TFJob, given: _Given, first: int, now: int) -> tuple[int, int, int, int]:
    """PS, slots, fewest and most PS."""
    slots = given.whole("slots", least=1, most=SLOTS_MAX)
    max_ps, slots = filled_in(first, first, given.whole("max-ps", least=1), slots)
    min_ps = given.whole("min-ps", least=1) or 1
    if slots < max_ps:
        raise given.error("slots", f"max-ps is {max_ps}, and a PS needs at least one slot; raise slots or lower max-ps")
    _check_range(job, given, names.PS, "ps", min_ps, now, max_ps)
    return now, slots, min_ps, max_ps


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


def _settings(given: _Given) -> dict[str, str]:
    """As `--setting` takes them."""
    said = {row.name: given.value(row) for row in rows(Settings) if row.annotation}
    found = {name: written(value) for name, value in said.items() if value is not None and value is not False}
    if "autoscale" not in found:
        for key in ("objective", "deadline"):
            if given.text(key):
                raise given.error(key, 'says what autoscale is after; add autoscale: "true"')
        return found
    deadline = given.text("deadline")
    objective = found.setdefault("objective", "deadline" if deadline else "fastest")
    if objective == "deadline" and not deadline:
        raise given.error("objective", 'needs the annotation deadline, for example "2h"')
    if deadline and objective != "deadline":
        raise given.error("deadline", f"contradicts the objective {objective}; leave one of them out")
    return found


def _backup(given: _Given) -> dict[str, str]:
    """Nothing said: the defaults count."""
    if not (text := given.text("backup")):
        return {}
    if (found := backup_said(text, lambda path: path if path.startswith("/") else "")) is None:
        raise given.error("backup", "write off, peer, disk=DIR or peer,disk=DIR, DIR absolute: every pod has to see it")
    return found


# ---------------------------------------------------------------------------------------------------- values


class _Given:
    """The annotations under our prefix, without it."""

    def __init__(self, job: TFJob) -> None:
        prefix = names.ANNOTATION_PREFIX
        found = {key[len(prefix) :]: value for key, value in job.annotations.items() if key.startswith(prefix)}
        self._values: Mapping[str, str] = {key: str(value).strip() for key, value in found.items()}
        for key, value in self._values.items():
            if key in known() and len(value) > TEXT_MAX:
                where = f"metadata.annotations[{names.ANNOTATION_PREFIX}{key}]"
                raise InvalidError(where, f"has {len(value)} characters; must have {TEXT_MAX} or less")

    def warnings(self) -> tuple[str, ...]:
        found = []
        for key in sorted(set(self._values) - {*known(), *OURS, *SUBMITTED}):
            near = difflib.get_close_matches(key, known(), n=1, cutoff=0.0)[0]
            found.append(f"annotation {names.ANNOTATION_PREFIX}{key} is not known and does nothing; is {near} meant?")
        return tuple(found)

    def error(self, key: str, message: str) -> InvalidError:
        return InvalidError(
            f"metadata.annotations[{names.ANNOTATION_PREFIX}{key}]", f"is {self._values.get(key, '')!r}; {message}"
        )

    def text(self, key: str) -> str:
        return self._values.get(key, "")

    def said(self, key: str) -> str:
        """One of the option's words."""
        (words,) = (row.words for row in all_rows() if row.annotation and row.key == key)
        text = self.text(key)
        if text and text not in words:
            raise self.error(key, f"write {one_of(words)}")
        return text

    def value(self, row: Option) -> Any:
        """As the option's type; None: not said."""
        if row.type is bool:
            return self.boolean(row.key)
        if not self.text(row.key):
            return None
        if row.words:
            return self.said(row.key)
        if row.type is int and row.unit != "bytes":
            return self.whole(row.key, least=0, most=MOST[row.unit])
        if (amount := _AMOUNTS.get(row.unit)) is None:
            return self.text(row.key)
        convert, most, in_words = amount
        try:
            found = convert(self.text(row.key))
        except OverflowError:
            found = math.inf
        except ValueError as error:
            raise self.error(row.key, str(error)) from None
        if not 0 <= found <= most:  # not a number is no amount either
            raise self.error(row.key, f"must be {in_words} or less")
        return found

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
