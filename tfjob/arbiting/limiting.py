"""Which limits count which pods of a job: quotas of its namespace, those with scopes, and queues of Kueue and Volcano."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from deeprec_ext.arbiter.observed import Quota
from tfjob.arbiting import kueue, volcano
from tfjob.arbiting.amounts import Numbers, added, as_numbers, least_each
from tfjob.arbiting.bidders import ROLES, Bidder, Classes, views
from tfjob.arbiting.foreign import COUNTED_PODS, Counted, quota
from tfjob.arbiting.kueue import KueueSeen
from tfjob.arbiting.scopes import Scope, Traits, matches
from tfjob.arbiting.seen import PodSeen, QuotaSeen
from tfjob.arbiting.tally import Pods
from tfjob.arbiting.volcano import VolcanoQueueSeen


def of_namespaces(
    quotas: Iterable[QuotaSeen], bidders: Sequence[Bidder], pods: Pods, strangers: Mapping[str, Sequence[PodSeen]]
) -> list[Quota]:
    """One for each namespace with jobs that has any: of several ResourceQuotas the tightest counts, resource by resource.

    Args:
        strangers: by namespace, pods that say they are of a job, but of none of these.
    """
    hard: dict[str, list[dict[str, float]]] = {}
    for one in quotas:
        if not one.scopes:
            hard.setdefault(one.namespace, []).append(dict(one.hard))
    return [
        quota(name, least_each(hard[name]), _held(pods, name, (), strangers), "")
        for name in sorted({one.key[0] for one in bidders} & set(hard))
    ]  # fmt: skip


def scoped(
    quotas: Iterable[QuotaSeen], bidders: Sequence[Bidder], pods: Pods, strangers: Mapping[str, Sequence[PodSeen]],
    classes: Classes,
) -> list[Counted]:  # fmt: skip
    """Each ResourceQuota that counts some pods only, and which of these jobs' it counts."""
    found = []
    for one in sorted(quotas):
        if not one.scopes:
            continue
        counted = frozenset(
            (bidder.name, role) for bidder in bidders if bidder.key[0] == one.namespace
            for role in ROLES if matches(one.scopes, _admitted(bidder.traits[role], classes))
        )  # fmt: skip
        name = f"{one.namespace}/{one.name}"
        if counted:
            held = _held(pods, one.namespace, one.scopes, strangers)
            found.append(Counted(quota(name, dict(one.hard), held, f"ResourceQuota {name}"), counted))
    return found


def _admitted(traits: Traits, classes: Classes) -> Traits:
    """As the server writes a pod of such a template."""
    return traits if traits.priority_class else traits._replace(priority_class=classes.default)


def _held(pods: Pods, namespace: str, scopes: tuple[Scope, ...], strangers: Mapping[str, Sequence[PodSeen]]) -> Numbers:
    use = pods.within(namespace, scopes)
    others = [pod.resources for pod in strangers.get(namespace, ()) if matches(scopes, pod.traits)]
    return {**as_numbers(added([use.resources, *others])), COUNTED_PODS: float(use.pods + len(others))}


def queues(
    seen: KueueSeen, volcanos: Sequence[VolcanoQueueSeen], bidders: Iterable[Bidder], pods: Pods,
    total: Mapping[str, float] | None,
) -> list[Counted]:  # fmt: skip
    """Args: total: what all nodes have; None: nobody knows."""
    if not (seen.local_queues or volcanos):
        return []
    jobs = [(one, views(one, pods.of_jobs.get(one.key, {}).values())) for one in bidders if one.kueue or one.volcano]
    return [*kueue.limits(seen, jobs), *volcano.limits(volcanos, jobs, total)]
