"""Findings: what a person should know about a run, each from one small rule.

A rule is a pure function of a `Case`; its thresholds are named beside it, with their reasons. New rules go into the module of
their subject and into its RULES.
"""

from __future__ import annotations

from collections.abc import Sequence

from deeprec_ext.gazer.report.case import Case
from deeprec_ext.gazer.report.findings import evidence, load, resources, safety, trainers
from deeprec_ext.gazer.report.findings.finding import LEVELS, Finding, Rule

RULES: Sequence[Rule] = (*safety.RULES, *resources.RULES, *load.RULES, *trainers.RULES, *evidence.RULES)


def find(case: Case) -> list[Finding]:
    """All there are: problems first, then what would gain most."""
    found = [finding for rule in RULES for finding in rule(case)]
    return sorted(found, key=lambda one: (LEVELS.index(one.level), -one.weight))
