"""Values, conditions, gangs and counts: `pkg/apis/kubeflow.org/v1`, `pkg/webhooks/tensorflow`, `pkg/util`, `pkg/common`,
`pkg/controller.v1/expectation`; of `pkg/controller.v1/common` util.go, scheduling.go, job_test.go; of
`pkg/controller.v1/control` podgroup_control.go."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import Any

from deeprec_ext.gazer.prometheus import exposition
from tests.kubeflow.world import RUNNING, Case, cases, job, world
from tests.unit.tfjob.world import T0, Cluster, template
from tfjob.model import conditions
from tfjob.model.events import Event
from tfjob.model.kinds import PODS, Manifest
from tfjob.model.spec import MULTIKUEUE, OURS, InvalidError, TFJob, check_manager, check_update
from tfjob.operator.informer import EXPECTED_SECONDS, Informer
from tfjob.operator.job_counts import JOBS, JobCounts
from tfjob.operator.sight import EVERYWHERE
from tfjob.pods import gang
from tfjob.pods.replica import pod
from tfjob.reconciling.observed import Options, retryable

API = "apis/kubeflow.org/v1"
UTIL = "util"
COMMON = "controller.v1/common"

# ---------------------------------------------------------------------------------------------------- defaults


def _type_name() -> None:
    parsed = TFJob.parse({**job(1), "spec": {"tfReplicaSpecs": {"WORKER": {"template": template()}}}})
    assert list(parsed.specs) == ["Worker"]


def _defaults(given: dict[str, Any], port: dict[str, Any] | None, policy: str, clean: str, run: dict[str, Any]) -> None:
    made = template()
    if port is not None:
        made["spec"]["containers"][0]["ports"] = [port]
    written = {**job(1), "spec": {"tfReplicaSpecs": {"Worker": {**given, "template": made}}, "runPolicy": run}}
    parsed = TFJob.parse(written)
    spec = parsed.specs["Worker"]
    own = [] if port is None else [port]
    default = [] if port and port["name"] == "tfjob-port" else [{"name": "tfjob-port", "containerPort": 2222}]
    assert (spec.replicas, spec.restart_policy, list(spec.ports)) == (1, policy, own + default)
    assert parsed.run_policy.clean_pod_policy == clean and parsed.success_policy == ""
    assert pod(parsed, "Worker", 0)["spec"]["containers"][0]["ports"] == own + default


PORT, CUSTOM = {"name": "tfjob-port", "containerPort": 2222}, {"name": "custom-port", "containerPort": 1234}
DEFAULTS = cases(f"{API}.TestSetDefaultTFJob", _defaults, {
    "set replicas": ({"restartPolicy": "Always"}, PORT, "Always", "None", {}),
    "set replicas with default restartpolicy": ({}, PORT, "Never", "None", {}),
    "set replicas with default port": ({"replicas": 1, "restartPolicy": "Always"}, None, "Always", "None", {}),
    "set replicas adding default port": ({"replicas": 1, "restartPolicy": "Always"}, CUSTOM, "Always", "None", {}),
    "set custom cleanpod policy": ({"replicas": 1, "restartPolicy": "Always"}, CUSTOM, "Always", "All",
    {"cleanPodPolicy": "All"}),
}) + [Case(f"{API}.TestSetTypeNames", _type_name)]  # fmt: skip


def _leads(type_: str, expected: bool) -> None:
    parsed = TFJob.parse(job(**{"workers" if type_ == "Worker" else type_.lower(): 1}))
    assert bool(parsed.chief) is expected


LEADERS = cases(
    f"{API}.TestIsChiefOrMaster",
    _leads,
    {"Chief": ("Chief", True), "Master": ("Master", True), "Worker": ("Worker", False)},
)

# ---------------------------------------------------------------------------------------------------- the webhook


def _valid(change: Callable[[Any], None], field: str) -> None:
    """`field`: what the error names; empty: there is none."""
    written = job(2, policy="OnFailure", run_policy={"managedBy": OURS})
    change(written)
    try:
        check_manager(written)
        TFJob.parse(written)
    except InvalidError as error:
        assert field and error.field == field, error
    else:
        assert not field


def _container(value: Any) -> Callable[[Any], None]:
    def change(written: Any) -> None:
        written["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"] = value

    return change


def _two_leaders(written: Any) -> None:
    specs = written["spec"]["tfReplicaSpecs"]
    specs["Chief"] = specs["Master"] = {**copy.deepcopy(specs["Worker"]), "replicas": 1}


def _named(name: str) -> Callable[[Any], None]:
    return lambda written: written["metadata"].update(name=name)


WORKER = "spec.tfReplicaSpecs.Worker"
CONTAINERS = f"{WORKER}.template.spec.containers"
VALIDATE = cases("webhooks/tensorflow.TestValidateTFJob", _valid, {
    "valid tfJob": (lambda written: None, ""),
    "TFJob name does not meet DNS1035": (_named("00test"), "metadata.name"),
    "no containers": (_container([]), CONTAINERS),
    "empty image": (_container([{"name": "tensorflow", "image": ""}]), f"{CONTAINERS}[0].image"),
    "tfJob default container name doesn't present": (_container([{"name": "", "image": "a:1"}]), CONTAINERS),
    "there are more than 2 masterReplica's or ChiefReplica's": (_two_leaders, "spec.tfReplicaSpecs.Master"),
    "attempt to set unsupported managedBy controller name gets rejected":
        (lambda written: written["spec"]["runPolicy"].update(managedBy="other-job-controller"), "spec.runPolicy.managedBy"),
}) + cases("webhooks/tensorflow.validateTFJob", _valid, {
    "no replica specs": (lambda written: written["spec"].pop("tfReplicaSpecs"), "spec.tfReplicaSpecs"),
    "a replica without a template": (lambda written: written["spec"]["tfReplicaSpecs"]["Worker"].pop("template"), CONTAINERS),
    "a second container without an image":
        (_container([{"name": "tensorflow", "image": "a"}, {"name": "b"}]), f"{CONTAINERS}[1].image"),
    "a name of 64 characters": (_named("a" * 64), "metadata.name"), "a name with a dot": (_named("a.b"), "metadata.name"),
    "MultiKueue": (lambda written: written["spec"]["runPolicy"].update(managedBy=MULTIKUEUE), ""),
})  # fmt: skip


def _update(old: str | None, new: str | None, allowed: bool) -> None:
    before, after = (job(1, run_policy={} if one is None else {"managedBy": one}) for one in (old, new))
    try:
        check_update(before, after)
    except InvalidError as error:
        assert not allowed and error.field == "spec.runPolicy.managedBy"
    else:
        assert allowed


UPDATES = cases("common/util.ValidateRunPolicyUpdate", _update, {
    "unchanged": (OURS, OURS, True), "never said": (None, None, True), "to MultiKueue": (OURS, MULTIKUEUE, False),
    "from MultiKueue": (MULTIKUEUE, OURS, False), "said later": (None, MULTIKUEUE, False),
    "taken away": (MULTIKUEUE, None, False),
})  # fmt: skip


def _managed(manager: str | None, ours: bool) -> None:
    cluster = Cluster(job(1, run_policy={"managedBy": manager}))
    cluster.settle()
    assert bool(cluster.pods) is ours and bool(cluster.status) is ours


MANAGED = cases(f"{COMMON}.TestManagedByExternalController", _managed, {
    "managedBy is nil": (None, True), "managedBy is empty": ("", False),
    "managedBy is training-operator controller": (OURS, True),
    "managedBy is not the training-operator controller": (MULTIKUEUE, False),
    "managedBy is other value": ("other-job-controller", False),
})  # fmt: skip

# ---------------------------------------------------------------------------------------------------- conditions


def _status(type_: str) -> Manifest:
    return {"conditions": [{"type": type_, "status": "True"}]}


def _finished(type_: str, expected: bool) -> None:
    assert conditions.is_finished(_status(type_)) is expected


def _is_true(type_: str) -> None:
    assert conditions.is_true(_status(type_), type_)


FINISHED = cases(f"{UTIL}.TestIsFinished", _finished, {
    "Succeeded job": ("Succeeded", True), "Failed job": ("Failed", True), "Suspended job": ("Suspended", False),
}) + [
    Case(f"{UTIL}.TestIs{type_}", lambda type_=type_: _is_true(type_)) for type_ in ("Succeeded", "Failed", "Running",
    "Suspended")
]  # fmt: skip


def _conditions() -> None:
    status: Manifest = {}
    seen = []
    for type_ in ("Created", "Running", "Restarting", "Running", "Failed"):
        status = conditions.set_condition(status, type_, f"Job {type_}", T0, reason=f"Job {type_}")
        seen.append([(one["type"], one["status"]) for one in status["conditions"]])
        assert status["conditions"][-1]["reason"] == status["conditions"][-1]["message"] == f"Job {type_}"
    first = ("Created", "True")
    assert seen == [
        [first], [first, ("Running", "True")], [first, ("Restarting", "True")], [first, ("Running", "True")],
        [first, ("Running", "False"), ("Failed", "True")],
    ]  # fmt: skip


def _after_failed() -> None:
    status = conditions.set_condition({}, "Failed", "", T0)
    assert conditions.set_condition(status, "Running", "", T0) is status


def _unchanged() -> None:
    status = conditions.set_condition({}, "Running", "a", T0)
    assert conditions.set_condition(status, "Running", "b", T0) is status


CONDITIONS = [
    Case(f"{UTIL}.TestUpdateJobConditions", _conditions), Case(f"{UTIL}.setCondition/nothing follows Failed", _after_failed),
    Case(f"{UTIL}.setCondition/the same status and reason", _unchanged),
]  # fmt: skip


def _retryable(code: int, expected: bool) -> None:
    ended = {"name": "tensorflow", "state": {"terminated": {"exitCode": code}}}
    found = {"metadata": {}, "status": {"phase": "Failed", "containerStatuses": [ended]}}
    assert retryable(found, TFJob.parse(job(1, policy="ExitCode")).specs["Worker"]) is expected


def _suspended(run_policy: Any, expected: bool) -> None:
    assert TFJob.parse(job(1, run_policy=run_policy)).run_policy.suspend is expected


TRAIN = cases("util/train.TestIsRetryableExitCode", _retryable, {
    str(code): (code, code >= 128) for code in (1, 2, 3, 130, 138)
}) + cases("util/train.TestIsJobSuspended", _suspended, {
    "runPolicy is nil": (None, False), "suspend is nil": ({"suspend": None}, False),
    "suspend is false": ({"suspend": False}, False),
    "suspend is true": ({"suspend": True}, True),
})  # fmt: skip

# ---------------------------------------------------------------------------------------------------- gangs


def _asking(cpu: str, memory: str = "", *, limits: bool = False, priority: str = "") -> Manifest:
    amounts = {"cpu": cpu, **({"memory": memory} if memory else {})}
    made = template(**({"priorityClassName": priority} if priority else {}))
    made["spec"]["containers"][0]["resources"] = {"limits" if limits else "requests": amounts}
    return made


def _resources(
    templates: dict[str, Manifest], policy: dict[str, Any], priorities: dict[str, int], expected: dict[str, str]
) -> None:
    written = job(2, 2, run_policy={"schedulingPolicy": policy})
    for type_, one in templates.items():
        written["spec"]["tfReplicaSpecs"][type_]["template"] = one
    made = gang.pod_group(TFJob.parse(written), "volcano", None, priorities)
    assert made["spec"]["minResources"] == expected


BOTH = {"PS": _asking("1", "1Gi"), "Worker": _asking("2")}
HIGH = {"PS": _asking("1", priority="low"), "Worker": _asking("4", priority="high")}
RESOURCES = cases(f"{COMMON}.CalcPGMinResources", _resources, {
    "all pods": (BOTH, {}, {}, {"cpu": "6", "memory": "2147483648"}),
    "limits are requests where there are none": ({**BOTH, "PS": _asking("1", limits=True)}, {}, {}, {"cpu": "6"}),
    "the class of the highest value first": (HIGH, {"minAvailable": 2}, {"low": 1, "high": 100}, {"cpu": "8"}),
    "then the others": (HIGH, {"minAvailable": 3}, {"low": 1, "high": 100}, {"cpu": "9"}),
    "a class that there is not counts 0": (HIGH, {"minAvailable": 2}, {"low": 1}, {"cpu": "2"}),
    "a negative value comes last": (HIGH, {"minAvailable": 2}, {"low": -1}, {"cpu": "8"}),
    "as the user says": (BOTH, {"minResources": {"cpu": "9"}}, {}, {"cpu": "9"}),
})  # fmt: skip


def _group(scheduler: str, policy: dict[str, Any], expected: dict[str, Any]) -> None:
    made = gang.pod_group(TFJob.parse(job(2, 1, run_policy={"schedulingPolicy": policy})), scheduler)
    found = {key: value for key, value in made["spec"].items() if key != "minResources"}
    assert found == expected and made["metadata"]["name"] == "mnist"


GROUPS = cases(f"{COMMON}.ReconcileJobs/PodGroup", _group, {
    "volcano": ("volcano", {}, {"minMember": 3, "queue": "default"}),
    "volcano, everything": ("volcano", {"minAvailable": 2, "queue": "q", "priorityClass": "p"},
                            {"minMember": 2, "queue": "q", "priorityClassName": "p"}),
    "scheduler-plugins": ("gang", {}, {"minMember": 3}),
    "scheduler-plugins, everything": ("gang", {"minAvailable": 2, "scheduleTimeoutSeconds": 9},
    {"minMember": 2, "scheduleTimeoutSeconds": 9}),
})  # fmt: skip


def _annotated() -> None:
    parsed = TFJob.parse(job(1, annotations={"volcano.sh/a": "b"}))
    made = gang.pod_group(parsed, "volcano")
    assert made["metadata"]["annotations"] == {"volcano.sh/a": "b"}
    assert made["metadata"]["ownerReferences"] == [parsed.owner_reference]


def _delayed(phase: str | None, delayed: bool, scheduler: str = "volcano") -> None:
    """`phase` of the PodGroup; None: there is none yet. What waits has no start, and no deadline runs."""
    cluster = Cluster(job(2, run_policy={"activeDeadlineSeconds": 1}), options=Options(scheduler=scheduler))
    cluster.pod_group = (
        None if phase is None else {**gang.pod_group(TFJob.parse(job(2)), scheduler), "status": {"phase": phase}}
    )
    cluster.look()
    cluster.pass_seconds(0 if not delayed else 100)
    if phase is not None and cluster.pod_group is not None:
        cluster.pod_group["status"] = {"phase": phase}
    cluster.look()
    assert bool(cluster.pods) is not delayed and bool(cluster.status.get("startTime")) is not delayed
    assert cluster.state != "Failed"


DELAYED = cases("controller.v1/control.DelayPodCreationDueToPodGroup", _delayed, {
    "no PodGroup": (None, True), "no phase": ("", True), "Pending": ("Pending", True), "Inqueue": ("Inqueue", False),
    "Running": ("Running", False), "Unknown": ("Unknown", False), "scheduler-plugins never": ("Pending", False, "gang"),
})  # fmt: skip


def _decorated(scheduler: str, own: str, name: str, annotations: Any, labels: Any) -> None:
    written = job(1)
    written["spec"]["tfReplicaSpecs"]["Worker"]["template"] = template(**({"schedulerName": own} if own else {}))
    made = pod(TFJob.parse(written), "Worker", 0, scheduler=scheduler)
    assert made["spec"]["schedulerName"] == name and annotations.items() <= made["metadata"]["annotations"].items()
    assert labels.items() <= made["metadata"]["labels"].items()


VOLCANO = {"scheduling.k8s.io/group-name": "mnist", "volcano.sh/task-spec": "worker"}
PLUGINS = {"scheduling.x-k8s.io/pod-group": "mnist"}
DECORATED = cases("controller.v1/control.DecoratePodTemplateSpec", _decorated, {
    "volcano": ("volcano", "", "volcano", VOLCANO, {}), "volcano, another scheduler": ("volcano", "own", "own", VOLCANO, {}),
    "scheduler-plugins": ("gang", "", "gang", {}, PLUGINS),
    "scheduler-plugins, another scheduler": ("gang", "own", "own", {}, PLUGINS),
})  # fmt: skip


def _group_goes(how: str) -> None:
    cluster = Cluster(job(1), options=Options(scheduler="gang"))
    cluster.settle()
    assert cluster.pod_group is not None
    if how == "suspended":
        cluster.manifest["spec"]["runPolicy"] = {"suspend": True}
    else:
        cluster.run()
        cluster.end("worker-0", 0)
    group = {**cluster.pod_group, "metadata": {**cluster.pod_group["metadata"], "uid": "g"}}
    cluster.pod_group = group
    cluster.settle()
    assert cluster.pod_group is None


GROUP_ENDS = cases(
    f"{COMMON}.DeletePodGroup", _group_goes, {"the job has ended": "ended", "the job is suspended": "suspended"}
)

# ---------------------------------------------------------------------------------------------------- expectations, metrics


def _expectations() -> None:
    """What was just created counts as there until the watch shows it, or for so long; then no more."""

    async def main() -> None:
        changed: list[Any] = []
        informer = Informer(None, PODS, "", EVERYWHERE, lambda found: ("ns", "job"), changed.append)  # type: ignore[arg-type]
        one = {"metadata": {"name": "p", "namespace": "ns", "resourceVersion": "1"}}
        informer.expect(("ns", "job"), one)
        assert informer.of(("ns", "job")) == (one,)
        informer._take(copy.deepcopy(one), gone=False)
        assert len(informer.of(("ns", "job"))) == 1 and changed == [("ns", "job")]
        informer._take(copy.deepcopy(one), gone=True)
        assert informer.of(("ns", "job")) == ()
        informer.expect(("ns", "job"), one)
        loop = asyncio.get_running_loop()
        late, usual = loop.time() + EXPECTED_SECONDS + 1, loop.time
        loop.time = lambda: late  # type: ignore[method-assign]
        try:
            assert informer.of(("ns", "job")) == (), "they expire"
        finally:
            loop.time = usual  # type: ignore[method-assign]

    asyncio.run(main())


def _counted(kind: str) -> None:
    counts = JobCounts()
    written = job(1)
    if kind == "deleted":
        counts.deleted(written)
    elif kind == "restarted":
        counts.told(written, Event("Warning", "TFJobRestarting", ""))
    else:
        type_ = {"created": "Created", "successful": "Succeeded", "failed": "Failed"}[kind]
        counts.status_written(written, {**written, "status": _status(type_)})
        counts.status_written({**written, "status": _status(type_)}, {**written, "status": _status(type_)})
    lines = exposition(counts.facts(), JOBS).decode().splitlines()
    assert f'training_operator_jobs_{kind}_total{{framework="tensorflow",job_namespace="ml"}} 1.0' in lines


METRICS = [Case("controller.v1/expectation.TestControllerExpectations", _expectations)] + cases(
    "common.metrics", _counted, {kind: kind for kind in ("created", "deleted", "successful", "failed", "restarted")}
)


def _no_dense_restart() -> None:
    """TF_CONFIG of living pods is never refreshed."""
    cluster = world(job(2, 1), {"Worker": [RUNNING] * 2, "PS": [RUNNING]})
    before = copy.deepcopy(cluster.pods)
    cluster.manifest["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = 3
    cluster.settle()
    assert {name: cluster.pods[name] for name in before} == before


KEPT = [Case("controller.v1/tensorflow.SetClusterSpec/living pods keep theirs", _no_dense_restart)]

CASES = [
    *DEFAULTS, *LEADERS, *VALIDATE, *UPDATES, *MANAGED, *FINISHED, *CONDITIONS, *TRAIN, *RESOURCES, *GROUPS,
    Case(f"{COMMON}.SyncPodGroup/annotations of the job", _annotated), *DELAYED, *DECORATED, *GROUP_ENDS, *METRICS, *KEPT,
]  # fmt: skip
