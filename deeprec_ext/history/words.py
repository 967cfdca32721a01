"""A finished job in words, for the page and for `deeprec-ext jobs`: what ran, what it wasted, what other sizes brought."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deeprec_ext.autoscaler.history.history import Finished
from deeprec_ext.autoscaler.observe.observed import Window
from deeprec_ext.gazer.report.words import hours
from deeprec_ext.units import counted, format_seconds, sized

NOT_KNOWN = "–"
MEAN_RATE = "mean examples/s"
"""`Brought.examples_per_second`: over all of the training, changes and failures included. A report has it without those."""


def in_order(job: Finished) -> list[Window]:
    """The sizes that it had for a while, by when it first had them."""
    return sorted(job.windows, key=lambda window: window.start)


def sizes(job: Finished) -> str:
    """`1 PS, 0 workers → 2 PS, 3 workers`; those between are only counted."""
    shown = list(dict.fromkeys(sized(window.size.ps, window.size.workers) for window in in_order(job)))
    if len(shown) > 2:
        shown = [shown[0], f"{len(shown) - 2} more", shown[-1]]
    return " → ".join(shown) or NOT_KNOWN


def short_sizes(job: Finished) -> str:
    """The same as `1+0 → 2+3`; of a job without PS `in step 0 → 3`."""
    ps = "" if job.sums else "{}+"
    shown = list(dict.fromkeys(f"{ps.format(window.size.ps)}{window.size.workers}" for window in in_order(job)))
    told = " → ".join([shown[0], "…", shown[-1]] if len(shown) > 2 else shown)
    return f"in step {told}" if told and job.sums else told or NOT_KNOWN


def idle_share(idle: float, held: float) -> float | None:
    """Of what was requested; None: nothing was."""
    return min(1.0, max(0.0, idle / held)) if held > 0 else None


def brought(job: Finished) -> str:
    """What its changes of size were worth, in one sentence."""
    told = job.brought
    if not told.changes:
        return "its size was not changed" + (f"; {told.not_made} refused or rolled back" if told.not_made else "")
    changes = counted(told.changes, "change") + (f" ({told.by_hand} by hand)" if told.by_hand else "")
    if not told.first_examples_per_second:
        return f"{changes}; the first size was left before it could be measured"
    what = "saved" if told.saved_seconds >= 0 else "cost"
    share = f" ({told.gained:+.1%} since the first one)" if told.gained is not None else ""
    return f"{changes}, {what} {format_seconds(abs(told.saved_seconds))}{share}"


def byte_hours(byte_seconds: float) -> str:
    return hours(byte_seconds / 1e9, "GB")


def core_hours(core_seconds: float) -> str:
    return hours(core_seconds, "core")


@dataclass(frozen=True)
class Totals:
    """Of several jobs."""

    jobs: int = 0
    succeeded: int = 0
    seconds: float = 0.0
    cpu_core_seconds: float = 0.0
    cpu_idle: float | None = None  # share of what was requested
    memory_idle: float | None = None
    saved_seconds: float = 0.0
    changes: int = 0


def totals(jobs: Sequence[Finished]) -> Totals:
    uses = [job.use for job in jobs]
    return Totals(
        len(jobs), sum(job.status == "succeeded" for job in jobs), sum(job.seconds for job in jobs),
        sum(use.cpu_core_seconds for use in uses),
        idle_share(sum(use.cpu_idle_core_seconds for use in uses), sum(use.cpu_held_core_seconds for use in uses)),
        idle_share(sum(use.memory_idle_byte_seconds for use in uses), sum(use.memory_held_byte_seconds for use in uses)),
        sum(job.brought.saved_seconds for job in jobs), sum(job.brought.changes for job in jobs),
    )  # fmt: skip


def percent(share: float | None) -> str:
    return NOT_KNOWN if share is None else f"{share:.0%}"


def saved(seconds: float) -> str:
    """`12:30`, with its sign where it is a loss."""
    return ("−" if seconds <= -0.5 else "") + format_seconds(abs(seconds))
