"""TF_CONFIG, byte for byte (TFJOB.md, TF_CONFIG)."""

from __future__ import annotations

import pytest

from tests.unit.tfjob.world import environment, job, manifest, template
from tfjob.model.spec import TFJob
from tfjob.pods.replica import pod
from tfjob.pods.tf_config import tf_config

DENSE = [
    (
        "PS and workers", {"PS": 2, "Worker": 2}, ("Worker", 0),
        '{"cluster":{"ps":["mnist-ps-0.ml.svc:2222","mnist-ps-1.ml.svc:2222"],'
        '"worker":["mnist-worker-0.ml.svc:2222","mnist-worker-1.ml.svc:2222"]},'
        '"task":{"type":"worker","index":0},"environment":"cloud"}',
    ),
    (
        "a PS's own task", {"Worker": 1, "PS": 2}, ("PS", 1),
        '{"cluster":{"ps":["mnist-ps-0.ml.svc:2222","mnist-ps-1.ml.svc:2222"],'
        '"worker":["mnist-worker-0.ml.svc:2222"]},"task":{"type":"ps","index":1},"environment":"cloud"}',
    ),
    (
        "keys sorted, evaluator included", {"Worker": 1, "Evaluator": 1, "PS": 1, "Chief": 1}, ("Evaluator", 0),
        '{"cluster":{"chief":["mnist-chief-0.ml.svc:2222"],"evaluator":["mnist-evaluator-0.ml.svc:2222"],'
        '"ps":["mnist-ps-0.ml.svc:2222"],"worker":["mnist-worker-0.ml.svc:2222"]},'
        '"task":{"type":"evaluator","index":0},"environment":"cloud"}',
    ),
    (
        "a type of no replicas", {"Master": 1, "Worker": 0, "PS": 1}, ("Master", 0),
        '{"cluster":{"master":["mnist-master-0.ml.svc:2222"],"ps":["mnist-ps-0.ml.svc:2222"],"worker":[]},'
        '"task":{"type":"master","index":0},"environment":"cloud"}',
    ),
]  # fmt: skip

SPARSE = [
    (
        "worker i gets itself and all PS", {"PS": 2, "Worker": 2}, ("Worker", 1),
        '{"cluster":{"worker":{"1":"mnist-worker-1.ml.svc:2222"},'
        '"ps":["mnist-ps-0.ml.svc:2222","mnist-ps-1.ml.svc:2222"]},"task":{"type":"worker","index":1}}',
    ),
    (
        "ps j gets its own address", {"PS": 2, "Worker": 2}, ("PS", 1),
        '{"cluster":{"worker":{},"ps":["mnist-ps-1.ml.svc:2222"]},"task":{"type":"ps","index":1}}',
    ),
    (
        "others get an empty cluster", {"Chief": 1, "PS": 1, "Worker": 1}, ("Chief", 0),
        '{"cluster":{"worker":{},"ps":[]},"task":{"type":"chief","index":0}}',
    ),
    (
        "a job without PS: Go writes a nil slice as null", {"Worker": 2}, ("Worker", 0),
        '{"cluster":{"worker":{"0":"mnist-worker-0.ml.svc:2222"},"ps":null},"task":{"type":"worker","index":0}}',
    ),
]  # fmt: skip


@pytest.mark.parametrize(("replicas", "task", "text"), [row[1:] for row in DENSE], ids=[row[0] for row in DENSE])
def test_dense(replicas: dict[str, int], task: tuple[str, int], text: str) -> None:
    assert tf_config(job(replicas), *task) == text


@pytest.mark.parametrize(("replicas", "task", "text"), [row[1:] for row in SPARSE], ids=[row[0] for row in SPARSE])
def test_sparse_with_enable_dynamic_worker(replicas: dict[str, int], task: tuple[str, int], text: str) -> None:
    assert tf_config(job(replicas, enableDynamicWorker=True), *task) == text


def test_the_custom_cluster_domain_is_appended_to_the_host() -> None:
    assert tf_config(job({"PS": 1, "Worker": 1}), "PS", 0, domain="cluster.local") == (
        '{"cluster":{"ps":["mnist-ps-0.ml.svc.cluster.local:2222"],"worker":["mnist-worker-0.ml.svc.cluster.local:2222"]},'
        '"task":{"type":"ps","index":0},"environment":"cloud"}'
    )


def test_each_type_is_reached_at_its_own_tfjob_port() -> None:
    written = manifest({"PS": 1, "Worker": 1})
    container = written["spec"]["tfReplicaSpecs"]["PS"]["template"]["spec"]["containers"][0]
    container["ports"] = [{"name": "metrics", "containerPort": 9090}, {"name": "tfjob-port", "containerPort": 3333}]
    assert tf_config(TFJob.parse(written), "Worker", 0) == (
        '{"cluster":{"ps":["mnist-ps-0.ml.svc:3333"],"worker":["mnist-worker-0.ml.svc:2222"]},'
        '"task":{"type":"worker","index":0},"environment":"cloud"}'
    )


@pytest.mark.parametrize("replicas", [{"Worker": 1}, {"Chief": 1}, {"Worker": 1, "PS": 0}])
def test_it_is_absent_when_the_job_has_one_replica_in_all(replicas: dict[str, int]) -> None:
    assert tf_config(job(replicas), next(iter(replicas)), 0) is None
    assert "TF_CONFIG" not in environment(pod(job(replicas), next(iter(replicas)), 0))


def test_only_the_container_tensorflow_gets_it_and_it_wins_over_the_template() -> None:
    written = manifest({"PS": 1, "Worker": 1})
    written["spec"]["tfReplicaSpecs"]["Worker"]["template"] = template(
        containers=[
            {"name": "sidecar", "image": "s"},
            {
                "name": "tensorflow",
                "image": "i",
                "env": [{"name": "A", "value": "1"}, {"name": "TF_CONFIG", "value": "{}"}],
            },
        ]
    )
    made = pod(TFJob.parse(written), "Worker", 0)
    assert environment(made, 0) == {}
    env = made["spec"]["containers"][1]["env"]
    assert [entry["name"] for entry in env] == ["A", "TF_CONFIG"] and '"cluster"' in env[1]["value"]
