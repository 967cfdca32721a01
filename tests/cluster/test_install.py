"""What `kubectl apply -k` and Helm install, asked of a real API server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.unit.tfjob_manifests.building import EVERY_OVERLAY, MANIFESTS, kustomized
from tfjob.api.client import Api, ApiError, ConflictError
from tfjob.model.kinds import Manifest, Resource

pytestmark = [pytest.mark.usefixtures("crd"), pytest.mark.slow]


def resource_of(manifest: Manifest) -> Resource:
    group, _, version = manifest["apiVersion"].rpartition("/")
    plural = manifest["kind"].lower()
    return Resource(plural[:-1] + "ies" if plural.endswith("y") else plural + "s", version, group)


@pytest.mark.parametrize("what", [*(f"overlays/{name}" for name in EVERY_OVERLAY), "components/history"])
def test_the_server_takes_all_of_it(what: str, play: Callable[[Callable[[Api, str], Awaitable[None]]], None]) -> None:
    """By a dry run, and in a namespace of this test: in the cluster that KUBECONFIG names it may be installed."""

    async def scenario(api: Api, namespace: str) -> None:
        refused = {}
        for (kind, name), manifest in kustomized(MANIFESTS / what).items():
            metadata = manifest["metadata"]
            if "namespace" in metadata:
                metadata["namespace"] = namespace
            path = resource_of(manifest).path(metadata.get("namespace"))
            try:
                await api.request("POST", path, manifest, query={"dryRun": "All"})
            except ConflictError:  # there already; so is the kind TFJob in these tests
                continue
            except ApiError as error:
                refused[kind, name] = str(error)
        assert not refused

    play(scenario)
