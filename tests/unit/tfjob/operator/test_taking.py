"""The ET operator's kinds on an API server in memory: what was decided is carried out, missing kinds are waited for."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.unit.aimaster.kubernetes.fake_api import NAMESPACE, FakeApi, merged
from tests.unit.tfjob.reconciling.test_et import EXAMPLE, into, out
from tfjob.api import client
from tfjob.model import names
from tfjob.model.kinds import SCALE_INS, SCALE_OUTS, TFJOBS, TRAINING_JOBS, Manifest, Resource
from tfjob.operator.controller import Controller
from tfjob.operator.et import taking
from tfjob.operator.sight import EVERYWHERE
from tfjob.reconciling.observed import Options

KEY = (NAMESPACE, "elastic-training")


class Server(FakeApi):
    """That need not know every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds = {TRAINING_JOBS.plural, SCALE_OUTS.plural, SCALE_INS.plural}

    async def request(self, method: str, path: str, **_: Any) -> Manifest:
        if path.rpartition("/")[2] not in self.kinds:
            raise client.NotFoundError(404, "NotFound", "the server could not find the requested resource")
        return {}

    async def list_all(self, resource: Resource, namespace: str | None, **how: Any) -> tuple[list[Manifest], str]:
        assert resource.group != TRAINING_JOBS.group or resource.plural in self.kinds, "asked for what there is not"
        return await super().list_all(resource, namespace, **how)


class Rig:
    def __init__(self) -> None:
        self.api = Server()

        async def no_aimaster(*_: object) -> None:
            pass

        self.new_operator = lambda: Controller(self.api, Options(), EVERYWHERE, no_aimaster)  # type: ignore[arg-type]

    @contextlib.asynccontextmanager
    async def operator(self) -> Any:
        controller = self.new_operator()
        taken = taking.Taking(self.api, controller, EVERYWHERE)  # type: ignore[arg-type]
        tasks = [asyncio.ensure_future(one) for one in (controller.watch(), taken.watch())]
        await controller.listed.wait()
        tasks.append(asyncio.ensure_future(taken.act()))
        try:
            yield taken
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            controller.queue.close()
            taken.queue.close()

    def put(self, resource: Resource, body: Manifest) -> None:
        body = copy.deepcopy(body)
        body["metadata"]["namespace"] = NAMESPACE
        body["metadata"].pop("resourceVersion", None)
        self.api.put(resource, body)

    def runs(self, count: int, status: bool = True) -> None:
        """The AIMaster says so."""
        note = {names.SCALED_TO_ANNOTATION: json.dumps({"Worker": count})}
        job = self.api.objects["tfjobs", KEY[1]]
        running = {"conditions": [{"type": "Running", "status": "True"}]}
        self.api._store(TFJOBS, KEY[1], merged(job, {"metadata": {"annotations": note}, "status": running}), "MODIFIED")

    def job(self) -> Manifest:
        return self.api.objects["tfjobs", KEY[1]]

    def phase(self, plural: str, name: str) -> str:
        return (self.api.objects[plural, name].get("status") or {}).get("phase", "")

    def writes(self) -> int:
        return sum(verb not in ("get", "list", "watch") for verb, _, _ in self.api.calls)


async def until(what: Callable[[], Any]) -> None:
    for _ in range(1000):
        with contextlib.suppress(KeyError):
            if what():
                return
        await asyncio.sleep(0.005)
    raise AssertionError("it never comes")


def play(scenario: Callable[[Rig], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(Rig()), 20))


def test_a_training_job_is_run_and_scaled_and_the_next_operator_finds_nothing_to_do() -> None:
    async def scenario(rig: Rig) -> None:
        async with rig.operator():
            rig.put(TRAINING_JOBS, EXAMPLE)
            await until(lambda: rig.phase("trainingjobs", KEY[1]) == "Created" and rig.job())
            rig.runs(2)
            await until(lambda: rig.phase("trainingjobs", KEY[1]) == "Running")
            rig.put(SCALE_OUTS, out(1))
            await until(lambda: rig.phase("scaleouts", "s") == "Scaling")
            await until(lambda: rig.job()["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] == 3)
            assert rig.phase("trainingjobs", KEY[1]) == "Scaling"
        rig.runs(3)  # while nobody is there
        async with rig.operator():
            await until(lambda: rig.phase("scaleouts", "s") == "ScaleSucceeded")
            await until(lambda: rig.phase("trainingjobs", KEY[1]) == "Running")
            [owner] = rig.api.objects["scaleouts", "s"]["metadata"]["ownerReferences"]
            assert owner["kind"] == "TrainingJob" and owner["name"] == KEY[1]
            about = [
                one["involvedObject"]["kind"] for (plural, _), one in rig.api.objects.items() if plural == "events"
            ]
            assert about == ["ScaleOut"]
        before = rig.writes()
        async with rig.operator() as taken:
            await until(lambda: taken.named(KEY).training_job)
            await asyncio.sleep(0.1)
        assert rig.writes() == before and rig.job()["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] == 3

    play(scenario)


def test_kinds_that_are_not_installed_keep_the_others_from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taking, "KIND_SECONDS", 0.01)

    async def scenario(rig: Rig) -> None:
        rig.api.kinds = {SCALE_INS.plural}
        specs = {"Worker": {"replicas": 3, "template": EXAMPLE["spec"]["etReplicaSpecs"]["worker"]["template"]}}
        specs = json.loads(json.dumps(specs).replace('"name": "training"', '"name": "tensorflow"'))
        prefix = names.ANNOTATION_PREFIX
        given = {f"{prefix}enabled": "true", f"{prefix}strategy": "allreduce"}
        rig.put(TFJOBS, {"metadata": {"name": KEY[1], "annotations": given}, "spec": {"tfReplicaSpecs": specs}})
        rig.runs(3)
        async with rig.operator():
            rig.put(SCALE_INS, into(count=1))
            await until(lambda: rig.job()["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] == 2)
            assert rig.phase("scaleins", "s") == "Scaling"
            rig.runs(2)
            await until(lambda: rig.phase("scaleins", "s") == "ScaleSucceeded")
            rig.put(TRAINING_JOBS, {**EXAMPLE, "metadata": {"name": "later"}})
            rig.api.kinds.add(TRAINING_JOBS.plural)  # somebody installs it
            await until(lambda: rig.phase("trainingjobs", "later") == "Created")

    play(scenario)


def test_a_tfjob_that_the_server_will_never_take_fails_its_training_job_with_what_the_server_says() -> None:
    async def scenario(rig: Rig) -> None:
        create = rig.api.create

        async def refusing(resource: Resource, namespace: str | None, body: Manifest) -> Manifest:
            if resource is TFJOBS:
                raise client.ApiError(422, "Invalid", "admission webhook denied the request: no")
            return await create(resource, namespace, body)

        rig.api.create = refusing  # type: ignore[method-assign]
        async with rig.operator():
            rig.put(TRAINING_JOBS, EXAMPLE)
            await until(lambda: rig.phase("trainingjobs", KEY[1]) == "Failed")
            await until(
                lambda: [one for one in rig.api.told() if one[1] == "TrainingJobRefused" and "denied" in one[2]]
            )

    play(scenario)


def test_rights_that_are_missing_are_told() -> None:
    async def scenario(rig: Rig) -> None:
        rig.api.forbidden.add(("create", "tfjobs"))
        async with rig.operator():
            rig.put(TRAINING_JOBS, EXAMPLE)
            await until(lambda: [one for one in rig.api.told() if one[1] == "Forbidden"])

    play(scenario)


def test_where_one_of_the_kinds_may_not_be_seen_nothing_is_done_and_everything_once_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tfjob.api.watching.PAUSE_MAX_SECONDS", 0.02)
    monkeypatch.setattr("tfjob.api.watching.PAUSE_SECONDS", 0.01)

    async def scenario(rig: Rig) -> None:
        rig.api.forbidden.add(("list", SCALE_OUTS.plural))
        async with rig.operator() as taken:
            rig.put(TRAINING_JOBS, EXAMPLE)
            await until(lambda: taken.named(KEY).training_job)
            await until(lambda: not len(taken.queue))
            assert ("tfjobs", KEY[1]) not in rig.api.objects
            [told] = taken._controller.missing.told()
            assert "may not list scaleouts" in told and "components/et/cluster-role.yaml" in told
            rig.api.forbidden.clear()
            await until(rig.job)
            assert not taken._controller.missing.told()

    play(scenario)
