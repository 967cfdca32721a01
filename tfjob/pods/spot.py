"""Pods that ask for spot nodes, and the same pods without that wish. Pure.

A template asks for nodes with the label `key=value` (annotation `spot`) by a node selector, by node affinity, or by tolerating
their taint; any of these may be missing.
"""

from __future__ import annotations

import copy
from typing import Any

from tfjob.model.kinds import Manifest

REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)


def asks_for(pod: Manifest, key: str, value: str) -> bool:
    return without(pod, key, value) != pod


def without(pod: Manifest, key: str, value: str) -> Manifest:
    """The same pod, which any node may have; the pod itself is never changed."""
    pod = copy.deepcopy(pod)
    spec = pod["spec"]
    selector = spec.get("nodeSelector") or {}
    if selector.get(key) == value:
        _put(spec, "nodeSelector", {name: one for name, one in selector.items() if name != key})
    if tolerations := spec.get("tolerations"):
        _put(spec, "tolerations", [one for one in tolerations if not _tolerates(one, key, value)])
    affinity = spec.get("affinity") or {}
    if node := affinity.get("nodeAffinity"):
        node = dict(node)
        terms = (node.get(REQUIRED) or {}).get("nodeSelectorTerms") or []
        left = [_term(one, key, value) for one in terms]
        if not all(left):  # a term that asks for nothing else: any node will do (an empty one would mean none)
            node.pop(REQUIRED, None)
        elif left != terms:
            node[REQUIRED] = {**node[REQUIRED], "nodeSelectorTerms": left}
        if wishes := node.get(PREFERRED):
            kept = [{**one, "preference": _term(one.get("preference") or {}, key, value)} for one in wishes]
            _put(node, PREFERRED, [one for one in kept if one["preference"]])
        _put(affinity, "nodeAffinity", node)
        _put(spec, "affinity", affinity)
    return pod


def _tolerates(toleration: Manifest, key: str, value: str) -> bool:
    """This taint by its name. One that tolerates everything says nothing of spot."""
    return toleration.get("key") == key and (toleration.get("operator") == "Exists" or toleration.get("value") == value)


def _term(term: Manifest, key: str, value: str) -> Manifest:
    """Without the expressions that ask for the label; empty: there were no others."""
    expressions = term.get("matchExpressions") or []
    left = [one for one in expressions if not (one.get("key") == key and _wants(one, value))]
    if len(left) == len(expressions):
        return term
    rest = {name: one for name, one in term.items() if name != "matchExpressions"}
    return {**rest, "matchExpressions": left} if left else rest


def _wants(expression: Manifest, value: str) -> bool:
    operator = expression.get("operator")
    return operator == "Exists" or (operator == "In" and value in (expression.get("values") or ()))


def _put(where: Manifest, name: str, found: Any) -> None:
    """Nothing rather than something empty."""
    if found:
        where[name] = found
    else:
        where.pop(name, None)
