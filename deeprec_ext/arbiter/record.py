"""What was decided, and from what: one JSON object a line, for people and to be decided again.

    {"version": 1, "rules": {…}, "cluster": {…}, "decision": {…}}

Only decisions that changed something are written. A job that is as in the line before (of the same `term`: a leader that wakes
up among the lines of another means its own) is `{"as": its place there,
"silent_seconds": …}`, and its allowance `null` where it keeps the one that it was observed with: of a thousand jobs a line has
those that changed. The first line of a writer, and of a file, has all. A last line without a newline is torn: a reader leaves
it out, a writer cuts it off. Beyond `BYTES_MAX` the file becomes `NAME.1.jsonl`, in place of the one of that name.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deeprec_ext.arbiter.deciding import decide
from deeprec_ext.arbiter.observed import Allowance, Cluster, Decision, Job
from deeprec_ext.arbiter.rules import Rules
from deeprec_ext.decoding import built
from deeprec_ext.errors import UsageError
from deeprec_ext.wholefiles import cut_torn_line

log = logging.getLogger(__name__)
VERSION = 1
LINE_BYTES_MAX = 16 << 20
"""1 000 jobs with 64 sizes each have 5 MB. A longer line is not written."""
BYTES_MAX = 64 << 20
"""Of a file; there are two."""


def former(path: Path) -> Path:
    return path.with_name(f"{path.stem}.1{path.suffix}")


class Record:
    """The writer: of one leader at a time, in its term. What cannot be written is said once, and no decision waits for it."""

    def __init__(self, path: Path, rules: Rules = Rules(), term: int = 0) -> None:  # noqa: B008  (frozen)
        self.path, self._rules, self._term = path, rules, term
        self._known: dict[Job, int] = {}  # jobs of the line before, not silent → their places
        self._names: frozenset[str] = frozenset()  # of the line before
        self._began = self._failing = False

    def add(self, cluster: Cluster, decision: Decision) -> bool:
        """Whether it was written: something was changed, or a job is gone, and there was room."""
        names = frozenset(job.name for job in cluster.jobs)
        if not decision.changed and names >= self._names:
            return False
        try:
            if not self._began:
                cut_torn_line(self.path, LINE_BYTES_MAX)
                self._began = True
            line = self._line(cluster, decision)
            if self.path.exists() and self.path.stat().st_size + len(line) > BYTES_MAX:
                self.path.replace(former(self.path))
                self._known = {}
                line = self._line(cluster, decision)
            if len(line) > LINE_BYTES_MAX:
                return False
            self._write(line)
        except OSError as error:
            if not self._failing:
                log.error("%s cannot be written: %s; the arbiter goes on without its record", self.path, error)
            self._failing, self._known = True, {}
            return False
        self._failing, self._names = False, names
        self._known = {_heard(job): place for place, job in enumerate(cluster.jobs)}
        return True

    def _line(self, cluster: Cluster, decision: Decision) -> bytes:
        jobs: list[object] = []
        for job in cluster.jobs:
            place = self._known.get(_heard(job))
            jobs.append(vars(job) if place is None else {"as": place, "silent_seconds": job.silent_seconds})
        kept = [None if one == job.allowance else vars(one) for one, job in zip(decision.allowances, cluster.jobs)]
        values = {
            "version": VERSION, "term": self._term, "rules": vars(self._rules), "cluster": {**vars(cluster), "jobs": jobs},
            "decision": {**vars(decision), "allowances": kept},
        }  # fmt: skip
        return json.dumps(values, separators=(",", ":"), default=vars).encode() + b"\n"

    def _write(self, line: bytes) -> None:
        """Raises OSError; then nothing of it is written."""
        with self.path.open("ab", buffering=0) as file:
            size = file.tell()
            if file.write(line) < len(line):
                file.truncate(size)
                raise OSError(28, os.strerror(28), str(self.path))


def _heard(job: Job) -> Job:
    return dataclasses.replace(job, silent_seconds=0.0)


# ------------------------------------------------------------------------------------------------------------- reading


@dataclass(frozen=True)
class Replayed:
    """One decision of the record, and the one that is made now."""

    cluster: Cluster
    rules: Rules
    recorded: Decision
    now: Decision

    @property
    def differences(self) -> dict[str, tuple[Allowance, Allowance]]:
        """Job → (recorded, now)."""
        pairs = zip(self.recorded.allowances, self.now.allowances)
        return {old.job: (old, new) for old, new in pairs if old != new}

    @property
    def same(self) -> bool:
        return self.recorded == self.now


def replay(path: Path, rules: Rules | None = None) -> Iterator[Replayed]:
    """The decisions of a record, oldest first, each made again.

    Args:
        rules: instead of those recorded with each.

    Raises UsageError as `recorded` does.
    """
    for cluster, of_then, decision in recorded(path):
        used = rules if rules is not None else of_then
        yield Replayed(cluster, used, decision, decide(cluster, used))


def recorded(path: Path) -> Iterator[tuple[Cluster, Rules, Decision]]:
    """The decisions of a record, oldest first, as they were made.

    Raises UsageError: there is no record, it has another version, or is damaged (not only torn at its end).
    """
    if not path.exists() and not former(path).exists():
        raise UsageError(f"{path}: no decisions of an arbiter were recorded there so far")
    for each in (former(path), path):
        before: dict[object, tuple[Job, ...]] = {}
        for number, line in _lines(each):
            where, term = f"{each}, line {number}", str(line.get("term"))
            try:
                found = _read(line, before.get(term, ()))
            except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
                raise UsageError(f"{where}: is damaged ({error!r:.200})") from None
            before[term] = found[0].jobs
            yield found


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    if not path.exists():
        return
    with path.open("rb") as file:
        number = 0
        while raw := file.readline(LINE_BYTES_MAX + 1):
            number += 1
            where = f"{path}, line {number}"
            if not raw.endswith(b"\n"):
                if len(raw) > LINE_BYTES_MAX:
                    raise UsageError(f"{where}: is longer than {LINE_BYTES_MAX} bytes")
                return
            try:
                line = json.loads(raw)
            except (ValueError, RecursionError):
                raise UsageError(f"{where}: is no JSON; the file is damaged") from None
            if not isinstance(line, dict) or "version" not in line:
                raise UsageError(f"{where}: is no record of an arbiter's decision")
            if line["version"] != VERSION:
                raise UsageError(
                    f"{where}: has version {line['version']!r:.40}, known is {VERSION}: use another deeprec-ext"
                )
            yield number, line


def _read(line: Mapping[str, Any], before: tuple[Job, ...]) -> tuple[Cluster, Rules, Decision]:
    jobs = tuple(
        dataclasses.replace(before[one["as"]], silent_seconds=float(one["silent_seconds"]))
        if "as" in one else built(Job, one, "job", newer=True, measured=True)
        for one in line["cluster"]["jobs"]
    )  # fmt: skip
    cluster = built(Cluster, {**line["cluster"], "jobs": []}, "cluster", newer=True, measured=True)
    decision = built(Decision, {**line["decision"], "allowances": []}, "decision", newer=True, measured=True)
    allowances = line["decision"]["allowances"]
    if len(allowances) != len(jobs):
        raise ValueError(f"{len(allowances)} allowances of {len(jobs)} jobs")
    given = []
    for job, one in zip(jobs, allowances):
        kept = job.allowance if one is None else built(Allowance, one, "allowance", newer=True, measured=True)
        if kept is None:
            raise ValueError(f"job {job.name:.60} has no allowance")
        given.append(kept)
    rules = built(Rules, line["rules"], "rules", newer=True)
    return (
        dataclasses.replace(cluster, jobs=jobs), rules, dataclasses.replace(decision, allowances=tuple(given)),
    )  # fmt: skip
