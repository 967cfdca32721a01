"""Renders the Helm chart, and the Roles of an operator without a ClusterRole, from the kustomize sources beside this file:
`python tfjob/manifests/render_chart.py`. With `--rights NAMESPACE...` it prints those Roles for several namespaces.

The text is kept, comments and all; a table says what becomes a value. Run it after each change of a source; a test says
when that was forgotten. No template does more than name a value or depend on one, so that a test can render the chart
without Helm; one thing is repeated: what there is for each namespace of jobs.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHART = HERE / "chart"

BESIDE = '{{- if eq .Values.mode "beside-kubeflow" }}\n'
ALONE = '{{- if eq .Values.mode "standalone" }}\n'
EVERYWHERE = '{{- if eq .Values.scope "cluster" }}\n'
CONFINED = '{{- if eq .Values.scope "namespace" }}\n'
EACH = "{{- range $namespace := default (list .Release.Namespace) .Values.namespaces }}\n"
MONITOR = "{{- if .Values.serviceMonitor }}\n"
ARBITER = "{{- if .Values.arbiter }}\n"
HISTORY = "{{- if .Values.history }}\n"
ET = "{{- if .Values.et }}\n"
ET_KINDS = '{{- if eq .Values.et "with-kinds" }}\n'
SQLITE = '{{- if eq .Values.history "sqlite" }}\n'
POSTGRESQL = '{{- if eq .Values.history "postgresql" }}\n'
END = "{{- end }}\n"

ONE = "overlays/one-namespace"
SOURCES: dict[str, tuple[str, tuple[str, ...]]] = {
    "service-account.yaml": ("base/service-account.yaml", ()),
    "cluster-role.yaml": ("cluster/cluster-role.yaml", (EVERYWHERE,)),
    "controller-cluster-role.yaml": ("overlays/standalone/cluster-role.yaml", (EVERYWHERE, ALONE)),
    "namespace-role.yaml": (f"{ONE}/role.yaml", (CONFINED,)),
    "namespace-controller-role.yaml": (f"{ONE}/controller-role.yaml", (CONFINED, ALONE)),
    "role.yaml": ("base/role.yaml", ()),
    "service.yaml": ("base/service.yaml", ()),
    "network-policy.yaml": ("base/network-policy.yaml", ()),
    "deployment.yaml": ("base/deployment.yaml", ()),
    "webhook.yaml": ("overlays/beside-kubeflow/webhook.yaml", (BESIDE,)),
    "arbiter-role.yaml": ("components/arbiter/cluster-role.yaml", (EVERYWHERE, ARBITER)),
    "namespace-arbiter-role.yaml": ("components/arbiter-one-namespace/role.yaml", (CONFINED, ARBITER)),
    "history.yaml": ("components/history/history.yaml", (HISTORY,)),
    "history-role.yaml": ("components/history/role.yaml", (HISTORY,)),
    "et-kinds.yaml": ("et/crds.yaml", (ET_KINDS,)),
    "et-cluster-role.yaml": ("components/et/cluster-role.yaml", (EVERYWHERE, ET)),
    "et-namespace-role.yaml": ("components/et-one-namespace/role.yaml", (CONFINED, ET)),
    "service-monitor.yaml": ("components/service-monitor/service-monitor.yaml", (MONITOR,)),
}
"""Template → its source, and what it depends on as a whole."""

ROLES = {
    f"{ONE}/role.yaml": ("cluster/cluster-role.yaml", "deeprec-ext-operator", "deeprec-ext-jobs"),
    f"{ONE}/controller-role.yaml": (
        "overlays/standalone/cluster-role.yaml",
        "deeprec-ext-controller",
        "deeprec-ext-controller",
    ),
    "components/et-one-namespace/role.yaml": ("components/et/cluster-role.yaml", "deeprec-ext-et", "deeprec-ext-et"),
    "components/arbiter-one-namespace/role.yaml": (
        "components/arbiter/cluster-role.yaml",
        "deeprec-ext-arbiter",
        "deeprec-ext-arbiter",
    ),
}
"""A Role → the ClusterRole with the same rights, and what both are called."""

NO_NAMESPACE = (
    r"^- apiGroups: \[(?:apiextensions|scheduling)\.k8s\.io\]\n",
    r"^- apiGroups: \[\"\"\]\n  resources: \[nodes\]\n",
    r"^- apiGroups: \[kueue\.x-k8s\.io\]\n",
    r"^- apiGroups: \[scheduling\.volcano\.sh\]\n  resources: \[queues\]\n",
)
"""Rules about what is in no namespace: a Role cannot give such rights. Confined to some, the operator does without. Kueue's
LocalQueues are in one, and say nothing without the ClusterQueues."""

WORDS = {
    "kind: ClusterRole": "kind: Role", "in every namespace": "in its namespace",
    "of the whole cluster. It": "of its jobs' namespace, whose quota is all the room that it knows.\n# It",
}  # fmt: skip

DATABASE = """        env:
        - name: DEEPREC_EXT_HISTORY_DATABASE  # of PostgreSQL from a Secret: it has a password in it
          value: sqlite:////var/lib/deeprec-ext/history.db
"""
CLAIM = """      - name: rows
        persistentVolumeClaim:
          claimName: deeprec-ext-history
"""
MOUNT = """        - name: rows
          mountPath: /var/lib/deeprec-ext
"""
REPLICAS = """  replicas: 1  # of a file; of PostgreSQL as many as you like
  strategy:
    type: Recreate
"""

EDITS = {
    "deployment.yaml": [
        ("  replicas: 2  #", "  replicas: {{ .Values.replicas }}  #"),
        ("image: deeprec-ext:0.1.0  #", "image: {{ .Values.image }}  #"),
        (
            '        args: [--mode, standalone, --metrics-port, "8080"]\n',
            "        args:\n        - --mode\n        - {{ .Values.mode }}\n"
            f'        - --metrics-port\n        - "8080"\n{CONFINED}        - --image\n        - {{{{ .Values.image }}}}\n'
            f"{EACH}        - --namespace\n        - {{{{ $namespace }}}}\n{END}{END}"
            f'{BESIDE}        - --webhook-port\n        - "9443"\n{END}'
            f"{ARBITER}        - --arbiter\n        - --arbiter-rules\n        - {{{{ .Values.arbiter }}}}\n{END}"
            f"{HISTORY}        - --history\n"
            f"        - deeprec-ext-history.{{{{ .Release.Namespace }}}}:7443\n{END}{ET}        - --et\n{END}",
        ),
        (
            "          containerPort: 8080\n          protocol: TCP\n",
            "          containerPort: 8080\n          protocol: TCP\n"
            f"{BESIDE}        - name: webhook\n          containerPort: 9443\n          protocol: TCP\n{END}",
        ),
    ],
    "history.yaml": [
        ("image: deeprec-ext:0.1.0\n", "image: {{ .Values.image }}\n"),
        ("storage: 4Gi  #", "storage: {{ .Values.historyStorage }}  #"),
        (REPLICAS, f"{SQLITE}{REPLICAS}{END}{POSTGRESQL}  replicas: {{{{ .Values.replicas }}}}\n{END}"),
        ("apiVersion: v1\nkind: PersistentVolumeClaim\n", f"{SQLITE}apiVersion: v1\nkind: PersistentVolumeClaim\n"),
        ("---\napiVersion: apps/v1\n", f"---\n{END}apiVersion: apps/v1\n"),
        (CLAIM, f"{SQLITE}{CLAIM}{END}"),
        (MOUNT, f"{SQLITE}{MOUNT}{END}"),
        (
            DATABASE,
            f"{SQLITE}{DATABASE}{END}{POSTGRESQL}        env:\n        - name: DEEPREC_EXT_HISTORY_DATABASE\n"
            "          valueFrom:\n            secretKeyRef:\n              name: deeprec-ext-history-database\n"
            f"              key: url\n{END}",
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
    for name, (source, conditions) in SOURCES.items():
        text = (HERE / source).read_text(encoding="utf-8")
        for old, new in EDITS.get(name, []):
            if text.count(old) != 1:
                raise ValueError(f"{source} has {text.count(old)} times {old!r}, not once: adapt EDITS")
            text = text.replace(old, new)
        if source in ROLES:
            text = f"---\n{text}".replace(
                "  namespace: deeprec-ext\n  labels:", "  namespace: {{ $namespace }}\n  labels:"
            )
            text = text.replace("namespace: deeprec-ext\n", "namespace: {{ $.Release.Namespace }}\n")
            conditions = (*conditions, EACH)
        text = text.replace("namespace: deeprec-ext\n", "namespace: {{ .Release.Namespace }}\n")
        header = f"# Rendered from ../../{source} by ../../render_chart.py: change that.\n"
        found[f"templates/{name}"] = header + "".join(conditions) + text + END * len(conditions)
    return found


def confined() -> dict[str, str]:
    """File of the overlay → its text: ClusterRoles as Roles."""
    found = {}
    for path, (source, name, called) in ROLES.items():
        text = (HERE / source).read_text(encoding="utf-8")
        for before, after in WORDS.items():
            text = text.replace(before, after)
        text = text.replace(f"  name: {name}\n  labels:", f"  name: {called}\n  namespace: deeprec-ext\n  labels:")
        text = text.replace(f"  kind: Role\n  name: {name}\n", f"  kind: Role\n  name: {called}\n")
        for rule in NO_NAMESPACE:
            text = re.sub(rf"{rule}(?:  .*\n)+", "", text, flags=re.MULTILINE)
        found[path] = f"# Rendered from ../../{source} by ../../render_chart.py: change that.\n{text}"
    return found


def rights(namespaces: Sequence[str], installed_in: str, components: Sequence[str]) -> str:
    """Roles for the jobs of some namespaces, bound to the account of an operator in another, or in one of them."""
    wanted = [path for path in ROLES if path.startswith(ONE) or path.split("/")[1].split("-")[0] in components]
    found = []
    for namespace in namespaces:
        for path in wanted:
            text = confined()[path].replace(
                "  namespace: deeprec-ext\n  labels:", f"  namespace: {namespace}\n  labels:"
            )
            found.append(text.replace("namespace: deeprec-ext\n", f"namespace: {installed_in}\n"))
    return "---\n".join(found)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description="Renders the chart; with --rights it prints Roles, and writes nothing."
    )
    parser.add_argument("--rights", nargs="+", metavar="NAMESPACE", help="of the jobs that the operator is to run")
    parser.add_argument("--installed-in", default="deeprec-ext", metavar="NAMESPACE", help="where its account is")
    parser.add_argument("--components", nargs="*", default=[], choices=("arbiter", "et"), help="what it does besides")
    arguments = parser.parse_args(words)
    if arguments.rights:
        print(rights(arguments.rights, arguments.installed_in, arguments.components), end="")
        return 0
    for path, text in confined().items():
        (HERE / path).write_text(text, encoding="utf-8")
    for name, text in render().items():
        (CHART / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
