"""Rules about trainers: one that is slower than the others, input that comes too late, standing still."""

from __future__ import annotations

from collections.abc import Iterable

from deeprec_ext.gazer.report.case import Case
from deeprec_ext.gazer.report.findings.finding import ADVICE, NOTE, SECONDS_MIN, TRACES_MIN, Finding, percent
from deeprec_ext.gazer.report.lines import Span, natural
from deeprec_ext.gazer.report.steps import TrainerUse, compare, trainer_uses
from deeprec_ext.gazer.report.work import input_shares, median, within
from deeprec_ext.units import few, format_seconds

SLOWER = 1.5
"""A straggler's steps take so many times those of the others: beyond what sharing a machine unevenly explains."""

PERSISTENT = 0.7
"""In so many of the compared pieces of time: a slow disk or a neighbour's burst comes and goes, a straggler stays."""

PIECES_MIN = 5
"""Compared pieces of time below which nothing is said."""

STARVED = 0.2
"""A trainer that waits for input for so much of its time could be a fifth faster."""

STARVED_TRACED = 0.3
"""The same as traced steps see it; more is asked, because a prefetched batch costs an op some waiting as well."""

GAP_TIMES, GAP_SECONDS = 10.0, 1.0
"""Standing still: the longest step of a sample is so many times the median one, and so long."""

GAPS_MIN = 3
"""So many gaps are a habit."""

REGULAR = 1.5
"""Times between gaps that differ by no more than this come from a clock, as those of checkpoints do."""

GAPS_SHARE = 0.03
"""What gaps must cost of the trainer's time to be worth a finding."""

STOOD_SECONDS = 10.0
"""A single step of so long is one that somebody has waited for."""

NAMES_MAX = 8


def straggler(case: Case) -> Iterable[Finding]:
    """Steps of one trainer take persistently longer than the median of the others' at the same time."""
    known = {use.name: use for use in trainer_uses(case)}
    for one in compare(case):
        if len(one.ratios) < PIECES_MIN or one.median < SLOWER or one.share_above(SLOWER) < PERSISTENT:
            continue
        use = known[one.name]
        still = use.median_seconds and use.mean_seconds >= SLOWER * use.median_seconds
        hint = ("its median step is no slower: it stands still in between (paused, out of CPU, or waiting)" if still
                else "all of its steps are slow: it gets less of the cores than the others" if case.one_host
                else "all of its steps are slow: a slower machine, fewer cores, or a farther network")  # fmt: skip
        if use.input_wait >= STARVED:
            hint = f"it waits for input for {percent(use.input_wait)} of its time"
        yield Finding(
            "straggler", ADVICE,
            f"{one.name} is a straggler: its steps take {one.median:.1f} times as long as those of the others",
            (
                f"slower by {SLOWER:g} or more in {percent(one.share_above(SLOWER))} of {len(one.ratios)} pieces of time "
                "without a scaling or failure",
                f"{format_seconds(use.mean_seconds)} per step on average, median {format_seconds(use.median_seconds)}, "
                f"longest {format_seconds(use.longest_seconds)}",
                hint,
            ),
            f"Look at the machine it runs on; `deeprec-ext scale DIR --replace {one.name}` gives it another process."
            if not one.name.startswith("chief-")
            else "Look at the machine it runs on, and at what only the chief does: checkpoints, summaries, evaluation.",
            one.name, 1.0 - 1.0 / one.median,
        )  # fmt: skip


def starved(case: Case) -> Iterable[Finding]:
    """Trainers wait for input."""
    uses = [use for use in trainer_uses(case) if use.seconds >= SECONDS_MIN]
    waiting = [use for use in uses if use.input_wait >= STARVED]
    traces = within(case.story.traces, case.calm)
    shares = input_shares(traces)
    traced = median(shares) if len(shares) >= TRACES_MIN else 0.0
    if waiting:
        yield _starved(
            waiting, max(use.input_wait for use in waiting), "of their time, as the data ledger's reader sees it"
        )
    elif traced >= STARVED_TRACED:
        yield _starved(uses, traced, f"of the median of {len(shares)} traced steps")


def _starved(uses: list[TrainerUse], share: float, of: str) -> Finding:
    names = ", ".join(use.name for use in uses[:NAMES_MAX]) or "trainers"
    return Finding(
        "starved", ADVICE,
        f"Training waits for input: up to {percent(share)} of a step",
        (f"{names}: {percent(share)} {of}",),
        "Read and parse ahead: more `num_parallel_calls` in map, a longer prefetch, larger or fewer files; or fewer trainers "
        "on this machine.",
        uses[0].name if len(uses) == 1 else "", share,
    )  # fmt: skip


def gaps(case: Case) -> Iterable[Finding]:
    """A trainer stands still again and again while the others train; on the chief that is how checkpoints show."""
    uses = trainer_uses(case)
    still = {use.name: _still(case, use) for use in uses}
    for use in uses:
        everybodys = [span for name, spans in still.items() if name != use.name for span in spans]
        mine = [
            span
            for span in still[use.name]
            if not any(span.start < one.end and one.start < span.end for one in everybodys)
        ]
        seconds = sum(span.highest for span in mine)
        samples = len(case.lines.spans(use.name, "step_longest_seconds", case.calm_of(use.name)))
        if (
            len(mine) < GAPS_MIN
            or use.seconds < SECONDS_MIN
            or seconds < GAPS_SHARE * use.seconds
            or 2 * len(mine) > samples
        ):
            continue  # in every other sample it is no gap: that is how its steps are
        between = [later.end - earlier.end for earlier, later in zip(mine, mine[1:])]
        regular = max(between) <= REGULAR * min(between)
        chief = use.name.startswith("chief-")
        yield Finding(
            "gaps", ADVICE,
            f"{use.name} stands still {len(mine)} times, for up to {format_seconds(max(span.highest for span in mine))}"
            + (f", about every {format_seconds(median(between))}" if regular else "")
            + (": probably while it writes checkpoints" if regular and chief else ""),
            (
                f"together {percent(seconds / use.seconds)} of its time; usual are {format_seconds(use.median_seconds)} a step",
                f"not counted: when others stood still as well, scalings, failures; {format_seconds(use.seconds)} measured",
            ),
            "Save less often (`save_checkpoints_secs` of RunConfig), to a faster disk, or rely on disk backups, which stop no "
            "step: `deeprec-ext run --backup peer,disk=DIR`."
            if regular and chief
            else "Look at its log and at the machine at these times; the chief also writes checkpoints and summaries.",
            use.name, seconds / use.seconds,
        )  # fmt: skip


def stood(case: Case) -> Iterable[Finding]:
    """One step took very long, though there was no change and no failure; what comes again and again is told by `gaps`."""
    told = {finding.subject for finding in gaps(case)}
    uses = {use.name: use for use in trainer_uses(case) if use.name not in told}
    long = [(span, name) for name, use in uses.items() for span in _still(case, use) if span.highest >= STOOD_SECONDS]
    if not long:
        return
    worst, name = max(long, key=lambda one: one[0].highest)
    others = [other for span, other in long if other != name and span.start < worst.end and worst.start < span.end]
    beside = few(sorted(set(others), key=natural), NAMES_MAX)
    yield Finding(
        "stood", NOTE,
        f"A step of {name} took {format_seconds(worst.highest)}; usual are {format_seconds(uses[name].median_seconds)}",
        (
            f"{format_seconds(max(0.0, worst.end - case.story.began))} after the start of the job or shortly before; no "
            "scaling and no failure then",
            f"at the same time: {beside}" if beside else "no other trainer stood so long then",
        ),
        "Look at the machine at this time (memory, disk, others on its cores), and at what the script does then: checkpoints, "
        "summaries, evaluation.",
        name,
    )  # fmt: skip


def _still(case: Case, use: TrainerUse) -> list[Span]:
    """Samples with a step that took very long."""
    if not use.median_seconds:
        return []
    limit = max(GAP_SECONDS, GAP_TIMES * use.median_seconds)
    spans = case.lines.spans(use.name, "step_longest_seconds", case.calm_of(use.name))
    return [span for span in spans if span.highest >= limit]


RULES = (straggler, starved, gaps, stood)
