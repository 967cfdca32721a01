"""What the operator may see: in which namespaces, and which rights it does without.

A right that is missing is said once, with what follows and the rule that gives it, and counts as missing until the server lets
us: so an operator with a Role in some namespaces runs the jobs of those that it may, and of the others it says what it lacks.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Container
from typing import NamedTuple

from tfjob.api.client import ForbiddenError
from tfjob.api.watching import Rights
from tfjob.model.kinds import KUEUE, LEASES, NODES, PRIORITY_CLASSES, RESOURCE_QUOTAS, VOLCANO, Resource

log = logging.getLogger(__name__)

Key = tuple[str, str]
"""Namespace and name of a job, or of an object."""

Namespaces = tuple[str | None, ...]
"""That are watched, one by one; None: all together, by rights in the whole cluster."""

EVERYWHERE: Namespaces = (None,)
MANIFESTS = "tfjob/manifests/"
MISSING_MAX = 1000


class Right(NamedTuple):
    """`namespace`: empty: in none, or in all."""

    namespace: str
    resource: Resource
    verb: str

    @property
    def rule(self) -> str:
        """As a line of a Role or ClusterRole has it."""
        group = self.resource.group or '""'
        return f"- {{apiGroups: [{group}], resources: [{self.resource.plural}], verbs: [{self.verb}]}}"

    @property
    def manifest(self) -> str:
        """Ours, in which it stands."""
        group, plural, confined = self.resource.group, self.resource.plural, bool(self.namespace)
        if self.resource == LEASES:
            return f"{MANIFESTS}base/role.yaml"
        of_queues = group == KUEUE or (group == VOLCANO and plural == "queues")
        if of_queues:  # of use together only, and most are in no namespace
            return f"{MANIFESTS}components/arbiter/cluster-role.yaml"
        if self.resource in (NODES, RESOURCE_QUOTAS) or (self.resource == PRIORITY_CLASSES and self.verb != "get"):
            return f"{MANIFESTS}components/" + (
                "arbiter-one-namespace/role.yaml" if confined else "arbiter/cluster-role.yaml"
            )
        if group == "admissionregistration.k8s.io":
            return f"{MANIFESTS}overlays/beside-kubeflow/webhook.yaml"
        if group == "kai.alibabacloud.com":
            return f"{MANIFESTS}components/" + ("et-one-namespace/role.yaml" if confined else "et/cluster-role.yaml")
        if plural in ("podgroups", "priorityclasses"):
            return f"{MANIFESTS}overlays/" + (
                "one-namespace/controller-role.yaml" if confined else "standalone/cluster-role.yaml"
            )
        return MANIFESTS + ("overlays/one-namespace/role.yaml" if confined else "cluster/cluster-role.yaml")

    @property
    def told(self) -> str:
        where = f"a Role in namespace {self.namespace}" if self.namespace else "a ClusterRole"
        return f"{where} would give it with the line `{self.rule}` ({self.manifest})"


class Missing:
    """Rights, with what follows from their lack."""

    def __init__(self) -> None:
        self._all: dict[Right, str] = {}

    def add(self, right: Right, error: ForbiddenError, so: str) -> None:
        """Said when it is new. `so`: what is done without it."""
        if right in self._all or len(self._all) >= MISSING_MAX:
            return
        where = f" in namespace {right.namespace}" if right.namespace else ""
        self._all[right] = f"may not {right.verb} {right.resource.plural}{where}: {so}; {right.told}"
        log.error("%s (%s)", self._all[right], error)

    def given(self, right: Right) -> None:
        if self._all.pop(right, None) is not None:
            log.info(
                "%s of %s in %s is missing no more", right.verb, right.resource.plural, right.namespace or "the cluster"
            )

    def rights(self) -> list[Right]:
        return sorted(self._all, key=lambda one: (one.namespace, one.resource.plural, one.verb))

    def told(self, namespace: str | None = None, resources: Container[Resource] | None = None) -> list[str]:
        """One line each. `namespace`: those that concern it alone; `resources`: those of these kinds alone."""
        return [
            self._all[right] for right in self.rights()
            if right.namespace in ("", right.namespace if namespace is None else namespace)
            and (resources is None or right.resource in resources)
        ]  # fmt: skip


class Sight:
    """Of one kind: which namespaces have been listed, and which may not be.

    Args:
        so: what is done where it may not be seen.
        changed: called with a namespace that can be seen from now on, or not any more.
    """

    def __init__(
        self, missing: Missing, resource: Resource, namespaces: Namespaces, so: str,
        changed: Callable[[str | None], None] = lambda _: None,
    ) -> None:  # fmt: skip
        self._missing, self._resource, self.namespaces, self._so, self._changed = (
            missing, resource, namespaces, so, changed,
        )  # fmt: skip
        self._listed: set[str | None] = set()
        self._refused: dict[str | None, set[str]] = {namespace: set() for namespace in namespaces}
        self.asked, self.seen = asyncio.Event(), asyncio.Event()
        """Each was listed or is refused; one was listed at least as well."""

    def rights(self, namespace: str | None) -> Rights:
        """For `changes`."""

        def heard(verb: str, error: ForbiddenError | None) -> None:
            refused, right = self._refused[namespace], Right(namespace or "", self._resource, verb)
            before = self._sees(namespace)
            if error is None:
                refused.discard(verb)
                self._missing.given(right)
            else:
                refused.add(verb)
                self._missing.add(right, error, self._so)
            self._looked(namespace, before)

        return heard

    def listed(self, namespace: str | None) -> None:
        before = self._sees(namespace)
        self._listed.add(namespace)
        self._looked(namespace, before)

    def sees(self, namespace: str) -> bool:
        return self._sees(None if None in self._refused else namespace)

    def _sees(self, namespace: str | None) -> bool:
        return namespace in self._listed and not self._refused.get(namespace, {"all"})

    def _looked(self, namespace: str | None, before: bool) -> None:
        if not self.asked.is_set() and all(one in self._listed or self._refused[one] for one in self.namespaces):
            self.asked.set()
        if self.asked.is_set() and self._listed:
            self.seen.set()
        if before != self._sees(namespace):
            self._changed(namespace)


def verb_of(error: ForbiddenError) -> str:
    """Of the right that is missing; empty: nothing is said of rights (a quota, a namespace that is being deleted)."""
    found = re.search(r" cannot (\w+) resource ", str(error))
    return found[1] if found else ""


def within(namespace: str | None, key: Key) -> bool:
    """Whether an object is of what is listed together."""
    return namespace is None or key[0] == namespace
