"""Containers that end and pods that are lost, in the words of the launcher."""

from __future__ import annotations

from typing import Any

import pytest

from deeprec_ext.aimaster.kubernetes.backend import DELETED
from tests.unit.aimaster.kubernetes.fake_api import NAMESPACE, PODS
from tests.unit.aimaster.kubernetes.pretended import Cluster, run, running, vanish

# ------------------------------------------------------------------------------------------------- containers that end


def test_a_container_that_is_killed_is_restarted_by_the_kubelet() -> None:
    async def test(cluster: Cluster) -> None:
        await running(cluster, "ps-0")
        first = cluster.told[-1].pid
        cluster.api.exit("ctr-ps-0", 137, "ps-0/first", reason="OOMKilled", message="step 7\nkilled\n")
        [end] = await cluster.settle()
        assert (end.exit_code, end.restarting, end.restarts, end.deleted) == (137, True, 1, False)
        assert end.cause == "oom: memory limit of 1.1 GB" and end.last_line == "killed"
        cluster.api.run("ctr-ps-0", container="ps-0/second", restarts=1)
        [again] = await cluster.settle()
        assert again.state == "running" and again.pid not in (0, first) and again.restarts == 1
        assert cluster.api.count("delete", PODS) == 0

    run(test)


def test_an_end_between_two_reports_is_told_from_what_the_kubelet_remembers() -> None:
    async def test(cluster: Cluster) -> None:
        await running(cluster, "ps-0")
        last = {"exitCode": 137, "reason": "OOMKilled", "containerID": "ps-0/first"}
        cluster.api.run("ctr-ps-0", container="ps-0/second", restarts=1, last=last)
        end, again = await cluster.settle()
        assert end.state == "exited" and end.restarting and end.cause.startswith("oom")
        assert again.state == "running"

    run(test)


def test_the_same_report_twice_is_one() -> None:
    async def test(cluster: Cluster) -> None:
        await running(cluster, "ps-0")
        for _ in range(3):
            cluster.api.exit("ctr-ps-0", 1, "ps-0/first")
        assert len(await cluster.settle()) == 1

    run(test)


@pytest.mark.parametrize("stays", [False, True])
def test_who_fails_again_and_again_is_given_up(stays: bool) -> None:
    async def test(cluster: Cluster) -> None:
        await running(cluster, "worker-0")
        for number in range(4):
            if stays and number == 3:
                cluster.api.forbidden = {("delete", "pods")}
            cluster.api.run("ctr-worker-0", container=f"worker-0/{number}", restarts=min(number, 1))
            cluster.api.exit(
                "ctr-worker-0", 1, f"worker-0/{number}", min(number, 1), message="ValueError: no such column"
            )
            await cluster.settle()
        end = cluster.told[-1]
        assert (end.state, end.restarting, end.deleted) == ("exited", False, False)
        assert end.restarts == 3 and end.last_line == "ValueError: no such column"
        if stays:
            cluster.api.run("ctr-worker-0", container="worker-0/4", restarts=4)
        assert await cluster.settle() == [], "whatever its pod still does is no news"
        assert bool(cluster.api.names(PODS)) == stays, "the pod is deleted, else the kubelet would start it again"

    run(test)


FAILED = (
    'Traceback (most recent call last):\n  File "/app/train.py", line 31, in <module>\nValueError: no such column\n'
)


@pytest.mark.parametrize(("trained_seconds", "starts"), [(5.0, 2), (3600.0, 4)])
def test_a_chief_whose_script_fails_twice_at_the_same_line_is_given_up(trained_seconds: float, starts: int) -> None:
    async def test(cluster: Cluster) -> None:
        cluster.backend.trained_seconds = lambda name: trained_seconds
        await running(cluster, "chief-0")
        for number in range(starts):
            cluster.api.run("ctr-chief-0", container=f"chief-0/{number}", restarts=min(number, 1))
            cluster.api.exit("ctr-chief-0", 1, f"chief-0/{number}", min(number, 1), message=FAILED)
            await cluster.settle()
            assert cluster.told[-1].restarting == (number < starts - 1)

    run(test)


def test_who_fails_before_its_first_step_is_not_started_again() -> None:
    async def test(cluster: Cluster) -> None:
        cluster.backend.trained = lambda name: False
        await running(cluster, "chief-0", "ps-0")
        cluster.api.exit("ctr-chief-0", 1, "chief-0/first")
        cluster.api.exit("ctr-ps-0", 1, "ps-0/first")
        chief, ps = await cluster.settle()
        assert not chief.restarting and not chief.deleted and ps.restarting

    run(test)


# ----------------------------------------------------------------------------------------------------- pods that are lost

EVICTED = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}


def disrupted(reason: str, message: str) -> dict[str, Any]:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    return {"phase": "Failed", "conditions": [condition]}


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        (EVICTED, "evicted: The node was low on resource: memory."),
        ({"phase": "Failed", "reason": "NodeLost"}, "node lost"),
        (
            {"phase": "Failed", "reason": "Shutdown", "message": "Node is shutting down."},
            "node lost: Node is shutting down.",
        ),
        ({"phase": "Failed", "reason": "Preempting", "message": "by kubelet"}, "preempted: by kubelet"),
        ({"phase": "Failed", "reason": "OutOfmemory", "message": "Node didn't have"}, "OutOfmemory: Node didn't have"),
        (disrupted("PreemptionByScheduler", "for a pod of higher priority"), "preempted: for a pod of higher priority"),
        (disrupted("DeletionByTaintManager", "node is unreachable"), "node lost: node is unreachable"),
        (disrupted("EvictionByEvictionAPI", "drained"), "evicted: drained"),
        ({"phase": "Failed"}, ""),
    ],
)
def test_a_pod_that_is_lost_is_made_again_and_its_cause_is_told(status: dict[str, Any], cause: str) -> None:
    async def test(cluster: Cluster) -> None:
        await running(cluster, "ps-0", "ps-1")
        before = cluster.api.objects["pods", "ctr-ps-1"]["metadata"]["uid"]
        cluster.api.status("ctr-ps-1", status)
        [end] = await cluster.settle()
        assert (end.name, end.restarting, end.exit_code, end.cause) == ("ps-1", True, 137, cause)
        again = cluster.api.objects["pods", "ctr-ps-1"]
        assert again["metadata"]["uid"] != before
        [term] = again["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        assert term["preference"]["matchExpressions"][0]["values"] == ["node-1"], "elsewhere, if there is room"
        cluster.api.run("ctr-ps-1", container="again")
        assert (await cluster.settle())[-1].state == "running"

    run(test)


@pytest.mark.parametrize("seen", ["as it happens", "after a broken watch", "from a new list"])
def test_a_pod_that_somebody_deletes_by_force_is_made_again(seen: str) -> None:
    async def test(cluster: Cluster) -> None:
        await running(cluster, "worker-0")
        lists = cluster.api.count("list", PODS)
        cluster.api.vanish(PODS, "ctr-worker-0")
        if seen == "after a broken watch":
            cluster.api.break_watches()
        elif seen == "from a new list":
            cluster.api.compact()
        [end] = await cluster.settle()
        assert (end.restarting, end.deleted, end.exit_code, end.cause) == (True, False, 137, DELETED)
        assert cluster.api.names(PODS) == ["ctr-worker-0"]
        assert cluster.api.count("list", PODS) - lists == (seen == "from a new list")

    run(test)


def test_a_pod_that_somebody_deletes_politely_is_a_notice_first() -> None:
    async def test(cluster: Cluster) -> None:
        await running(cluster, "ps-0")
        await cluster.api.delete(PODS, NAMESPACE, "ctr-ps-0")
        assert await cluster.settle() == [] and cluster.reclaimed == [("ps-0", DELETED)]
        old = cluster.api.objects["pods", "ctr-ps-0"]["metadata"]["uid"]
        cluster.clock.on_sleep = lambda seconds: vanish(cluster, "ctr-ps-0", old) if seconds == 0.5 else None
        cluster.api.exit("ctr-ps-0", 0, "ps-0/first")
        [end] = await cluster.settle()
        assert end.restarting and end.exit_code == 143, "an end that was asked for by somebody else is none of its own"
        assert cluster.api.objects["pods", "ctr-ps-0"]["metadata"]["uid"] != old

    run(test)


def test_losses_wait_longer_and_end_when_restarts_are_used_up() -> None:
    async def test(cluster: Cluster) -> None:
        await running(cluster, "ps-0")
        for _ in range(4):
            cluster.api.status("ctr-ps-0", EVICTED)
            await cluster.settle()
        assert [seconds for seconds in cluster.clock.slept if seconds > 0] == [0.5, 1.0]
        assert not cluster.told[-1].restarting and cluster.told[-1].cause.startswith("evicted")
        assert cluster.api.names(PODS) == [], "given up"

    run(test, restarts_max=3)


def test_a_lost_pod_that_is_not_wanted_any_more_stays_away() -> None:
    async def test(cluster: Cluster) -> None:
        await running(cluster, "ps-0")
        await cluster.backend.delete("ps-0", 30.0)
        cluster.api.status("ctr-ps-0", EVICTED)
        [end] = await cluster.settle()
        assert end.deleted and not end.restarting
        cluster.api.vanish(PODS, "ctr-ps-0")
        await cluster.settle()
        assert cluster.api.names(PODS) == []

    run(test)


# ------------------------------------------------------------------------------------- processes that outstay their script


@pytest.mark.parametrize(("code", "restarting"), [(0, False), (3, True)])
def test_a_pod_whose_own_process_outstays_its_script_ends_with_the_code_of_the_script(
    code: int, restarting: bool
) -> None:
    async def test(cluster: Cluster) -> None:
        await running(cluster, "worker-0")
        await cluster.backend.end("worker-0", 17, code)  # a process that the pod's command has started
        assert await cluster.settle() == []
        await cluster.backend.end("worker-0", 1, code)
        told = await cluster.settle()
        assert (told[0].state, told[0].exit_code, told[0].restarting) == ("exited", code, restarting)
        assert cluster.api.count("delete", PODS) == 1

    run(test)
