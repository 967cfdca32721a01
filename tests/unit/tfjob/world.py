"""TFJobs and pods in a few words, and a namespace that does what it is told, as an API server would."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any

from tfjob.model import names
from tfjob.model.events import Event
from tfjob.model.kinds import Manifest
from tfjob.model.spec import TFJob
from tfjob.model.times import stamp
from tfjob.reconciling.actions import Actions, Deletion
from tfjob.reconciling.observed import Observed, Options
from tfjob.reconciling.reconcile import reconcile

T0 = datetime(2025, 1, 31, 12, 0, 0, tzinfo=timezone.utc)
ELASTIC = {"aimaster.deeprec.io/enabled": "true"}


def template(**spec: Any) -> Manifest:
    return {"spec": {"containers": [{"name": "tensorflow", "image": "example/train:1"}], **spec}}


def manifest(
    replicas: dict[str, int] | None = None, *, policy: str | dict[str, str] = "Never", annotations: Any = None,
    run_policy: Any = None, **spec: Any,
) -> Manifest:  # fmt: skip
    """A TFJob `ml/mnist`; `replicas` says how many of each type, `policy` how they restart."""
    specs = {}
    for type_, count in ({"PS": 2, "Worker": 2} if replicas is None else replicas).items():
        restart = policy if isinstance(policy, str) else policy.get(type_, "Never")
        specs[type_] = {"replicas": count, "restartPolicy": restart, "template": template()}
    return {
        "apiVersion": "kubeflow.org/v1", "kind": "TFJob",
        "metadata": {"name": "mnist", "namespace": "ml", "uid": "uid-of-mnist", "generation": 1,
                     "annotations": dict(annotations or {})},
        "spec": {"tfReplicaSpecs": specs, **({} if run_policy is None else {"runPolicy": dict(run_policy)}), **spec},
    }  # fmt: skip


def job(replicas: dict[str, int] | None = None, **how: Any) -> TFJob:
    return TFJob.parse(manifest(replicas, **how))


@dataclass
class Cluster:
    """One TFJob and its namespace. `look` decides and carries out, once; `settle` until nothing is left to do."""

    manifest: Manifest
    options: Options = field(default_factory=Options)
    now: datetime = T0
    pods: dict[str, Manifest] = field(default_factory=dict)
    services: dict[str, Manifest] = field(default_factory=dict)
    pod_group: Manifest | None = None
    priorities: dict[str, int] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    gone: bool = False
    aimaster_wanted: bool = False
    _uids: Any = field(default_factory=itertools.count)

    # ------------------------------------------------------------------------------------------------ the operator

    def decide(self) -> Actions:
        return reconcile(
            Observed(
                copy.deepcopy(self.manifest), tuple(self.pods.values()), tuple(self.services.values()), self.pod_group,
                self.options, self.priorities,
            ),
            self.now,
        )  # fmt: skip

    def look(self) -> Actions:
        actions = self.decide()
        self.carry_out(actions)
        return actions

    def settle(self) -> None:
        for _ in range(20):
            if not self.look().writes:
                return
        raise AssertionError(f"it never comes to rest: {self.decide()}")

    def carry_out(self, actions: Actions, most: int | None = None) -> None:
        """In the order of the fields; `most`: the operator is killed after so many steps."""
        for step in list(self._steps(actions))[:most]:
            step()

    def _steps(self, actions: Actions) -> Iterator[Callable[[], None]]:
        for key, value in actions.annotations:
            yield partial(self.manifest["metadata"].setdefault("annotations", {}).__setitem__, key, value)
        for deletion in actions.delete_pods:
            yield partial(self._delete, self.pods, deletion)
        for deletion in actions.delete_services:
            yield partial(self._delete, self.services, deletion)
        if actions.delete_pod_group or actions.write_pod_group:
            yield partial(setattr, self, "pod_group", actions.write_pod_group)
        if actions.status is not None:
            yield partial(self.manifest.__setitem__, "status", copy.deepcopy(actions.status))
        for service in actions.create_services:
            yield partial(self._create, self.services, service)
        for pod in actions.create_pods:
            yield partial(self._create, self.pods, {**pod, "status": {"phase": "Pending"}})
        self.aimaster_wanted = actions.aimaster is not None
        for event in actions.events:
            yield partial(self.events.append, event)
        if actions.delete_job:
            yield partial(setattr, self, "gone", True)

    def _delete(self, where: dict[str, Manifest], deletion: Deletion) -> None:
        assert where[deletion.name]["metadata"]["uid"] == deletion.uid
        if where is self.pods:
            self.delete(deletion.name)
        else:
            del where[deletion.name]

    def _create(self, where: dict[str, Manifest], manifest: Manifest) -> None:
        name = manifest["metadata"]["name"]
        assert name not in where, f"{name} is there already"
        manifest["metadata"]["uid"] = f"uid-{next(self._uids)}"
        where[name] = manifest

    # ------------------------------------------------------------------------------------------------ the world

    def run(self, *short: str) -> None:
        """These pods (all, if none is named) are running."""
        for name in [f"mnist-{one}" for one in short] or list(self.pods):
            if self.pods[name]["status"]["phase"] == "Pending":
                self.pods[name]["status"] = {"phase": "Running"}

    def end(self, short: str, code: int | None) -> None:
        """A pod has ended; None: nobody knows how (it was evicted)."""
        status: Manifest = {"phase": "Failed" if code is None or code else "Succeeded"}
        if code is not None:
            ended = {"name": "tensorflow", "state": {"terminated": {"exitCode": code}}}
            status["containerStatuses"] = [ended]
        self.pods[f"mnist-{short}"]["status"] = status

    def delete(self, name: str) -> None:
        """As the API does it: a pod that has been placed stays until its kubelet lets it go."""
        metadata = self.pods[name]["metadata"]
        grace = 30 if self.pods[name]["status"]["phase"] == "Running" else 0
        metadata.update(deletionTimestamp=stamp(self.now + timedelta(seconds=grace)), deletionGracePeriodSeconds=grace)

    def reap(self) -> None:
        """Pods that are being deleted are gone."""
        self.pods = {name: pod for name, pod in self.pods.items() if not pod["metadata"].get("deletionTimestamp")}

    def aimaster(self, phase: str, *, code: int | None = None, message: str = "", last: bool = False) -> None:
        """The AIMaster's pod."""
        ended = {} if code is None else {"terminated": {"exitCode": code, "message": message}}
        status = {"name": "aimaster", **({"lastState": ended} if last else {"state": ended})}
        self.pods["mnist-aimaster"] = {
            "metadata": {"name": "mnist-aimaster", "uid": "uid-of-aimaster", "labels": names.job_labels("mnist"),
                         "ownerReferences": [TFJob.parse(self.manifest).owner_reference]},
            "status": {"phase": phase, "containerStatuses": [status]},
        }  # fmt: skip

    def pass_seconds(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    # ------------------------------------------------------------------------------------------------ what one sees

    @property
    def status(self) -> Manifest:
        found: Manifest = self.manifest.get("status") or {}
        return found

    @property
    def conditions(self) -> list[tuple[str, str]]:
        return [(one["type"], one["status"]) for one in self.status.get("conditions", [])]

    @property
    def state(self) -> str:
        """The column State of `kubectl get tfjob`."""
        last = self.status["conditions"][-1]["type"]
        return str(last)

    @property
    def last(self) -> Manifest:
        found: Manifest = self.status["conditions"][-1]
        return found

    def counts(self, type_: str) -> dict[str, int]:
        found = self.status["replicaStatuses"][type_]
        return {key: value for key, value in found.items() if key != "selector"}

    @property
    def living(self) -> set[str]:
        """Pods that are not being deleted, without the job's name."""
        return {name[6:] for name, pod in self.pods.items() if not pod["metadata"].get("deletionTimestamp")}

    def reasons(self) -> list[str]:
        return [event.reason for event in self.events]


def running(manifest_: Manifest, **how: Any) -> Cluster:
    """A cluster in which every pod of the job runs, since a second."""
    cluster = Cluster(manifest_, **how)
    cluster.settle()
    cluster.run()
    cluster.settle()
    cluster.pass_seconds(1)
    return cluster


def environment(pod: Manifest, container: int = 0) -> dict[str, str]:
    return {entry["name"]: entry.get("value", "") for entry in pod["spec"]["containers"][container].get("env", [])}


def tf_config_of(pod: Manifest) -> Any:
    return json.loads(environment(pod)["TF_CONFIG"])
