"""To which nodes pods may go, by their node selector, required node affinity and tolerations.

Nodes to which no elastic job may go are no room, a job is not told that it never fits by nodes where it must not run, and
nobody gives way to a pod of others that could not come.

Nodes to which the same pods of jobs may go are one group (`Kinds`): there are few of these, however many nodes and jobs there
are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Set
from functools import lru_cache
from typing import Any

from tfjob.arbiting.seen import NodeSeen, Reach
from tfjob.model.kinds import Manifest

_DRAINED = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Taints of nodes in trouble: who tolerates everything runs there all the same, but no new room is there."""


def admits(reach: Reach, node: NodeSeen) -> bool:
    """Whether a new pod may go there."""
    if node.closed or any(key.startswith(_DRAINED) for key, _, _ in node.taints):
        return False
    tolerations, terms = _read(reach.tolerations), _read(reach.affinity)
    return (
        all(node.labels.get(key) == value for key, value in reach.selector)
        and all(any(_tolerates(one, taint) for one in tolerations) for taint in node.taints)
        and (not terms or any(_matches(term, node) for term in terms))
    )


class Kinds:
    """The nodes, in groups; each named by its number, in the order of the names of their first nodes."""

    def __init__(self, nodes: Iterable[NodeSeen], jobs: Set[Reach], beside: Set[Reach]) -> None:
        """Args: jobs: what pods of jobs have; beside: what AIMasters have, for whose sake no node is room."""
        self._places = {reach: at for at, reach in enumerate((*sorted(jobs), *sorted(beside - jobs)))}
        self._alike: dict[tuple[int, ...], str] = {}  # places of the reaches that admit a group → its name
        self._known: dict[Reach, tuple[str, ...] | None] = {}
        self.of: dict[str, str] = {}
        """By name of the node, of those to which any of these pods may go."""

        for node in sorted(nodes):
            alike = tuple(at for reach, at in self._places.items() if admits(reach, node))
            if alike and alike[0] < len(jobs):
                self.of[node.name] = self._alike.setdefault(alike, str(len(self._alike)))
        if len(self._alike) == 1:
            self.of = dict.fromkeys(self.of, "")

    def groups(self, reach: Reach) -> tuple[str, ...] | None:
        """To which nodes of this reach may go; None: to all."""
        if reach not in self._known:
            found = tuple(name for alike, name in self._alike.items() if self._places[reach] in alike)
            self._known[reach] = None if len(found) == len(self._alike) else found
        return self._known[reach]


@lru_cache(maxsize=256)
def _read(text: str) -> tuple[Manifest, ...]:
    return tuple(one for one in json.loads(text) if isinstance(one, dict))


def _tolerates(toleration: Manifest, taint: tuple[str, str, str]) -> bool:
    key, value, effect = taint
    if toleration.get("effect") not in (None, "", effect):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", key)
    return toleration.get("key") == key and str(toleration.get("value") or "") == value


def _matches(term: Manifest, node: NodeSeen) -> bool:
    """All expressions of one term. Of fields there is only the name."""
    fields = term.get("matchFields") or ()
    labels = term.get("matchExpressions") or ()
    found = [_holds(one, {"metadata.name": node.name}) for one in fields] + [_holds(one, node.labels) for one in labels]
    return bool(found) and all(found)


def _holds(expression: Any, labels: Mapping[str, str]) -> bool:
    if not isinstance(expression, dict):
        return False
    have, operator = labels.get(str(expression.get("key"))), expression.get("operator")
    values = [str(value) for value in expression.get("values") or ()]
    if operator == "In":
        return have in values
    if operator == "NotIn":
        return have not in values
    if operator in ("Exists", "DoesNotExist"):
        return (have is not None) == (operator == "Exists")
    if operator in ("Gt", "Lt") and have is not None and len(values) == 1:
        try:
            return int(have) > int(values[0]) if operator == "Gt" else int(have) < int(values[0])
        except ValueError:
            return False
    return False
