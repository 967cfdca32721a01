"""What each process used, what it was allowed, and what of that was wasted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from deeprec_ext.gazer.report.lines import Lines, Span, natural
from deeprec_ext.gazer.report.story import Request, Story

KINDS = ("aimaster", "ps", "chief", "worker", "evaluator")
_SAME_TIME = 0.5  # seconds


@dataclass(frozen=True)
class Use:
    """One resource of one process: cores, or bytes. `limit` 0: none of its own."""

    mean: float
    peak: float
    limit: float
    wasted: float  # limit minus use, integrated: core-seconds, or byte-seconds
    seconds: float  # measured

    @property
    def share(self) -> float:
        """Peak of the limit; 0 without a limit."""
        return self.peak / self.limit if self.limit else 0.0


@dataclass(frozen=True)
class RoleUse:
    name: str
    cpu: Use | None
    memory: Use | None
    throttled: float  # share of the time
    files: float  # peak of open descriptors
    threads: float  # peak

    @property
    def kind(self) -> str:
        return kind_of(self.name)


def kind_of(name: str) -> str:
    """`ps-3` → `ps`."""
    return name.rpartition("-")[0] or name


def uses(story: Story, lines: Lines) -> list[RoleUse]:
    """Of every process there are samples of, by kind and number."""
    names = {*lines.subjects("cpu_cores"), *lines.subjects("rss_bytes")}
    return [_role(story, lines, name) for name in sorted(names, key=_order)]


def _order(name: str) -> tuple[int, tuple[str, int]]:
    kind = kind_of(name)
    return KINDS.index(kind) if kind in KINDS else len(KINDS), natural(name)


def _role(story: Story, lines: Lines, name: str) -> RoleUse:
    request = story.requests.get(kind_of(name), Request())
    return RoleUse(
        name,
        _use(lines, name, "cpu_cores", "cpu_limit_cores", request.cores),
        _use(lines, name, memory_metric(story, lines, name), "memory_limit_bytes", request.memory_bytes),
        lines.mean(name, "throttled_share") or 0.0 if request.cores else 0.0,
        lines.peak(name, "open_files") or 0.0,
        lines.peak(name, "threads") or 0.0,
    )


def memory_metric(story: Story, lines: Lines, name: str) -> str:
    """What a process's memory is measured by.

    The working set, where it has a container of its own. Processes without a request share one: its working set and its
    limits are not theirs, and what counts is what is resident.
    """
    own = story.requests.get(kind_of(name), Request()).memory_bytes > 0
    return "working_set_bytes" if own and (lines.peak(name, "working_set_bytes") or 0) > 0 else "rss_bytes"


def _use(lines: Lines, name: str, metric: str, limit_metric: str, request: float) -> Use | None:
    """What is measured of the limit counts before the request: a pod may have been resized."""
    spans = lines.spans(name, metric)
    if not spans:
        return None
    limits = lines.spans(name, limit_metric) if request else ()
    return Use(
        lines.mean(name, metric) or 0.0, lines.peak(name, metric) or 0.0, limits[-1].mean if limits else request,
        _wasted(spans, limits, request), lines.seconds(name, metric),
    )  # fmt: skip


def _wasted(spans: Iterable[Span], limits: tuple[Span, ...], request: float) -> float:
    """Integral of limit minus use."""
    wasted, at = 0.0, 0
    for span in spans:
        while at + 1 < len(limits) and limits[at].end < span.end - _SAME_TIME:
            at += 1
        limit = limits[at].mean if limits else request
        if limit > 0:
            wasted += max(0.0, limit - span.mean) * (span.end - span.start)
    return wasted
