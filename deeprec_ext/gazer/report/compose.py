"""From a story to a document: findings first, then what they rest on."""

from __future__ import annotations

from deeprec_ext.gazer.report.case import Case
from deeprec_ext.gazer.report.document import Cards, Document, Section, Text
from deeprec_ext.gazer.report.findings import Finding, find
from deeprec_ext.gazer.report.sections import cluster, happened, running
from deeprec_ext.gazer.report.story import ENDED, Story


def compose(story: Story) -> Document:
    case = Case(story)
    sections = [
        findings(find(case)), running.what_ran(case), running.throughput(case), running.steps(case),
        *((cluster.balance(case), cluster.work(case)) if not story.in_step else ()), cluster.resources(case),
        cluster.cost(case),
        happened.scalings(case), happened.failures(case), happened.decisions(case), happened.data(case), happened.backups(case),
        happened.warnings(case), happened.logs(case),
    ]  # fmt: skip
    state = (story.status or "ended") if story.state == ENDED else story.state
    return Document(
        story.job, state, running.headline(story), running.figures(case), [one for one in sections if one is not None]
    )


def findings(found: list[Finding]) -> Section:
    nothing = Text("Nothing stands out: no finding in this run.")
    return Section("findings", "Findings", [Cards(found)] if found else [nothing])
