"""The CRD: what users see of it, and that its schema is structural (TFJOB.md, Identity)."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import tfjob
from tests.unit.tfjob.world import manifest, running
from tfjob.model import names, spec, templates

CRD = yaml.safe_load((Path(tfjob.__file__).parent / "manifests" / "crd" / "crd.yaml").read_text())
VERSION = CRD["spec"]["versions"][0]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]
KEYWORDS = {
    "type", "format", "description", "properties", "required", "items", "additionalProperties", "default", "anyOf",
    "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string", "nullable", "pattern", "minLength", "maxLength",
    "minimum", "maximum", "enum", "x-kubernetes-list-type", "x-kubernetes-list-map-keys",
}  # fmt: skip
TYPES = {"object", "array", "string", "integer", "boolean", "number"}


def test_identity() -> None:
    assert CRD["metadata"]["name"] == f"{names.PLURAL}.{names.GROUP}" and CRD["spec"]["scope"] == "Namespaced"
    assert CRD["spec"]["names"] == {"kind": "TFJob", "listKind": "TFJobList", "plural": "tfjobs", "singular": "tfjob"}
    assert (VERSION["name"], VERSION["served"], VERSION["storage"]) == ("v1", True, True)
    assert set(VERSION["subresources"]) == {"status", "scale"}


def test_kubectl_scale_changes_what_a_user_would_and_reads_what_we_write() -> None:
    paths = VERSION["subresources"]["scale"]
    job = running(manifest({"PS": 1, "Worker": 2})).manifest
    found = {}
    for key, path in paths.items():
        value = job
        for part in path.split(".")[1:]:
            value = value[part]
        found[key] = value
    assert (found["specReplicasPath"], found["statusReplicasPath"]) == (2, 2)
    assert found["labelSelectorPath"] == names.selector("mnist", "Worker")


def test_printer_columns() -> None:
    columns = [(one["name"], one["type"], one["jsonPath"]) for one in VERSION["additionalPrinterColumns"]]
    assert columns == [
        ("State", "string", ".status.conditions[-1:].type"), ("Age", "date", ".metadata.creationTimestamp"),
    ]  # fmt: skip


def _nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for key, value in schema.get("properties", {}).items():
        yield from _nodes(value, f"{path}.{key}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from _nodes(schema[key], f"{path}.{key}")


def test_the_schema_is_structural() -> None:
    """The rules of apiextensions v1: a type for every node, one way into it, nothing that servers of 1.20 do not know."""
    nodes = list(_nodes(SCHEMA))
    assert len(nodes) > 1000, "with a typed pod template"
    for path, node in nodes:
        _check_node(path, node)


def _check_node(path: str, node: dict[str, Any]) -> None:
    assert set(node) <= KEYWORDS, path
    if node.get("x-kubernetes-int-or-string"):
        assert "type" not in node and node["anyOf"] == [{"type": "integer"}, {"type": "string"}]
        return
    assert node["type"] in TYPES and "anyOf" not in node
    assert not ("properties" in node and "additionalProperties" in node)
    assert ("items" in node) == (node["type"] == "array")
    assert set(node.get("required", ())) <= set(node.get("properties", ()))
    if node["type"] == "object" and path != ".metadata":
        assert {"properties", "additionalProperties", "x-kubernetes-preserve-unknown-fields"} & set(node), path
    keys = node.get("x-kubernetes-list-map-keys", [])
    assert bool(keys) == (node.get("x-kubernetes-list-type") == "map"), path
    for key in keys:
        assert key in node["items"]["required"] or "default" in node["items"]["properties"][key], path
    if "default" in node:
        assert isinstance(node["default"], {"boolean": bool, "integer": int, "string": str}[node["type"]])


def test_the_server_can_store_it_and_kubectl_apply_can_write_it_down() -> None:
    """An object has at most 1.5 MB, its annotations together 256 KiB: `kubectl apply` puts the whole object into one."""
    assert len(json.dumps(CRD)) < 128 << 10


def test_the_pod_template_is_the_one_that_submit_checks_with() -> None:
    template = SCHEMA["properties"]["spec"]["properties"]["tfReplicaSpecs"]["additionalProperties"]["properties"][
        "template"
    ]
    assert template == templates.template_schema(), "run python tfjob/manifests/make_template_schema.py"


def test_the_schema_is_made_from_the_openapi_document() -> None:
    """Of which this is a part, in both forms: that of a server, and that of a JSON schema."""
    module = _generator()
    prefix = "io.k8s.api.core.v1."
    container = {
        "required": ["name"],
        "properties": {
            "name": {"type": "string"}, "command": {"type": ["array", "null"], "items": {"type": ["string", "null"]}},
            "ports": {"type": "array", "items": {"$ref": f"#/definitions/{prefix}ContainerPort"},
                      "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["containerPort", "protocol"]},
            "cpu": {"$ref": "#/definitions/io.k8s.apimachinery.pkg.api.resource.Quantity"},
        },
    }  # fmt: skip
    port = {"required": ["containerPort"], "properties": {
        "containerPort": {"type": "integer", "format": "int32"}, "protocol": {"type": "string"}}}  # fmt: skip
    made = module.made({
        prefix + "PodTemplateSpec": {"properties": {"spec": {"$ref": f"#/definitions/{prefix}Container"}}},
        prefix + "Container": container, prefix + "ContainerPort": port,
    })  # fmt: skip
    spec = made["properties"]["spec"]
    assert made["required"] == ["spec"] and spec["required"] == ["name"]
    assert spec["properties"]["command"] == {"type": "array", "items": {"type": "string"}, "nullable": True}
    assert spec["properties"]["cpu"]["x-kubernetes-int-or-string"] and "pattern" in spec["properties"]["cpu"]
    assert spec["properties"]["ports"]["x-kubernetes-list-map-keys"] == ["containerPort", "protocol"]
    properties = spec["properties"]["ports"]["items"]["properties"]
    assert properties["protocol"]["default"] == "TCP" and "nullable" not in properties["protocol"]
    assert properties["containerPort"] == {"type": "integer", "format": "int32", "minimum": 1, "maximum": 65535}
    with pytest.raises(ValueError, match="not one"):
        module.embedded("no such line", made)


def _generator() -> Any:
    path = Path(tfjob.__file__).parent / "manifests" / "make_template_schema.py"
    source = importlib.util.spec_from_file_location("make_template_schema", path)
    assert source is not None and source.loader is not None
    module = importlib.util.module_from_spec(source)
    source.loader.exec_module(module)
    return module


def _pruned(value: Any, schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Fields that the API server would drop, or refuse for their type."""
    if schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-int-or-string"):
        return
    if value is None and schema.get("nullable"):
        return
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
    if not isinstance(value, kinds[schema["type"]]):
        yield f"{path} is no {schema['type']}"
    elif isinstance(value, list):
        for one in value:
            yield from _pruned(one, schema["items"], f"{path}[]")
    elif isinstance(value, dict) and path != ".metadata":
        yield from (f"{path}.{key} is required" for key in schema.get("required", ()) if key not in value)
        for key, one in value.items():
            inner = schema.get("properties", {}).get(key) or schema.get("additionalProperties")
            if inner is None:
                yield f"{path}.{key} is not known"
            else:
                yield from _pruned(one, inner, f"{path}.{key}")


def test_nothing_that_a_job_says_or_that_we_write_is_dropped_by_the_server() -> None:
    policy = {
        "cleanPodPolicy": "All", "ttlSecondsAfterFinished": 1, "activeDeadlineSeconds": 1000, "backoffLimit": 1,
        "suspend": False, "managedBy": spec.OURS,
        "schedulingPolicy": {"minAvailable": 1, "queue": "q", "priorityClass": "p", "scheduleTimeoutSeconds": 1,
                             "minResources": {"cpu": 1, "memory": "1Gi"}},
    }  # fmt: skip
    written = manifest({"PS": 1, "Worker": 2}, policy="OnFailure", run_policy=policy, successPolicy="AllWorkers",
                       enableDynamicWorker=True)  # fmt: skip
    cluster = running(written)
    assert list(_pruned(cluster.manifest, SCHEMA)) == []
    for short in ("worker-0", "worker-1"):
        cluster.end(short, 0)
    cluster.settle()
    assert cluster.state == "Succeeded" and list(_pruned(cluster.manifest, SCHEMA)) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"spec": {}}, [".spec.tfReplicaSpecs is required"]),
        ({"spec": {"tfReplicaSpecs": {}, "x": 1}}, [".spec.x is not known"]),
    ],
)
def test_and_the_check_itself_can_fail(change: dict[str, Any], says: list[str]) -> None:
    assert list(_pruned({**manifest(), **change}, SCHEMA)) == says
