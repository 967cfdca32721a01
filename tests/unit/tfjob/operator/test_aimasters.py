"""An elastic job gets its AIMaster and what that needs: once, and again when the pod has gone."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
from collections.abc import Awaitable, Callable

import pytest

from benchmarks.operator import TFJOB
from deeprec_ext.errors import UsageError
from tests.unit.aimaster.kubernetes.fake_api import NAMESPACE, FakeApi
from tfjob.api.client import NotFoundError
from tfjob.model import annotations
from tfjob.model.annotations import Elastic
from tfjob.model.kinds import PODS, SECRETS, Manifest
from tfjob.model.spec import TFJob
from tfjob.operator.aimasters import BUDGETS, AIMasters
from tfjob.pods.aimaster import Options

JOB: Manifest = {**TFJOB, "metadata": {
    "name": "job", "namespace": NAMESPACE, "uid": "uid-1", "annotations": {"aimaster.deeprec.io/enabled": "true"},
}}  # fmt: skip


class Server(FakeApi):
    def __init__(self, budgets: bool) -> None:
        super().__init__()
        self.budgets = budgets

    async def request(self, method: str, path: str) -> Manifest:
        if path != "/apis/policy/v1" or not self.budgets:
            raise NotFoundError(404, "NotFound", path)
        return {}

    def kinds(self) -> list[str]:
        return sorted(one["kind"] for one in self.objects.values())


def elastic() -> Elastic:
    found, _ = annotations.parse(TFJob.parse(JOB))
    assert found is not None
    return found


def play(scenario: Callable[[Server, AIMasters], Awaitable[None]], *, budgets: bool = True, image: str = "i:1") -> None:
    async def main() -> None:
        server = Server(budgets)
        await scenario(server, AIMasters(server, Options(image)))  # type: ignore[arg-type]

    asyncio.run(main())


@pytest.mark.parametrize("budgets", [True, False])
def test_everything_is_made_once(budgets: bool) -> None:
    async def scenario(server: Server, aimasters: AIMasters) -> None:
        await aimasters.ensure(JOB, elastic(), ())
        made = server.kinds()
        assert {"Pod", "Service", "Secret", "Role", "RoleBinding", "ServiceAccount", "NetworkPolicy"} <= set(made)
        assert ("PodDisruptionBudget" in made) == budgets
        pod = server.objects[PODS.plural, "job-aimaster"]
        calls = len(server.calls)
        await aimasters.ensure(JOB, elastic(), [pod])
        assert len(server.calls) == calls  # nothing was even looked at

    play(scenario, budgets=budgets)


def test_a_pod_that_has_gone_is_made_again_and_the_certificates_stay() -> None:
    async def scenario(server: Server, aimasters: AIMasters) -> None:
        await aimasters.ensure(JOB, elastic(), ())
        secret = copy.deepcopy(server.objects[SECRETS.plural, "job-aimaster-certs"])
        server.vanish(PODS, "job-aimaster")
        await aimasters.ensure(JOB, elastic(), ())
        assert "job-aimaster" in server.names(PODS)
        assert server.objects[SECRETS.plural, "job-aimaster-certs"] == secret

    play(scenario)


def test_the_budget_follows_the_number_of_ps() -> None:
    async def scenario(server: Server, aimasters: AIMasters) -> None:
        await aimasters.ensure(JOB, elastic(), ())
        pod, name = server.objects[PODS.plural, "job-aimaster"], (BUDGETS.plural, "job-ps")
        assert server.objects[name]["spec"]["minAvailable"] == 2
        grown = dataclasses.replace(elastic(), ps=5)
        await aimasters.ensure(JOB, grown, [pod])
        assert server.objects[name]["spec"]["minAvailable"] == 4
        calls = len(server.calls)
        await aimasters.ensure(JOB, grown, [pod])
        assert len(server.calls) == calls
        another = AIMasters(server, Options("i:1"))  # type: ignore[arg-type]
        await another.ensure(JOB, grown, [pod])  # its first look, which finds everything as it should be
        assert server.count("patch", BUDGETS) == 1
        await another.ensure(JOB, elastic(), [pod])
        assert server.objects[name]["spec"]["minAvailable"] == 2

    play(scenario)


def test_what_a_deleted_job_of_the_same_name_has_left_is_not_taken_over() -> None:
    async def scenario(server: Server, aimasters: AIMasters) -> None:
        await aimasters.ensure(JOB, elastic(), ())
        again = {**JOB, "metadata": {**JOB["metadata"], "uid": "uid-2"}}
        with pytest.raises(UsageError, match="in the way"):
            await aimasters.ensure(again, elastic(), ())

    play(scenario)


def test_without_an_image_the_message_says_which_flag() -> None:
    async def scenario(server: Server, aimasters: AIMasters) -> None:
        with pytest.raises(UsageError, match="--image"):
            await aimasters.ensure(JOB, elastic(), ())

    play(scenario, image="")


def test_a_secret_of_an_earlier_operator_is_named_with_what_it_lacks_and_left_as_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(server: Server, aimasters: AIMasters) -> None:
        await aimasters.ensure(JOB, elastic(), ())
        assert "of an earlier operator" not in caplog.text
        secret = server.objects[SECRETS.plural, "job-aimaster-certs"]
        for name in ("chief.pem", "chief-key.pem"):
            del secret["data"][name]
        before = copy.deepcopy(secret)
        await aimasters.ensure(JOB, elastic(), ())  # its pod is missing: all is looked at again
        assert "Secret job-aimaster-certs is of an earlier operator and lacks chief-key.pem, chief.pem" in caplog.text
        assert server.objects[SECRETS.plural, "job-aimaster-certs"] == before

    play(scenario)
