"""Queues of Kueue and Volcano, followed where an API server has them, and asked for seldom where it has not."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest

from tests.unit.tfjob.arbiting.clusters import cluster_queue, flavor, local_queue, node, volcano_queue
from tests.unit.tfjob.arbiting.test_queues import in_kueue, in_volcano
from tests.unit.tfjob.operator.test_arbiter import Rig, play
from tfjob.api.client import ApiError, NotFoundError
from tfjob.model.kinds import KUEUE, PODS, VOLCANO, Manifest, Resource
from tfjob.operator.arbiter import queues

PLURALS = {"clusterqueues", "localqueues", "resourceflavors", "cohorts", "queues"}


def serve(rig: Rig, *objects: Manifest, version: str = "v1beta2") -> None:
    rig.api.groups = {
        KUEUE: {"v1alpha1": ["cohorts"], version: ["clusterqueues", "localqueues", "resourceflavors", "workloads"]},
        VOLCANO: {"v1beta1": ["queues", "podgroups"]},
    }
    for one in objects:
        group, _, of_group = one["apiVersion"].partition("/")
        rig.api.put(Resource(one["kind"].lower() + "s", of_group, group), one)


def calls(rig: Rig) -> list[tuple[str, str]]:
    return [(verb, plural) for verb, plural, _ in rig.api.calls if plural in PLURALS or verb == "discover"]


def test_who_has_no_queues_is_asked_once_and_then_seldom(monkeypatch):
    async def scenario(rig: Rig) -> None:
        rig.put(node("n1", 8), in_kueue())
        arbiter = await rig.synced(rig.operator())
        for later in range(5):
            assert await arbiter.look(time.time() + later)
        assert calls(rig) == [("discover", KUEUE), ("discover", VOLCANO)]
        allowance = rig.allowance()
        assert allowance is not None and allowance.runs

    assert queues.ASK_SECONDS >= 300
    play(scenario)


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_queues_that_a_server_has_are_followed_and_limit_what_is_allowed(version: str):
    async def scenario(rig: Rig) -> None:
        serve(rig, local_queue(), cluster_queue(flavors={"f": {"cpu": "3"}}), flavor("f"), version=version)
        rig.put(node("n1", 32), in_kueue(workers=6, annotations={"max-workers": "6"}))
        arbiter = await rig.synced(rig.operator())
        assert ("list", "clusterqueues") in calls(rig) and ("list", "cohorts") not in calls(rig)
        assert await arbiter.look(time.time())
        allowance = rig.allowance()
        assert allowance is not None and (allowance.ps, allowance.workers) == (1, 1)
        rig.api.put(Resource("clusterqueues"), cluster_queue(flavors={"f": {"cpu": "6"}}))
        await rig.caught_up()
        (limit,) = arbiter.cluster(time.time()).quotas
        assert limit.free.cpu == 6.0 and limit.said == "ClusterQueue cq"
        asked = len(calls(rig))
        for later in range(5):
            await arbiter.look(time.time() + later)
        assert len(calls(rig)) == asked, "they are watched, and not asked for with each decision"

    play(scenario)


def test_a_volcano_job_is_in_the_queue_of_its_pod_group():
    async def scenario(rig: Rig) -> None:
        serve(rig, volcano_queue("night", capability={"cpu": "4"}), volcano_queue("day", capability={"cpu": "5"}))
        rig.put(node("n1", 32), in_volcano())
        arbiter = await rig.synced(rig.operator(scheduler="volcano"))
        assert [one.said for one in arbiter.cluster(time.time()).quotas] == ["queue night of Volcano"]
        arbiter._controller.pod_group = lambda key: {"spec": {"queue": "day"}}  # type: ignore[method-assign]
        assert [one.said for one in arbiter.cluster(time.time()).quotas] == ["queue day of Volcano"], "it was moved"

    play(scenario)


def test_queues_that_may_not_be_seen_are_told_once(caplog, monkeypatch):
    monkeypatch.setattr(queues, "ASK_SECONDS", 0.01)

    async def scenario(rig: Rig) -> None:
        serve(rig, local_queue(), cluster_queue(), version="v1beta2")
        rig.api.groups.pop(VOLCANO)
        rig.api.forbidden.add(("list", "clusterqueues"))
        rig.put(node("n1", 32), in_kueue())
        arbiter = await rig.synced(rig.operator())
        while calls(rig).count(("discover", KUEUE)) < 8:
            await asyncio.sleep(0.005)
        assert arbiter.cluster(time.time()).quotas == ()
        told = [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]
        assert len(told) == 1 and "Kueue is there" in told[0] and "components/arbiter/cluster-role.yaml" in told[0]
        rig.api.forbidden.clear()
        while not arbiter.cluster(time.time()).quotas:
            await asyncio.sleep(0.005)

    play(scenario)


def test_queues_that_come_later_are_found_and_those_that_go_limit_nothing_any_more(monkeypatch):
    monkeypatch.setattr(queues, "ASK_SECONDS", 0.01)

    async def scenario(rig: Rig) -> None:
        rig.put(node("n1", 32), in_kueue())
        arbiter = await rig.synced(rig.operator())
        assert arbiter.cluster(time.time()).quotas == ()
        serve(rig, local_queue(), cluster_queue())
        while not arbiter.cluster(time.time()).quotas:
            await asyncio.sleep(0.005)
        rig.api.gone.add("clusterqueues")
        rig.api.groups.clear()
        rig.api.break_watches()
        while arbiter.cluster(time.time()).quotas:
            await asyncio.sleep(0.005)
        assert ("list", PODS.plural, "") in rig.api.calls

    play(scenario)


def test_a_kueue_that_answers_with_errors_keeps_nobody_waiting_and_limits_nothing_until_it_does_not(monkeypatch):
    monkeypatch.setattr(queues, "AGAIN_SECONDS", 0.01)

    async def scenario(rig: Rig) -> None:
        serve(rig, local_queue(), cluster_queue())
        rig.put(node("n1", 32), in_kueue())
        broken, listed = [True], rig.api.list_all

        async def list_all(resource: Resource, *rest: Any, **more: Any) -> Any:
            if broken[0] and resource.group == KUEUE:
                raise ApiError(500, "InternalError", "conversion webhook failed")
            return await listed(resource, *rest, **more)

        monkeypatch.setattr(rig.api, "list_all", list_all)
        arbiter = rig.operator()
        await asyncio.wait_for(arbiter.watch.wait(), 10)
        assert arbiter.watch.synced and arbiter.cluster(time.time()).quotas == ()
        broken[0] = False
        while not arbiter.cluster(time.time()).quotas:
            await asyncio.sleep(0.005)

    play(scenario)


def test_a_kind_that_goes_while_its_queues_are_listed_keeps_nobody_waiting(monkeypatch):
    async def scenario(rig: Rig) -> None:
        serve(rig, local_queue(), cluster_queue())
        rig.put(node("n1", 32), in_kueue())
        follow = queues.follow

        async def gone(api: Any, resource: Resource, *rest: Any, **more: Any) -> None:
            if resource.group != KUEUE:
                await follow(api, resource, *rest, **more)
            await asyncio.sleep(0.05 if resource.plural == "clusterqueues" else 60)
            raise NotFoundError(404, "NotFound", "the server could not find the requested resource")

        monkeypatch.setattr(queues, "follow", gone)
        arbiter = rig.operator()
        await asyncio.wait_for(arbiter.watch.wait(), 10)
        assert arbiter.watch.synced and arbiter.cluster(time.time()).quotas == ()

    play(scenario)
