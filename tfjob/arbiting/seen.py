"""What is kept of an object of the cluster: little, because there are many. From manifests that anybody may have written."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from deeprec_ext import env
from deeprec_ext.arbiter.observed import Count, Resources
from deeprec_ext.options import SPECIFICATION_MAX
from tfjob.arbiting.amounts import Numbers, number, numbers, requested, resources
from tfjob.arbiting.scopes import Scope, Traits, scopes_of, traits_of
from tfjob.model import names
from tfjob.model.kinds import Manifest
from tfjob.model.times import parse_time

Key = tuple[str, str]
"""Namespace and name."""

AIMASTER = "aimaster"

PRICE_LABEL = "deeprec.io/price-per-hour"
SPOT_LABELS: Mapping[str, str] = {
    "karpenter.sh/capacity-type": "spot",
    "eks.amazonaws.com/capacityType": "SPOT",
    "cloud.google.com/gke-spot": "true",
    "cloud.google.com/gke-preemptible": "true",
    "kubernetes.azure.com/scalesetpriority": "spot",
    "node.kubernetes.io/lifecycle": "spot",
}
"""Label → its value on nodes that their provider may take back."""

FOR_WANT_OF_ROOM = ("insufficient", "too many pods")
"""In what schedulers say of a pod without a node. Who waits for a volume or a label is not helped by room."""


class Reach(NamedTuple):
    """To which nodes a pod may go. Hashable: many have the same."""

    selector: tuple[tuple[str, str], ...]
    tolerations: str
    affinity: str


class PodSeen(NamedTuple):
    """A pod that has not ended."""

    namespace: str
    name: str
    owner: str  # uid of its controller
    job: str  # that it says it is of; empty: of none
    type: str  # of replica in lower case, `AIMASTER`; else empty
    number: int  # among those of its type
    node: str  # empty: none yet
    priority: int
    resources: Resources
    waits_since: float  # for room; 0: it does not
    ready: bool  # of an AIMaster: others come to it and go all the time, and nobody asks
    ready_since: float  # or not ready since; 0: not known
    reach: Reach | None  # of one that waits for room
    least: Count | None  # of an AIMaster: as it was started, and what it keeps to; None: of another pod, or not known
    traits: Traits

    @property
    def key(self) -> Key:
        return self.namespace, self.name


class NodeSeen(NamedTuple):
    name: str
    allocatable: Resources
    pods: int  # that it may hold; 0: not said
    closed: bool  # cordoned, or not ready: nothing new goes there
    taints: tuple[tuple[str, str, str], ...]  # key, value, effect; without those that only prefer
    labels: Mapping[str, str]

    @property
    def key(self) -> Key:
        return "", self.name


class QuotaSeen(NamedTuple):
    namespace: str
    name: str
    hard: tuple[tuple[str, float], ...]  # by resource; "pods" among them
    scopes: tuple[Scope, ...]  # empty: it counts all pods of its namespace

    @property
    def key(self) -> Key:
        return self.namespace, self.name


class ClassSeen(NamedTuple):
    """A PriorityClass."""

    name: str
    value: int
    default: bool

    @property
    def key(self) -> Key:
        return "", self.name


# ---------------------------------------------------------------------------------------------------- pods


def pod_seen(pod: Manifest) -> PodSeen | None:
    """None: it has ended, and holds nothing."""
    metadata, spec, status = pod["metadata"], _dict(pod.get("spec")), _dict(pod.get("status"))
    if status.get("phase") in ("Succeeded", "Failed"):
        return None
    labels = _dict(metadata.get("labels"))
    conditions = {one.get("type"): one for one in status.get("conditions") or () if isinstance(one, dict)}
    type_, node = _type(labels), str(spec.get("nodeName") or "")
    ready = _dict(conditions.get("Ready")) if type_ == AIMASTER else {}
    owners: list[Manifest] = [one for one in metadata.get("ownerReferences") or () if one.get("controller")]
    index = str(labels.get(names.INDEX_LABEL) or "")
    scheduled = None if node or metadata.get("deletionTimestamp") else conditions.get("PodScheduled")
    waits_since = _waits_since(scheduled)
    return PodSeen(
        _short(metadata.get("namespace")), str(metadata["name"]), _short(owners[0].get("uid")) if owners else "",
        _short(labels.get(names.JOB_LABEL)), type_, int(index) if index.isdigit() else 0, _short(node),
        _whole(spec.get("priority")), requested(spec), waits_since,
        ready.get("status") == "True", seconds(ready.get("lastTransitionTime")), reach_of(spec) if waits_since else None,
        _least(spec) if type_ == AIMASTER else None, _same(traits_of(spec)),
    )  # fmt: skip


def reach_of(spec: Manifest) -> Reach:
    """Of a pod's, or a template's, `spec`."""
    selector = spec.get("nodeSelector")
    affinity: Any = spec
    for key in ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"):
        affinity = affinity.get(key) if isinstance(affinity, dict) else None
    return Reach(
        tuple(sorted((str(key), str(value)) for key, value in selector.items())) if isinstance(selector, dict) else (),
        json.dumps(spec.get("tolerations") or [], sort_keys=True), json.dumps(affinity or [], sort_keys=True),
    )  # fmt: skip


def _type(labels: Mapping[str, Any]) -> str:
    if labels.get("app.kubernetes.io/component") == AIMASTER:
        return AIMASTER
    return _short(labels.get(names.TYPE_LABEL))


def _least(spec: Manifest) -> Count | None:
    """Of its specification, which the operator has written into its pod."""
    for container in spec.get("containers") or ():
        for one in _dict(container).get("env") or ():
            text = str(_dict(one).get("value") or "")
            if _dict(one).get("name") != env.PREFIX + env.SPECIFICATION or len(text) > SPECIFICATION_MAX:
                continue
            with contextlib.suppress(ValueError, RecursionError):
                found = _dict(json.loads(text))
                return Count(_whole(found.get("min_ps")), _whole(found.get("min_workers")))
    return None


def _short(text: Any) -> str:
    """The same object for all pods of a namespace, a node or a job."""
    return sys.intern(str(text or ""))


@lru_cache(maxsize=1024)
def _same(traits: Traits) -> Traits:
    """One object for all pods that have the same."""
    return traits


def _waits_since(scheduled: Any) -> float:
    found = _dict(scheduled)
    if (found.get("status"), found.get("reason")) != ("False", "Unschedulable"):
        return 0.0
    message = str(found.get("message") or "").lower()
    if message and not any(words in message for words in FOR_WANT_OF_ROOM):
        return 0.0
    return seconds(found.get("lastTransitionTime")) or 1.0


# ---------------------------------------------------------------------------------------------------- others


def node_seen(node: Manifest) -> NodeSeen:
    spec, status = _dict(node.get("spec")), _dict(node.get("status"))
    allocatable = _dict(status.get("allocatable"))
    conditions = {one.get("type"): one.get("status") for one in status.get("conditions") or () if isinstance(one, dict)}
    taints = [one for one in spec.get("taints") or () if isinstance(one, dict)]
    pods = str(allocatable.get("pods") or "0")
    return NodeSeen(
        str(node["metadata"]["name"]), resources(numbers(allocatable)), int(pods) if pods.isdigit() else 0,
        bool(spec.get("unschedulable")) or conditions.get("Ready") in ("False", "Unknown")
        or bool(node["metadata"].get("deletionTimestamp")),
        tuple((str(one.get("key") or ""), str(one.get("value") or ""), str(one.get("effect") or ""))
              for one in taints if one.get("effect") != "PreferNoSchedule"),
        {str(key): str(value) for key, value in _dict(node["metadata"].get("labels")).items()},
    )  # fmt: skip


def quota_seen(quota: Manifest) -> QuotaSeen | None:
    """None: it limits nothing that we look at."""
    spec = _dict(quota.get("spec"))
    hard = {str(name).removeprefix("requests."): value for name, value in _dict(spec.get("hard")).items()}
    found = {name: value for name, value in numbers(hard).items() if not name.startswith("count/")}
    found.update(_pods(hard))
    if not found:
        return None
    metadata = quota["metadata"]
    return QuotaSeen(
        str(metadata.get("namespace") or ""), str(metadata["name"]), tuple(sorted(found.items())), scopes_of(spec)
    )


def _pods(hard: dict[str, Any]) -> Numbers:
    found = [number(hard[name]) for name in ("pods", "count/pods") if name in hard]
    return {"pods": min(found)} if found else {}


def class_seen(found: Manifest) -> ClassSeen:
    return ClassSeen(str(found["metadata"]["name"]), _whole(found.get("value")), bool(found.get("globalDefault")))


def price(node: NodeSeen, label: str = PRICE_LABEL) -> float:
    """Of an hour; 0: not known."""
    with contextlib.suppress(ValueError):
        found = float(node.labels.get(label, ""))
        if 0 < found < 1e9:
            return found
    return 0.0


def is_spot(node: NodeSeen, more: tuple[tuple[str, str], ...] = ()) -> bool:
    """`more`: labels and values beside the usual ones."""
    return any(node.labels.get(key) == value for key, value in (*SPOT_LABELS.items(), *more))


def _dict(found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def _whole(found: Any) -> int:
    return found if isinstance(found, int) else 0


def seconds(text: Any) -> float:
    """Since the epoch; 0: it is no time."""
    try:
        return parse_time(str(text)).timestamp() if text else 0.0
    except (ValueError, OverflowError):
        return 0.0
