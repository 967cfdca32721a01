"""Makes the typed schema of pod templates from Kubernetes' OpenAPI document, for the CRD and for `deeprec-ext submit`:

    python tfjob/manifests/make_template_schema.py OPENAPI.json && python tfjob/manifests/render_chart.py

OPENAPI.json: what `kubectl get --raw /openapi/v2` prints, or `_definitions.json` of a release in the Python package
`kubernetes-validate`, which is the same in the form of JSON schema. Take the newest release: what the schema does not know,
the server drops. Without a file the schema that is there is put into the CRD again.

Written are `tfjob/model/pod_template.json`, and the line `template:` of `crd/crd.yaml`, in one line: with descriptions it would
be 0.5 MB, which `kubectl apply` cannot store in its annotation (262 144 bytes).
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SCHEMA, CRD = HERE.parent / "model" / "pod_template.json", HERE / "crd" / "crd.yaml"
LINE = re.compile(r"^( +template: )\{.*\}$", re.MULTILINE)

CORE, META = "io.k8s.api.core.v1.", "io.k8s.apimachinery.pkg.apis.meta.v1."
QUANTITY_PATTERN = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
INT_OR_STRING: dict[str, Any] = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
WHOLE: dict[str, dict[str, Any]] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {**INT_OR_STRING, "pattern": QUANTITY_PATTERN},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": INT_OR_STRING,
    META + "Time": {"type": "string", "format": "date-time"},
}
"""Definitions that are taken as this."""

EMBEDDED = ("name", "generateName", "namespace", "labels", "annotations", "finalizers", "creationTimestamp")
"""Of the metadata in a template: the rest is the server's."""

LABEL: dict[str, Any] = {"pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
PORT: dict[str, Any] = {"minimum": 1, "maximum": 65535}


def _one_of(*values: str) -> dict[str, Any]:
    """A pattern: of an `enum` null would have to be a member, and servers of 1.20 take no null there."""
    return {"pattern": f"^({'|'.join(values)})$"}


CHECKED: dict[str, dict[str, Any]] = {
    "Container.name": LABEL, "EphemeralContainer.name": LABEL, "Volume.name": LABEL,
    "ContainerPort.containerPort": PORT,
    "ContainerPort.protocol": _one_of("TCP", "UDP", "SCTP"),
    "EnvVar.name": {"minLength": 1}, "VolumeMount.mountPath": {"minLength": 1},
    "Container.imagePullPolicy": _one_of("Always", "IfNotPresent", "Never"),
    "Container.terminationMessagePolicy": _one_of("File", "FallbackToLogsOnError"),
    "PodSpec.dnsPolicy": _one_of("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
    "PodSpec.preemptionPolicy": _one_of("Never", "PreemptLowerPriority"),
    "PodSpec.restartPolicy": _one_of("Always", "OnFailure", "Never"),
    "HTTPGetAction.scheme": _one_of("HTTP", "HTTPS"),
    "Toleration.operator": _one_of("Equal", "Exists", "Lt", "Gt"),
    "Toleration.effect": _one_of("", "NoSchedule", "PreferNoSchedule", "NoExecute"),
    "NodeSelectorRequirement.operator": _one_of("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
    "TopologySpreadConstraint.whenUnsatisfiable": _one_of("DoNotSchedule", "ScheduleAnyway"),
    "SeccompProfile.type": _one_of("Localhost", "RuntimeDefault", "Unconfined"),
}  # fmt: skip
"""What the server checks in its code, of every pod, as far as a schema can say it."""

NULLABLE: dict[str, Any] = {"nullable": True}
"""In a pod null means: not said. A template that was taken with it once must not be refused now."""


def made(definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of `PodTemplateSpec`, with every reference replaced by what it refers to.

    Raises KeyError when a definition is missing, ValueError for a form that is not known.
    """
    found = _Definitions(definitions).of(CORE + "PodTemplateSpec")
    found["required"] = ["spec"]
    return found


class _Definitions:
    def __init__(self, definitions: dict[str, Any]) -> None:
        self._definitions = definitions

    def of(self, name: str) -> dict[str, Any]:
        if name in WHOLE:
            return dict(WHOLE[name])
        definition = self._definitions[name]
        properties = definition.get("properties")
        if properties is None:
            return self._node(definition)
        required = sorted(definition.get("required") or [])
        wanted = [key for key in properties if name != META + "ObjectMeta" or key in EMBEDDED]
        found: dict[str, Any] = {}
        for key in sorted(wanted):
            node: dict[str, Any] = {**self._node(properties[key]), **CHECKED.get(f"{name[len(CORE) :]}.{key}", {})}
            if key not in required:
                node |= NULLABLE
            found[key] = node
        return {"type": "object", **({"required": required} if required else {}), "properties": found}

    def _node(self, given: dict[str, Any]) -> dict[str, Any]:
        if "$ref" in given:
            return self.of(given["$ref"].rpartition("/")[2])
        type_ = _type(given)
        if type_ == "array":
            return self._array(given)
        if type_ == "object":
            values = given.get("additionalProperties")
            return {"type": "object", "additionalProperties": self._node(values) if values else {"type": "string"}}
        if type_ not in ("string", "integer", "boolean", "number"):
            raise ValueError(f"a node of type {type_!r}: {given}")
        format_ = given.get("format")
        return {"type": type_, **({"format": format_} if format_ in ("int32", "int64", "date-time") else {})}

    def _array(self, given: dict[str, Any]) -> dict[str, Any]:
        items = self._node(given["items"])
        kind, keys = given.get("x-kubernetes-list-type"), given.get("x-kubernetes-list-map-keys")
        if not keys or not all(key in items["properties"] for key in keys):
            return {"type": "array", "items": items, **({"x-kubernetes-list-type": "set"} if kind == "set" else {})}
        for key in keys:  # the server wants each to be required or to have a default
            if key == "protocol":
                items["properties"][key] = {
                    **{name: value for name, value in items["properties"][key].items() if name != "nullable"},
                    "default": "TCP",
                }  # fmt: skip
            elif key not in items.get("required", ()):
                items["required"] = sorted({*items.get("required", ()), key})
                items["properties"][key].pop("nullable", None)
        return {"type": "array", "items": items, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys}


def _type(given: dict[str, Any]) -> str:
    type_ = given.get("type")
    if isinstance(type_, list):
        type_ = next(one for one in type_ if one != "null")
    return str(type_)


def embedded(crd: str, schema: dict[str, Any]) -> str:
    """The CRD with this schema in its line `template:`. Raises ValueError when there is not one such line."""
    line = json.dumps(schema, separators=(", ", ": "), sort_keys=False)
    text, count = LINE.subn(lambda match: match[1] + line, crd)
    if count != 1:
        raise ValueError(f"crd.yaml has {count} lines that begin with template: {{, not one")
    return text


def main(arguments: list[str]) -> int:
    if arguments:
        document = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
        schema = made(document.get("definitions") or document["$defs"])
        SCHEMA.write_text(json.dumps(schema, separators=(",", ":")) + "\n", encoding="utf-8")
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    CRD.write_text(embedded(CRD.read_text(encoding="utf-8"), schema), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
