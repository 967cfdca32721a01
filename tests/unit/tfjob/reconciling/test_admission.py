"""Beside Kubeflow: what becomes of a TFJob at its creation, and that the pods which Kubeflow then makes are elastic ones."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import pytest

from deeprec_ext import env
from tests.unit.tfjob_manifests.pods import environment, tfjob, training
from tests.unit.tfjob_manifests.schema import errors
from tfjob.model import names, spec
from tfjob.model.spec import InvalidError, TFJob
from tfjob.pods import replica
from tfjob.pods.certificates import VOLUME
from tfjob.pods.injection import INDEX, PS_GRACE_SECONDS, REPLICA_INDEX, elastic_pod
from tfjob.reconciling.admission import LEAVE_SECONDS, Admitted, admit, is_injected, policies_told, review

PREFIX = names.ANNOTATION_PREFIX
IMAGE = "example/deeprec-ext:1"


def written(**arguments: Any) -> dict[str, Any]:
    """As a request has it: without a uid, and perhaps without a namespace."""
    job = tfjob(**arguments)
    del job["metadata"]["uid"], job["metadata"]["namespace"]
    return job


def admitted(job: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
    return admit(written(**arguments) if job is None else job, "ads", package_image=IMAGE).job


def made(job: dict[str, Any], type_: str, index: int) -> dict[str, Any]:
    """The pod as the training operator makes it from the job."""
    job = {**job, "metadata": {**job["metadata"], "namespace": "ads", "uid": "0123456789ab-cdef"}}
    return replica.pod(TFJob.parse(job), type_, index)


def wanted(job: dict[str, Any], type_: str, index: int, slots: int = 8) -> dict[str, Any]:
    """The pod as the AIMaster makes it where it makes the pods itself."""
    name = names.role_of(TFJob.parse(job), type_, index)
    role, _, number = name.rpartition("-")
    parsed = TFJob.parse(job)
    return elastic_pod(
        replica.pod(parsed, type_, index), job="ctr", namespace="ads", role=role, index=int(number), slots=slots,
        package="inject", package_image=IMAGE, evaluator=False, chief=(parsed.chief or "Worker").lower(),
    )  # fmt: skip


def as_the_container_sees_it(pod: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> tuple[str, int]:
    """Role and index, from the environment with the label's value in it."""
    for name, value in environment(training(pod)).items():
        if isinstance(value, dict) and "labels" in value["fieldRef"]["fieldPath"]:
            label = value["fieldRef"]["fieldPath"].partition("['")[2].rstrip("']")
            value = pod["metadata"]["labels"][label]
        monkeypatch.setenv(name, str(value))
    return env.role(), env.index()


ALLREDUCE = {PREFIX + "strategy": "allreduce"}


@pytest.mark.parametrize(
    "replicas",
    [
        {"PS": 2, "Chief": 1, "Worker": 3}, {"PS": 2, "Worker": 3}, {"PS": 1, "Master": 1},
        {"Chief": 1, "Worker": 2}, {"Worker": 3},
    ],
)  # fmt: skip
def test_pods_that_kubeflow_makes_are_those_that_the_aimaster_would_make(
    replicas: dict[str, int], monkeypatch: pytest.MonkeyPatch
):
    annotations = None if "PS" in replicas else ALLREDUCE
    plain = tfjob(**replicas, annotations=annotations)
    job = admitted(**replicas, annotations=annotations)
    for type_, count in replicas.items():
        for index in range(count):
            found, expected = made(job, type_, index), wanted(plain, type_, index, 8 if "PS" in replicas else 0)
            assert errors(found) == []
            name = names.role_of(TFJob.parse(plain), type_, index)
            role, number = as_the_container_sees_it(found, monkeypatch)
            assert f"{role}-{number}" == name and env.sums() is ("PS" not in replicas)
            ours, theirs = environment(training(found)), environment(training(expected))
            for values in (ours, theirs):
                for key in ("TF_CONFIG", INDEX, REPLICA_INDEX, "DEEPREC_EXT_ROLE"):
                    values.pop(key, None)
            assert ours == theirs
            for pod in (found, expected):
                del training(pod)["env"]
                training(pod).pop("terminationMessagePolicy", None), training(pod).pop("lifecycle", None)
                pod["spec"]["containers"][0].pop("ports", None)
            if "Chief" not in replicas and type_ == "Worker":  # one template for the chief and the workers
                assert files_of(found) == ["ca.pem", "trainer.pem", "trainer-key.pem"]
                for pod in (found, expected):
                    pod["spec"]["volumes"] = [one for one in pod["spec"]["volumes"] if one["name"] != VOLUME]
            assert found == expected


def files_of(pod: dict[str, Any]) -> list[str]:
    return [item["key"] for one in pod["spec"]["volumes"] if one["name"] == VOLUME for item in one["secret"]["items"]]


@pytest.mark.parametrize("label", ["", "first"])
def test_a_pod_without_the_label_takes_no_role_at_all(label: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DEEPREC_EXT_ROLE", "ps")
    monkeypatch.setenv(REPLICA_INDEX, label)
    with pytest.raises(RuntimeError, match="replica-index"):
        env.index()


def test_doing_it_twice_is_the_same_as_once():
    job = admitted(annotations={PREFIX + "max-ps": "3"})
    again = admitted(copy.deepcopy(job))
    assert again == job and json.loads(again["metadata"]["annotations"][PREFIX + "restart-policies"]) == {
        "PS": "Never", "Chief": "Never", "Worker": "Never"
    }  # fmt: skip


def test_a_job_that_is_not_annotated_stays_as_it_is_whatever_it_contains():
    for job in (written(annotations={PREFIX + "enabled": "false"}), {"metadata": {"name": "X!"}, "spec": {"what": 1}}):
        assert admit(job, "ads", package_image=IMAGE).job == job


@pytest.mark.parametrize(
    "given, becomes", [("Never", "OnFailure"), ("Always", "OnFailure"), ("OnFailure", "OnFailure"), ("ExitCode", "ExitCode"),
                       (None, "OnFailure")]
)  # fmt: skip
def test_who_fails_is_started_again_and_who_has_left_is_not(given: str | None, becomes: str):
    job = written()
    for one in job["spec"]["tfReplicaSpecs"].values():
        one.update({} if given is None else {"restartPolicy": given})
    found = admitted(job)
    assert {one["restartPolicy"] for one in found["spec"]["tfReplicaSpecs"].values()} == {becomes}
    told = policies_told(TFJob.parse({**found, "metadata": {**found["metadata"], "namespace": "ads"}}))
    assert bool(told) == (given != becomes) and (not told or f"PS ({given or 'Never'})" in told)


def test_the_templates_own_restart_policy_is_left_to_kubeflow_which_warns_of_it():
    job = written()
    job["spec"]["tfReplicaSpecs"]["PS"]["template"]["spec"]["restartPolicy"] = "Always"
    found = {kind: one["template"]["spec"] for kind, one in admitted(job)["spec"]["tfReplicaSpecs"].items()}
    assert {kind: one.get("restartPolicy") for kind, one in found.items()} == dict.fromkeys(found, "Always")


@pytest.mark.parametrize("annotations, field", [
    ({PREFIX + "max-ps": "none"}, f"metadata.annotations[{PREFIX}max-ps]"),
    ({PREFIX + "enabled": "perhaps"}, f"metadata.annotations[{PREFIX}enabled]"),
    ({PREFIX + "max-workers": "1"}, "spec.tfReplicaSpecs.Worker.replicas"),
])  # fmt: skip
def test_annotations_that_cannot_be_are_denied_with_the_name_of_the_field(annotations: dict[str, str], field: str):
    with pytest.raises(InvalidError) as error:
        admitted(annotations=annotations)
    answer = review({"uid": "u", "object": {}}, error.value)["response"]
    assert (answer["uid"], answer["allowed"], answer["status"]["code"]) == ("u", False, 422)
    assert answer["status"]["message"].startswith(field)


def test_a_name_that_is_to_be_made_up_is_denied():
    job = written()
    job["metadata"]["generateName"] = job["metadata"].pop("name") + "-"
    with pytest.raises(InvalidError, match=r"metadata\.name.*generateName"):
        admitted(job)


def test_what_another_job_has_left_in_a_copied_manifest_goes():
    left = {PREFIX + "scaled-to": '{"PS": 9}', PREFIX + "status": "PS 9", PREFIX + "started-with": "broken"}
    found = admitted(annotations=left)["metadata"]["annotations"]
    assert json.loads(found[PREFIX + "started-with"]) == {"Chief": 1, "PS": 2, "Worker": 2}
    assert not {PREFIX + "scaled-to", PREFIX + "status"} & set(found)


def test_the_answer_is_a_patch_of_what_is_changed_and_nothing_else():
    job = written(annotations={PREFIX + "max-ps-memory": "4Gi", PREFIX + "max-pss": "3"})
    answer = review({"uid": "u", "object": job}, admit(job, "ads", package_image=IMAGE))["response"]
    assert answer["allowed"] and answer["patchType"] == "JSONPatch"
    patch = json.loads(base64.b64decode(answer["patch"]))
    assert {one["path"] for one in patch} == {"/metadata/annotations", "/spec/tfReplicaSpecs"}
    assert ["max-pss" in text or "max-ps-memory does nothing" in text for text in answer["warnings"]] == [True, True]
    assert "patch" not in review({"uid": "u", "object": job}, Admitted(job))["response"]


def test_whether_a_job_was_admitted_shows_in_every_template():
    plain = {**tfjob(), "metadata": {**tfjob()["metadata"]}}
    assert not is_injected(TFJob.parse(plain))
    job = admitted()
    assert is_injected(TFJob.parse(job))
    job["spec"]["tfReplicaSpecs"]["PS"]["template"] = plain["spec"]["tfReplicaSpecs"]["PS"]["template"]
    assert not is_injected(TFJob.parse(job))


def test_a_ps_whose_pod_kubeflow_deletes_has_time_to_leave_unless_the_user_has_a_hook():
    job = written()
    templates = job["spec"]["tfReplicaSpecs"]
    templates["PS"]["template"] = copy.deepcopy(templates["PS"]["template"])
    assert "lifecycle" not in training(admitted(job)["spec"]["tfReplicaSpecs"]["Worker"]["template"])
    ps = training(admitted(job)["spec"]["tfReplicaSpecs"]["PS"]["template"])
    assert (
        ps["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", str(LEAVE_SECONDS)]
        and LEAVE_SECONDS < PS_GRACE_SECONDS
    )
    own = {"preStop": {"exec": {"command": ["own"]}}}
    training(templates["PS"]["template"])["lifecycle"] = own
    assert training(admitted(job)["spec"]["tfReplicaSpecs"]["PS"]["template"])["lifecycle"] == own


def test_the_spelling_of_a_type_is_the_users():
    job = written()
    job["spec"]["tfReplicaSpecs"]["ps"] = job["spec"]["tfReplicaSpecs"].pop("PS")
    assert set(admitted(job)["spec"]["tfReplicaSpecs"]) == {"ps", "Chief", "Worker"}
    assert spec.TFJob.parse(admitted(job)).replicas("PS") == 2
