"""What kustomize and Helm make of our sources: as little of both as these sources use."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from tfjob.pods.merging import merged

MANIFESTS = Path(__file__).resolve().parents[3] / "tfjob" / "manifests"
OVERLAYS = ("standalone", "beside-kubeflow")
CONFINED = "one-namespace"
EVERY_OVERLAY = (*OVERLAYS, CONFINED)

Objects = dict[tuple[str, str], dict[str, Any]]
"""By kind and name."""


def load(text: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(text) if document]


def by_name(documents: list[dict[str, Any]]) -> Objects:
    found = {(one["kind"], one["metadata"]["name"]): one for one in documents}
    assert len(found) == len(documents), "two objects of one kind and name"
    return found


def by_place(documents: Iterable[dict[str, Any]]) -> dict[tuple[str, str, str], dict[str, Any]]:
    """By kind, namespace and name."""
    return {(one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]): one for one in documents}


def kustomized(directory: Path) -> Objects:
    """Resources and patches; the transformers of our overlays change nothing as they stand."""
    description = yaml.safe_load((directory / "kustomization.yaml").read_text())
    found: Objects = {}
    for name in description["resources"]:
        path = (directory / name).resolve()
        found.update(kustomized(path) if path.is_dir() else by_name(load(path.read_text())))
    for patch in description.get("patches", []):
        for part in load((directory / patch["path"]).read_text()):
            key = part["kind"], part["metadata"]["name"]
            found[key] = merged(found[key], part)
    return found


EACH = "{{- range $namespace := default (list .Release.Namespace) .Values.namespaces }}"


def repeated(template: str, namespaces: list[str]) -> str:
    """With what there is for each namespace of jobs."""
    lines: list[str] = []
    body: list[str] | None = None  # of a repetition
    depth = 0
    for line in template.splitlines():
        if line == EACH:
            assert body is None, "one within another"
            body, depth = [], 0
        elif body is not None and line == "{{- end }}" and not depth:
            for namespace in namespaces:
                lines += [one.replace("{{ $namespace }}", namespace).replace("{{ $.", "{{ .") for one in body]
            body = None
        else:
            depth += line.startswith("{{- if ") - (line == "{{- end }}") if body is not None else 0
            (lines if body is None else body).append(line)
    assert body is None, "a repetition is not closed"
    return "\n".join(lines)


def rendered(template: str, values: dict[str, Any], namespace: str) -> str:
    """A template of the chart. Conditions and repetitions are lines of their own."""
    template = repeated(template, values["namespaces"] or [namespace])
    lines, shown = [], [True]
    for line in template.splitlines():
        if condition := re.fullmatch(r'\{\{- if (?:eq )?\.Values\.(\w+)(?: "([^"]+)")? \}\}', line):
            value = values[condition[1]]
            shown.append(shown[-1] and (value == condition[2] if condition[2] else bool(value)))
        elif line == "{{- end }}":
            shown.pop()
        elif shown[-1]:
            line = line.replace("{{ .Release.Namespace }}", namespace)
            lines.append(re.sub(r"\{\{ \.Values\.(\w+) \}\}", lambda match: str(values[match[1]]), line))
    assert shown == [True], "a condition is not closed"
    text = "\n".join(lines) + "\n"
    assert "{{" not in text, text
    return text
