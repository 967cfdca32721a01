"""Rules about what went wrong, or may be lost: failures, scalings that came to nothing, backups, the data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from deeprec_ext.gazer.report.case import Case
from deeprec_ext.gazer.report.findings.finding import ADVICE, NOTE, PROBLEM, Finding
from deeprec_ext.gazer.report.lines import length
from deeprec_ext.gazer.report.story import AWAY, CRASHED, Failure, Scaling, Suspect
from deeprec_ext.tracebacks import error_line
from deeprec_ext.units import format_bytes, format_seconds

RISK_SECONDS = 300.0
"""Training that long without any backup is worth a word: before, starting again costs little."""

UNPROTECTED_SECONDS = 60.0
"""First copies of peer backups take seconds; if they are not there after so much training, something is wrong."""

BACK = "is back after it was lost"
"""In the reason of a scaling that gives a PS slots again (`aimaster.scaling.queue`)."""

BACKUP_GAP_FACTOR = 3.0
"""Two disk backups, or a disk backup and the end, further apart than so many intervals."""


def job_failed(case: Case) -> Iterable[Finding]:
    """The job did not end in order."""
    story = case.story
    if story.state == CRASHED:
        yield Finding(
            "crashed", PROBLEM,
            f"The run did not end: its launcher was killed, or the machine went down, {_after(case, story.ended)}",
            ("there is no summary of this start of the launcher; everything else in this report is from the AIMaster's store",),
            "`deeprec-ext run --resume --workdir DIR …` goes on from the store and the last checkpoint.",
        )  # fmt: skip
    elif story.status == "failed":
        evidence = [line for log in story.logs if (line := error_line(log.lines))][:3]
        yield Finding("job-failed", PROBLEM, f"The job failed: {story.reason or 'no reason is known'}", tuple(evidence),
                      "The ends of the logs of the roles that failed are below.")  # fmt: skip


def notices(case: Case) -> Iterable[Finding]:
    """Something trained beside the PS. What the catalogue warns of is a finding of its own (`dense_updates`)."""
    for event in case.story.events:
        if event.type == "notice" and not case.story.is_of_catalogue(event):
            text = str(event.fields.get("text") or "")
            level = NOTE if event.fields.get("mended") else PROBLEM
            said = (f"first said by {event.role}, {_after(case, event.time)}",)
            yield Finding("notice", level, text[:1].upper() + text[1:], said, event.remedy, event.role)


def suspects(case: Case) -> Iterable[Finding]:
    """Who said what cannot be, when, and what."""
    by_role: dict[str, list[Suspect]] = defaultdict(list)
    for one in case.story.suspects:
        by_role[one.role].append(one)
    for role, found in by_role.items():
        said = tuple(
            f"{_after(case, one.time)}: {one.what}" + (f" ({one.offences} times or more)" if one.offences > 1 else "")
            for one in found[:5]
        )
        yield Finding(
            "suspect", PROBLEM, f"{role} said what cannot be, and was not believed about others from then on", said,
            "Look at what runs there: a broken script or library, or other code under its certificate.",
            role,
        )  # fmt: skip


def _after(case: Case, time: float) -> str:
    return f"{format_seconds(max(0.0, time - case.story.began))} after its start"


def failures(case: Case) -> Iterable[Finding]:
    """One finding per role that died or hung, with what it cost."""
    by_role: dict[str, list[Failure]] = defaultdict(list)
    for one in case.story.failures:
        by_role[one.role].append(one)
    for role, found in by_role.items():
        stale, lost = sum(one.stale_records for one in found), sum(one.steps_lost for one in found)
        missing = sum(one.steps_missing for one in found)
        times = f"{len(found)} times" if len(found) > 1 else "once"
        yield Finding(
            "failure", PROBLEM if any(one.recovered_seconds is None or one.steps_lost for one in found) else NOTE,
            f"{role} failed {times}: {', '.join(dict.fromkeys(one.cause for one in found))}"
            + (f"; {lost:,} steps were lost" if lost else
               f"; its slots miss the updates of {missing:,} steps" if missing else "; no step was lost"),
            tuple(_cost(case, one) for one in found[:5]),
            _remedy(found[-1], stale), role,
        )  # fmt: skip


def _cost(case: Case, one: Failure) -> str:
    text = f"{_after(case, one.died)}: noticed after {format_seconds(one.detected_seconds)}"
    if one.recovered_by == AWAY:
        return f"{text}, {AWAY} after {format_seconds(one.recovered_seconds or 0.0)}"
    text += (f", trained again after {format_seconds(one.recovered_seconds)}" if one.recovered_seconds is not None
             else ", not recovered")  # fmt: skip
    text += f" ({one.recovered_by})" if one.recovered_by else ""
    if one.steps_missing:
        text += f" from copies {format_seconds(one.backup_age_seconds)} old, {one.steps_missing:,} steps missing"
    return text + (f"; {one.stale_records:,} records partly forgotten" if one.stale_records else "")


def _remedy(one: Failure, stale: int) -> str:
    if one.cause.startswith("oom"):
        return "It ran out of memory: give it more, or smaller batches and buffers."
    if one.steps_lost:
        return "With peer backups a lost PS costs no steps; disk backups bound the loss when two die at once."
    if stale:
        return "`--setting peer_backup_seconds=…`: fresher backups forget less."
    return "Nothing to do, unless it comes again: see the end of its log."


def scalings(case: Case) -> Iterable[Finding]:
    """Scalings that were rolled back or refused, by reason."""
    by_reason: dict[tuple[str, str], list[Scaling]] = defaultdict(list)
    for one in case.story.scalings:
        if one.outcome in ("rolled_back", "refused") and not one.cut_short:
            by_reason[one.outcome, one.reason].append(one)
    for (outcome, reason), found in by_reason.items():
        again = "The job tries it again by itself." if BACK in reason else "Ask again when the reason is gone."
        what = "was refused" if outcome == "refused" else "was rolled back"
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        yield Finding(
            f"scaling-{outcome}".replace("_", "-"), ADVICE,
            f"{found[0].title} {what}{more}: {reason or 'no reason is known'}",
            tuple(f"{one.title}, {_after(case, one.started)}, after {format_seconds(one.seconds)}" for one in found[:5]
                  if one.started),
            f"Training went on at the old size. {again} All time limits are settings.",
        )  # fmt: skip


def dense_updates(case: Case) -> Iterable[Finding]:
    """What the variable catalogue warns of: large tables that are copied whole in a pause."""
    pauses = [max(one.pause_seconds) for one in case.story.scalings if one.role == "ps" and one.pause_seconds]
    evidence = (f"the longest pause of a PS scaling was {format_seconds(max(pauses))}",) if pauses else ()
    for warning in case.story.warnings:
        text, dot, advice = warning.partition(". ")
        yield Finding(
            "dense-updates", ADVICE, text[:1].upper() + text[1:], evidence, advice if dot else "See the user guide."
        )


def backups(case: Case) -> Iterable[Finding]:
    """Slots that had no backup, and disk backups that failed or came too seldom."""
    story, trained = case.story, length(case.training)
    if not trained:
        return
    if not story.in_step and not story.peer_backup and not story.disk_backup and trained >= RISK_SECONDS:
        yield Finding(
            "no-backup", NOTE, "There was no backup of the model: a lost PS would have cost a return to the last checkpoint",
            (f"{format_seconds(trained)} of training",),
            "Leave peer backups on (they are by themselves), or use `--backup peer,disk=DIR`.",
        )  # fmt: skip
    if story.peer_backup:
        complete = [event.time for event in story.events if event.type in ("peer_backups_complete", "peer_backups")]
        waited = (min(complete) if complete else case.training[-1][1]) - case.training[0][0]
        if waited >= UNPROTECTED_SECONDS:
            yield Finding(
                "unprotected", PROBLEM,
                f"Slots had no peer backup {'for the first' if complete else 'at all in'} {format_seconds(waited)} of training",
                tuple(event.text for event in story.events if event.type == "warning" and "backup" in event.text)[:3],
                "Look for warnings about backups below, and at the memory of the PS: they hold about as much again.",
            )  # fmt: skip
    if story.disk_backup and story.disk_backup_seconds:
        yield from _disk(case)


def _disk(case: Case) -> Iterable[Finding]:
    story = case.story
    ((start, end),) = case.training
    cuts = [event.time for event in story.events if event.type == "disk_backup" and start <= event.time <= end]
    dropped = [event.text for event in story.events if event.type == "disk_backup_dropped"]
    warnings = [event for event in story.events if event.type == "warning" and "disk backup" in event.text]
    gaps = [(begin, later - begin) for begin, later in zip([start, *cuts], [*cuts, end])]
    long = [(begin, gap) for begin, gap in gaps if gap >= BACKUP_GAP_FACTOR * story.disk_backup_seconds]
    if not long:
        return
    # One in which a cut could not be written is told before longer ones that scalings explain, whatever else came across it.
    failing = [one for one in long if any(one[0] <= event.time <= sum(one) for event in warnings)]
    begin, length = max(failing or long, key=lambda one: one[1])
    disturbed = not failing and any(low < begin + length and begin < high for low, high in case.disturbances)
    failed = [event.text for event in warnings if not failing or begin <= event.time <= begin + length]
    reason = (
        ("a scaling or a failure fell into this time: a cut that one of them comes across is dropped",)
        if disturbed
        else ()
    )
    yield Finding(
        "backup-gap", NOTE if disturbed else PROBLEM,
        f"No disk backup was completed for {format_seconds(length)}; one was due every "
        f"{format_seconds(story.disk_backup_seconds)}",
        (f"{len(cuts)} completed, {len(dropped)} dropped", *reason, *failed[:2], *dropped[:2]),
        "Nothing to do, if it does not come often." if disturbed else
        "See the warnings; a directory that is slow, full or not writable for every PS is the usual cause.",
    )  # fmt: skip


def data(case: Case) -> Iterable[Finding]:
    """Records that were never trained although the data had ended, or were set aside."""
    ledger = case.story.data or {}
    lost, aside = int(ledger.get("lost") or 0), int(ledger.get("set_aside") or 0)
    if lost:
        yield Finding("data-lost", PROBLEM, f"{lost:,} records were never trained", (f"of {ledger.get('records', 0):,}",),
                      "This should not happen: please report it with the run's events.jsonl.")  # fmt: skip
    if skipped := int(ledger.get("skipped") or 0):
        yield Finding("data-skipped", PROBLEM, f"{skipped:,} records were damaged and left out",
                      (f"of {ledger.get('records', 0):,}",),
                      "The workers' logs name files, records and lines; repair them and train on them once more.")  # fmt: skip
    if aside:
        yield Finding("data-aside", PROBLEM, f"{aside:,} records were set aside because their shards kept failing",
                      tuple(event.text for event in case.story.events if event.type == "set_aside")[:3],
                      "The events name files and shards; repair them and train on them once more.")  # fmt: skip


def slow_pauses(case: Case) -> Iterable[Finding]:
    """A committed PS scaling stopped training for longer than a person overlooks.

    Where a PS was lost at the same time nobody can tell whose pause it was: the finding about the failure has its length.
    """
    for one in case.story.scalings:
        pause = max(one.pause_seconds, default=0.0)
        if (
            one.outcome == "committed"
            and one.role == "ps"
            and pause >= PAUSE_SECONDS
            and not _lost_a_ps(case, one, pause)
        ):
            yield Finding(
                "long-pause", ADVICE, f"{one.title} stopped training for {format_seconds(pause)}",
                (*([f"the longest: {one.pause_cause}"] if one.pause_cause else []),
                 f"{format_bytes(one.bytes_moved)} moved before the pause, {format_bytes(one.bytes_resent)} sent again"),
                "Large dense variables and long steps make a pause long; so does a machine with no idle core.",
            )  # fmt: skip


def _lost_a_ps(case: Case, one: Scaling, pause: float) -> bool:
    """Whether training was recovering from the loss of a PS when this pause can have been: it may reach out of the scaling."""
    return any(
        failure.died <= one.started + one.seconds + pause
        and (failure.recovered_seconds is None or failure.died + failure.recovered_seconds >= one.started)
        for failure in case.story.failures
        if failure.role.startswith("ps-")
    )


PAUSE_SECONDS = 5.0
"""Most pauses are well below a second; this one is on somebody's dashboard."""

RULES = (job_failed, notices, suspects, failures, data, backups, scalings, dense_updates, slow_pauses)
