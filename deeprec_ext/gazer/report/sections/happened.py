"""What happened to the job: scalings, failures, decisions, data, backups, warnings, and the logs of who failed."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from deeprec_ext.gazer.report.case import Case
from deeprec_ext.gazer.report.document import Block, Bullets, Cell, Facts, Quote, Section, Table, Text
from deeprec_ext.gazer.report.story import AWAY, Event, Failure
from deeprec_ext.gazer.report.words import count, left_out, offset, seconds, shorten
from deeprec_ext.units import format_bytes, format_seconds

ROWS_MAX, WARNINGS_MAX = 100, 40
_TOTALS = ("records", "trained", "left", "lost", "repeated", "repeated_at_least", "stale", "skipped", "set_aside")


def scalings(case: Case) -> Section:
    story = case.story
    if not story.scalings:
        return Section("scalings", "Scalings", [Text("There were none.")])
    columns = (
        "", "at", "scaling", "outcome", "pause p50", "pause max", "moved", "sent again", "slots", "took", "reason",
        "longest pause",
    )  # fmt: skip
    rows: list[Sequence[Cell]] = []
    for number, one in enumerate(story.scalings[:ROWS_MAX], 1):
        pauses = sorted(one.pause_seconds)
        rows.append([
            f"S{number}", offset(one.started - story.began) if one.started else "–", one.title, one.outcome or "unfinished",
            seconds(pauses[(len(pauses) - 1) // 2]) if pauses else "–", seconds(pauses[-1]) if pauses else "–",
            format_bytes(one.bytes_moved), format_bytes(one.bytes_resent), str(one.slots_moved), format_seconds(one.seconds),
            ": ".join(filter(None, (one.requested_by, one.reason))) or "–", one.pause_cause or "–",
        ])  # fmt: skip
    hidden = {6, 7, 8} if story.in_step else set[int]()
    note = "Pause: the longest gap between two steps, minus a usual step; of the median trainer and of the slowest."
    more = left_out(len(story.scalings), ROWS_MAX, note)
    return Section(
        "scalings", "Scalings", [_without(hidden, Table(columns, rows, frozenset({1, 4, 5, 6, 7, 8, 9}), more))]
    )


def _without(hidden: AbstractSet[int], table: Table) -> Table:
    """The table without what jobs without PS do not have."""
    kept = [at for at in range(len(table.columns)) if at not in hidden]
    return dataclasses.replace(
        table, columns=[table.columns[at] for at in kept], rows=[[row[at] for at in kept] for row in table.rows],
        numbers=frozenset(kept.index(at) for at in table.numbers if at in kept),
    )  # fmt: skip


def failures(case: Case) -> Section:
    story = case.story
    if not story.failures:
        return Section("failures", "Failures", [Text("There were none.")])
    columns = (
        "", "at", "role", "cause", "noticed after", "trained again after", "by", "age of the copies", "steps missing",
        "steps lost", "stale records",
    )  # fmt: skip
    rows: list[Sequence[Cell]] = [
        [
            f"F{number}", offset(one.died - story.began), one.role, one.cause, format_seconds(one.detected_seconds),
            _back(one), "–" if one.recovered_by == AWAY else one.recovered_by or "restart",
            format_seconds(one.backup_age_seconds) if _from_copies(one) else "–",
            count(one.steps_missing) if _from_copies(one) else "–", count(one.steps_lost), count(one.stale_records),
        ]
        for number, one in enumerate(story.failures[:ROWS_MAX], 1)
    ]  # fmt: skip
    note = (
        "A lost PS is replaced by copies, which have every update but those of the last steps (missing). Stale records were "
        "trained, but their updates of the lost slots were forgotten."
    )
    hidden = set[int]()
    if story.in_step:
        hidden, note = (
            {6, 7, 8, 9, 10},
            "Who comes again gets the model of those who are there; at most one step is made again.",
        )
    table = Table(columns, rows, frozenset({1, 4, 5, 7, 8, 9, 10}), left_out(len(story.failures), ROWS_MAX, note))
    return Section("failures", "Failures", [_without(hidden, table)])


def _back(one: Failure) -> str:
    if one.recovered_seconds is None:
        return "not recovered"
    return f"{AWAY} after " * (one.recovered_by == AWAY) + format_seconds(one.recovered_seconds)


def _from_copies(one: Failure) -> bool:
    return one.recovered_by in ("promotion", "holder")


def decisions(case: Case) -> Section | None:
    """None: the job was not scaled by itself."""
    story = case.story
    if not story.decisions:
        return None
    rows: list[Sequence[Cell]] = [
        [
            f"D{one.number}", offset(one.time - story.began), one.action, one.reason,
            f"{count(one.before)} → {count(one.predicted)}" if one.predicted else "–", one.outcome or "–",
        ]
        for one in story.decisions[:ROWS_MAX]
    ]  # fmt: skip
    columns = ("", "at", "decision", "reason", "examples/s predicted", "outcome")
    note = "Numbered as everywhere (`decisions`, reasons of scalings); those between have kept the size."
    table = Table(columns, rows, frozenset({1, 4}), left_out(len(story.decisions), ROWS_MAX, note))
    told: list[Block] = [Text(f"What the decisions brought: {story.brought}.")] if story.brought else []
    told += [Text(f"Estimated before the start: {'. '.join(story.estimate)}.")] if story.estimate else []
    return Section("decisions", "Decisions", [*told, table])


def data(case: Case) -> Section:
    """Which records were trained."""
    ledger = case.story.data
    if not ledger:
        text = "The input did not come through the data ledger (`elastic_dataset`): nobody counted records."
        return Section("data", "Data", [Text(text)])
    datasets: Mapping[str, Mapping[str, Any]] = ledger.get("datasets") or {"all": ledger}
    rows: list[Sequence[Cell]] = [
        [name, str(values.get("purpose", "")), *(count(float(values.get(key) or 0)) for key in _TOTALS)]
        for name, values in list(datasets.items())[:ROWS_MAX]
    ]
    note = "Each epoch counts anew. Left: not reached when the job ended. Repeated: trained more than once, at the most and at "
    note += "the least. Skipped: damaged, and left out. Stale: trained, but partly forgotten with a PS."
    columns = ("dataset", "purpose", *(key.replace("_", " ") for key in _TOTALS))
    return Section("data", "Data", [Table(columns, rows, frozenset(range(2, len(columns))), note)])


def backups(case: Case) -> Section:
    """Peer and disk backups."""
    story = case.story
    if story.in_step and not story.disk_backup:
        return Section(
            "backups", "Backups", [Text("Each process had the whole model; on disk there was what the script writes.")]
        )
    rows = [] if story.in_step else [("peer backups", _peer(case))]
    cuts = [event for event in story.events if event.type == "disk_backup"]
    if story.disk_backup:
        rows.append(("disk backups", f"to {story.disk_backup}, every {format_seconds(story.disk_backup_seconds)}"))
        dropped = sum(event.type == "disk_backup_dropped" for event in story.events)
        sizes = [_number(event, "bytes") for event in cuts]
        took = [_number(event, "seconds") for event in cuts]
        told = f"{len(cuts)}, {dropped} dropped"
        if cuts:
            last = offset(cuts[-1].time - story.began)
            told += (
                f"; {format_bytes(sum(sizes))} in all, the last at {last}, the longest took {format_seconds(max(took))}"
            )
        rows.append(("completed", told))
    else:
        rows.append(("disk backups", "off"))
    restored = [event for event in story.events if event.type == "disk_restored"]
    rows += [
        ("restored", f"cut {event.fields.get('cut', '?')} at {offset(event.time - story.began)}")
        for event in restored[:10]
    ]
    return Section("backups", "Backups", [Facts(rows)])


def _peer(case: Case) -> str:
    story = case.story
    if not story.peer_backup:
        return "off"
    complete = [event for event in story.events if event.type == "peer_backups_complete"]
    told = [event for event in story.events if event.type in ("peer_backups", "peer_backups_complete")]
    if not complete:
        return "on, but never complete"
    sent = format_bytes(max(_number(event, "total_bytes") for event in told))
    oldest = max((_number(event, "oldest_seconds") for event in told), default=0.0)
    text = f"every slot from {offset(complete[0].time - story.began)} on; {sent} were sent"
    return text + (f"; the oldest copy was {format_seconds(oldest)} old" if oldest else "")


def _number(event: Event, name: str) -> float:
    value = event.fields.get(name)
    return float(value) if isinstance(value, (int, float)) else 0.0


def warnings(case: Case) -> Section:
    """Warning events, equal ones once."""
    kinds = ("warning", "refusal", "set_aside", "notice")
    found = [one for one in case.story.events if one.type in kinds and not case.story.is_of_catalogue(one)]
    texts = Counter((event.role, event.text) for event in found)
    items = [
        f"{role + ': ' if role else ''}{shorten(text, 600)}{f' ({times} times)' if times > 1 else ''}"
        for (role, text), times in texts.most_common(WARNINGS_MAX)
    ]
    items = [*case.story.warnings, *items]
    blocks: list[Block] = [Bullets(items)] if items else [Text("There were none.")]
    if len(texts) > WARNINGS_MAX:
        blocks.append(Text(f"{len(texts) - WARNINGS_MAX} more kinds are in events.jsonl."))
    return Section("warnings", "Warnings", blocks)


def logs(case: Case) -> Section | None:
    """The ends of the logs of roles that failed. None: nobody did."""
    found = case.story.logs
    return (
        Section("logs", "Logs of roles that failed", [Quote(log.role, log.lines) for log in found]) if found else None
    )
