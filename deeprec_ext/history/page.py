"""The page of the history: documents as `gazer.report` renders them, without a script. What it shows was written by others."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

from deeprec_ext.autoscaler.history.history import Finished
from deeprec_ext.autoscaler.model import formula, synchronous
from deeprec_ext.gazer.report.document import (
    SCALING,
    TRAINER,
    Bar,
    Block,
    Cell,
    Document,
    Facts,
    Link,
    Links,
    Section,
    Table,
    Text,
)
from deeprec_ext.gazer.report.html import POLICY, render
from deeprec_ext.gazer.report.words import count, moment, number
from deeprec_ext.history.record import Kept
from deeprec_ext.history.words import (
    MEAN_RATE,
    NOT_KNOWN,
    brought,
    byte_hours,
    core_hours,
    idle_share,
    in_order,
    percent,
    saved,
    short_sizes,
    totals,
)
from deeprec_ext.units import counted, format_bytes, format_seconds

FOOTER = "The history of jobs of deeprec-ext. The same for a program: deeprec-ext jobs --json."
HEADERS = {"content-security-policy": f"{POLICY}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}


def of_jobs(jobs: Sequence[Kept], *, namespace: str, script: str, following: str) -> str:
    """The list. `namespace`, `script`: to what it is confined, empty: to nothing; `following`: where the next page begins."""
    sums = totals([one.job for one in jobs])
    figures = [
        ("jobs shown", f"{sums.jobs}"), ("succeeded", f"{sums.succeeded}"), ("run time", format_seconds(sums.seconds)),
        ("core-hours used", _hours(sums.cpu_core_seconds)), ("requested CPU idle", percent(sums.cpu_idle)),
        ("requested memory idle", percent(sums.memory_idle)), ("saved by changes", saved(sums.saved_seconds)),
    ]  # fmt: skip
    confined = [f"{name} {value}" for name, value in (("namespace", namespace), ("script", script)) if value]
    links = [Link("all jobs", "/")] if confined else []
    if following:
        links.append(Link("older jobs", "/?" + _query(namespace, script, following)))
    nothing = (
        "None of these can be read." if following else "No such job is kept." if confined else "No job is kept yet."
    )
    blocks: list[Block] = [_table(jobs)] if jobs else [Text(nothing)]
    headline = f"The newest that have ended{' of ' + ', '.join(confined) if confined else ''}, the last one first."
    return render(
        Document("History of jobs", counted(sums.jobs, "job"), headline, figures,
                 [Section("jobs", "What ran, what it wasted, what changes of its size brought", [*blocks, Links(links)])],
                 wide=True),
        FOOTER,
    )  # fmt: skip


def _query(namespace: str, script: str, before: str = "") -> str:
    given = {"namespace": namespace, "script": script, "before": before}
    return urlencode({name: value for name, value in given.items() if value})


def _table(jobs: Sequence[Kept]) -> Table:
    most = max((abs(one.job.brought.saved_seconds) for one in jobs), default=0.0)
    columns = (
        "job", "script", "namespace", "ended", "state", "took", MEAN_RATE, "PS+workers", "saved", "CPU idle", "memory",
    )  # fmt: skip
    note = (
        "Mean examples/s: over all of the training, its changes included. Idle CPU and memory: of what was requested. "
    )
    note += "Saved: against staying at the first size, pauses counted."
    return Table(columns, [_row(one, most) for one in jobs], frozenset({5, 6, 9, 10}), note)


def _row(one: Kept, most_saved: float) -> Sequence[Cell]:
    job, use = one.job, one.job.use
    return (
        Link(job.name or f"job {one.number}", f"/jobs/{one.number}"),
        Link(job.script or NOT_KNOWN, "/?" + _query(one.namespace, job.script)),
        Link(one.namespace or NOT_KNOWN, "/?" + _query(one.namespace, "")),
        moment(job.finished)[5:16], job.status, format_seconds(job.seconds), _rate(job.brought.examples_per_second),
        short_sizes(job), _saved(job, most_saved),
        percent(idle_share(use.cpu_idle_core_seconds, use.cpu_held_core_seconds)),
        percent(idle_share(use.memory_idle_byte_seconds, use.memory_held_byte_seconds)),
    )  # fmt: skip


def _rate(value: float) -> str:
    return number(value) if value else NOT_KNOWN


def _hours(core_seconds: float) -> str:
    return f"{core_seconds / 3600:.3g}"


def _saved(job: Finished, most: float) -> Cell:
    told = job.brought
    if not told.changes or not told.first_examples_per_second:
        return NOT_KNOWN
    kind = SCALING if told.saved_seconds >= 0 else TRAINER
    return Bar(saved(told.saved_seconds), abs(told.saved_seconds) / most if most else 0.0, kind)


def of_job(one: Kept) -> str:
    """One job."""
    job, use = one.job, one.job.use
    figures = [
        ("took", format_seconds(job.seconds)), ("examples", count(job.examples)),
        (MEAN_RATE, _rate(job.brought.examples_per_second)), ("core-hours used", _hours(use.cpu_core_seconds)),
        ("requested CPU idle", percent(idle_share(use.cpu_idle_core_seconds, use.cpu_held_core_seconds))),
        ("saved by changes", saved(job.brought.saved_seconds)),
    ]  # fmt: skip
    sections = [
        Section("decisions", "What changes of its size brought", [_decisions(job)]),
        Section("sizes", "Sizes it had", [_sizes(job)]),
        Section("waste", "What it used and wasted", [_waste(job)]),
        Section("model", "What is known of its model", [_model(job)]),
        Section("more", "More", [Links([Link("all jobs", "/"), *_alike(one)])]),
    ]
    where = f" in namespace {one.namespace}" if one.namespace else ""
    headline = f"Script {job.script or NOT_KNOWN}{where}, ended {moment(job.finished) or 'at an unknown time'}."
    return render(Document(job.name or f"job {one.number}", job.status, headline, figures, sections), FOOTER)


def _alike(one: Kept) -> list[Link]:
    return [Link("jobs of this script", "/?" + _query(one.namespace, one.job.script))] if one.job.script else []


def _decisions(job: Finished) -> Block:
    told = job.brought
    first = f"{number(told.first_examples_per_second)} examples/s" if told.first_examples_per_second else "not measured"
    return Facts([
        ("who chose the sizes", "the autoscaler" if job.autoscaled else "its user"), ("all in all", brought(job)),
        ("at the first size", first), ("over all of the training", f"{number(told.examples_per_second)} examples/s"),
    ])  # fmt: skip


def _sizes(job: Finished) -> Block:
    if not job.windows:
        return Text("No size was had for long enough to be measured.")
    best = max(window.examples_per_second for window in job.windows)
    columns = (
        "PS",
        "workers",
        "for",
        "examples/s",
        "CPU of a trainer",
        "CPU of all PS",
        "each PS may use",
        "each trainer may use",
    )
    rows: list[Sequence[Cell]] = [
        (str(one.size.ps), str(one.size.workers), format_seconds(one.seconds),
         Bar(number(one.examples_per_second), one.examples_per_second / best if best else 0.0, SCALING),
         f"{one.trainer_cpu_cores:.2f}", f"{one.ps_cpu_cores:.2f}", _held(one.size.ps_cpu, one.size.ps_memory_bytes),
         _held(one.size.worker_cpu, one.size.worker_memory_bytes))
        for one in in_order(job)
    ]  # fmt: skip
    note = "Undisturbed time only: medians over it."
    if job.sums:
        kept = [at for at, title in enumerate(columns) if "PS" not in title]
        return Table(
            [columns[at] for at in kept], [[row[at] for at in kept] for row in rows], frozenset({0, 1, 3}), note
        )
    return Table(columns, rows, frozenset({0, 1, 2, 4, 5}), note)


def _held(cores: float, memory: int) -> str:
    parts = [f"{cores:g} cores"] if cores else []
    return ", ".join([*parts, *([format_bytes(memory)] if memory else [])]) or NOT_KNOWN


def _waste(job: Finished) -> Block:
    use = job.use
    cpu = idle_share(use.cpu_idle_core_seconds, use.cpu_held_core_seconds)
    memory = idle_share(use.memory_idle_byte_seconds, use.memory_held_byte_seconds)
    nothing, highest = (
        "nothing was requested",
        (format_bytes(job.ps_memory_bytes), format_bytes(job.worker_memory_bytes)),
    )
    of_cpu = nothing if cpu is None else f"{percent(cpu)} idle of {core_hours(use.cpu_held_core_seconds)}"
    of_memory = nothing if memory is None else f"{percent(memory)} idle of {byte_hours(use.memory_held_byte_seconds)}"
    return Facts([
        ("processes", f"{use.process_seconds / 3600:.3g} hours of {'trainers' if job.sums else 'PS and trainers'}"),
        ("CPU", core_hours(use.cpu_core_seconds) + " used"),
        ("of the requested CPU", of_cpu),
        ("memory", byte_hours(use.memory_byte_seconds) + " used"),
        ("of the requested memory", of_memory),
        ("highest memory", f"{highest[0]} of a PS, " * (not job.sums) + f"{highest[1]} of a trainer"),
    ])  # fmt: skip


def _model(job: Finished) -> Block:
    model, fitted, names = job.model, job.fitted, formula.NAMES
    rows = [
        ("tables", format_bytes(model.table_bytes)), ("dense variables", format_bytes(model.dense_bytes)),
        ("batch", number(model.batch_size)), ("look-ups per step", number(model.lookups_per_step)),
        ("largest slot", format_bytes(model.largest_slot_bytes)),
    ]  # fmt: skip
    if job.sums:
        names = synchronous.NAMES
        rows = [("strategy", "in step, without PS"), ("records of a step", number(model.batch_size))]
    if len(fitted.coefficients) == len(names):
        known = ", ".join(f"{name} {value:.3g}" for name, value in zip(names, fitted.coefficients) if value)
        error = "not measured" if fitted.mape_holdout is None else f"{fitted.mape_holdout:.0%}"
        rows += [("throughput model", known), ("its error at sizes it was not shown", error)]
    else:
        rows.append(("throughput model", "none: too few sizes"))
    return Facts(rows)
