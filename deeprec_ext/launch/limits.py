"""How many PS and workers a job has and may have: defaults, and everything that can be refused before a process starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deeprec_ext.errors import UsageError
from deeprec_ext.launch.events import ScriptedEvent
from deeprec_ext.options import DEFAULT_MAX, DEFAULT_SLOTS, filled_in


@dataclass(frozen=True)
class Limits:
    """Counts of one job. `workers` are those beside the chief; S = `slots` never changes."""

    ps: int
    workers: int
    slots: int
    min_ps: int
    max_ps: int
    min_workers: int
    max_workers: int
    evaluator: bool


def resolve_limits(
    *, ps: int, workers: int, slots: int | None, min_ps: int | None, max_ps: int | None, min_workers: int | None,
    max_workers: int | None, evaluator: bool, events: Sequence[ScriptedEvent] = (),
) -> Limits:  # fmt: skip
    """Fill in what was not given, and check it. Raises UsageError with the flag to change."""
    wanted_ps = max([ps, *(event.sizes.get("ps", ps) for event in events)])
    wanted_workers = max([workers, *(event.sizes.get("workers", workers) for event in events)])
    max_ps, slots = filled_in(ps, wanted_ps, max_ps, slots)
    limits = Limits(
        ps=ps, workers=workers, slots=slots, min_ps=1 if min_ps is None else min_ps, max_ps=max_ps,
        min_workers=0 if min_workers is None else min_workers,
        max_workers=max(wanted_workers, DEFAULT_MAX) if max_workers is None else max_workers, evaluator=evaluator,
    )  # fmt: skip
    _check_counts(limits)
    for number, event in enumerate(events, 1):
        _check_event(event, number, limits)
    return limits


def growth(
    limits: Limits, *, slots: int | None, max_ps: int | None, max_workers: int | None,
    events: Sequence[ScriptedEvent] = (),
) -> tuple[str, ...]:  # fmt: skip
    """What nobody has asked for by its flag, and `resolve_limits` has raised above its default: a line for each."""
    told = []
    if max_ps is None and limits.max_ps > DEFAULT_MAX:
        more = f" and {limits.slots:,} slots" if slots is None else ""
        usual = f"{DEFAULT_MAX}{f' and {DEFAULT_SLOTS}' if slots is None else ''}"
        told.append(f"up to {limits.max_ps:,} PS{more} instead of {usual}: {_need('ps', limits.ps, events)}")
    elif slots is None and limits.slots > DEFAULT_SLOTS:
        told.append(f"{limits.slots:,} slots instead of {DEFAULT_SLOTS}: --max-ps {limits.max_ps} needs them")
    if max_workers is None and limits.max_workers > DEFAULT_MAX:
        told.append(
            f"up to {limits.max_workers:,} workers instead of {DEFAULT_MAX}: {_need('workers', limits.workers, events)}"
        )
    return tuple(told)


def _need(what: str, first: int, events: Sequence[ScriptedEvent]) -> str:
    scales = [event for event in events if event.sizes.get(what, first) > first]
    most = max(scales, key=lambda event: event.sizes[what], default=None)
    return f"--{what} {first} needs it" if most is None else f"the event `{most}` needs it"


def _check_counts(limits: Limits) -> None:
    if any((limits.ps, limits.slots, limits.max_ps)):
        _check_ps(limits)
    if limits.workers < 0:
        raise UsageError(f"--workers {limits.workers}: must be 0 (only the chief) or more")
    if limits.min_workers < 0:
        raise UsageError(f"--min-workers {limits.min_workers}: must be 0 or more")
    if limits.max_workers < 0:
        raise UsageError(f"--max-workers {limits.max_workers}: must be 0 (only the chief) or more")
    if limits.max_workers < limits.min_workers:
        raise UsageError(f"--min-workers {limits.min_workers} is more than --max-workers {limits.max_workers}")
    if not limits.min_workers <= limits.workers <= limits.max_workers:
        raise UsageError(
            f"--workers {limits.workers}: must lie between --min-workers {limits.min_workers} "
            f"and --max-workers {limits.max_workers}"
        )


def _check_ps(limits: Limits) -> None:
    if limits.ps < 1:
        raise UsageError(f"--ps {limits.ps}: a job needs at least 1 PS, or --strategy allreduce")
    if limits.min_ps < 1:
        raise UsageError(f"--min-ps {limits.min_ps}: must be 1 or more")
    if limits.max_ps < 1:
        raise UsageError(f"--max-ps {limits.max_ps}: must be 1 or more")
    if limits.max_ps < limits.min_ps:
        raise UsageError(f"--min-ps {limits.min_ps} is more than --max-ps {limits.max_ps}")
    if limits.slots < limits.ps:
        raise UsageError(
            f"--ps {limits.ps} with --slots {limits.slots}: a PS needs at least one slot; lower --ps or raise --slots"
        )
    if limits.slots < limits.max_ps:
        raise UsageError(
            f"--max-ps {limits.max_ps} with --slots {limits.slots}: a PS needs at least one slot; raise --slots"
        )
    if not limits.min_ps <= limits.ps <= limits.max_ps:
        raise UsageError(f"--ps {limits.ps}: must lie between --min-ps {limits.min_ps} and --max-ps {limits.max_ps}")


def _check_event(event: ScriptedEvent, number: int, limits: Limits) -> None:
    where = f"--events, event {number} ({event})"
    if not limits.slots and ("ps" in event.sizes or event.target.startswith("ps-")):
        raise UsageError(f"{where}: with --strategy allreduce there are no PS")
    for what, count in event.sizes.items():
        low, high = (limits.min_ps, limits.max_ps) if what == "ps" else (limits.min_workers, limits.max_workers)
        if what == "ps" and count > limits.slots:
            raise UsageError(f"{where}: more PS than the {limits.slots} slots; raise --slots")
        if not low <= count <= high:
            raise UsageError(f"{where}: {what} must lie between --min-{what} {low} and --max-{what} {high}")
    if event.target.startswith(("ps-", "worker-")):
        what, _, index = event.target.partition("-")
        most = limits.max_ps if what == "ps" else limits.max_workers
        if int(index) > most:  # while one is replaced there is one more
            flag = "--max-ps" if what == "ps" else "--max-workers"
            names = f"they are {what}-0 to {what}-{most - 1}" if most else "there are none"
            raise UsageError(f"{where}: there is never a {event.target}; with {flag} {most} {names}")
    elif event.target.startswith("evaluator") and (not limits.evaluator or event.target != "evaluator-0"):
        raise UsageError(f"{where}: there is no {event.target}; the evaluator is evaluator-0, started with --evaluator")
    elif event.target.startswith("chief") and event.target != "chief-0":
        raise UsageError(f"{where}: there is no {event.target}; the chief is chief-0")
