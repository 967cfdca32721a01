"""The wish for spot nodes, taken out of a pod."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tfjob.pods import spot

KEY, VALUE = "cloud.example/spot", "true"
WANTS = {"key": KEY, "operator": "In", "values": [VALUE]}
ZONE = {"key": "zone", "operator": "In", "values": ["a"]}


def required(*terms: list[dict[str, Any]]) -> dict[str, Any]:
    found = {spot.REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": list(term)} for term in terms]}}
    return {"affinity": {"nodeAffinity": found}}


def preferred(*expressions: dict[str, Any]) -> dict[str, Any]:
    wish = {"weight": 1, "preference": {"matchExpressions": list(expressions)}}
    return {"affinity": {"nodeAffinity": {spot.PREFERRED: [wish]}}}


@pytest.mark.parametrize(
    ("spec", "left"),
    [
        ({"nodeSelector": {KEY: VALUE}}, {}),
        ({"nodeSelector": {KEY: VALUE, "disk": "ssd"}}, {"nodeSelector": {"disk": "ssd"}}),
        ({"nodeSelector": {KEY: "false"}}, None),
        ({"tolerations": [{"key": KEY, "operator": "Exists"}, {"key": "gpu"}]}, {"tolerations": [{"key": "gpu"}]}),
        ({"tolerations": [{"key": KEY, "value": VALUE, "effect": "NoSchedule"}]}, {}),
        ({"tolerations": [{"operator": "Exists"}, {"key": KEY, "value": "no"}]}, None),
        (required([WANTS]), {}),
        (required([WANTS, ZONE]), required([ZONE])),
        (required([WANTS], [ZONE]), {}),  # terms are alternatives, and one of them asks for nothing any more
        (required([{**WANTS, "operator": "NotIn"}]), None),
        (required([{"key": KEY, "operator": "Exists"}, ZONE]), required([ZONE])),
        (preferred(WANTS), {}),
        (preferred(WANTS, ZONE), preferred(ZONE)),
        ({}, None),
    ],
)
def test_nothing_else_of_the_pod_changes(spec: dict[str, Any], left: dict[str, Any] | None) -> None:
    pod = {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "tensorflow"}], **spec}}
    before = copy.deepcopy(pod)
    wanted = spec if left is None else left
    assert spot.without(pod, KEY, VALUE) == {**pod, "spec": {"containers": pod["spec"]["containers"], **wanted}}
    assert spot.asks_for(pod, KEY, VALUE) == (left is not None) and pod == before
