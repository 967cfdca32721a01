"""What the operator serves of its arbiter: `/queue` for people, `/queue.json` for programs, and figures for Prometheus.

An operator that does not lead shows what stands in the jobs' annotations. What is shown was written by others; the page has no
script and loads nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from deeprec_ext.arbiter.observed import Cluster, Decision
from deeprec_ext.arbiter.telling import rows
from deeprec_ext.gazer.prometheus import COUNTER, GAUGE, Exported, Facts
from deeprec_ext.gazer.report.document import TRAINER, Bar, Cell, Document, Section, Table, Text
from deeprec_ext.gazer.report.html import POLICY, render
from deeprec_ext.gazer.report.words import moment
from deeprec_ext.units import counted, format_bytes, format_seconds
from tfjob.arbiting.standing import standing
from tfjob.operator.arbiter.acting import Arbiter

if TYPE_CHECKING:
    from starlette.routing import Route

HEADERS = {
    "content-security-policy": f"{POLICY}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff", "referrer-policy": "no-referrer", "cache-control": "no-store", "refresh": "5",
}  # fmt: skip
FOOTER = "The queue of elastic jobs, by the operator of deeprec-ext. For a program: /queue.json, or deeprec-ext queue --json."
JOBS_SHOWN, WAITING_SHOWN = 2000, 100
WHY_MAX = 300
KEPT_SECONDS = 1.0

PREFIX = "deeprec_operator_arbiter_"
ARBITER = (
    Exported(PREFIX + "jobs", GAUGE, "elastic jobs that are to run; of the operator that leads"),
    Exported(PREFIX + "waiting_jobs", GAUGE, "of these may have nothing at present"),
    Exported(
        PREFIX + "allowed", GAUGE, "PS, and workers beside the chief, that jobs may have", ("job_namespace", "role")
    ),
    Exported(PREFIX + "used_share", GAUGE, "of the cores for elastic jobs, when all have what they are allowed"),
    Exported(PREFIX + "waiting_pods", GAUGE, "pods of others that wait for room"),
    Exported(PREFIX + "decisions_total", COUNTER, "looks at the cluster"),
    Exported(PREFIX + "seconds_total", COUNTER, "time spent observing and deciding"),
    Exported(PREFIX + "writes_total", COUNTER, "allowances written"),
    Exported(PREFIX + "conflicts_total", COUNTER, "writes to a job that had changed meanwhile"),
    Exported(PREFIX + "failed_total", COUNTER, "allowances that could not be written, and looks that failed"),
)


def arbiter_facts(arbiter: Arbiter) -> Facts:
    figures = arbiter.figures
    single: dict[str, float] = {
        "decisions_total": figures.decisions, "seconds_total": figures.seconds, "writes_total": figures.writes,
        "conflicts_total": figures.conflicts, "failed_total": figures.failed,
    }  # fmt: skip
    allowed: dict[tuple[str, str], int] = {}
    if arbiter.last is not None:
        cluster, decision = arbiter.last
        single.update({
            "jobs": len(cluster.jobs), "waiting_jobs": sum(not one.runs for one in decision.allowances),
            "used_share": decision.used_share, "waiting_pods": len(cluster.waiting),
        })  # fmt: skip
        for one in decision.allowances:
            namespace = one.job.partition("/")[0]
            for role, count in (("ps", one.ps), ("worker", one.workers)):
                allowed[namespace, role] = allowed.get((namespace, role), 0) + count * one.runs
    return {
        **{PREFIX + name: [((), value)] for name, value in single.items()},
        **({PREFIX + "allowed": [(labels, count) for labels, count in sorted(allowed.items())]} if allowed else {}),
    }


# ---------------------------------------------------------------------------------------------------- what is shown


def shown(arbiter: Arbiter, now: float) -> tuple[Cluster, Decision, bool]:
    """What there is, what was decided, and whether by this operator."""
    if arbiter.last is not None:
        return *arbiter.last, True
    cluster = arbiter.cluster(now)
    return cluster, standing(cluster), False


def answer(arbiter: Arbiter, now: float) -> dict[str, Any]:
    """For `/queue.json`."""
    cluster, decision, leads = shown(arbiter, now)
    waiting = [
        {"name": one.name, "priority": one.priority, "since": one.since, "cpu": one.resources.cpu,
         "memory_bytes": one.resources.memory_bytes} for one in cluster.waiting
    ]  # fmt: skip
    return {
        "time": cluster.time, "leads": leads, "confined": arbiter.watch.confined, "missing": arbiter.missing.told(),
        "nodes": len(cluster.nodes),
        "used_share": decision.used_share if leads else None, "jobs": rows(cluster, decision), "waiting_pods": waiting,
        "decisions": arbiter.figures.decisions, "writes": arbiter.figures.writes,
    }  # fmt: skip


def page(arbiter: Arbiter, now: float) -> str:
    """The whole file for `/queue`."""
    return render(
        document(*shown(arbiter, now), confined=arbiter.watch.confined, missing=arbiter.missing.told()), FOOTER
    )


def document(
    cluster: Cluster, decision: Decision, leads: bool, confined: str = "", missing: Sequence[str] = ()
) -> Document:
    waiting = sum(not one.runs for one in decision.allowances)
    free = sum(node.free.cpu for node in cluster.nodes)
    figures = [
        ("jobs", f"{len(cluster.jobs)}"), ("of them waiting", f"{waiting}"), ("nodes", f"{len(cluster.nodes)}"),
        ("cores for elastic jobs", f"{free:.6g}"),
        ("of them used", f"{100 * decision.used_share:.0f} %" if leads else "the leader knows"),
        ("pods of others that wait", f"{len(cluster.waiting)}"),
    ]  # fmt: skip
    blocks = [_jobs(cluster, decision)] if cluster.jobs else [Text("No elastic job is to run.")]
    sections = [Section("jobs", "What each job may have, and why", blocks)]
    if cluster.waiting:
        sections.append(Section("waiting", "Pods of others that wait for room", [_waiting(cluster)]))
    if missing:
        lines = [Text(f"It {text}") for text in missing[:WAITING_SHOWN]]
        sections.append(Section("missing", "Rights that the operator does without", lines))
    headline = "As decided last." if leads else "As the jobs' annotations say: another operator leads, or none yet."
    if confined:
        headline += f" Only quotas are known, no nodes: {confined}"
    state = counted(len(cluster.jobs), "job")
    return Document(f"Queue of the cluster at {moment(cluster.time)}", state, headline, figures, sections, wide=True)


def _jobs(cluster: Cluster, decision: Decision) -> Table:
    found = rows(cluster, decision)
    most = max((one.ps + one.workers for one in decision.allowances), default=0)
    note = f"The first {JOBS_SHOWN} of {len(found)}; all are in /queue.json." if len(found) > JOBS_SHOWN else ""
    columns = ("job", "priority", "queue", "state", "has", "allowed", "wants", "of its speed", "since", "why")
    note = f"Sizes are PS+workers beside the chief. {note}".strip()
    return Table(columns, [_row(one, most, cluster.time) for one in found[:JOBS_SHOWN]], frozenset({1, 7}), note)


def _row(one: dict[str, Any], most: int, now: float) -> Sequence[Cell]:
    allowed, worth = one["allowed"], one["worth"]
    share = sum(allowed.values()) / most if allowed and most else 0.0
    speed = ""
    if worth is not None and worth["wanted_examples_per_second"]:
        speed = f"{100 * worth['examples_per_second'] / worth['wanted_examples_per_second']:.0f} %"
    return (
        one["job"], f"{one['priority']}", one["queue"], one["state"], _size(one["has"]),
        Bar(_size(allowed), share, TRAINER) if allowed else "nothing", _size(one["wants"]), speed,
        format_seconds(max(0.0, now - one["since"])), one["why"][:WHY_MAX],
    )  # fmt: skip


def _size(size: dict[str, int]) -> str:
    return f"{size['ps']}+{size['workers']}"


def _waiting(cluster: Cluster) -> Table:
    found = [
        (one.name, f"{one.priority}", f"{one.resources.cpu:g}", format_bytes(one.resources.memory_bytes),
         format_seconds(max(0.0, cluster.time - one.since))) for one in cluster.waiting[:WAITING_SHOWN]
    ]  # fmt: skip
    note = f"The first {WAITING_SHOWN} of {len(cluster.waiting)}." if len(cluster.waiting) > WAITING_SHOWN else ""
    return Table(("pod", "priority", "cores", "memory", "for"), found, frozenset({1, 2, 3}), note)


class Served:
    """What was made a moment ago is served once more: who asks often must not take the operator's time."""

    def __init__(self, make: Callable[[float], bytes]) -> None:
        self._make, self._made, self._at = make, b"", 0.0

    def get(self, now: float) -> bytes:
        if not 0 <= now - self._at < KEPT_SECONDS:
            self._made, self._at = self._make(now), now
        return self._made


def pages(arbiter: Arbiter) -> list[Route]:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    html = Served(lambda now: page(arbiter, now).encode())
    values = Served(lambda now: json.dumps(answer(arbiter, now)).encode())

    async def queue(_: Request) -> Response:
        return Response(html.get(time.time()), media_type="text/html", headers=HEADERS)

    async def queue_json(_: Request) -> Response:
        return Response(values.get(time.time()), media_type="application/json", headers={"cache-control": "no-store"})

    return [Route("/queue", queue), Route("/queue.json", queue_json)]
