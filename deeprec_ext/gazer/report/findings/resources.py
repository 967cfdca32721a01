"""Rules about CPU and memory: near the limit, growing towards it, far below what is requested, throttled."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from deeprec_ext.gazer.report.case import Case
from deeprec_ext.gazer.report.findings.finding import ADVICE, PROBLEM, SECONDS_MIN, Finding, percent
from deeprec_ext.gazer.report.lines import slope
from deeprec_ext.gazer.report.story import Request
from deeprec_ext.gazer.report.usage import RoleUse, Use, kind_of, memory_metric, uses
from deeprec_ext.units import format_bytes, format_seconds

NEAR = 0.9
"""Above this share of its limit a process is one large batch, or one more table, away from an OOM kill."""

GROWTH_SECONDS_MIN, GROWTH_POINTS_MIN = 60.0, 10
"""Growth is judged over the second half of the run, if that has so much in it: the first half fills caches and tables."""

GROWTH_HORIZON_SECONDS = 24 * 3600.0
"""Growth that reaches the limit later than in a day is left for a later report."""

GROWTH_MIN = 0.02
"""Over the second half memory must have grown by about so much of the limit: below it is noise of the allocator."""

OVERSIZED = 2.0
"""Requests of more than so many times the highest use: half of it is wasted for certain."""

OVERSIZED_SECONDS_MIN = 300.0
"""Nothing is advised to be made smaller after less: evaluation and checkpoints come seldom and need the most."""

HEADROOM = 1.3
"""What is advised in place of an oversized request, as times the highest use."""

THROTTLED = 0.1
"""A container that was not let for so much of the time loses about as much of its speed."""

POINTS_MAX = 120
"""For the slope: pairs of points grow with the square."""


def near_limit(case: Case) -> Iterable[Finding]:
    """Memory of a process was near its limit; or that of all processes which share one."""
    for use in uses(case.story, case.lines):
        memory = use.memory
        if memory is not None and memory.seconds >= SECONDS_MIN and memory.share >= NEAR:
            yield Finding(
                "near-limit", PROBLEM,
                f"{use.name} used {percent(memory.share)} of its memory limit: it is near an OOM kill",
                (f"{format_bytes(memory.peak)} at most, {format_bytes(memory.mean)} on average, of "
                 f"{format_bytes(memory.limit)}",),
                _more(use), use.name, memory.share,
            )  # fmt: skip
    yield from _shared(case)


def _more(use: RoleUse) -> str:
    if use.kind == "ps":
        return "Give the PS more memory, or the job more PS, so that each holds fewer slots."
    return "Give it more memory, or use smaller batches and shorter prefetch and shuffle buffers."


def _shared(case: Case) -> Iterable[Finding]:
    """Processes without a request are in one container: its working set counts, whoever reported it."""
    for name in case.lines.subjects("working_set_bytes"):
        if case.story.requests.get(kind_of(name), Request()).memory_bytes:
            continue
        limit, peak = case.lines.last(name, "memory_limit_bytes"), case.lines.peak(name, "working_set_bytes")
        if limit and peak and peak >= NEAR * limit and case.lines.seconds(name, "working_set_bytes") >= SECONDS_MIN:
            yield Finding(
                "near-limit", PROBLEM,
                f"All processes together used {percent(peak / limit)} of the memory there is: one of them is near an OOM kill",
                (f"{format_bytes(peak)} of {format_bytes(limit)}, shared by the roles of this machine",),
                "Run fewer roles on this machine, or use smaller tables, batches and buffers.", "", peak / limit,
            )  # fmt: skip
            return


def growing(case: Case) -> Iterable[Finding]:
    """Memory grows steadily and will reach the limit."""
    for use in uses(case.story, case.lines):
        memory = use.memory
        if memory is None or not memory.limit or memory.share >= NEAR:
            continue
        per_second = growth(case, use.name, memory.limit)
        if per_second <= 0:
            continue
        left = max(0.0, memory.limit - memory.peak) / per_second
        if left <= GROWTH_HORIZON_SECONDS:
            yield Finding(
                "growing", PROBLEM,
                f"Memory of {use.name} grows by {format_bytes(60 * per_second)} a minute: at this rate it reaches its limit "
                f"in {format_seconds(left)}",
                (f"{format_bytes(memory.peak)} of {format_bytes(memory.limit)}; slope over the second half of the run",),
                _more(use) + " If nothing in the model should grow, look for what keeps references.",
                use.name, memory.share,
            )  # fmt: skip


def growth(case: Case, name: str, limit: float) -> float:
    """Bytes per second over the second half of the samples; 0 when it is not steady, or too little to say.

    What fills and is emptied again has a slope in any window; growth lifts the lowest values too, third by third.
    """
    spans = case.lines.spans(name, memory_metric(case.story, case.lines, name))
    spans = spans[len(spans) // 2 :]
    if len(spans) < GROWTH_POINTS_MIN or spans[-1].end - spans[0].end < GROWTH_SECONDS_MIN:
        return 0.0
    third, step = len(spans) // 3, -(-len(spans) // POINTS_MAX)
    floors = [min(spans[start : start + third], key=lambda span: span.mean) for start in (0, third, len(spans) - third)]
    values = [floor.mean for floor in floors]
    if not values[0] < values[1] < values[2] or values[2] - values[0] < GROWTH_MIN * limit:
        return 0.0
    rise = (values[2] - values[0]) / (floors[2].end - floors[0].end)
    return max(0.0, min(rise, slope([span.end for span in spans[::step]], [span.mean for span in spans[::step]])))


def oversized(case: Case) -> Iterable[Finding]:
    """Roles of a kind have much more than any of them ever used."""
    by_kind = itertools.groupby(uses(case.story, case.lines), key=lambda use: use.kind)
    for kind, group in by_kind:
        members = list(group)
        for resource in ("memory", "cpu"):
            found = [use for member in members if (use := getattr(member, resource)) is not None]
            if not found or len(found) < len(members) or min(use.seconds for use in found) < OVERSIZED_SECONDS_MIN:
                continue
            limit, peak = min(use.limit for use in found), max(use.peak for use in found)
            if limit and peak and limit >= OVERSIZED * peak:
                yield _oversized(kind, resource, found, limit, peak)


def _oversized(kind: str, resource: str, found: list[Use], limit: float, peak: float) -> Finding:
    def shown(value: float) -> str:
        return format_bytes(value) if resource == "memory" else f"{value:.2g} cores"

    wasted = sum(use.wasted for use in found) / 3600
    hours = f"{wasted / 1e9:.2f} GB-hours" if resource == "memory" else f"{wasted:.2f} core-hours"
    name = "PS" if kind == "ps" else kind
    what = f"The {len(found)} {name if kind == 'ps' else f'{name}s'} have" if len(found) > 1 else f"The {name} has"
    return Finding(
        "oversized", ADVICE,
        f"{what} {shown(limit)} {'each ' if len(found) > 1 else ''}and never used more than {shown(peak)}: "
        f"{shown(HEADROOM * peak)} would do",
        (f"{hours} were requested and not used", f"measured over {format_seconds(min(use.seconds for use in found))} or more"),
        f"Request {shown(HEADROOM * peak)} of {'memory' if resource == 'memory' else 'CPU'} for each {name}: the highest use "
        f"and {percent(HEADROOM - 1)} more.",
        kind,
    )  # fmt: skip


def throttled(case: Case) -> Iterable[Finding]:
    """A container wanted CPU and was not let."""
    for use in uses(case.story, case.lines):
        cpu = use.cpu
        if cpu is not None and cpu.limit and cpu.seconds >= SECONDS_MIN and use.throttled >= THROTTLED:
            yield Finding(
                "throttled", ADVICE,
                f"{use.name} is throttled for {percent(use.throttled)} of the time: its CPU limit is too low",
                (f"{cpu.mean:.2f} cores on average, {cpu.peak:.2f} at most, of {cpu.limit:.2g}",),
                "Raise its CPU limit, or set only a request; TensorFlow starts a thread per core it sees, not per core it may "
                "use: intra_op_parallelism_threads helps as well.",
                use.name, use.throttled,
            )  # fmt: skip


RULES = (near_limit, growing, oversized, throttled)
