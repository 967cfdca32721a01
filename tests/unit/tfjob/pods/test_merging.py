"""A part of a pod laid over a whole one."""

from __future__ import annotations

from typing import Any

import pytest

from tfjob.pods.merging import merged


@pytest.mark.parametrize("base, patch, result", [
    pytest.param({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}}, {"a": {"b": 1, "c": 3}}, id="mappings by key"),
    pytest.param({"a": 1, "b": 2}, {"a": None}, {"b": 2}, id="null removes"),
    pytest.param({"command": ["a", "b"]}, {"command": ["c"]}, {"command": ["c"]}, id="plain lists are replaced"),
    pytest.param({"containers": [{"name": "x", "image": "1"}, {"name": "y"}]}, {"containers": [{"name": "x", "tty": True}]},
                 {"containers": [{"name": "x", "image": "1", "tty": True}, {"name": "y"}]}, id="named things by name"),
    pytest.param({"volumes": [{"name": "a"}]}, {"volumes": [{"name": "b"}]}, {"volumes": [{"name": "a"}, {"name": "b"}]},
                 id="others are added"),
    pytest.param({"volumeMounts": [{"name": "v", "mountPath": "/a"}]}, {"volumeMounts": [{"name": "v", "mountPath": "/b"}]},
                 {"volumeMounts": [{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/b"}]}, id="mounts by path"),
    pytest.param({}, {"tolerations": [{"key": "spot", "operator": "Exists"}]},
                 {"tolerations": [{"key": "spot", "operator": "Exists"}]}, id="what was not there"),
    pytest.param({"a": 1}, {}, {"a": 1}, id="nothing"),
])  # fmt: skip
def test_a_part_is_laid_over_the_whole(base: Any, patch: Any, result: Any):
    assert merged(base, patch) == result
