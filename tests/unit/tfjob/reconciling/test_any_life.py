"""Whatever happens to a job, in whatever order, and whenever the operator is killed: what must always hold."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.unit.tfjob.world import Cluster, manifest
from tfjob.model.conditions import is_finished

JOBS: list[dict[str, Any]] = [
    {"replicas": {"PS": 2, "Worker": 3}, "policy": "OnFailure"},
    {"replicas": {"Chief": 1, "PS": 2, "Worker": 2}, "policy": "ExitCode"},
    {"replicas": {"PS": 1, "Worker": 2, "Evaluator": 1}, "policy": {"Worker": "Always"}, "successPolicy": "AllWorkers"},
    {"replicas": {"PS": 1, "Worker": 3}, "policy": "Never", "enableDynamicWorker": True},
]
POLICIES: list[dict[str, Any]] = [
    {},
    {"backoffLimit": 3, "cleanPodPolicy": "All"},
    {"activeDeadlineSeconds": 300, "cleanPodPolicy": "Running"},
]


def _something_happens(cluster: Cluster, chance: random.Random) -> None:
    pods = sorted(cluster.living)
    kinds = [
        "run",
        "run",
        "run",
        "end",
        "end",
        "end",
        "delete",
        "vanish",
        "reap",
        "reap",
        "scale",
        "suspend",
        "time",
        "service",
    ]
    suspended = cluster.manifest["spec"]["runPolicy"]["suspend"]
    what = "suspend" if suspended and chance.random() < 0.5 else chance.choice(kinds)
    cluster.pass_seconds(chance.randint(1, 20))
    if what == "run":
        cluster.run()
    elif what == "reap":
        cluster.reap()
    elif what == "time":
        cluster.pass_seconds(chance.randint(1, 60))
    elif what == "suspend":
        cluster.manifest["spec"]["runPolicy"]["suspend"] = not suspended
    elif what == "scale":
        cluster.manifest["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = chance.randint(1, 5)
    elif what == "service" and cluster.services:
        del cluster.services[chance.choice(sorted(cluster.services))]
    elif pods:
        short = chance.choice(pods)
        if what == "end" and cluster.pods[f"mnist-{short}"]["status"]["phase"] == "Running":
            cluster.end(short, chance.choice([0, 1, 137, None]))
        elif what == "delete":
            cluster.delete(f"mnist-{short}")
        elif what == "vanish":
            del cluster.pods[f"mnist-{short}"]


def _check(cluster: Cluster, before: list[tuple[str, str]]) -> None:
    found = cluster.conditions
    types = [type_ for type_, _ in found]
    assert len(types) == len(set(types)), "one condition of each type"
    assert not {("Running", "True"), ("Restarting", "True")} <= set(found), "they exclude each other"
    if ("Failed", "True") in before:
        assert found == before, "nothing follows Failed"
    if is_finished(cluster.status):
        assert ("Running", "True") not in found and cluster.status["completionTime"]
        assert types[-1] in ("Succeeded", "Failed")
    elif cluster.manifest["spec"]["runPolicy"]["suspend"]:
        assert not cluster.living and types[-1] == "Suspended"
    else:
        for type_, spec in cluster.manifest["spec"]["tfReplicaSpecs"].items():
            wanted = {f"{type_.lower()}-{index}" for index in range(spec["replicas"])}
            ours = {name for name in cluster.living if name.startswith(type_.lower())}
            going = {name[6:] for name in cluster.pods} - cluster.living
            assert wanted - going <= ours <= wanted, "what is wanted is there, and nothing else"


@pytest.mark.parametrize("seed", range(60))
def test_any_life_of_a_job(seed: int) -> None:
    chance = random.Random(seed)
    how = {"run_policy": {"suspend": False, **POLICIES[seed % len(POLICIES)]}, **JOBS[seed % len(JOBS)]}
    cluster = Cluster(manifest(**how))
    for _ in range(40):
        before = cluster.conditions
        if chance.random() < 0.3:  # the operator is killed in the middle of it
            cluster.carry_out(cluster.decide(), chance.randint(0, 3))
        cluster.settle()
        _check(cluster, before)
        assert not cluster.decide().writes, "there is nothing left to do"
        if is_finished(cluster.status) and chance.random() < 0.5:
            cluster = Cluster(manifest(**how))
        else:
            _something_happens(cluster, chance)
