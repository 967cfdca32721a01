"""Names, and how the AIMaster's names and the contract's meet."""

from __future__ import annotations

import pytest

from deeprec_ext.errors import UsageError
from tests.unit.tfjob.world import job
from tfjob.model import names

WITH_CHIEF = {"Chief": 1, "PS": 2, "Worker": 3, "Evaluator": 1}
WITH_MASTER = {"Master": 1, "PS": 2, "Worker": 3}
WITHOUT = {"PS": 2, "Worker": 3, "Evaluator": 1}


@pytest.mark.parametrize(
    ("replicas", "role", "pod"),
    [
        (WITH_CHIEF, "chief-0", "mnist-chief-0"),
        (WITH_CHIEF, "ps-1", "mnist-ps-1"),
        (WITH_CHIEF, "worker-2", "mnist-worker-2"),
        (WITH_CHIEF, "evaluator-0", "mnist-evaluator-0"),
        (WITH_MASTER, "chief-0", "mnist-master-0"),
        (WITH_MASTER, "worker-0", "mnist-worker-0"),
        (WITHOUT, "chief-0", "mnist-worker-0"),
        (WITHOUT, "worker-0", "mnist-worker-1"),
        (WITHOUT, "worker-1", "mnist-worker-2"),
        (WITHOUT, "ps-0", "mnist-ps-0"),
    ],
)
def test_every_role_of_the_aimaster_is_one_pod_of_the_contract(replicas: dict[str, int], role: str, pod: str) -> None:
    one = job(replicas)
    assert names.pod_name_of(one, role) == pod
    assert names.role_of(one, *names.replica_of(one, role)) == role


@pytest.mark.parametrize("name", ["", "ps", "ps-01", "ps--1", "chief-1", "aimaster-0", "worker-x"])
def test_what_is_no_name_of_a_role_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="no name of a role"):
        names.replica_of(job(WITHOUT), name)


def test_the_selector_is_what_kubectl_takes() -> None:
    assert names.selector("mnist", "PS") == (
        "training.kubeflow.org/job-name=mnist,training.kubeflow.org/operator-name=tfjob-controller,"
        "training.kubeflow.org/replica-type=ps"
    )


@pytest.mark.parametrize(
    ("text", "right"),
    [("mnist", True), ("m-1", True), ("a" * 63, True), ("a" * 64, False), ("1m", False), ("m-", False), ("M", False),
     ("m.n", False), ("", False)],
)  # fmt: skip
def test_dns_1035(text: str, right: bool) -> None:
    assert names.is_dns_1035(text) is right
