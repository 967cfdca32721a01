"""Wrong pod templates, asked of a real API server that has our CRD: it refuses what `submit --dry-run` tells."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable

import pytest

from tests.cluster.kube import TFJOB
from tests.unit.tfjob.wrong_templates import ISSUE, KEYS, TYPES, changed
from tfjob.api.client import Api, ApiError
from tfjob.model.kinds import TFJOBS, Manifest

pytestmark = [pytest.mark.usefixtures("crd"), pytest.mark.slow]
Conversation = Callable[[Api, str], Awaitable[None]]


async def tried(api: Api, namespace: str, body: Manifest) -> Manifest | ApiError:
    try:
        return await api.request("POST", TFJOBS.path(namespace), body, query={"dryRun": "All"})
    except ApiError as error:
        return error


def test_the_server_refuses_every_wrong_template(play: Callable[[Conversation], None]) -> None:
    async def scenario(api: Api, namespace: str) -> None:
        assert isinstance(await tried(api, namespace, copy.deepcopy(TFJOB)), dict)
        taken = {}
        for wrong in (*ISSUE, *TYPES):
            answer = await tried(api, namespace, changed(TFJOB, wrong))
            if not isinstance(answer, ApiError) or answer.status not in (400, 422):
                taken[wrong.name] = answer
        assert not taken

    play(scenario)


def test_what_says_nothing_is_taken_as_in_a_pod(play: Callable[[Conversation], None]) -> None:
    """null, where a list, an object, a number or one of several words may stand; and what we leave out is filled in."""

    async def scenario(api: Api, namespace: str) -> None:
        job = copy.deepcopy(TFJOB)
        template = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]
        template["metadata"] = {"creationTimestamp": None, "labels": None, "finalizers": ["a.b/c"]}
        template["spec"] |= {
            "volumes": None,
            "nodeSelector": None,
            "dnsPolicy": None,
            "priority": None,
            "affinity": None,
        }
        template["spec"]["containers"][0] |= {
            "args": None, "imagePullPolicy": None, "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": 1}},
        }  # fmt: skip
        answer = await tried(api, namespace, job)
        assert isinstance(answer, dict), answer
        made = answer["spec"]["tfReplicaSpecs"]["Worker"]["template"]
        assert made["spec"]["containers"][0]["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
        assert made["metadata"]["finalizers"] == ["a.b/c"]

    play(scenario)


def test_and_drops_keys_that_it_does_not_know(play: Callable[[Conversation], None]) -> None:
    """So they are told by `submit` alone."""

    async def scenario(api: Api, namespace: str) -> None:
        for wrong in KEYS:
            answer = await tried(api, namespace, changed(TFJOB, wrong))
            assert isinstance(answer, dict), f"{wrong.name}: {answer}"
            assert f"'{wrong.name}'" not in str(answer["spec"]), wrong.name

    play(scenario)
