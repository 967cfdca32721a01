"""An operator with Roles in some namespaces: each is watched by itself, and what is missing is said once, with the rule."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.operator import TFJOB
from tests.unit.aimaster.kubernetes.fake_api import FakeApi
from tests.unit.tfjob_manifests.building import MANIFESTS
from tfjob.api.client import ForbiddenError
from tfjob.model.events import MESSAGE_MAX
from tfjob.model.kinds import (
    EVENTS,
    LEASES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    SCALE_INS,
    SCALE_OUTS,
    SERVICES,
    TFJOBS,
    TRAINING_JOBS,
    Manifest,
    Resource,
)  # fmt: skip
from tfjob.operator.controller import Controller
from tfjob.operator.leader import Leader
from tfjob.operator.sight import EVERYWHERE, Missing, Right
from tfjob.operator.web import metrics
from tfjob.operator.webhook import CONFIGURATIONS
from tfjob.pods import gang
from tfjob.reconciling.observed import Options


class Namespaced(FakeApi):
    """Asked for a namespace it answers of that one, and it refuses rights there."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: set[tuple[str, str, str | None]] = set()  # verb, plural, namespace
        self.asked: list[tuple[str, str, str | None]] = []

    def _check(self, verb: str, resource: Resource, namespace: str | None) -> None:
        self.asked.append((verb, resource.plural, namespace))
        if (verb, resource.plural, namespace) in self.refused:
            where = f' in the namespace "{namespace}"' if namespace else " at the cluster scope"
            text = f'User "op" cannot {verb} resource "{resource.plural}" in API group "{resource.group}"{where}'
            raise ForbiddenError(403, "Forbidden", f"{resource.plural} is forbidden: {text}")

    async def list_all(
        self, resource: Resource, namespace: str | None, *, labels: str = "", fields: str = "", shrink: Any = None
    ) -> tuple[list[Any], str]:
        self._check("list", resource, namespace)
        found, version = await super().list_all(resource, namespace, labels=labels, fields=fields)
        kept = [one for one in found if namespace in (None, one["metadata"].get("namespace"))]
        return [shrink(one) if shrink else one for one in kept], version

    async def watch(
        self, resource: Resource, namespace: str | None, version: str, **how: Any
    ) -> AsyncIterator[tuple[str, Manifest]]:
        self._check("watch", resource, namespace)
        async for kind, one in super().watch(resource, namespace, version, **how):
            if namespace in (None, one["metadata"].get("namespace")):
                yield kind, one

    async def create(self, resource: Resource, namespace: str | None, body: Manifest) -> Manifest:
        self._check("create", resource, namespace)
        return await super().create(resource, namespace, body)

    def job(self, namespace: str) -> None:
        """Its name is that of its namespace."""
        self.put(TFJOBS, {**TFJOB, "metadata": {"name": namespace, "namespace": namespace}})

    def pods(self) -> set[str]:
        return {name.partition("-")[0] for name in self.names(PODS)}


async def no_aimaster(*_: Any) -> None:
    raise AssertionError("no job here is elastic")


async def until(condition: Callable[[], bool], what: str) -> None:
    for _ in range(5000):
        if condition():
            return
        await asyncio.sleep(0.002)
    pytest.fail(f"never: {what}")


def play(api: Namespaced, namespaces: tuple[str, ...], scenario: Callable[[Controller], Awaitable[None]]) -> None:
    async def main() -> None:
        controller = Controller(api, Options(), namespaces, no_aimaster)  # type: ignore[arg-type]
        tasks = [asyncio.ensure_future(controller.watch()), asyncio.ensure_future(controller.act())]
        try:
            await asyncio.wait_for(scenario(controller), 30)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            controller.queue.close()

    asyncio.run(main())


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Namespaced:
    monkeypatch.setattr("tfjob.api.watching.PAUSE_SECONDS", 0.01)
    monkeypatch.setattr("tfjob.api.watching.PAUSE_MAX_SECONDS", 0.02)
    return Namespaced()


def said(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    return [one.getMessage() for one in caplog.records if words in one.getMessage()]


def figures(controller: Controller) -> dict[tuple[str, ...], float]:
    """The metric of missing rights: namespace, resource and verb."""
    return {
        (sample.labels["job_namespace"], sample.labels["resource"], sample.labels["verb"]): sample.value
        for family in text_string_to_metric_families(metrics(controller).decode())
        for sample in family.samples if sample.name == "deeprec_operator_missing_rights"
    }  # fmt: skip


def test_jobs_of_several_namespaces_are_run_and_no_others_and_nothing_is_asked_of_the_whole_cluster(api: Namespaced):
    for namespace in ("ads", "web", "lab"):
        api.job(namespace)

    async def scenario(controller: Controller) -> None:
        await until(lambda: api.pods() == {"ads", "web"}, "pods of both")
        assert controller.synced and set(controller.jobs) == {("ads", "ads"), ("web", "web")}
        api.vanish(TFJOBS, "ads")
        api.compact()  # both list again
        await until(lambda: ("ads", "ads") not in controller.jobs, "the job is forgotten")
        assert ("web", "web") in controller.jobs, "a list of one namespace says nothing of another"
        assert {namespace for _, _, namespace in api.asked} == {"ads", "web"}
        assert not controller.missing.told()

    play(api, ("ads", "web"), scenario)


@pytest.mark.parametrize("resource", [TFJOBS, PODS, SERVICES], ids=lambda one: one.plural)
@pytest.mark.parametrize("verb", ["list", "watch"])
def test_where_a_right_is_missing_the_others_go_on_it_is_said_once_and_once_it_is_given_jobs_are_run_there(
    api: Namespaced, caplog: pytest.LogCaptureFixture, resource: Resource, verb: str
):
    caplog.set_level(logging.INFO)
    for namespace in ("ads", "web"):
        api.job(namespace)
    api.refused.add((verb, resource.plural, "web"))

    async def scenario(controller: Controller) -> None:
        await until(lambda: api.pods() == {"ads"}, "pods where all may be seen")
        again = api.asked.count((verb, resource.plural, "web")) + 5
        await until(lambda: api.asked.count((verb, resource.plural, "web")) >= again, "it is asked again and again")
        (told,) = controller.missing.told()
        assert f"may not {verb} {resource.plural} in namespace web" in told
        rule = f"[{resource.group or chr(34) * 2}], resources: [{resource.plural}], verbs: [{verb}]"
        assert rule in told and "overlays/one-namespace/role.yaml" in told
        assert len(said(caplog, "may not")) == 1 and not said(caplog, "cannot be watched")
        assert controller.synced, "it serves the other namespace"
        assert figures(controller) == {("web", resource.plural, verb): 1}
        if resource != TFJOBS or verb == "watch":  # else it knows no job there
            await until(lambda: bool(api.told()), "the job's Event")
            (event,) = [one for one in api.told() if one[1] == "Forbidden"]
            assert told in event[2]
        assert api.pods() == {"ads"}

        api.refused.clear()
        api.speak()
        await until(lambda: bool(said(caplog, "is missing no more")) or verb == "watch", "the right is there")
        if verb == "watch":  # the server says so when it has something to say
            await until(lambda: ("web", "web") in controller.jobs, "the job is known")
            api.change(TFJOBS, "web", {"metadata": {"labels": {"a": "b"}}})
            other = {PODS: "pods", SERVICES: "services"}.get(resource)
            if other:
                api.put(
                    resource,
                    {
                        "metadata": {
                            "name": "other",
                            "namespace": "web",
                            "labels": {"training.kubeflow.org/job-name": "x"},
                        }
                    },
                )
        await until(lambda: "web" in api.pods(), "pods there as well")
        assert not controller.missing.told()
        assert not figures(controller)

    play(api, ("ads", "web"), scenario)


def test_without_a_right_in_any_namespace_it_is_not_ready_and_takes_no_lead(api: Namespaced):
    api.refused |= {("list", "tfjobs", "ads"), ("list", "tfjobs", "web")}

    async def scenario(controller: Controller) -> None:
        await until(lambda: len(controller.missing.told()) == 2, "both are said")
        assert not controller.synced and not controller.listed.is_set()
        api.refused.discard(("list", "tfjobs", "web"))
        await until(lambda: controller.synced, "it is ready with one of them")

    play(api, ("ads", "web"), scenario)


def test_events_that_may_not_be_written_stop_no_job_and_are_said_once(
    api: Namespaced, caplog: pytest.LogCaptureFixture
):
    api.job("ads")
    api.refused.add(("create", "events", "ads"))

    async def scenario(controller: Controller) -> None:
        await until(lambda: len(api.names(PODS)) > 1, "pods")
        await until(lambda: bool(controller.missing.told()), "it is said")
        await asyncio.sleep(0.1)
        assert len(said(caplog, "create events in namespace ads")) == 1 and not said(caplog, "was not written")

    play(api, ("ads",), scenario)


def test_a_lease_that_may_not_be_read_is_said_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tfjob.operator.leader.RETRY_SECONDS", 0.01)
    api, missing = FakeApi(), Missing()
    api.forbidden.add(("get", LEASES.plural))

    async def main() -> None:
        leader = Leader(api, "ads", "operator", "me", missing=missing)  # type: ignore[arg-type]
        waiting = asyncio.ensure_future(leader.wait())
        await until(lambda: api.count("get", LEASES) > 5, "it tries again")
        (told,) = missing.told()
        assert "may not get leases in namespace ads: no lease, no leader" in told and "base/role.yaml" in told
        assert len(said(caplog, "leases")) == 1
        api.forbidden.clear()
        await asyncio.wait_for(waiting, 10)
        assert not missing.told()

    asyncio.run(main())


POD_GROUPS = gang.resource("volcano")
RIGHTS = [
    *(Right(namespace, resource, verb) for namespace in ("", "ads") for verb in ("list", "watch")
      for resource in (TFJOBS, PODS, SERVICES, POD_GROUPS, TRAINING_JOBS, SCALE_OUTS, SCALE_INS, RESOURCE_QUOTAS)),
    *(Right("", resource, verb) for resource in (NODES, PRIORITY_CLASSES) for verb in ("list", "watch")),
    *(Right(namespace, EVENTS, "create") for namespace in ("", "ads")), Right("", PRIORITY_CLASSES, "get"),
    *(Right("ops", LEASES, verb) for verb in ("get", "create", "update")),
    *(Right("", CONFIGURATIONS, verb) for verb in ("get", "patch")),
]  # fmt: skip


@pytest.mark.parametrize(
    "right", RIGHTS, ids=lambda one: "-".join([one.namespace or "all", one.verb, one.resource.plural])
)
def test_the_manifest_that_is_named_gives_the_right_and_an_event_can_tell_it(right: Right):
    assert yaml.safe_load(right.rule) == [
        {"apiGroups": [right.resource.group], "resources": [right.resource.plural], "verbs": [right.verb]}
    ]
    wanted = "Role" if right.namespace else "ClusterRole"
    documents = yaml.safe_load_all((MANIFESTS.parents[1] / right.manifest).read_text())
    given = {
        (group, plural, verb)
        for one in documents if one["kind"] == wanted
        for rule in one["rules"] for group in rule["apiGroups"] for plural in rule["resources"] for verb in rule["verbs"]
    }  # fmt: skip
    assert (right.resource.group, right.resource.plural, right.verb) in given
    assert len(right.told) < MESSAGE_MAX / 2


def test_of_the_whole_cluster_there_is_one_watch_of_each_kind(api: Namespaced):
    api.job("ads")

    async def scenario(controller: Controller) -> None:
        await until(lambda: api.pods() == {"ads"}, "pods")
        assert {namespace for verb, _, namespace in api.asked if verb == "watch"} == {None}
        assert not figures(controller)

    play(api, EVERYWHERE, scenario)  # type: ignore[arg-type]
