"""TrainingJobs, ScaleOuts and ScaleIns of the ET operator: what is made of them, and what their status says."""

from __future__ import annotations

import copy
import json
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.tfjob.test_crd import _check_node, _nodes, _pruned
from tfjob.model import names
from tfjob.model.annotations import parse as parse_annotations
from tfjob.model.conditions import is_true
from tfjob.model.kinds import Manifest
from tfjob.model.spec import TFJob
from tfjob.model.times import stamp
from tfjob.pods.replica import pod as replica_pod
from tfjob.reconciling.et.conversion import converted
from tfjob.reconciling.et.looking import Named, Steps, decide
from tfjob.reconciling.et.scalers import is_finished
from tfjob.reconciling.et.words import API_VERSION

ROOT = Path(__file__).resolve().parents[4]
T0 = datetime(2025, 1, 31, 12, 0, 0, tzinfo=timezone.utc)
[EXAMPLE, *SCALERS] = list(yaml.safe_load_all((ROOT / "examples" / "et_operator" / "job.yaml").read_text()))
P = names.ANNOTATION_PREFIX


def training_job(**spec: Any) -> Manifest:
    found = copy.deepcopy(EXAMPLE)
    found["metadata"].update(namespace="ml", uid="uid-of-training-job")
    found["spec"].update(spec)
    return found


def scaler(kind: str, name: str = "s", second: int = 0, **spec: Any) -> Manifest:
    return {
        "apiVersion": API_VERSION, "kind": kind,
        "metadata": {"name": name, "namespace": "ml", "uid": f"uid-of-{name}", "resourceVersion": "1",
                     "creationTimestamp": stamp(T0 + timedelta(seconds=second))},
        "spec": {"selector": {"name": "elastic-training"}, **spec},
    }  # fmt: skip


def out(count: int, name: str = "s", second: int = 0, **spec: Any) -> Manifest:
    return scaler("ScaleOut", name, second, toAdd={"count": count}, **spec)


def into(name: str = "s", second: int = 0, **to_delete: Any) -> Manifest:
    return scaler("ScaleIn", name, second, toDelete=to_delete)


class Scene:
    """One name in a namespace. `look` decides and carries out; an AIMaster and a kubelet are played by hand."""

    def __init__(self, *scalers: Manifest, job: Manifest | None = None, runs: bool = True) -> None:
        self.now, self.job, self.tfjob, self.pods = T0, job or training_job(), None, {}  # type: ignore[var-annotated]
        self.scalers = {one["metadata"]["name"]: one for one in scalers}
        self.events: list[tuple[str, str, str]] = []
        self.own_pods = True
        if runs:
            self.look()
            self.run()
            self.settle()

    def decide(self) -> Steps:
        named = Named(self.job, self.tfjob, tuple(self.scalers.values()), tuple(self.pods.values()), self.own_pods)
        return decide(copy.deepcopy(named), self.now)

    def look(self) -> Steps:
        steps = self.decide()
        if steps.create is not None:
            self.tfjob = steps.create
            self.tfjob["metadata"]["uid"] = "uid-of-tfjob"
            self.tfjob["metadata"]["annotations"][names.STARTED_WITH_ANNOTATION] = '{"Worker": 2}'
        for one, owner in steps.own:
            self.scalers[one["metadata"]["name"]]["metadata"]["ownerReferences"] = [{"uid": owner["metadata"]["uid"]}]
        if steps.take_back is not None:
            self.patch(steps.take_back)
        for one, status in steps.statuses:
            kept = self.job if one["kind"] == "TrainingJob" else self.scalers[one["metadata"]["name"]]
            kept["status"] = status
        if steps.patch is not None:
            self.patch(steps.patch)
        self.events += [(one["metadata"]["name"], event.reason, event.message) for one, event in steps.events]
        return steps

    def settle(self) -> None:
        for _ in range(5):
            steps = self.look()
            if not (steps.create or steps.own or steps.take_back or steps.statuses or steps.patch):
                return
        raise AssertionError(f"it never comes to rest: {steps}")

    def patch(self, patch: Manifest) -> None:
        self.tfjob["metadata"]["annotations"].update((patch.get("metadata") or {}).get("annotations") or {})
        for type_, change in patch.get("spec", {}).get("tfReplicaSpecs", {}).items():
            self.tfjob["spec"]["tfReplicaSpecs"][type_].update(change)
        self.tfjob["spec"]["runPolicy"].update(patch.get("spec", {}).get("runPolicy", {}))

    @property
    def replicas(self) -> int:
        return self.tfjob["spec"]["tfReplicaSpecs"]["Worker"]["replicas"]

    @property
    def note(self) -> dict[str, Any]:
        return json.loads(self.tfjob["metadata"]["annotations"].get(names.SCALER_ANNOTATION, "{}"))

    def run(self, *indices: int) -> None:
        """The AIMaster has done what was asked for: these workers are there (or all), and it says so."""
        parsed, wanted = TFJob.parse(self.tfjob), indices or tuple(range(self.replicas))
        self.pods = {}
        for index in wanted:
            pod = replica_pod(parsed, "Worker", index)
            self.pods[pod["metadata"]["name"]] = {**pod, "status": {"phase": "Running"}}
        self.tfjob["metadata"]["annotations"][names.SCALED_TO_ANNOTATION] = json.dumps({"Worker": len(wanted)})
        self.tfjob["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = len(wanted)
        counts = {"active": len(wanted), "selector": "x"}
        self.tfjob["status"] = {
            "conditions": [{"type": "Running", "status": "True", "message": ""}], "replicaStatuses": {"Worker": counts},
            "startTime": stamp(T0),
        }  # fmt: skip

    def end(self, type_: str, message: str = "because") -> None:
        found = self.tfjob["status"]
        found["conditions"] = [{"type": type_, "status": "True", "message": message}]
        found["completionTime"] = stamp(self.now)

    def status(self, name: str = "s") -> Manifest:
        return self.scalers[name].get("status") or {}

    def said(self, name: str = "s") -> str:
        return self.status(name)["conditions"][-1]["message"]


# ------------------------------------------------------------------------------------------------------- TrainingJobs


def test_a_training_job_becomes_a_tfjob_of_equal_pods() -> None:
    made = converted(training_job())
    job = TFJob.parse(made)
    elastic, warnings = parse_annotations(job)
    assert elastic is not None and not warnings
    assert (elastic.workers, elastic.min_workers, elastic.max_workers, elastic.slots) == (1, 0, 8, 0), "beside worker 0"
    assert (
        made["metadata"]["name"] == "elastic-training" and job.replicas("Worker") == 2 and set(job.specs) == {"Worker"}
    )
    assert made["metadata"]["ownerReferences"][0]["uid"] == "uid-of-training-job"
    template = made["spec"]["tfReplicaSpecs"]["Worker"]["template"]
    [container] = template["spec"]["containers"]
    assert container["name"] == "tensorflow" and container["resources"]["requests"] == {"cpu": "1"}
    assert container["command"] == ["sh", "-c", "python /examples/train.py --epochs 100"]
    labels = [replica_pod(job, "Worker", index)["metadata"]["labels"]["training-job-role"] for index in (0, 1)]
    assert labels == ["launcher", "worker"], "by which its tools find the pod that leads"


def test_the_launchers_environment_goes_to_the_workers_and_theirs_counts() -> None:
    job = training_job()
    specs = job["spec"]["etReplicaSpecs"]
    leading, working = (specs[key]["template"]["spec"]["containers"][0] for key in ("launcher", "worker"))
    leading.update(
        workingDir="/work", env=[{"name": "A", "value": "1"}, {"name": "B", "value": "1"}],
        command=["mpirun", "-np", "2", "-x", "C=3", "python", "a.py"],
    )  # fmt: skip
    working.update(env=[{"name": "B", "value": "2"}], args=["sleep"])
    container = converted(job)["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    assert {one["name"]: one["value"] for one in container["env"]} == {"A": "1", "B": "2", "C": "3"}
    assert container["workingDir"] == "/work" and "args" not in container and "env" in working


def worker(spec: Manifest) -> Manifest:
    return spec["etReplicaSpecs"]["worker"]


def container(spec: Manifest, role: str) -> Manifest:
    return spec["etReplicaSpecs"][role]["template"]["spec"]["containers"][0]


@pytest.mark.parametrize(("flags", "autoscale", "limits"), [
    ("--min-np 2 --max-np 5", "false", (1, 4)), ("", "false", (0, 999)), ("", "true", (0, 4)),
])  # fmt: skip
def test_limits_are_the_jobs_else_the_launchers_else_none(flags: str, autoscale: str, limits: tuple[int, int]) -> None:
    job = training_job()
    job["metadata"]["annotations"] = {f"{P}autoscale": autoscale}
    for key in ("minReplicas", "maxReplicas"):
        del worker(job["spec"])[key]
    container(job["spec"], "launcher")["command"] = ["sh", "-c", f"horovodrun -np 2 {flags} python a.py"]
    elastic, _ = parse_annotations(TFJob.parse(converted(job)))
    assert elastic is not None and (elastic.min_workers, elastic.max_workers) == limits, "beside worker 0"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda spec: spec.update(slotsPerWorker=2), r"spec\.slotsPerWorker: is 2"),
        (lambda spec: spec.update(cleanPodPolicy="Some"), r"spec\.cleanPodPolicy"),
        (lambda spec: spec["etReplicaSpecs"].pop("worker"), r"etReplicaSpecs\.worker: is required"),
        (lambda spec: worker(spec).update(replicas=10), r"worker\.replicas: is 10; must be from 1 to 9"),
        (lambda spec: worker(spec).update(minReplicas=0), r"worker\.minReplicas: is 0"),
        (lambda spec: worker(spec)["template"]["spec"].update(containers=[]), r"worker\.template.*containers"),
        (
            lambda spec: container(spec, "worker").pop("image"),
            r"etReplicaSpecs\.worker\.template\.spec\.containers\[0\]\.image",
        ),
        (
            lambda spec: container(spec, "worker").update(comand=[]),
            r"etReplicaSpecs\.worker.*no such field; is command meant",
        ),
        (lambda spec: container(spec, "launcher").update(command=["deepspeed", "a"]), "runs deepspeed"),
    ],
)
def test_one_that_cannot_be_run_fails_by_name_in_its_status_and_an_event(change: Any, said: str) -> None:
    job = training_job()
    change(job["spec"])
    scene = Scene(job=job, runs=False)
    scene.settle()
    assert scene.tfjob is None and scene.job["status"]["phase"] == "Failed"
    assert [reason for _, reason, _ in scene.events] == ["TrainingJobRefused"]
    assert (
        re.search(said, scene.events[0][2]) and scene.job["status"]["conditions"][-1]["message"] == scene.events[0][2]
    )
    assert list(_pruned(scene.job["status"], schema("trainingjobs")["properties"]["status"])) == []


def test_its_status_says_what_the_tfjobs_says_from_its_creation_to_its_end() -> None:
    scene = Scene(runs=False)
    scene.look()
    scene.settle()
    assert scene.job["status"]["phase"] == "Created" and scene.job["status"]["currentWorkers"] == []
    assert scene.job["status"]["targetWorkers"] == ["elastic-training-worker-0", "elastic-training-worker-1"]
    scene.run()
    scene.settle()
    status = scene.job["status"]
    assert (status["phase"], status["replicaStatuses"]) == (
        "Running",
        {"Launcher": {"active": 1}, "Worker": {"active": 2}},
    )
    assert status["currentWorkers"] == status["targetWorkers"] and status["startTime"]
    types = [one["type"] for one in status["conditions"]]
    assert types == ["Created", "WorkersCreated", "WorkersReady", "LauncherCreated", "Running"]
    assert list(_pruned(scene.job, schema("trainingjobs"))) == [], "nothing of it is dropped by the server"
    scene.end("Succeeded")
    scene.settle()
    assert scene.job["status"]["phase"] == "Succeeded" and scene.job["status"]["completionTime"]
    assert not is_true(scene.job["status"], "Running")
    scene.tfjob = None
    assert scene.decide() == Steps(), "one that has ended is not begun again"


def test_one_that_fails_and_one_whose_tfjob_is_deleted_have_failed() -> None:
    scene = Scene()
    scene.end("Failed", "no such script")
    scene.settle()
    assert (
        scene.job["status"]["phase"] == "Failed"
        and scene.job["status"]["conditions"][-1]["message"] == "no such script"
    )
    scene = Scene()
    scene.tfjob = None
    scene.settle()
    assert scene.job["status"]["phase"] == "Failed" and "has been deleted" in scene.events[0][2]


def test_it_is_suspended_and_resumed_by_the_annotation_of_its_supervisor() -> None:
    scene = Scene()
    scene.job["metadata"]["annotations"] = {"job-supervisor.kube-ai.io/job-suspended": "true"}
    scene.settle()
    assert scene.tfjob["spec"]["runPolicy"]["suspend"] is True
    scene.tfjob["status"]["conditions"] = [{"type": "Suspended", "status": "True"}]
    scene.settle()
    assert scene.job["status"]["phase"] == "Suspended"
    scene.job["metadata"]["annotations"] = {"job-supervisor.kube-ai.io/job-suspended": "false"}
    scene.settle()
    assert scene.tfjob["spec"]["runPolicy"]["suspend"] is False
    scene.run()
    scene.settle()
    assert scene.job["status"]["phase"] == "Running"


def test_what_is_others_is_left_alone() -> None:
    theirs = training_job()
    theirs["status"] = {
        "phase": "Running",
        "conditions": [{"type": "Created", "status": "True", "reason": "TrainingJobCreated"}],
    }
    scene = Scene(out(1), job=theirs, runs=False)
    assert scene.decide() == Steps(), "the ET operator runs it, and scales it"
    unwilling = training_job()
    unwilling["metadata"]["annotations"] = {f"{P}enabled": "false"}
    assert Scene(out(1), job=unwilling, runs=False).decide() == Steps()
    assert decide(Named(None, None, (out(1),)), T0) == Steps(), "a job that is not there (yet)"
    scene = Scene(runs=False)
    scene.tfjob = {"metadata": {"name": "elastic-training", "uid": "x"}, "spec": {}}
    scene.settle()
    assert scene.job["status"]["phase"] == "Failed" and "not of this TrainingJob" in scene.events[0][2]


# ------------------------------------------------------------------------------------------------------- ScaleOut, ScaleIn


def test_a_scale_out_asks_once_and_has_succeeded_when_the_job_runs_so() -> None:
    scene = Scene(out(2))
    status = scene.status()
    assert (status["phase"], status["addPods"]) == (
        "Scaling",
        ["elastic-training-worker-2", "elastic-training-worker-3"],
    )
    assert scene.replicas == 4 and (scene.note["from"], scene.note["to"], scene.note["uid"]) == (2, 4, "uid-of-s")
    assert scene.scalers["s"]["metadata"]["ownerReferences"] == [{"uid": "uid-of-training-job"}]
    assert (scene.job["status"]["phase"], scene.job["status"]["currentScaler"]) == ("Scaling", "ScaleOut:ml/s")
    assert len(scene.job["status"]["targetWorkers"]) == 4
    assert scene.decide().again_seconds == 60, "and its time runs"
    scene.run()
    scene.settle()
    status = scene.status()
    assert (status["phase"], status["replicaStatuses"]) == ("ScaleSucceeded", {"Worker": {"active": 2}})
    assert [one["type"] for one in status["conditions"]] == ["Created", "Scaling", "ScaleSucceeded"]
    assert status["conditions"][-1]["reason"] == "ScalingOutSucceeded" and status["completionTime"]
    assert scene.job["status"]["phase"] == "Running" and "currentScaler" not in scene.job["status"]
    assert (
        is_true(scene.job["status"], "ScaleSucceeded") and list(_pruned(scene.scalers["s"], schema("scaleouts"))) == []
    )
    scene.tfjob["metadata"]["annotations"].pop(names.SCALER_ANNOTATION)
    assert scene.decide() == Steps(), (
        "it is not carried out again, whatever an operator that has been started anew finds"
    )


@pytest.mark.parametrize("killed_after", [0, 1, 2])
def test_an_operator_that_is_killed_in_between_leaves_what_the_next_goes_on_with(killed_after: int) -> None:
    """After the status, after the patch, and before either."""
    scene = Scene()
    scene.scalers["s"] = out(1)
    steps = scene.decide()
    if killed_after >= 1:
        scene.scalers["s"]["status"] = steps.statuses[0][1]
    if killed_after >= 2:
        assert steps.patch is not None
        scene.patch(steps.patch)
    scene.settle()
    assert scene.replicas == 3, "once, not twice"
    scene.run()
    scene.settle()
    assert scene.status()["phase"] == "ScaleSucceeded" and scene.replicas == 3


def test_a_scale_in_by_count_takes_the_highest_and_by_names_those() -> None:
    scene = Scene(out(2, "up"))
    scene.run()
    scene.settle()
    scene.scalers["by-count"] = into("by-count", 1, count=1)
    scene.settle()
    assert scene.status("by-count")["toDeletePods"] == ["elastic-training-worker-3"] and scene.replicas == 3
    assert "leaving" not in scene.note
    scene.run()
    scene.settle()
    assert scene.status("by-count")["phase"] == "ScaleSucceeded"
    scene.scalers["named"] = into("named", 2, podNames=["elastic-training-worker-1"])
    scene.settle()
    assert scene.replicas == 2 and scene.note["leaving"] == ["worker-0"], (
        "as the AIMaster calls it: worker 0 is the chief"
    )
    scene.run(0, 2)
    scene.settle()
    assert scene.status("named")["phase"] == "ScaleSucceeded"
    assert scene.job["status"]["currentWorkers"] == ["elastic-training-worker-0", "elastic-training-worker-2"]
    assert list(_pruned(scene.scalers["named"], schema("scaleins"))) == []
    scene.scalers["again"] = out(1, "again", 3)
    scene.settle()
    assert scene.status("again")["addPods"] == ["elastic-training-worker-1"], "the lowest index that is free"


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (out(0), r"spec\.toAdd\.count: is 0"),
        (scaler("ScaleOut"), r"spec\.toAdd\.count: is None"),
        (out(8), r"is 8; TFJob elastic-training has 2 workers, and may have 9 \(.*max-workers\)"),
        (out(1, timeout=0), r"spec\.timeout: is 0"),
        (out(1, script="/bin/true"), r"spec\.script: there is no launcher"),
        (into(), r"spec\.toDelete: names no pods"),
        (into(count=2), r"toDelete\.count: of 2 workers of TFJob elastic-training 0 would stay, and 1 have to"),
        (into(count=5), "0 would stay"),
        (into(count=2, podNames=["elastic-training-worker-1"]), "count is 2, and podNames are 1"),
        (
            into(podNames=["elastic-training-worker-7"]),
            r"worker-7 is no worker of TFJob elastic-training; there are .*worker-0, ",
        ),
        (into(podNames=["elastic-training-worker-0"]), "worker-0 leads TFJob elastic-training"),
    ],
)
def test_an_invalid_one_fails_with_the_field_and_the_figures(one: Manifest, said: str) -> None:
    scene = Scene(copy.deepcopy(one))
    assert scene.status()["phase"] == "ScaleFailed" and scene.replicas == 2 and not scene.note
    assert re.search(said, scene.said()), scene.said()
    assert [(name, reason) for name, reason, _ in scene.events] == [("s", "ScaleFailed")]
    assert scene.job["status"]["phase"] == "Running", "the job goes on"


def test_one_at_a_time_the_oldest_first_and_an_invalid_one_keeps_nobody_back() -> None:
    scene = Scene(out(1, "b", 2), out(0, "wrong", 0), out(2, "a", 1))
    assert (scene.status("wrong")["phase"], scene.status("a")["phase"], scene.status("b")["phase"]) == (
        "ScaleFailed", "Scaling", "Created",
    )  # fmt: skip
    assert scene.replicas == 4
    scene.run()
    scene.settle()
    assert (
        scene.status("a")["phase"] == "ScaleSucceeded"
        and scene.status("b")["phase"] == "Scaling"
        and scene.replicas == 5
    )


def test_it_waits_until_the_job_runs_and_is_of_the_size_that_was_asked_for() -> None:
    scene = Scene(out(1), runs=False)
    scene.look()
    scene.settle()
    assert scene.status()["phase"] == "Created" and scene.decide().again_seconds is None
    scene.run()
    scene.tfjob["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = 3  # somebody has asked
    scene.settle()
    assert scene.status()["phase"] == "Created"
    scene.run()
    scene.settle()
    assert scene.status()["phase"] == "Scaling" and scene.replicas == 4


def test_what_is_refused_taken_back_or_overtaken_has_failed() -> None:
    scene = Scene(out(2))
    scene.tfjob["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = 2  # the AIMaster takes it back
    scene.settle()
    assert scene.status()["phase"] == "ScaleFailed" and "refused or rolled back" in scene.said()
    scene = Scene(out(2))
    scene.tfjob["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = 3  # a user
    scene.settle()
    assert (
        scene.status()["phase"] == "ScaleFailed"
        and "3 workers of TFJob elastic-training were asked for" in scene.said()
    )
    scene = Scene(out(2))
    scene.end("Succeeded")
    scene.settle()
    assert scene.status()["phase"] == "ScaleFailed" and "has ended" in scene.said()


def test_a_scale_out_that_is_not_done_in_time_is_taken_back() -> None:
    scene = Scene(out(2, timeout=300))
    scene.now += timedelta(seconds=299)
    assert scene.decide().again_seconds == 1 and not scene.decide().statuses
    scene.now += timedelta(seconds=1)
    scene.settle()
    assert scene.status()["phase"] == "ScaleFailed" and "not done within 300 s" in scene.said() and scene.replicas == 2
    scene = Scene(out(2, timeout=300))
    scene.now += timedelta(seconds=300)
    scene.patch(scene.decide().take_back or {})  # and killed then
    scene.settle()
    assert scene.status()["phase"] == "ScaleFailed" and "not done within 300 s" in scene.said() and scene.replicas == 2


def test_a_scale_out_beyond_what_the_arbiter_allows_waits_and_says_so_and_its_failure_is_true() -> None:
    def allow(scene: Scene, workers: int) -> None:
        told = {"runs": True, "ps": 0, "workers": workers, "since": 1.0, "why": "8 of 8 cores are used"}
        scene.tfjob["metadata"]["annotations"][names.ALLOWANCE_ANNOTATION] = json.dumps(told)

    def cut(scene: Scene, workers: int) -> None:
        """The AIMaster has grown as far as it may, and notes that."""
        scene.tfjob["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = workers
        scene.run()
        scene.settle()

    scene = Scene(out(4, timeout=300))
    allow(scene, 2)  # beside worker 0, which leads
    cut(scene, 3)
    assert scene.status()["phase"] == "Scaling" and scene.job["status"]["currentScaler"] == "ScaleOut:ml/s"
    assert "the arbiter allows TFJob elastic-training 3 workers at present, the rest comes when" in scene.said()
    scene.now += timedelta(seconds=290)
    assert scene.decide().again_seconds == 10 and not scene.decide().statuses, "its time runs on"
    allow(scene, 9)
    scene.tfjob["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = 6
    scene.run()
    scene.settle()
    assert scene.status()["phase"] == "ScaleSucceeded"

    scene = Scene(out(4, timeout=300))
    allow(scene, 1)
    cut(scene, 2)
    scene.now += timedelta(seconds=300)
    scene.settle()
    assert scene.status()["phase"] == "ScaleFailed" and scene.replicas == 2, "what it has now is not asked for again"
    assert (
        "not done within 300 s, because the arbiter allows" in scene.said() and "no more are asked for" in scene.said()
    )
    assert scene.note["failed"] is True, "nor is it wanted once the arbiter allows it"

    scene = Scene(out(4, timeout=300))
    allow(scene, 1)
    scene.now += timedelta(seconds=300)
    scene.settle()
    assert scene.status()["phase"] == "ScaleFailed" and scene.replicas == 2, (
        "it grew still: it is asked for what it has"
    )
    assert scene.note["failed"] is True

    scene = Scene(out(4, timeout=300))
    allow(scene, 9)
    cut(scene, 2)
    assert scene.status()["phase"] == "ScaleFailed" and "refused or rolled back" in scene.said(), (
        "it was not the arbiter"
    )
    assert scene.note["failed"] is True


def test_a_scale_in_has_as_long_as_it_says_and_is_not_taken_back() -> None:
    scene = Scene(into(count=1))
    scene.now += timedelta(days=2)
    assert scene.decide() == Steps(), "no limit"
    late = into(count=1)
    late["spec"]["timeout"] = 30
    scene = Scene(late)
    scene.now += timedelta(seconds=31)
    scene.settle()
    assert scene.status()["phase"] == "ScaleFailed" and scene.replicas == 1


def tfjob(**annotations: str) -> Manifest:
    """One of our own, with PS and a chief."""
    specs = {
        key: {"replicas": count, "template": {"spec": {"containers": [{"name": "tensorflow", "image": "i"}]}}}
        for key, count in (("PS", 1), ("Chief", 1), ("worker", 2))
    }
    given = {names.ANNOTATION_PREFIX + key.replace("_", "-"): text for key, text in annotations.items()}
    return {
        "apiVersion": "kubeflow.org/v1", "kind": "TFJob",
        "metadata": {"name": "elastic-training", "namespace": "ml", "uid": "u", "annotations": given},
        "spec": {"tfReplicaSpecs": specs}, "status": {"conditions": [{"type": "Running", "status": "True"}]},
    }  # fmt: skip


def test_a_tfjob_of_ours_is_scaled_by_them_without_a_training_job() -> None:
    job = tfjob(enabled="true", scaled_to='{"PS": 1, "Worker": 2}', max_workers="4")
    steps = decide(Named(None, job, (into(podNames=["elastic-training-worker-0"]),)), T0)
    assert steps.patch is not None and steps.patch["spec"] == {"tfReplicaSpecs": {"worker": {"replicas": 1}}}
    note = json.loads(steps.patch["metadata"]["annotations"][names.SCALER_ANNOTATION])
    assert note["leaving"] == ["worker-0"], "beside a chief"
    assert [owner["metadata"]["uid"] for _, owner in steps.own] == ["u"]
    steps = decide(Named(None, job, (into(podNames=["elastic-training-worker-0"]),), own_pods=False), T0)
    assert steps.patch is None and "the highest indices leave: elastic-training-worker-1" in steps.events[0][1].message


def test_an_ordinary_tfjob_is_not_scaled_and_the_scaler_says_why() -> None:
    steps = decide(Named(None, tfjob(), (out(1),)), T0)
    assert steps.patch is None and "is not elastic" in steps.events[0][1].message
    assert is_finished({"status": steps.statuses[0][1]})


# ------------------------------------------------------------------------------------------------------- the kinds


def schema(plural: str) -> dict[str, Any]:
    [found] = [one for one in CRDS if one["spec"]["names"]["plural"] == plural]
    return found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


CRDS = list(yaml.safe_load_all((ROOT / "tfjob" / "manifests" / "et" / "crds.yaml").read_text()))


@pytest.mark.parametrize("crd", CRDS, ids=lambda one: one["metadata"]["name"])
def test_the_kinds_are_the_et_operators_and_structural(crd: Manifest) -> None:
    spec = crd["spec"]
    [version] = spec["versions"]
    kind, plural = spec["names"]["kind"], spec["names"]["plural"]
    assert crd["metadata"]["name"] == f"{plural}.kai.alibabacloud.com" and spec["names"]["listKind"] == f"{kind}List"
    assert (version["name"], version["served"], version["storage"], spec["scope"]) == (
        "v1alpha1",
        True,
        True,
        "Namespaced",
    )
    assert version["subresources"] == {"status": {}}
    columns = {one["name"]: one["jsonPath"] for one in version["additionalPrinterColumns"]}
    assert columns["Phase"] == (".status.phase" if kind == "TrainingJob" else ".status.conditions[-1:].type")
    assert columns["Age"] == ".metadata.creationTimestamp"
    for path, node in _nodes(version["schema"]["openAPIV3Schema"]):
        _check_node(path, node)


def test_the_example_is_taken_by_the_kinds() -> None:
    assert list(_pruned(EXAMPLE, schema("trainingjobs"))) == []
    assert {one["kind"] for one in SCALERS} == {"ScaleOut", "ScaleIn"}
    for one in SCALERS:
        assert list(_pruned(one, schema(one["kind"].lower() + "s"))) == []
