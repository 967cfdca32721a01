"""`DIR/decisions.jsonl`: every decision with what it was made from, and what came of it. Replayed, shown, tried again.

One JSON object a line, of two kinds:

    {"version": 1, "kind": "decision", "at": …, "observation": {…}, "policy": {…}, "decision": {…}}
    {"version": 1, "kind": "outcome", "number": 3, "outcome": "committed", "reason": "", "examples_per_second_after": 812.4}

`at` (Unix seconds) is for people; no decision depends on it. A line is written with one write and a newline at its end: a
reader takes a last line without one for torn and leaves it out, a writer cuts it off before it appends. Other lines that are
no JSON are an error, as is another version. The file is bounded: beyond `BYTES_MAX` it becomes `decisions.1.jsonl` (the one
that had that name is dropped) and begins anew.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import itertools
import json
import logging
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deeprec_ext.autoscaler.observe.observed import Observed, Size, Window
from deeprec_ext.autoscaler.observe.sane import sane_window
from deeprec_ext.autoscaler.outcomes.account import Account
from deeprec_ext.autoscaler.outcomes.brought import Brought, brought
from deeprec_ext.autoscaler.outcomes.measured import newest
from deeprec_ext.autoscaler.policy import thresholds
from deeprec_ext.autoscaler.policy.decision import Decision
from deeprec_ext.autoscaler.policy.thresholds import Policy
from deeprec_ext.decoding import built
from deeprec_ext.errors import UsageError
from deeprec_ext.wholefiles import cut_torn_line

log = logging.getLogger(__name__)
VERSION = 1
NAME, FORMER = "decisions.jsonl", "decisions.1.jsonl"
LINE_BYTES_MAX = 8 << 20
"""Of one line; an observation of 5 000 processes has about 3 MB. A longer one is not recorded."""
WAITING_BYTES_MAX = 2 * LINE_BYTES_MAX
"""Of lines that could not be written yet."""
BYTES_MAX = 64 << 20
"""Of the file: about 1 000 decisions of a job of 100 processes. Those to keep the size are one every five minutes, and one a
minute where their candidates take turns: half a week, or 17 hours. The file before it has as many again."""
EVENTS_MAX = 200
"""Changes and losses recorded with one observation; the policy looks back an hour."""
TOLD_MAX = 10_000
"""Decisions kept in memory to be told, about 1 kB each: those of a month in which the reason to keep the size stays the same,
of a week where one is recorded a minute."""


@dataclass(frozen=True)
class Outcome:
    """What came of a decision."""

    number: int
    outcome: str  # committed, rolled_back, refused; failed: by an error, part of it may have been done
    reason: str = ""
    examples_per_second_after: float = 0.0  # at the size it led to; 0: not measured, or nothing was changed


@dataclass(frozen=True)
class Entry:
    """One decision as recorded."""

    at: float  # Unix seconds
    observed: Observed
    policy: Policy
    decision: Decision
    inputs: str  # digest of the observation as it was written, which may be by another release
    outcome: Outcome | None = None


def digest(observation: Mapping[str, Any]) -> str:
    """Of the JSON of an observation: equal for equal ones."""
    text = json.dumps(observation, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def bounded(observed: Observed, policy: Policy) -> Observed:
    """The part of an observation that the policy looks at: the same decision comes from it."""
    windows = sorted((one for one in observed.windows if sane_window(one)), key=lambda window: window.start)
    return dataclasses.replace(
        observed, windows=newest(
            windows, policy.windows_per_size, policy.sizes_max, observed.first, policy.windows_of_noise
        ),
        changes=tuple(sorted(observed.changes, key=lambda one: one.time))[-EVENTS_MAX:],
        losses=tuple(sorted(observed.losses, key=lambda one: one.time))[-EVENTS_MAX:],
    )  # fmt: skip


class Record:
    """The writer. It reads what is there once, when it begins, and keeps of it what is asked for while the job runs.

    Raises OSError when it cannot begin; what cannot be written later waits for the next line, bounded.
    """

    def __init__(self, directory: Path, policy: Policy, wall: Callable[[], float] = time.time) -> None:
        self._path, self._former = directory / NAME, directory / FORMER
        self._policy, self._wall = policy, wall
        self._waiting: deque[bytes] = deque()
        self._failing = False
        self._told: dict[int, tuple[float, str]] = {}  # (at, decision as JSON) by number, ascending
        self._outcomes: dict[int, Outcome] = {}  # of those
        self._foretold: dict[int, float] = {}
        self._last: tuple[tuple[Window, ...], Size | None] = ((), None)
        self.next_number = 0
        cut_torn_line(self._path, LINE_BYTES_MAX)
        self._begin(directory)

    def _begin(self, directory: Path) -> None:
        """Of a damaged line only that is taken that can be read."""
        last: dict[str, Any] | None = None
        for where, line in _sound(directory):
            with contextlib.suppress(KeyError, TypeError, ValueError, OverflowError, UsageError):
                if line["kind"] == "outcome":
                    self._keep_outcome(_outcome(line))
                    continue
                last, decided = line, line["decision"]
                self.next_number = max(self.next_number, int(decided["number"]) + 1)
                with contextlib.suppress(UsageError):
                    self._foretold.update(_foretold_by(decided, where))
                self._keep(float(line["at"]), built(Decision, decided, "decision"))
        self._told = dict(sorted(self._told.items()))
        if last is not None:
            with contextlib.suppress(KeyError, TypeError, ValueError, OverflowError, UsageError):
                seen = Observed.from_values(last["observation"])
                self._last = tuple(sorted(filter(sane_window, seen.windows), key=lambda one: one.start)), seen.first

    def add(self, observed: Observed, decision: Decision) -> None:
        observation = json.loads(bounded(observed, self._policy).to_json())
        decision, at = dataclasses.replace(decision, inputs=digest(observation)), round(self._wall(), 3)
        recorded = self._append({
            "kind": "decision", "at": at, "observation": observation,
            "policy": thresholds.to_values(self._policy), "decision": json.loads(decision.to_json()),
        })  # fmt: skip
        if recorded:
            self._keep(at, decision)
        self.next_number = max(self.next_number, decision.number + 1)

    def outcome(self, number: int, outcome: str, reason: str, examples_per_second: float) -> None:
        rate = examples_per_second if math.isfinite(examples_per_second) else 0.0
        found = Outcome(number, outcome, reason[:1000], rate)
        self._append({"kind": "outcome", **dataclasses.asdict(found)})
        self._keep_outcome(found)

    def foretold(self) -> dict[int, float]:
        """Examples per second that each change was to bring, by number of decision, before this writer began."""
        return dict(self._foretold)

    def last(self) -> tuple[tuple[Window, ...], Size | None]:
        """What the last decision before this writer began was made from: (windows, oldest first; the size that the job began
        with). Nothing, where that cannot be read."""
        return self._last

    def tell(self, after: int, limit: int) -> list[str]:
        """The first `limit` decisions with a number above `after`, as JSON: {"at", "decision", "outcome" or null}.

        Nothing is read for it: a long job has 100 MB of them, and every open dashboard asks again and again.
        """
        found = list(itertools.takewhile(lambda one: one[0] > after, reversed(self._told.items())))
        return [
            f'{{"at": {json.dumps(at)}, "decision": {decision}, "outcome": {self._outcome_of(number)}}}'
            for number, (at, decision) in found[::-1][:limit]
        ]

    def _outcome_of(self, number: int) -> str:
        found = self._outcomes.get(number)
        return json.dumps(dataclasses.asdict(found) if found is not None else None)

    def _keep(self, at: float, decision: Decision) -> None:
        self._told[decision.number] = at, decision.to_json()
        if len(self._told) > TOLD_MAX:
            oldest = next(iter(self._told))
            del self._told[oldest]
            self._outcomes.pop(oldest, None)

    def _keep_outcome(self, found: Outcome) -> None:
        if found.number in self._told:
            self._outcomes[found.number] = found

    def _append(self, values: dict[str, Any]) -> bool:
        """Whether it is written, or waits to be."""
        line = json.dumps({"version": VERSION, **values}, separators=(",", ":")).encode() + b"\n"
        if len(line) > LINE_BYTES_MAX:
            return False
        self._waiting.append(line)
        while sum(map(len, self._waiting)) > WAITING_BYTES_MAX:
            self._waiting.popleft()  # history: what is decided is in the store
        try:
            while self._waiting:
                self._write(self._waiting[0])
                self._waiting.popleft()
            self._failing = False
        except OSError as error:
            if not self._failing:
                log.error("%s cannot be written: %s; decisions wait there", self._path, error)
            self._failing = True
        return True

    def _write(self, line: bytes) -> None:
        """Raises OSError; then nothing of it is written."""
        if self._path.exists() and self._path.stat().st_size + len(line) > BYTES_MAX:
            self._path.replace(self._former)
        with self._path.open("ab", buffering=0) as file:
            size = file.tell()
            if file.write(line) < len(line):  # the disk is full
                file.truncate(size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))


# ---------------------------------------------------------------------------------------------------------- reading


def read(directory: Path) -> list[Entry]:
    """All decisions of a job, oldest first, each with its outcome.

    Raises UsageError: nothing was recorded, another version, or damaged (not only torn at the end).
    """
    if not (directory / NAME).exists() and not (directory / FORMER).exists():
        raise UsageError(
            f"{directory}: no decisions were recorded in it so far (no {NAME}); they are of jobs with --autoscale"
        )
    return _read(directory)


def _read(directory: Path) -> list[Entry]:
    """Empty, where nothing was recorded."""
    entries: list[Entry] = []
    outcomes: dict[int, Outcome] = {}
    for path in (directory / FORMER, directory / NAME):
        for number, line in enumerate(_lines(path), 1):
            try:
                if line["kind"] == "outcome":
                    found = _outcome(line)
                    outcomes[found.number] = found
                else:
                    entries.append(_entry(line))
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                raise UsageError(f"{path}, line {number}: is damaged ({error!r})") from None
            except UsageError as error:
                raise UsageError(f"{path}, line {number}: {error}") from None
    return [dataclasses.replace(entry, outcome=outcomes.get(entry.decision.number)) for entry in entries]


def brought_by(entries: Sequence[Entry]) -> Brought | None:
    """What the decisions of a job have brought; None: no size was changed, or nothing was measured at the first one."""
    return brought([one.observed for one in entries], entries[-1].policy.disturbance) if entries else None


def brought_in(directory: Path) -> Brought | None:
    """The same from the record of a job. Of each decision only that is looked at which the ones before it do not have: a long
    job's record has 128 MiB, nearly all of it said again and again. Raises UsageError: damaged."""
    found: list[Observed] = []
    known: set[tuple[Any, ...]] = set()
    last: dict[str, Any] = {}
    for path, number, line in _numbered(directory):
        if line["kind"] == "decision":
            try:
                found.append(Observed.from_values(_new_in(line["observation"], known)))
                last = line
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                raise UsageError(f"{path}, line {number}: is damaged ({error!r})") from None
    return brought(found, thresholds.from_values(last.get("policy")).disturbance) if found else None


def account_in(directory: Path) -> Account | None:
    """The account of the same; None also where the record is damaged, as `deeprec-ext decisions` says."""
    with contextlib.suppress(UsageError, OSError):
        found = brought_in(directory)
        return found.account if found is not None else None
    return None


def _new_in(values: dict[str, Any], known: set[tuple[Any, ...]]) -> dict[str, Any]:
    """An observation with the windows and changes that are not known yet, and without processes. Adds to `known`."""
    new: dict[str, list[Any]] = {"roles": [], "hosts": [], "slots": [], "losses": []}
    for name, key in (("windows", ("start",)), ("changes", ("time", "role"))):
        new[name] = []
        for one in values[name]:
            if (which := (name, *(one[part] for part in key))) not in known:
                known.add(which)
                new[name].append(one)
    return {**values, **new}


def predictions(directory: Path) -> list[tuple[float, float]]:
    """(examples per second predicted, measured after) of each change that was made and measured. Raises UsageError: damaged."""
    predicted: dict[int, float] = {}
    measured: dict[int, float] = {}
    for path, number, line in _numbered(directory):
        if line["kind"] == "decision":
            predicted.update(_foretold_by(line["decision"], f"{path}, line {number}"))
            continue
        try:
            if (found := _outcome(line)).outcome == "committed":
                measured[found.number] = found.examples_per_second_after
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"{path}, line {number}: is damaged ({error!r})") from None
    return [(predicted[number], rate) for number, rate in sorted(measured.items())
            if predicted.get(number, 0.0) > 0 and rate > 0 and math.isfinite(predicted[number] + rate)]  # fmt: skip


def _foretold_by(decision: dict[str, Any], where: str) -> dict[int, float]:
    """Of one decision; empty: it changes nothing. Raises UsageError: damaged."""
    try:
        if decision["action"] in ("keep", "start"):
            return {}
        rate = float(decision["prediction"]["examples_per_second"])
        return {int(decision["number"]): rate if math.isfinite(rate) else 0.0}
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"{where}: is damaged ({error!r})") from None


def _numbered(directory: Path) -> Iterator[tuple[Path, int, dict[str, Any]]]:
    """(file, number, line) of the whole record, oldest first."""
    for path in (directory / FORMER, directory / NAME):
        for number, line in enumerate(_lines(path), 1):
            yield path, number, line


def _sound(directory: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(where it stands, line) of those that can be read. Raises OSError."""
    for path in (directory / FORMER, directory / NAME):
        if path.exists():
            with path.open("rb") as file:
                while raw := file.readline(LINE_BYTES_MAX + 1):  # pieces of a longer line are no JSON either
                    with contextlib.suppress(UsageError):
                        yield path.name, _parsed(raw, path.name)


def latest(directory: Path) -> Entry:
    """The newest decision with its observation. Raises UsageError."""
    entries = read(directory)
    if not entries:
        raise UsageError(f"{directory}: no decision was recorded yet")
    return entries[-1]


def _entry(line: dict[str, Any]) -> Entry:
    observed, decision = Observed.from_values(line["observation"]), built(Decision, line["decision"], "decision")
    inputs = digest(line["observation"])
    return Entry(float(line["at"]), observed, thresholds.from_values(line["policy"]), decision, inputs)


def _outcome(line: dict[str, Any]) -> Outcome:
    return built(Outcome, {name: line[name] for name in ("number", "outcome", "reason", "examples_per_second_after")})


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of a file, without a torn last one. Raises UsageError."""
    if not path.exists():
        return
    with path.open("rb") as file:
        number = 0
        while raw := file.readline(LINE_BYTES_MAX + 1):
            number += 1
            if not raw.endswith(b"\n"):
                if len(raw) > LINE_BYTES_MAX:
                    raise UsageError(f"{path}, line {number}: is longer than {LINE_BYTES_MAX} bytes")
                return
            yield _parsed(raw, f"{path}, line {number}")


def _parsed(raw: bytes, where: str) -> dict[str, Any]:
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):
        raise UsageError(f"{where}: is no JSON; the file is damaged") from None
    if not isinstance(line, dict) or line.get("kind") not in ("decision", "outcome"):
        raise UsageError(f"{where}: is no record of a decision")
    if line.get("version") != VERSION:
        raise UsageError(f"{where}: has version {line.get('version')}, known is {VERSION}: use another deeprec-ext")
    decision = line.get("decision")
    if line["kind"] == "decision" and not (isinstance(decision, dict) and isinstance(decision.get("number"), int)):
        raise UsageError(f"{where}: is damaged (a decision without a number)")
    return line
