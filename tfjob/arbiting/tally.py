"""All pods of the cluster, and sums of those that concern no job: made anew only for a node or a namespace of which one has
changed.

A decision a second over 30 000 pods would else add up 30 000 pods a second.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from deeprec_ext.arbiter.observed import Resources
from tfjob.arbiting.amounts import added
from tfjob.arbiting.scopes import Scope, Traits, matches
from tfjob.arbiting.seen import Key, PodSeen


class Use(NamedTuple):
    resources: Resources
    pods: int


class Pods:
    """Pods that say they are of a job are kept by job: whether it is one of ours is for who asks to say."""

    def __init__(self, pods: Iterable[PodSeen] = ()) -> None:
        self._all: dict[Key, PodSeen] = {}
        self._on: dict[str, dict[Key, PodSeen]] = {}  # by node; of no job
        self._in: dict[str, dict[Key, PodSeen]] = {}  # by namespace; of no job
        self._used_on: dict[str, Use] = {}
        self._used_in: dict[str, dict[Traits, Use]] = {}
        self.of_jobs: dict[Key, dict[str, PodSeen]] = {}
        """By namespace and name of the job, then by name of the pod."""

        self.waiting: dict[Key, PodSeen] = {}
        """For room; of no job."""

        for pod in pods:
            self.put(pod)

    def __len__(self) -> int:
        return len(self._all)

    def keys(self) -> set[Key]:
        return set(self._all)

    def get(self, key: Key) -> PodSeen | None:
        return self._all.get(key)

    def put(self, pod: PodSeen) -> bool:
        """New, or in the place of what was known of it; False: it was known just so."""
        if self._all.get(pod.key) == pod:
            return False
        self.drop(pod.key)
        self._all[pod.key] = pod
        if pod.job:
            self.of_jobs.setdefault((pod.namespace, pod.job), {})[pod.name] = pod
            return True
        if pod.waits_since:
            self.waiting[pod.key] = pod
        self._in.setdefault(pod.namespace, {})[pod.key] = pod
        self._used_in.pop(pod.namespace, None)
        if pod.node:
            self._on.setdefault(pod.node, {})[pod.key] = pod
            self._used_on.pop(pod.node, None)
        return True

    def drop(self, key: Key) -> bool:
        """It has gone, or has ended; False: it was not known."""
        pod = self._all.pop(key, None)
        if pod is None:
            return False
        if pod.job:
            _removed(self.of_jobs, (pod.namespace, pod.job), pod.name)
            return True
        self.waiting.pop(key, None)
        _removed(self._in, pod.namespace, key)
        _removed(self._on, pod.node, key)
        self._used_in.pop(pod.namespace, None)
        self._used_on.pop(pod.node, None)
        return True

    def on(self, node: str) -> Use:
        """What pods of no job have requested there."""
        if node not in self._used_on:
            found = self._on.get(node, {}).values()
            if not found:
                return Use(Resources(), 0)
            self._used_on[node] = Use(added(pod.resources for pod in found), len(found))
        return self._used_on[node]

    def within(self, namespace: str, scopes: tuple[Scope, ...] = ()) -> Use:
        """What pods of no job that these scopes match have requested in a namespace, with a node or without."""
        if namespace not in self._used_in:
            alike: dict[Traits, list[Resources]] = {}
            for pod in self._in.get(namespace, {}).values():
                alike.setdefault(pod.traits, []).append(pod.resources)
            if not alike:
                return Use(Resources(), 0)
            self._used_in[namespace] = {traits: Use(added(found), len(found)) for traits, found in alike.items()}
        uses = [use for traits, use in self._used_in[namespace].items() if matches(scopes, traits)]
        return Use(added(use.resources for use in uses), sum(use.pods for use in uses))


def _removed(groups: dict, group: object, key: object) -> None:  # type: ignore[type-arg]
    """Also the group, when it is empty then."""
    if (found := groups.get(group)) is not None:
        found.pop(key, None)
        if not found:
            del groups[group]
