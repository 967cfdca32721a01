"""Keys of a TFJob that nobody reads. The server drops or keeps them without a word; whoever writes one should hear of it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from tfjob.model.kinds import Manifest

_TOP = ("apiVersion", "kind", "metadata", "spec", "status")
_SPEC = ("tfReplicaSpecs", "runPolicy", "successPolicy", "enableDynamicWorker")
_RUN_POLICY = (
    "cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit", "suspend", "managedBy",
    "schedulingPolicy",
)  # fmt: skip
_SCHEDULING = ("minAvailable", "queue", "minResources", "priorityClass", "scheduleTimeoutSeconds")
_MOVED = {("spec", key): f"spec.runPolicy.{key}" for key in _RUN_POLICY}
"""Where a key stood in TFJobs before v1 (and in many an example still does) → where it is."""

_REPLICA, _TEMPLATE = ("replicas", "restartPolicy", "template"), ("apiVersion", "kind", "metadata", "spec")


def unknown_keys(manifest: Manifest) -> tuple[str, ...]:
    """A sentence for each, with the nearest key that is known. For a manifest that `TFJob.parse` takes."""
    return tuple(_all(manifest))


def _all(manifest: Manifest) -> Iterator[str]:
    spec = manifest.get("spec") or {}
    policy = spec.get("runPolicy") or {}
    yield from _of(manifest, _TOP, "")
    yield from _of(spec, _SPEC, "spec")
    yield from _of(policy, _RUN_POLICY, "spec.runPolicy")
    yield from _of(policy.get("schedulingPolicy") or {}, _SCHEDULING, "spec.runPolicy.schedulingPolicy")
    for key, value in (spec.get("tfReplicaSpecs") or {}).items():
        path = f"spec.tfReplicaSpecs.{key}"
        yield from _of(value, _REPLICA, path)
        yield from _of(value.get("template") or {}, _TEMPLATE, f"{path}.template")


def _of(values: Manifest, known: Iterable[str], path: str) -> Iterator[str]:
    for key in values:
        if key not in known:
            near = _MOVED.get((path, str(key))) or difflib.get_close_matches(str(key), list(known), n=1, cutoff=0.0)[0]
            yield f"{path + '.' if path else ''}{key} is not known and does nothing; is {near} meant?"
