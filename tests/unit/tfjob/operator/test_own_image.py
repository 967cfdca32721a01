"""The operator gives its own image to what it makes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from deeprec_ext.errors import UsageError
from tfjob.api.client import NotFoundError
from tfjob.operator.own_image import own_image


class OnePod:
    """An API server that has one pod."""

    def __init__(self, *containers: dict[str, str]) -> None:
        self._pod = {"spec": {"containers": list(containers)}}

    async def get(self, resource: Any, namespace: str, name: str) -> dict[str, Any]:
        if (resource.plural, namespace, name) != ("pods", "deeprec-ext", "operator-1"):
            raise NotFoundError(404, "NotFound", f'pods "{name}" not found')
        return self._pod


def found(api: Any, pod: str = "operator-1") -> str:
    return asyncio.run(own_image(api, "deeprec-ext", pod))


def test_it_is_that_of_the_container_operator():
    assert found(OnePod({"name": "proxy", "image": "p:1"}, {"name": "operator", "image": "r/d:2"})) == "r/d:2"


@pytest.mark.parametrize("api, pod, text", [
    (OnePod(), "laptop", 'give --package-image .*"laptop" not found'),
    (OnePod({"name": "main", "image": "x"}), "operator-1", "no container operator: give --package-image"),
])  # fmt: skip
def test_elsewhere_it_has_to_be_said(api: Any, pod: str, text: str):
    with pytest.raises(UsageError, match=text):
        found(api, pod)
