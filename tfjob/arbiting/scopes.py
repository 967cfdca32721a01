"""Which pods a ResourceQuota counts: its scopes, and what pods have that these look at."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from tfjob.model.kinds import Manifest

ANY_IN, NOT_IN, EXISTS, ABSENT = "In", "NotIn", "Exists", "DoesNotExist"
QUALITY = ("cpu", "memory")
"""A pod that requests and limits neither is of the class BestEffort."""


class Traits(NamedTuple):
    """Of a pod."""

    priority_class: str  # empty: it names none
    terminating: bool  # it has a deadline of its own
    best_effort: bool
    crossing: bool  # it is placed by pods of other namespaces


class Scope(NamedTuple):
    name: str
    operator: str
    values: tuple[str, ...]


def traits_of(spec: Manifest) -> Traits:
    """Of a pod's, or a template's, `spec`."""
    deadline = spec.get("activeDeadlineSeconds")
    return Traits(
        str(spec.get("priorityClassName") or ""), isinstance(deadline, int) and deadline >= 0,
        not any(_wants(one) for one in _parts(spec)), _crosses(spec.get("affinity")),
    )  # fmt: skip


def scopes_of(spec: Manifest) -> tuple[Scope, ...]:
    """Of a ResourceQuota's `spec`; a pod is counted by whom all of them match."""
    plain = [Scope(str(name), EXISTS, ()) for name in _list(spec.get("scopes"))]
    selector = spec.get("scopeSelector")
    expressions = _list(selector.get("matchExpressions")) if isinstance(selector, dict) else []
    more = [
        Scope(str(one.get("scopeName")), str(one.get("operator")), tuple(map(str, _list(one.get("values")))))
        for one in expressions if isinstance(one, dict)
    ]  # fmt: skip
    return (*plain, *more)


def matches(scopes: Iterable[Scope], traits: Traits) -> bool:
    """A scope that we do not know counts no pod, as the one of volumes does."""
    return all(_matches(one, traits) for one in scopes)


def _matches(scope: Scope, traits: Traits) -> bool:
    if scope.name == "PriorityClass":
        named = traits.priority_class
        if scope.operator in (ANY_IN, NOT_IN):
            return (named in scope.values) == (scope.operator == ANY_IN)
        return bool(named) == (scope.operator == EXISTS)
    has = {
        "Terminating": traits.terminating, "NotTerminating": not traits.terminating,
        "BestEffort": traits.best_effort, "NotBestEffort": not traits.best_effort,
        "CrossNamespacePodAffinity": traits.crossing,
    }  # fmt: skip
    return has.get(scope.name, False)


def _parts(spec: Manifest) -> list[Any]:
    return [*_list(spec.get("initContainers")), *_list(spec.get("containers")), spec]


def _wants(container: Any) -> bool:
    found = container.get("resources") if isinstance(container, dict) else None
    if not isinstance(found, dict):
        return False
    amounts = [found.get(kind) for kind in ("requests", "limits")]
    return any(str(one.get(name) or "0") != "0" for one in amounts if isinstance(one, dict) for name in QUALITY)


def _crosses(affinity: Any) -> bool:
    found = affinity if isinstance(affinity, dict) else {}
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = found.get(kind)
        if not isinstance(rules, dict):
            continue
        terms = _list(rules.get("requiredDuringSchedulingIgnoredDuringExecution"))
        weighed = _list(rules.get("preferredDuringSchedulingIgnoredDuringExecution"))
        terms = terms + [one.get("podAffinityTerm") for one in weighed if isinstance(one, dict)]
        if any(
            isinstance(one, dict) and (one.get("namespaces") or one.get("namespaceSelector") is not None)
            for one in terms
        ):
            return True
    return False


def _list(found: Any) -> list[Any]:
    return found if isinstance(found, list) else []
