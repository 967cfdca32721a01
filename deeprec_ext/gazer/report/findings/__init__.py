"""Findings: what a person should know about a run, each from one small rule.

A rule is a pure function of a `Case`; its thresholds are named beside it, with their reasons. New rules go into the module of
their subject and into its RULES.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from deeprec_ext.gazer.report.case import Case
from deeprec_ext.gazer.report.findings import evidence, load, resources, safety, trainers
from deeprec_ext.gazer.report.findings.finding import LEVELS, Finding, Rule

RULES: Sequence[Rule] = (*safety.RULES, *resources.RULES, *load.RULES, *trainers.RULES, *evidence.RULES)

OF_ONE_RULE_MAX = 5
"""In a job of a thousand roles a rule may fire for each: the worst are told, and the names of some more."""

NAMES_MAX = 20


def find(case: Case) -> list[Finding]:
    """All there are: problems first, then what would gain most."""
    found = [finding for rule in RULES for finding in _worst(rule(case))]
    return sorted(found, key=_order)


def _order(one: Finding) -> tuple[int, float]:
    return LEVELS.index(one.level), -one.weight


def _worst(found: Iterable[Finding]) -> list[Finding]:
    ordered = sorted(found, key=_order)
    kept, rest = ordered[:OF_ONE_RULE_MAX], ordered[OF_ONE_RULE_MAX:]
    if rest:
        names = ", ".join(one.subject for one in rest[:NAMES_MAX] if one.subject)
        more = f"{len(rest)} more findings like this one{f': {names}' if names else ''}"
        kept[-1] = dataclasses.replace(kept[-1], evidence=(*kept[-1].evidence, more))
    return kept
