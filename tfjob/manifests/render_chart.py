"""Renders the Helm chart from the kustomize sources beside this file: `python tfjob/manifests/render_chart.py`.

The text is kept, comments and all; a table says what becomes a value. Run it after each change of a source; a test says
when that was forgotten. No template does more than name a value or depend on one, so that a test can render the chart
without Helm.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHART = HERE / "chart"

BESIDE = '{{- if eq .Values.mode "beside-kubeflow" }}\n'
ALONE = '{{- if eq .Values.mode "standalone" }}\n'
MONITOR = "{{- if .Values.serviceMonitor }}\n"
END = "{{- end }}\n"

SOURCES = {
    "service-account.yaml": ("base/service-account.yaml", ""),
    "cluster-role.yaml": ("base/cluster-role.yaml", ""),
    "controller-cluster-role.yaml": ("overlays/standalone/cluster-role.yaml", ALONE),
    "role.yaml": ("base/role.yaml", ""),
    "service.yaml": ("base/service.yaml", ""),
    "network-policy.yaml": ("base/network-policy.yaml", ""),
    "deployment.yaml": ("base/deployment.yaml", ""),
    "webhook.yaml": ("overlays/beside-kubeflow/webhook.yaml", BESIDE),
    "service-monitor.yaml": ("components/service-monitor/service-monitor.yaml", MONITOR),
}
"""Template → its source, and what it depends on as a whole."""

EDITS = {
    "deployment.yaml": [
        ("  replicas: 2  #", "  replicas: {{ .Values.replicas }}  #"),
        ("image: deeprec-ext:0.1.0  #", "image: {{ .Values.image }}  #"),
        (
            '        args: [--mode, standalone, --metrics-port, "8080"]\n',
            "        args:\n        - --mode\n        - {{ .Values.mode }}\n"
            f'        - --metrics-port\n        - "8080"\n{BESIDE}        - --webhook-port\n        - "9443"\n{END}',
        ),
        (
            "          containerPort: 8080\n          protocol: TCP\n",
            "          containerPort: 8080\n          protocol: TCP\n"
            f"{BESIDE}        - name: webhook\n          containerPort: 9443\n          protocol: TCP\n{END}",
        ),
    ],
    "network-policy.yaml": [
        (
            "    - port: 8080\n      protocol: TCP\n",
            f"    - port: 8080\n      protocol: TCP\n{BESIDE}    - port: 9443\n      protocol: TCP\n{END}",
        )
    ],
}
"""Template → (text that is there once, what becomes of it)."""


def render() -> dict[str, str]:
    """File of the chart → its text. Raises ValueError when an edit does not fit its source any more."""
    found = {"crds/crd.yaml": (HERE / "crd" / "crd.yaml").read_text(encoding="utf-8")}
    for name, (source, condition) in SOURCES.items():
        text = (HERE / source).read_text(encoding="utf-8")
        for old, new in EDITS.get(name, []):
            if text.count(old) != 1:
                raise ValueError(f"{source} has {text.count(old)} times {old!r}, not once: adapt EDITS")
            text = text.replace(old, new)
        text = text.replace("namespace: deeprec-ext\n", "namespace: {{ .Release.Namespace }}\n")
        header = f"# Rendered from ../../{source} by ../../render_chart.py: change that.\n"
        found[f"templates/{name}"] = header + (condition + text + END if condition else text)
    return found


def main() -> int:
    for name, text in render().items():
        (CHART / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
