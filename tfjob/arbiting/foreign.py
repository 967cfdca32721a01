"""Limits of others that count our jobs' pods: what they have in common is a limit, and what others hold of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from deeprec_ext.arbiter.observed import Quota
from tfjob.arbiting.amounts import Numbers, as_numbers, number, numbers, requested, resources
from tfjob.arbiting.bidders import CHIEF, OTHER, PS, WORKER, Bidder, View
from tfjob.model import names

COUNTED_PODS = "pods"
OF_TYPES = {names.PS: PS, names.WORKER: WORKER, names.EVALUATOR: OTHER}


class Counted(NamedTuple):
    """A quota, and whose pods it counts: of these jobs (by name) those of these roles."""

    quota: Quota
    pods: frozenset[tuple[str, str]]


def quota(name: str, limit: Mapping[str, float], held: Mapping[str, float], said: str, closed: str = "") -> Quota:
    """Args: limit: infinite ones are none."""
    hard = {resource: value for resource, value in limit.items() if math.isfinite(value)}
    free = {resource: max(0.0, value - held.get(resource, 0.0)) for resource, value in hard.items()}
    taken = {resource: value - free[resource] for resource, value in hard.items()}
    return Quota(
        name, resources(_without_pods(free)), tuple(sorted(hard)), int(free.get(COUNTED_PODS, 0)),
        resources(_without_pods(taken)), said, closed,
    )  # fmt: skip


def _without_pods(found: Mapping[str, float]) -> Numbers:
    return {name: value for name, value in found.items() if name != COUNTED_PODS}


def amounts(quantities: object) -> Numbers:
    """Of a dictionary of quantities, as anybody may have written it; with pods."""
    found = numbers(quantities)
    if isinstance(quantities, dict) and COUNTED_PODS in quantities:
        found[COUNTED_PODS] = number(quantities[COUNTED_PODS])
    return found


def summed(many: Iterable[Mapping[str, float]]) -> Numbers:
    found: Numbers = {}
    for one in many:
        for name, value in one.items():
            found[name] = found.get(name, 0.0) + value
    return found


def roles(bidder: Bidder) -> tuple[str, ...]:
    """Whose pods a queue sees: the AIMaster's own is in none."""
    return (CHIEF, PS, WORKER, OTHER) if names.EVALUATOR in bidder.job.specs else (CHIEF, PS, WORKER)


def written(bidder: Bidder) -> list[tuple[str, Numbers]]:
    """What its replicas request, as its manifest says: by role, without its AIMaster."""
    found = []
    for type_, spec in bidder.job.specs.items():
        role = CHIEF if type_ == bidder.job.chief else OF_TYPES.get(type_, WORKER)
        request = {**as_numbers(requested(spec.template["spec"])), COUNTED_PODS: 1.0}
        found.append((role, {name: value * spec.replicas for name, value in request.items()}))
    return found


def placed(views: Iterable[View]) -> list[tuple[str, Numbers]]:
    """What those of its pods request that are there."""
    return [(role, {**as_numbers(pod.resources), COUNTED_PODS: 1.0}) for role, pod in views if pod.node]
