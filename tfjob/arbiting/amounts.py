"""What pods request and nodes have, as numbers; added up and taken away, resource by resource."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from deeprec_ext.arbiter.observed import Amount, Resources
from deeprec_ext.units import format_bytes
from tfjob.model.kinds import Manifest
from tfjob.model.quantities import parse_quantity

NOTHING = Resources()
Numbers = dict[str, float]
"""By name of the resource: "cpu" in cores, "memory" in bytes, "nvidia.com/gpu"."""


@lru_cache(maxsize=4096)
def _number(text: str) -> float:
    """0 for what is no quantity: the server takes none of these, and a template that has one is refused elsewhere."""
    try:
        found = float(parse_quantity(text))
    except (ValueError, ArithmeticError):
        return 0.0
    return found if 0 <= found < math.inf else 0.0


def counts(name: str) -> bool:
    """Whether it is a resource that we look at. Others (ephemeral storage) are the scheduler's alone."""
    return name in ("cpu", "memory") or "/" in name or name.startswith("hugepages-")


def number(quantity: Any) -> float:
    return _number(str(quantity))


def numbers(quantities: Any) -> Numbers:
    """Of a dictionary of quantities, as anybody may have written it."""
    if not isinstance(quantities, dict):
        return {}
    return {name: _number(str(value)) for name, value in quantities.items() if isinstance(name, str) and counts(name)}


def requested(spec: Manifest) -> Resources:
    """By a pod (or a template) as the scheduler counts it: the containers together, or the largest that runs before them.

    A limit without a request is a request. Containers that start first and stay (`restartPolicy: Always`) count with both.
    """
    running: Numbers = {}
    most: Numbers = {}
    for one in _list(spec.get("initContainers")):
        wanted = _wanted(one)
        if one.get("restartPolicy") == "Always":
            running = _sum(running, wanted)
            wanted = {}
        most = _most(most, _sum(running, wanted))
    for one in _list(spec.get("containers")):
        running = _sum(running, _wanted(one))
    found = _most(most, running)
    found.update(_wanted(spec))  # of the pod as a whole: then its containers only share it
    return resources(_sum(found, numbers(spec.get("overhead"))))


def _list(found: Any) -> list[Manifest]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _wanted(container: Manifest) -> Numbers:
    found = container.get("resources")
    return {**numbers(found.get("limits")), **numbers(found.get("requests"))} if isinstance(found, dict) else {}


def _sum(one: Numbers, other: Mapping[str, float]) -> Numbers:
    found = dict(one)
    for name, value in other.items():
        found[name] = found.get(name, 0.0) + value
    return found


def _most(one: Numbers, other: Numbers) -> Numbers:
    return {name: max(one.get(name, 0.0), other.get(name, 0.0)) for name in {**one, **other}}


def resources(found: Mapping[str, float]) -> Resources:
    others = tuple(sorted((name, round(value, 6)) for name, value in found.items() if name not in ("cpu", "memory")))
    return _made(round(found.get("cpu", 0.0), 6), int(found.get("memory", 0)), others)


@lru_cache(maxsize=4096)
def _made(cpu: float, memory: int, others: tuple[tuple[str, float], ...]) -> Resources:
    """One object for all pods of a size."""
    return Resources(cpu, memory, tuple(Amount(name, count) for name, count in others if count))


def as_numbers(one: Resources) -> Numbers:
    return {"cpu": one.cpu, "memory": float(one.memory_bytes), **{other.name: other.count for other in one.others}}


def added(many: Iterable[Resources]) -> Resources:
    found: Numbers = {}
    for one in many:
        found = _sum(found, as_numbers(one))
    return resources(found)


def without(one: Resources, other: Resources) -> Resources:
    """What is left; never less than nothing."""
    taken = as_numbers(other)
    return resources({name: max(0.0, value - taken.get(name, 0.0)) for name, value in as_numbers(one).items()})


def times(one: Resources, count: int) -> Resources:
    return resources({name: value * count for name, value in as_numbers(one).items()})


def least_each(many: Iterable[Mapping[str, float]]) -> Numbers:
    """Of several limits the tightest, resource by resource."""
    found: Numbers = {}
    for one in many:
        for name, value in one.items():
            found[name] = min(found.get(name, math.inf), value)
    return found


def lacking(wanted: Resources, room: Resources) -> list[str]:
    """Which resources are more than there is."""
    have = as_numbers(room)
    return [name for name, value in as_numbers(wanted).items() if value > have.get(name, 0.0) + 1e-6]


def shown(one: Resources, names: Iterable[str] = ("cpu", "memory")) -> str:
    """`12 cores, 40 GB, 2 nvidia.com/gpu`, of these resources."""
    have = as_numbers(one)
    words = []
    for name in names:
        value = have.get(name, 0.0)
        cores = f"{value:.6g} core" + ("" if value == 1 else "s")
        words.append(cores if name == "cpu" else format_bytes(value) if name == "memory" else f"{value:g} {name}")
    return ", ".join(words)
