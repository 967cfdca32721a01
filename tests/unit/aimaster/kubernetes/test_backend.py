"""Pods of a TFJob: what the cluster does with them, in the words of the launcher."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from deeprec_ext.aimaster.kubernetes.naming import Naming
from deeprec_ext.aimaster.pods.backend import PodState
from deeprec_ext.errors import UnreachableError, UsageError
from tests.unit.aimaster.kubernetes.fake_api import PODS, SERVICES, manifests
from tests.unit.aimaster.kubernetes.pretended import Cluster, run, running, vanish
from tfjob.model.kinds import Resource
from tfjob.model.names import INDEX_LABEL, JOB_LABEL, TYPE_LABEL

# ------------------------------------------------------------------------------------------------------------- creating


def test_a_pod_has_its_service_and_is_told_when_it_runs() -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.backend.create("ps-0")
        assert cluster.api.names(PODS) == cluster.api.names(SERVICES) == ["ctr-ps-0"]
        assert await cluster.settle() == [], "a pod that is pending has not ended"
        cluster.api.run("ctr-ps-0")
        [state] = await cluster.settle()
        assert (state.name, state.state, state.cpu, state.memory_bytes) == ("ps-0", "running", 1.0, 1 << 30)
        assert state.pid > 0 and not state.restarting

    run(test)


def test_creating_what_runs_changes_nothing() -> None:
    async def test(cluster: Cluster) -> None:
        await running(cluster, "ps-0")
        uid = cluster.api.objects["pods", "ctr-ps-0"]["metadata"]["uid"]
        await cluster.backend.create("ps-0")
        [state] = await cluster.settle()
        assert state.state == "running", "told again: whoever asks begins anew"
        assert cluster.api.objects["pods", "ctr-ps-0"]["metadata"]["uid"] == uid

    run(test)


@pytest.mark.parametrize("resource", [PODS, SERVICES])
@pytest.mark.parametrize("goes", [False, True])
def test_what_belongs_to_somebody_else_is_left_alone(resource: Resource, goes: bool) -> None:
    """To an earlier job of this name, for example, which is being collected."""

    async def test(cluster: Cluster) -> None:
        other = manifests("ps-0")[resource is PODS]
        other["metadata"]["ownerReferences"] = [{"uid": "another"}]
        cluster.api.put(resource, {**other, "status": {"phase": "Pending"}})
        if resource is PODS:
            cluster.api.run("ctr-ps-0")
        assert await cluster.settle() == [] and await cluster.backend.existing() == []
        if goes:
            old = cluster.api.objects[resource.plural, "ctr-ps-0"]["metadata"]["uid"]
            cluster.clock.on_sleep = lambda seconds: vanish(cluster, "ctr-ps-0", old, resource)
            await cluster.backend.create("ps-0")
            assert cluster.api.names(PODS) == cluster.api.names(SERVICES) == ["ctr-ps-0"]
        else:
            with pytest.raises(
                UnreachableError, match="ctr-ps-0 exists in namespace team and does not belong to this job"
            ):
                await cluster.backend.create("ps-0")
        assert cluster.api.count("delete", resource) == 0

    run(test)


def test_a_finished_pod_makes_way() -> None:
    async def test(cluster: Cluster) -> None:
        await running(cluster, "worker-0")
        before = cluster.api.objects["pods", "ctr-worker-0"]["metadata"]["uid"]
        cluster.api.exit("ctr-worker-0", 0, "worker-0/first")
        [state] = await cluster.settle()
        assert (state.state, state.exit_code, state.restarting) == ("exited", 0, False)
        await cluster.backend.create("worker-0")
        assert cluster.api.objects["pods", "ctr-worker-0"]["metadata"]["uid"] != before
        cluster.api.run("ctr-worker-0", container="another")
        assert (await cluster.settle())[-1].state == "running"

    run(test)


@pytest.mark.parametrize("hangs", [False, True])
def test_a_pod_that_is_ending_is_waited_for_and_then_forced(hangs: bool) -> None:
    async def test(cluster: Cluster) -> None:
        await running(cluster, "ps-0")
        await cluster.backend.delete("ps-0", 20.0)
        assert cluster.api.graces["ctr-ps-0"] == 20
        looks = 0

        def kubelet(seconds: float) -> None:
            nonlocal looks
            looks += seconds == 0.5
            if looks == 3 and not hangs and ("pods", "ctr-ps-0") in cluster.api.objects:
                cluster.api.vanish(PODS, "ctr-ps-0")

        cluster.clock.on_sleep = kubelet
        await cluster.backend.create("ps-0")
        assert cluster.api.graces["ctr-ps-0"] == (0 if hangs else 20)
        assert looks == (61 if hangs else 3)
        assert "deletionTimestamp" not in cluster.api.objects["pods", "ctr-ps-0"]["metadata"]

    run(test)


def test_late_news_of_the_pod_before_it_does_the_new_one_no_harm() -> None:
    async def test(cluster: Cluster) -> None:
        await running(cluster, "ps-0")
        await cluster.backend.delete("ps-0", 20.0)
        await cluster.settle()
        old = cluster.api.objects["pods", "ctr-ps-0"]["metadata"]["uid"]
        cluster.api.silent = True  # the watch lags behind what is answered
        cluster.api.exit("ctr-ps-0", 0, "ps-0/first")
        cluster.clock.on_sleep = lambda seconds: vanish(cluster, "ctr-ps-0", old)
        await cluster.backend.create("ps-0")
        new = cluster.api.objects["pods", "ctr-ps-0"]["metadata"]["uid"]
        cluster.api.run("ctr-ps-0", container="second")
        cluster.api.speak()
        states = await cluster.settle()
        assert [state.state for state in states] == ["running"] and new != old
        assert cluster.api.objects["pods", "ctr-ps-0"]["metadata"]["uid"] == new

    run(test)


def test_a_server_that_does_not_answer_is_asked_again() -> None:
    async def test(cluster: Cluster) -> None:
        cluster.api.unreachable = 3
        await cluster.backend.create("ps-0")
        assert cluster.api.names(PODS) == ["ctr-ps-0"]
        cluster.api.unreachable = 1000
        with pytest.raises(UnreachableError, match="did not create ps-1: the Kubernetes API does not answer"):
            await cluster.backend.create("ps-1")
        assert sum(cluster.clock.slept) >= 30.0
        cluster.api.unreachable = 0

    run(test)


def test_rights_that_are_too_narrow_are_named() -> None:
    async def test(cluster: Cluster) -> None:
        cluster.api.forbidden = {("create", "pods")}
        with pytest.raises(UnreachableError, match=r'cannot create resource "pods".*rights of the AIMaster') as caught:
            await cluster.backend.create("ps-0")
        assert "ps-0" in str(caught.value) and cluster.api.count("create", PODS) == 1, "trying again does not help"

    run(test)


@pytest.mark.parametrize(("plural", "reason"), [("pods", "FailedCreatePod"), ("services", "FailedCreateService")])
def test_what_the_server_refuses_is_a_warning_of_the_tfjob_and_told_once(plural: str, reason: str) -> None:
    async def test(cluster: Cluster) -> None:
        cluster.api.forbidden = {("create", plural)}
        for _ in range(2):
            with pytest.raises(UnreachableError):
                await cluster.backend.create("ps-0")
        told = [one for one in cluster.api.told() if one[:2] == ("Warning", reason)]
        assert len(told) == 1 and "ctr-ps-0" in told[0][2] and "cannot create" in told[0][2]

    run(test)


# ------------------------------------------------------------------------------------------------------------- deleting


def test_deleting_tells_the_end_once_it_has_ended() -> None:
    async def test(cluster: Cluster) -> None:
        await running(cluster, "ps-0")
        await cluster.backend.delete("ps-0", 0.3)
        assert await cluster.settle() == [] and cluster.api.graces["ctr-ps-0"] == 1, "never 0 unless asked for"
        cluster.api.exit("ctr-ps-0", 0, "ps-0/first")
        [state] = await cluster.settle()
        assert state == PodState("ps-0", "exited", deleted=True, cpu=1.0, memory_bytes=1 << 30)
        cluster.api.vanish(PODS, "ctr-ps-0")
        assert await cluster.settle() == [] and cluster.reclaimed == []

    run(test)


def test_killing_is_told_when_the_pod_is_gone() -> None:
    async def test(cluster: Cluster) -> None:
        await running(cluster, "ps-0")
        await cluster.backend.delete("ps-0", 0.0)
        [state] = await cluster.settle()
        assert (state.state, state.exit_code, state.deleted, state.restarting) == ("exited", 137, True, False)
        await cluster.backend.create("ps-0")
        assert "nodeAffinity" in cluster.api.objects["pods", "ctr-ps-0"]["spec"]["affinity"], "its node may hang"
        cluster.api.run("ctr-ps-0", container="second")
        assert (await cluster.settle())[-1].state == "running"

    run(test)


def test_deleting_what_is_not_there_says_so() -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.backend.delete("ps-7", 0.0)
        [state] = await cluster.settle()
        assert (state.name, state.state, state.deleted) == ("ps-7", "exited", True)
        await cluster.backend.delete("ps-7", 0.0)
        assert len(await cluster.settle()) == 1, "and again: whoever asks waits for it"

    run(test)


def test_the_service_goes_later_unless_the_name_comes_back() -> None:
    async def test(cluster: Cluster) -> None:
        await running(cluster, "ps-0", "ps-1")
        forever, gate = cluster.clock.sleep, asyncio.Event()

        async def sleep(seconds: float) -> None:
            await (gate.wait() if seconds == 30.0 else forever(seconds))

        cluster.backend._maker._sleep = sleep
        for name in ("ps-0", "ps-1"):
            await cluster.backend.delete(name, 0.0)
        await cluster.settle()
        await cluster.backend.create("ps-0")
        gate.set()
        await cluster.settle()
        assert cluster.api.names(SERVICES) == ["ctr-ps-0"]

    run(test)


# ------------------------------------------------------------------------------------------------------ waiting and size


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                             "message": "0/1 nodes are available: 1 Insufficient memory."}]},
            "0/1 nodes are available: 1 Insufficient memory.",
        ),
        (
            {"containerStatuses": [{"name": "tensorflow", "state": {"waiting": {"reason": "ImagePullBackOff",
                                                                                "message": "Back-off pulling"}}}]},
            "container tensorflow: ImagePullBackOff: Back-off pulling",
        ),
        (
            {"initContainerStatuses": [{"name": "deeprec-ext", "state": {"terminated": {"exitCode": 1, "message": "no x"}}}]},
            "container deeprec-ext exited with code 1: no x",
        ),
        ({"containerStatuses": [{"name": "tensorflow", "state": {"waiting": {"reason": "ContainerCreating"}}}]}, ""),
        ({}, ""),
    ],
)  # fmt: skip
def test_why_a_pod_waits(status: dict[str, Any], reason: str) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.backend.create("ps-0")
        cluster.api.status("ctr-ps-0", {"phase": "Pending", **status})
        await cluster.settle()
        assert cluster.backend.waiting_reason("ps-0") == reason and cluster.told == []

    run(test)


def test_a_role_s_new_size_is_that_of_pods_to_come_and_of_those_that_end() -> None:
    async def test(cluster: Cluster) -> None:
        await running(cluster, "ps-0", "worker-0")
        await cluster.backend.resize("ps", 0.0, 2 << 30)
        with pytest.raises(UsageError, match="scale --replace ps-0"):
            await cluster.backend.resize("ps-0", 2.0, 0)
        await cluster.backend.create("ps-1")
        limits = cluster.api.objects["pods", "ctr-ps-1"]["spec"]["containers"][0]["resources"]["limits"]
        assert limits == {"memory": str(2 << 30)}
        before = {name: one["metadata"]["uid"] for (kind, name), one in cluster.api.objects.items() if kind == "pods"}
        cluster.api.exit("ctr-ps-0", 137, "ps-0/first", reason="OOMKilled")
        cluster.api.exit("ctr-worker-0", 137, "worker-0/first", reason="OOMKilled")
        await cluster.settle()
        after = {name: one for (kind, name), one in cluster.api.objects.items() if kind == "pods"}
        assert after["ctr-worker-0"]["metadata"]["uid"] == before["ctr-worker-0"], "the kubelet starts it again"
        assert after["ctr-ps-0"]["metadata"]["uid"] != before["ctr-ps-0"]
        assert after["ctr-ps-0"]["spec"]["containers"][0]["resources"]["limits"] == {"memory": str(2 << 30)}

    run(test)


def test_when_the_kubelet_would_wait_long_the_pod_is_made_anew() -> None:
    async def test(cluster: Cluster) -> None:
        await running(cluster, "ps-0")
        uids = []
        for number in range(4):
            cluster.api.run("ctr-ps-0", container=f"ps-0/{number}", restarts=min(number, 2))
            cluster.api.exit("ctr-ps-0", 137, f"ps-0/{number}", restarts=min(number, 2))
            await cluster.settle()
            uids.append(cluster.api.objects["pods", "ctr-ps-0"]["metadata"]["uid"])
            assert cluster.told[-1].restarting and cluster.told[-1].restarts == number + 1
        assert uids[0] == uids[1] != uids[2] != uids[3]

    run(test)


# ------------------------------------------------------------------------------------------------------------- watching


def test_the_aimaster_s_own_pod_is_not_told_and_unknown_ones_are() -> None:
    async def test(cluster: Cluster) -> None:
        own, stranger = manifests("aimaster-0")[1], manifests("ps-9")[1]
        for pod in (own, stranger):
            cluster.api.put(PODS, {**pod, "status": {"phase": "Pending"}})
            cluster.api.run(pod["metadata"]["name"])
        assert [state.name for state in await cluster.settle()] == ["ps-9"]

    run(test)


def test_what_there_is_at_the_start_is_told_first() -> None:
    async def main() -> None:
        cluster = Cluster()
        for name, code in (("ps-0", None), ("worker-0", 1), ("chief-0", 0)):
            cluster.api.put(PODS, {**manifests(name)[1], "status": {"phase": "Pending"}})
            cluster.api.run(f"ctr-{name}")
            if code is not None:
                cluster.api.exit(f"ctr-{name}", code)
        states = {state.name: (state.state, state.restarting) for state in await cluster.backend.existing()}
        assert states == {"ps-0": ("running", False), "worker-0": ("exited", True), "chief-0": ("exited", False)}
        await cluster.backend.begin()
        listening = asyncio.ensure_future(cluster.listen())
        told = {state.name: (state.state, state.restarting) for state in await cluster.settle()}
        assert told == states
        listening.cancel()
        await cluster.backend.close()

    asyncio.run(main())


def test_without_the_right_to_watch_the_aimaster_ends() -> None:
    async def main() -> None:
        cluster = Cluster()
        await cluster.backend.begin()
        cluster.api.forbidden = {("list", "pods"), ("watch", "pods")}
        with pytest.raises(UnreachableError, match='cannot list resource "pods"'):
            await cluster.listen()
        await cluster.backend.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("naming", "name", "pod"),
    [
        (Naming("ctr", "Chief"), "chief-0", "ctr-chief-0"),
        (Naming("ctr", "Master"), "chief-0", "ctr-master-0"),
        (Naming("ctr", "Master"), "worker-0", "ctr-worker-0"),
        (Naming("ctr"), "chief-0", "ctr-worker-0"),
        (Naming("ctr"), "worker-2", "ctr-worker-3"),
        (Naming("ctr"), "ps-1", "ctr-ps-1"),
        (Naming("ctr", "Chief"), "evaluator-0", "ctr-evaluator-0"),
    ],
)
def test_names_there_and_back(naming: Naming, name: str, pod: str) -> None:
    assert naming.pod(name) == pod
    _, kind, index = pod.split("-")
    labels = {JOB_LABEL: "ctr", TYPE_LABEL: kind, INDEX_LABEL: index}
    assert naming.role(labels) == name
    assert naming.role({**labels, JOB_LABEL: "another"}) is None
    assert naming.role({**labels, INDEX_LABEL: "x"}) is None
