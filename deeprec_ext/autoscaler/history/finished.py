"""What the history keeps of a job that has ended, read from its run directory: time series, catalogue, traces.

The series know everything that is needed: how many PS and trainers there were, what each used and was held to. So every job
teaches something, also one whose sizes were chosen by hand.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from deeprec_ext.aimaster.core.records import GIVEN_UP, KINDS_KEY, Scaling
from deeprec_ext.aimaster.store.resuming import CHECKPOINT
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.autoscaler.history.history import Finished, Fitted
from deeprec_ext.autoscaler.history.possible import ALLREDUCE, PS
from deeprec_ext.autoscaler.history.use import Brought, mean_of, use_of
from deeprec_ext.autoscaler.model import synchronous
from deeprec_ext.autoscaler.model.memory_model import Layout, PsMemory, for_count
from deeprec_ext.autoscaler.model.throughput import SizeModel, fit
from deeprec_ext.autoscaler.observe.changes import changes_of
from deeprec_ext.autoscaler.observe.features import fingerprint_of, model_of, with_declared
from deeprec_ext.autoscaler.observe.observed import Size, Window
from deeprec_ext.autoscaler.outcomes.account import Account, account, stood
from deeprec_ext.autoscaler.outcomes.conditions import comparable
from deeprec_ext.autoscaler.outcomes.trials import stays
from deeprec_ext.gazer.series import Series
from deeprec_ext.gazer.series_lines import Line
from deeprec_ext.proto import deeprec_ext_pb2 as pb

SETTLE_SECONDS = 10.0
"""After a change of size, and at the start: caches are cold and sessions new."""

WINDOW_SECONDS_MIN = 10.0
"""What a size had for less says nothing."""

POINTS_MAX = 2000
TRACES_MAX = 20

_JOB = ("ps", "workers", "examples_per_second", "steps_per_second")
_HOST = ("cores", "others_cores")
_PROCESS = ("cpu_cores", "cpu_limit_cores", "rss_bytes", "working_set_bytes", "memory_limit_bytes")
_STEP = ("step_seconds", "sum_seconds")
"""Of what the steps of a job without PS consist."""

LIMITS = {"ps_cpu": "cpu_limit_cores", "worker_cpu": "cpu_limit_cores", "ps_memory_bytes": "memory_limit_bytes",
          "worker_memory_bytes": "memory_limit_bytes"}  # fmt: skip
"""Field of Size -> the metric of a process that tells it."""

OF_SIZE = ("scale-up", "scale-down", "resize", GIVEN_UP)
"""Kinds of scalings after which the size is another one: counts, or what a role requests."""

NOTHING_REQUESTED = Size(1, 0)

M = TypeVar("M", bound=Message)

Values = Mapping[str, Line]
"""Of one subject, by metric."""


def finished_job(
    workdir: Path, *, script: str, status: str, seconds: float, finished: float, requested: Size = NOTHING_REQUESTED,
    backups: bool = True, name: str = "", autoscaled: bool = False, disturbance: float = 0.0,
    reserved: Size = NOTHING_REQUESTED, recorded: Account | None = None, local_batch: bool = False,
) -> Finished | None:  # fmt: skip
    """None when the job never trained. Raises StoreError, sqlite3.Error.

    Args:
        workdir: run directory, with `aimaster.db`.
        script: what tells jobs of one script from others.
        seconds, finished: duration, and Unix seconds of the end.
        requested: of each process at first; its counts are ignored. What a process sees of other limits than these (0) is what
            it shares with others.
        backups: whether peer backups were on.
        disturbance: as the policy has it: share of throughput that a change takes while it goes on.
        recorded: what its changes have brought, by the record of its decisions; None: there is none, or it does not say.
        reserved: of each process, what finds it a place and is no limit; where nothing is requested, it is what was held.
        local_batch: of a job without PS: each worker is said to have a batch of its own.
    """
    store = Store(workdir / "aimaster.db", read_only=True)
    try:
        series = Series(store)
        sums = store.get("slots") == 0
        metrics = sorted({*_JOB, *_HOST, *_PROCESS, *(_STEP if sums else ())})
        names = [name for name in series.subjects() if name.startswith(("ps-", "chief-", "worker-", "host-"))]
        lines: dict[str, dict[str, Line]] = {}
        for line in series.query(["job", *names], metrics, points=POINTS_MAX):
            lines.setdefault(line.subject, {})[line.metric] = line
        traces = [trace for _, _, trace in series.traces()[-TRACES_MAX:]]
        catalogue, declaration = _read(store, "catalogue", pb.Catalogue), _read(store, "declaration", pb.Declaration)
        steps, examples, slots = int(store.get("step", 0)), store.examples(), int(store.get("slots", 0))
        scalings, kinds, saved = store.scalings(), store.get(KINDS_KEY, []), bool(store.get(CHECKPOINT, {}))
    finally:
        store.close()
    if not steps or not examples:
        return None
    ps, trainers, whole = _of(lines, "ps-"), _of(lines, "chief-", "worker-"), lines.get("job", {})
    batch = float(declaration.batch_size) or _batch(whole) or examples / steps
    limited = frozenset(name for name in LIMITS if getattr(requested, name))
    windows = tuple(windows_of(whole, ps, trainers, _of(lines, "host-"), batch, limited, sums=sums))
    each = {
        "ps": (requested.ps_cpu or reserved.ps_cpu, float(requested.ps_memory_bytes or reserved.ps_memory_bytes)),
        "": (
            requested.worker_cpu or reserved.worker_cpu,
            float(requested.worker_memory_bytes or reserved.worker_memory_bytes),
        ),
    }
    computed = _computed(catalogue, slots, windows, backups)
    told = brought_by(whole, windows, scalings, disturbance)
    return Finished(
        script=script, finished=finished, status=status, seconds=round(seconds, 3),
        model=with_declared(model_of(catalogue, slots=slots, batch_size=batch, traces=traces), declaration),
        windows=windows, ps_memory_bytes=_highest(ps, requested.ps_memory_bytes > 0),
        worker_memory_bytes=_highest(trainers, requested.worker_memory_bytes > 0), examples=examples,
        backups=backups and not sums, name=name, autoscaled=autoscaled, fitted=_fitted(windows, sums, local_batch),
        use=use_of({**ps, **trainers}, each),
        brought=told if recorded is None else as_recorded(told, recorded),
        fingerprint=fingerprint_of(catalogue), machine=kinds[0] if len(kinds) == 1 else "",
        ps_computed_bytes=computed.total, ps_stored_bytes=computed.stored,
        ps_copied_bytes=computed.tables if saved else 0, computes=tuple(declaration.computes),
        strategy=ALLREDUCE if sums else PS, local_batch=sums and local_batch,
    )  # fmt: skip


def brought_by(job: Values, windows: Sequence[Window], scalings: Sequence[Scaling], disturbance: float) -> Brought:
    """The account of its changes by its time series: of changes by hand, too.

    Args:
        job: lines of the subject `job`.
        windows: as `windows_of` has them.
    """
    of_size = [one for one in scalings if one.kind in OF_SIZE]  # a PS that came back after a loss changes none
    made = [one for one in of_size if one.outcome == "committed"]
    nothing = Brought(len(made), len(of_size) - len(made), by_hand=sum(one.asked for one in made))
    speed, ps, workers = job.get("examples_per_second"), job.get("ps"), job.get("workers")
    if speed is None or ps is None or workers is None or not speed.times:
        return nothing
    began, mean = speed.times[0], round(mean_of(speed), 3)
    first = _at(ps, began), _at(workers, began)
    if not windows or not all(map(math.isfinite, first)):
        return dataclasses.replace(nothing, examples_per_second=mean)
    changes = sorted(changes_of(scalings, began, {}), key=lambda one: one.time)
    last = {one.role: one.to_count for one in changes if one.outcome == "committed" and one.from_count != one.to_count}
    size = Size(last.get("ps", round(first[0])), last.get("worker", round(first[1]) - 1))
    ordered = sorted(windows, key=lambda window: window.start)
    idle = stood([time - began for time in speed.times])
    found = account(stays(size, changes), comparable(ordered), speed.times[-1] - began, disturbance, idle)
    return as_recorded(dataclasses.replace(nothing, examples_per_second=mean), found)


def as_recorded(told: Brought, found: Account) -> Brought:
    """With the figures of this account. Summary, report and `decisions` have them from the record of the decisions, whose
    windows begin after each change has settled; the time series, with whatever falls between, say something else."""
    if not found.first_rate:
        return told
    return dataclasses.replace(
        told, first_examples_per_second=round(found.first_rate, 3), saved_seconds=round(-found.lost_seconds, 3),
        gained=round(found.gained, 4),
    )  # fmt: skip


def _batch(job: Values) -> float:
    """Examples per step, as they were trained: the global step may have begun where an earlier job had ended. 0: not known."""
    examples, steps = job.get("examples_per_second"), job.get("steps_per_second")
    if examples is None or steps is None:
        return 0.0
    made = dict(zip(steps.times, steps.means))
    found = [
        rate / made[time] for time, rate in zip(examples.times, examples.means) if rate > 0 and made.get(time, 0) > 0
    ]
    return statistics.median(found) if found else 0.0


def _read(store: Store, name: str, kind: type[M]) -> M:
    """Empty, where it cannot be read."""
    try:
        return kind.FromString(store.blob(name))
    except DecodeError:
        return kind()


def _computed(catalogue: pb.Catalogue, slots: int, windows: Sequence[Window], backups: bool) -> PsMemory:
    layout = Layout.of(catalogue, slots)
    fewest = min((window.size.ps for window in windows), default=0)
    return for_count(layout, fewest, backups=backups) if fewest and any(layout.counts) else PsMemory(process=0)


def _fitted(windows: Sequence[Window], sums: bool, local: bool) -> Fitted:
    """Without the libraries of the extra `autoscale` there is no model: whoever reads the windows fits one again."""
    with contextlib.suppress(ImportError):
        found: SizeModel | None = synchronous.fit(windows, local=local) if sums else fit(windows)
        if found is not None:
            return Fitted(found.coefficients, found.mape_holdout)
    return Fitted()


def windows_of(
    job: Values,
    ps: Mapping[str, Values],
    trainers: Mapping[str, Values],
    hosts: Mapping[str, Values],
    batch: float,
    limited: frozenset[str],
    *,
    sums: bool = False,
) -> list[Window]:
    """One per size that the job had for a while, undisturbed: means over all of that time.

    Args:
        job: lines of the subject `job`.
        ps, trainers, hosts: lines of each.
        batch: examples per step; without PS they follow from the rates.
        sums: the job has no PS.
    """
    speed, counts, workers = job.get("examples_per_second"), job.get("ps"), job.get("workers")
    if speed is None or counts is None or workers is None or not speed.times:
        return []
    begin, found = speed.times[0], dict[Size, list[tuple[float, float, Window]]]()
    settled, before, last = begin + SETTLE_SECONDS, (0.0, 0.0), begin
    for time, rate in zip(speed.times, speed.means):
        now = _at(counts, time), _at(workers, time)
        if now != before:
            settled, before = time + SETTLE_SECONDS, now
        length, last = time - last, time
        whole = all(math.isfinite(value) and value == round(value) for value in now)
        whole = whole and now[1] >= 1 and (now[0] == 0 if sums else now[0] >= 1)
        if time < settled or not whole or not rate > 0:
            continue
        used, served = sum(_each(trainers, "cpu_cores", time)), _each(ps, "cpu_cores", time)
        limits = {
            name: _limit(ps if name.startswith("ps_") else trainers, metric, time) if name in limited else 0.0
            for name, metric in LIMITS.items()
        }
        size = Size(
            round(now[0]), round(now[1]) - 1, limits["ps_cpu"], limits["worker_cpu"], int(limits["ps_memory_bytes"]),
            int(limits["worker_memory_bytes"]),
        )  # fmt: skip
        own, summing = _of_a_step(trainers, time) if sums else (0.0, 0.0)
        window = Window(
            time - begin, length, size, rate, _records(job, time, now[1], batch) if sums else batch,
            ps_busy_share=0.0, input_wait_share=0.0,
            trainer_cpu_cores=used / now[1], ps_cpu_cores=sum(served), ps_cpu_most_cores=max(served, default=0.0),
            preparing=False, own_seconds=own, sum_seconds=summing, **_host(hosts, time),
        )  # fmt: skip
        found.setdefault(size, []).append((time, length, window))
    return [
        merged for rows in found.values() if (merged := _merge([row[2] for row in rows])).seconds >= WINDOW_SECONDS_MIN
    ]


def _merge(windows: Sequence[Window]) -> Window:
    """Medians: a backup or a checkpoint now and then is part of no size."""
    first = windows[0]

    def middle(name: str) -> float:
        return round(statistics.median(getattr(window, name) for window in windows), 5)

    return Window(
        round(first.start, 3), round(sum(window.seconds for window in windows), 3), first.size,
        round(middle("examples_per_second"), 3), statistics.median(window.examples_per_step for window in windows),
        ps_busy_share=0.0, input_wait_share=0.0, trainer_cpu_cores=middle("trainer_cpu_cores"),
        ps_cpu_cores=middle("ps_cpu_cores"), ps_cpu_most_cores=middle("ps_cpu_most_cores"), preparing=False,
        host_cores=middle("host_cores"), others_cores=middle("others_cores"), own_seconds=middle("own_seconds"),
        sum_seconds=middle("sum_seconds"),
    )  # fmt: skip


def _records(job: Values, time: float, trainers: float, otherwise: float) -> float:
    """Of one worker in a step, without PS."""
    rate, steps = _at(job.get("examples_per_second"), time), _at(job.get("steps_per_second"), time)
    return rate / steps / trainers if rate > 0 and steps > 0 else otherwise / trainers


def _of_a_step(trainers: Mapping[str, Values], time: float) -> tuple[float, float]:
    """(the slowest worker's seconds of a step without its sum, the shortest sum), without PS; 0: not known."""
    times = [
        (step, _alive(values.get("sum_seconds"), time)) for values in trainers.values()
        if (step := _alive(values.get("step_seconds"), time)) > 0
    ]  # fmt: skip
    if not times:
        return 0.0, 0.0
    return max(max(0.0, step - summing) for step, summing in times), min(summing for _, summing in times)


def _of(lines: Mapping[str, Values], *prefixes: str) -> dict[str, Values]:
    return {name: values for name, values in lines.items() if name.startswith(prefixes)}


def _at(line: Line | None, time: float) -> float:
    """The value of the interval that ends then, or last before; NaN where there is none."""
    place = bisect.bisect_right(line.times, time + 1e-3) - 1 if line is not None else -1
    return line.means[place] if line is not None and place >= 0 else math.nan


def _each(subjects: Mapping[str, Values], metric: str, time: float) -> list[float]:
    """Of all that are there at this moment and have it."""
    found = [_alive(values.get(metric), time) for values in subjects.values()]
    return [value for value in found if value > 0]


def _alive(line: Line | None, time: float) -> float:
    """The value, unless the line ended before: the process has left."""
    if line is None or not line.times or line.times[-1] < time - SETTLE_SECONDS or line.times[0] > time + 1e-3:
        return 0.0
    return _at(line, time)


def _host(hosts: Mapping[str, Values], time: float) -> dict[str, float]:
    """As a window tells of the one host that there was."""
    cores = _each(hosts, "cores", time)
    others = sum(_each(hosts, "others_cores", time))
    return (
        {"host_cores": cores[0], "others_cores": others}
        if len(cores) == 1
        else {"host_cores": 0.0, "others_cores": 0.0}
    )


def _limit(processes: Mapping[str, Values], metric: str, time: float) -> float:
    """The lowest limit of those that live and have one; 0: none has."""
    limits = [_alive(values.get(metric), time) for values in processes.values()]
    return min((round(value, 4) for value in limits if value > 0), default=0.0)


def _highest(processes: Mapping[str, Values], own: bool) -> int:
    """`own`: each has a container of its own, so that its working set is its. Others share one, and what counts is resident."""
    highest = [
        value for values in processes.values() for metric in (("working_set_bytes", "rss_bytes") if own else ("rss_bytes",))
        if (line := values.get(metric)) is not None for value in line.highest if math.isfinite(value)
    ]  # fmt: skip
    return int(max(highest, default=0))
