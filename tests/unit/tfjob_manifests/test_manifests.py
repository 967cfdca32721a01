"""What is installed: kustomize base and overlays, and the Helm chart rendered from them."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from deeprec_ext import env
from deeprec_ext.cli.main import build_parser
from deeprec_ext.history import identities
from tests.unit.tfjob_manifests.building import (
    CONFINED,
    EVERY_OVERLAY,
    MANIFESTS,
    OVERLAYS,
    Objects,
    by_name,
    by_place,
    kustomized,
    load,
    rendered,
)
from tests.unit.tfjob_manifests.pods import tfjob
from tests.unit.tfjob_manifests.schema import errors, pod_spec, violations
from tfjob.model import annotations
from tfjob.model.kinds import NODES, PODS, PRIORITY_CLASSES, RESOURCE_QUOTAS
from tfjob.model.spec import TFJob
from tfjob.operator.certificates import history_certificates
from tfjob.pods import aimaster, certificates, rights

COMPONENTS = sorted(path.parent for path in MANIFESTS.glob("components/*/kustomization.yaml"))
VALUES = yaml.safe_load((MANIFESTS / "chart" / "values.yaml").read_text())


def everything(overlay: str) -> Objects:
    """An overlay with all components."""
    found = kustomized(MANIFESTS / "overlays" / overlay)
    for component in COMPONENTS:
        found.update(kustomized(component))
    return found


def chart(**values: Any) -> Objects:
    texts = [path.read_text() for path in sorted((MANIFESTS / "chart" / "templates").iterdir())]
    return by_name([one for text in texts for one in load(rendered(text, {**VALUES, **values}, "deeprec-ext"))])


@pytest.mark.parametrize("overlay", EVERY_OVERLAY)
def test_every_manifest_is_as_the_api_wants_it_and_restricted(overlay: str):
    for manifest in everything(overlay).values():
        assert errors(manifest) == []
        spec = pod_spec(manifest)
        assert spec is None or violations(spec) == []


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_kustomize_makes_of_them_what_these_tests_look_at(overlay: str):
    if not shutil.which("kubectl"):
        pytest.skip("no kubectl, and so no kustomize, to compare with")
    command = ["kubectl", "kustomize", str(MANIFESTS / "overlays" / overlay)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    made, expected = by_name(load(result.stdout)), kustomized(MANIFESTS / "overlays" / overlay)
    for objects in (made, expected):  # kustomize puts ports of a patch before the others
        for container in objects["Deployment", "deeprec-ext-operator"]["spec"]["template"]["spec"]["containers"]:
            container["ports"].sort(key=lambda port: port["name"])
    assert made == expected


def test_every_file_belongs_to_something_that_is_installed():
    named = set()
    for path in MANIFESTS.rglob("kustomization.yaml"):
        description = yaml.safe_load(path.read_text())
        patches = [patch["path"] for patch in description.get("patches", [])]
        named |= {(path.parent / name).resolve() for name in [*description["resources"], *patches]}
    files = {
        path for path in MANIFESTS.rglob("*.yaml") if "chart" not in path.parts and path.name != "kustomization.yaml"
    }
    assert files <= named
    assert all(path.exists() for path in named)


# ------------------------------------------------------------------------------------------------------------- chart


def test_the_chart_has_been_rendered_from_the_sources_as_they_are():
    source = importlib.util.spec_from_file_location("render_chart", MANIFESTS / "render_chart.py")
    module = importlib.util.module_from_spec(source)
    source.loader.exec_module(module)
    directories = (MANIFESTS / "chart" / "templates", MANIFESTS / "chart" / "crds")
    files = {f"{path.parent.name}/{path.name}": path.read_text() for one in directories for path in one.iterdir()}
    assert module.render() == files, "run python tfjob/manifests/render_chart.py"
    for path, text in module.confined().items():
        assert (MANIFESTS / path).read_text() == text, "run python tfjob/manifests/render_chart.py"


def test_an_operator_of_one_namespace_has_a_role_there_and_no_right_anywhere_else():
    found = kustomized(MANIFESTS / "overlays" / CONFINED)
    assert not [kind for kind, _ in found if kind.startswith("Cluster") or kind == "Namespace"]
    assert all(one["metadata"]["namespace"] == "deeprec-ext" for one in found.values())
    everywhere = kustomized(MANIFESTS / "overlays" / "standalone")
    wide = set().union(*(grants(one["rules"]) for (kind, _), one in everywhere.items() if kind == "ClusterRole"))
    narrow = set().union(*(grants(one["rules"]) for (kind, _), one in found.items() if kind == "Role"))
    leases = {one for one in narrow if one[1] == "leases"}
    assert narrow - leases == wide - {("scheduling.k8s.io", "priorityclasses", "get")}
    for (kind, name), one in found.items():
        if kind == "RoleBinding":
            assert (one["roleRef"]["kind"], one["roleRef"]["name"]) in found, name
    container = found["Deployment", "deeprec-ext-operator"]["spec"]["template"]["spec"]["containers"][0]
    assert container["args"][-2:] == ["--namespace", "$(NAMESPACE)"] and container["env"][0]["name"] == "NAMESPACE"


def test_the_chart_confines_the_operator_as_the_overlay_does():
    wanted, found = kustomized(MANIFESTS / "overlays" / CONFINED), chart(scope="namespace")
    key = "Deployment", "deeprec-ext-operator"
    words = ["--image", VALUES["image"], "--namespace", "deeprec-ext"]
    assert found[key]["spec"]["template"]["spec"]["containers"][0]["args"][-4:] == words
    assert {name: one for name, one in found.items() if name != key} == {
        name: one for name, one in wanted.items() if name != key
    }


CHART_OF = {"scope": "namespace", "arbiter": "strict", "et": "kinds-are-there"}


def test_the_chart_gives_an_operator_of_several_namespaces_the_same_roles_in_each_and_its_lease_in_its_own():
    namespaces = ["ads", "web"]
    found = [
        one for path in sorted((MANIFESTS / "chart" / "templates").iterdir())
        for one in load(rendered(path.read_text(), {**VALUES, **CHART_OF, "namespaces": namespaces}, "ops"))
    ]  # fmt: skip
    assert not [one["kind"] for one in found if one["kind"].startswith("Cluster")]
    places: dict[tuple[str, str], list[str]] = {}
    for one in found:
        if one["kind"] in ("Role", "RoleBinding"):
            places.setdefault((one["kind"], one["metadata"]["name"]), []).append(one["metadata"]["namespace"])
        if one["kind"] == "RoleBinding":
            assert [subject["namespace"] for subject in one["subjects"]] == ["ops"]
    assert (
        places.pop(("Role", "deeprec-ext-operator")) == places.pop(("RoleBinding", "deeprec-ext-operator")) == ["ops"]
    )
    assert len(places) == 8 and all(where == namespaces for where in places.values())
    (deployment,) = [one for one in found if one["kind"] == "Deployment"]
    words = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    arguments = build_parser().parse_args(["operator", *words])
    assert arguments.namespace == namespaces and arguments.image == VALUES["image"]
    assert printed("--rights", *namespaces, "--installed-in", "ops", "--components", "arbiter", "et") == by_place(
        one for one in found if one["kind"] in ("Role", "RoleBinding") and one["metadata"]["namespace"] != "ops"
    )


def printed(*words: str) -> dict[tuple[str, str, str], dict[str, Any]]:
    """By `render_chart.py`."""
    command = [sys.executable, str(MANIFESTS / "render_chart.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return by_place(load(done.stdout))


def test_an_operator_with_roles_alone_may_what_it_may_with_a_cluster_role_but_for_what_is_in_no_namespace():
    """Roles are made of ClusterRoles: no right is written twice."""
    pairs = {"arbiter": "arbiter-one-namespace", "et": "et-one-namespace"}
    for wide, narrow in pairs.items():
        cluster = set().union(
            *(grants(one["rules"]) for one in of_kind(MANIFESTS / "components" / wide, "ClusterRole"))
        )
        role = set().union(*(grants(one["rules"]) for one in of_kind(MANIFESTS / "components" / narrow, "Role")))
        queues = {"clusterqueues", "localqueues", "resourceflavors", "cohorts", "queues"}
        assert {plural for _, plural, _ in cluster - role} <= {"nodes", "priorityclasses"} | queues and role <= cluster


def of_kind(directory: Path, kind: str) -> list[dict[str, Any]]:
    return [one for (found, _), one in kustomized(directory).items() if found == kind]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_chart_installs_the_same_as_the_overlay(overlay: str):
    """But for the namespace, which Helm makes, and the CRD, which it installs where it is missing."""
    wanted = kustomized(MANIFESTS / "overlays" / overlay)
    wanted.update(kustomized(MANIFESTS / "components" / "service-monitor"))
    found = chart(mode=overlay, serviceMonitor=True)
    assert found == {key: one for key, one in wanted.items() if key[0] not in ("Namespace", "CustomResourceDefinition")}


@pytest.mark.parametrize(("scope", "component"), [("cluster", "arbiter"), ("namespace", "arbiter-one-namespace")])
def test_the_chart_installs_the_arbiters_rights_as_the_component_and_starts_it(scope: str, component: str):
    found, without = chart(scope=scope, arbiter="weight"), chart(scope=scope)
    added = {key: one for key, one in found.items() if key not in without}
    assert added == kustomized(MANIFESTS / "components" / component)
    words = operators_words(found)
    assert words[-3:] == ["--arbiter", "--arbiter-rules", "weight"]
    arguments = build_parser().parse_args(["operator", *words])
    assert arguments.arbiter and arguments.arbiter_rules == "weight"
    assert not any("arbiter" in word for word in operators_words(without))
    rights = grants(next(one for (kind, _), one in added.items() if kind.endswith("Role"))["rules"])
    assert {verb for _, _, verb in rights} == {"list", "watch"}, "it only looks"


def test_the_arbiter_may_see_whatever_it_watches():
    rights = grants(kustomized(MANIFESTS / "components" / "arbiter")["ClusterRole", "deeprec-ext-arbiter"]["rules"])
    for resource in (NODES, PODS, RESOURCE_QUOTAS, PRIORITY_CLASSES):
        assert {(resource.group, resource.plural, verb) for verb in ("list", "watch")} <= rights


def history(**values: Any) -> tuple[Objects, Objects]:
    """What the chart adds for it, and all that it installs."""
    found, without = chart(**values), chart(**{**values, "history": ""})
    return {key: one for key, one in found.items() if key not in without}, found


def operators_words(found: Objects) -> list[str]:
    return found["Deployment", "deeprec-ext-operator"]["spec"]["template"]["spec"]["containers"][0]["args"]


@pytest.mark.parametrize("values", [{}, {"mode": "beside-kubeflow"}, {"scope": "namespace"}], ids=str)
def test_the_chart_installs_the_history_as_the_component_and_tells_the_operator_where(values: dict[str, Any]):
    added, found = history(history="sqlite", **values)
    assert added == kustomized(MANIFESTS / "components" / "history")
    service = found["Service", "deeprec-ext-history"]
    port = next(port["port"] for port in service["spec"]["ports"] if port["name"] == "history")
    words = operators_words(found)
    assert words[-2:] == ["--history", f"{service['metadata']['name']}.deeprec-ext:{port}"]
    assert "--history" not in operators_words(chart(**values))
    changed = [key for key, one in chart(**values).items() if found[key] != one]
    assert changed == [("Deployment", "deeprec-ext-operator")]


@pytest.mark.parametrize("scope", ["cluster", "namespace"])
@pytest.mark.parametrize("mode", OVERLAYS)
def test_the_chart_lets_the_operator_act_on_the_et_operators_kinds_where_it_is_told_to(mode: str, scope: str):
    without, found = chart(mode=mode, scope=scope), chart(mode=mode, scope=scope, et="kinds-are-there")
    component = "et" if scope == "cluster" else "et-one-namespace"
    rights_of_it = kustomized(MANIFESTS / "components" / component)
    assert {key: one for key, one in found.items() if key not in without} == rights_of_it
    assert ("--et" in operators_words(found), "--et" in operators_words(without)) == (True, False)
    assert build_parser().parse_args(["operator", "--et"]).et
    kinds = kustomized(MANIFESTS / "et")
    with_kinds = chart(mode=mode, scope=scope, et="with-kinds")
    assert with_kinds == {**found, **kinds}
    assert all(one["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"} for one in kinds.values())
    [granted] = [grants(one["rules"]) for (kind, _), one in rights_of_it.items() if kind in ("Role", "ClusterRole")]
    plurals = {one["spec"]["names"]["plural"] for one in kinds.values()}
    for plural in plurals:
        group = "kai.alibabacloud.com"
        assert {(group, plural, "list"), (group, plural, "watch"), (group, f"{plural}/status", "update")} <= granted
    assert ("kubeflow.org", "tfjobs", "create") in granted


def test_a_history_in_postgresql_has_its_url_from_a_secret_and_no_claim():
    added, _ = history(history="postgresql", image="registry/deeprec-ext:9")
    of_a_file = kustomized(MANIFESTS / "components" / "history")
    assert set(of_a_file) - set(added) == {("PersistentVolumeClaim", "deeprec-ext-history")}
    deployment = added["Deployment", "deeprec-ext-history"]["spec"]
    spec = deployment["template"]["spec"]
    (container,) = spec["containers"]
    (variable,) = container["env"]
    secret = {"name": "deeprec-ext-history-database", "key": "url"}
    assert variable == {"name": env.PREFIX + env.HISTORY_DATABASE, "valueFrom": {"secretKeyRef": secret}}
    assert deployment["replicas"] == VALUES["replicas"] and "strategy" not in deployment
    assert container["image"] == "registry/deeprec-ext:9"
    assert {one["name"] for one in container["volumeMounts"]} == {one["name"] for one in spec["volumes"]}
    for manifest in added.values():
        assert errors(manifest) == []
        assert pod_spec(manifest) is None or violations(pod_spec(manifest)) == []


def test_the_history_is_found_by_its_service_and_starts_with_words_that_its_command_knows():
    found = kustomized(MANIFESTS / "components" / "history")
    template = found["Deployment", "deeprec-ext-history"]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    arguments = build_parser().parse_args([*container["command"][1:], *container["args"]])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    listening = [int(address.rpartition(":")[2]) for address in (arguments.listen, arguments.http)]
    assert listening == [ports["history"], ports["http"]]
    (mount,) = [one for one in container["volumeMounts"] if one["name"] == "certificates"]
    (volume,) = [one for one in template["spec"]["volumes"] if one["name"] == "certificates"]
    assert Path(mount["mountPath"]) == arguments.certs and volume["secret"]["secretName"] == history_certificates.SECRET
    assert {item["key"] for item in volume["secret"]["items"]} == set(identities.OWN) - {"ca-key.pem"}
    for one in (found["Service", "deeprec-ext-history"]["spec"], found["NetworkPolicy", "deeprec-ext-history"]["spec"]):
        chosen = one.get("selector") or one["podSelector"]["matchLabels"]
        assert chosen.items() <= template["metadata"]["labels"].items()
    services = found["Service", "deeprec-ext-history"]["spec"]["ports"]
    assert {port["targetPort"]: port["port"] for port in services} == ports
    policy = found["NetworkPolicy", "deeprec-ext-history"]["spec"]["ingress"]
    assert {port["port"] for rule in policy for port in rule["ports"]} == set(ports.values())


def test_the_schema_of_the_charts_values_knows_them_all():
    """Helm refuses others by it."""
    schema = json.loads((MANIFESTS / "chart" / "values.schema.json").read_text())
    assert set(schema["properties"]) == {*VALUES, "global"}
    templates = "".join(path.read_text() for path in MANIFESTS.glob("chart/templates/*"))
    for name, asked in re.findall(r'eq \.Values\.(\w+) "([^"]+)"', templates):
        assert asked in schema["properties"][name]["enum"]


def test_values_of_the_chart_do_what_they_say():
    found = chart(image="registry/deeprec-ext:9", replicas=3)
    deployment = found["Deployment", "deeprec-ext-operator"]["spec"]
    assert deployment["replicas"] == 3
    assert deployment["template"]["spec"]["containers"][0]["image"] == "registry/deeprec-ext:9"
    assert not [kind for kind, _ in found if kind in ("ServiceMonitor", "MutatingWebhookConfiguration")]
    used = set(
        re.findall(r"\.Values\.(\w+)", "".join(path.read_text() for path in MANIFESTS.glob("chart/templates/*")))
    )
    assert used == set(VALUES)


# ------------------------------------------------------------------------------------------------------------ rights


def grants(rules: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    """(group, resource, verb) of rules that hold for every name."""
    return {
        (group, resource, verb)
        for rule in rules if not rule.get("resourceNames")
        for group in rule["apiGroups"] for resource in rule["resources"] for verb in rule["verbs"]
    }  # fmt: skip


def test_the_operator_has_every_right_that_it_gives_to_an_aimaster():
    """Else Kubernetes refuses the Role: nobody may give more than he has."""
    operator = grants(kustomized(MANIFESTS / "cluster")["ClusterRole", "deeprec-ext-operator"]["rules"])
    given = [{**rule, "resourceNames": []} for rule in rights.role("ctr", {"name": "ctr-aimaster"})["rules"]]
    assert grants(given) <= operator


def test_the_operator_may_create_every_kind_that_it_makes():
    operator = grants(kustomized(MANIFESTS / "cluster")["ClusterRole", "deeprec-ext-operator"]["rules"])
    job = TFJob.parse(tfjob())
    elastic, _ = annotations.parse(job)
    made = aimaster.manifests(job, elastic, certificates.issue("ads", "ctr"), aimaster.Options(image="i:1"))
    for manifest in made:
        group, _, _ = manifest["apiVersion"].rpartition("/")
        plural = manifest["kind"].lower() + "s" if manifest["kind"] != "NetworkPolicy" else "networkpolicies"
        assert (group, plural, "create") in operator


def test_beside_kubeflow_the_status_and_the_end_of_jobs_are_not_ours():
    operator = {overlay: set[tuple[str, str, str]]() for overlay in OVERLAYS}
    for overlay, found in operator.items():
        for (kind, _), one in kustomized(MANIFESTS / "overlays" / overlay).items():
            found |= grants(one["rules"]) if kind in ("Role", "ClusterRole") else set()
    only_alone = {("kubeflow.org", "tfjobs/status", "update"), ("kubeflow.org", "tfjobs", "delete")}
    assert only_alone <= operator["standalone"] and not only_alone & operator["beside-kubeflow"]
    assert not [one for one in operator["beside-kubeflow"] if one[1] == "podgroups"]


def test_no_right_is_given_for_everything():
    for overlay in OVERLAYS:
        for (kind, name), one in everything(overlay).items():
            if kind in ("Role", "ClusterRole"):
                words = {word for rule in one["rules"] for key in rule for word in rule[key]}
                assert not words & {"*", "escalate", "bind", "impersonate"}, name


def test_every_verb_has_its_reason():
    files = [
        path for path in MANIFESTS.rglob("*.yaml") if "chart" not in path.parts and "\n  verbs:" in path.read_text()
    ]
    assert len(files) == 12
    for path in files:
        text = path.read_text()
        commented = re.findall(r"^  - (\w+)  # \S.{8,}$", text, re.MULTILINE)
        verbs = [verb for one in load(text) for rule in one.get("rules", []) for verb in rule["verbs"]]
        assert commented == verbs, path


def test_every_binding_is_of_a_role_and_an_account_that_are_there():
    for overlay in OVERLAYS:
        found = everything(overlay)
        for (kind, name), one in found.items():
            if kind in ("RoleBinding", "ClusterRoleBinding"):
                assert (one["roleRef"]["kind"], one["roleRef"]["name"]) in found, name
                accounts = [subject for subject in one["subjects"] if subject["kind"] == "ServiceAccount"]
                assert all(("ServiceAccount", subject["name"]) in found for subject in accounts), name


# --------------------------------------------------------------------------------------------------- what fits together


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_services_find_the_operators_pods_and_their_ports(overlay: str):
    found = kustomized(MANIFESTS / "overlays" / overlay)
    template = found["Deployment", "deeprec-ext-operator"]["spec"]["template"]
    container = template["spec"]["containers"][0]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    services = [one["spec"] for (kind, _), one in found.items() if kind == "Service"]
    for service in services:
        assert service["selector"].items() <= template["metadata"]["labels"].items()
        assert {port["targetPort"] for port in service["ports"]} <= set(ports)
    assert {port["targetPort"] for service in services for port in service["ports"]} == set(ports)
    policy = found["NetworkPolicy", "deeprec-ext-operator"]["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} == set(ports.values())
    assert {probe["httpGet"]["port"] for probe in (container["readinessProbe"], container["livenessProbe"])} <= set(
        ports
    )


def test_the_operator_is_told_its_mode_and_its_ports():
    arguments = {
        overlay: kustomized(MANIFESTS / "overlays" / overlay)["Deployment", "deeprec-ext-operator"]["spec"]["template"]
        ["spec"]["containers"][0]["args"] for overlay in OVERLAYS
    }  # fmt: skip
    assert arguments == {
        "standalone": ["--mode", "standalone", "--metrics-port", "8080"],
        "beside-kubeflow": ["--mode", "beside-kubeflow", "--metrics-port", "8080", "--webhook-port", "9443"],
    }


def test_the_webhook_calls_a_service_that_is_there():
    found = kustomized(MANIFESTS / "overlays" / "beside-kubeflow")
    (webhook,) = found["MutatingWebhookConfiguration", "deeprec-ext-operator"]["webhooks"]
    called = webhook["clientConfig"]["service"]
    service = found["Service", called["name"]]
    assert (service["metadata"]["namespace"], service["spec"]["ports"][0]["port"]) == (
        called["namespace"],
        called["port"],
    )
    assert webhook["failurePolicy"] == "Ignore"


def test_beside_kubeflow_the_kind_stays_kubeflows():
    kinds = {overlay: {kind for kind, _ in kustomized(MANIFESTS / "overlays" / overlay)} for overlay in OVERLAYS}
    assert {overlay for overlay, found in kinds.items() if "CustomResourceDefinition" in found} == {"standalone"}


def test_prometheus_finds_the_operator_and_every_aimaster():
    found = everything("standalone")
    service = aimaster.service(TFJob.parse(tfjob()))
    pairs = {"deeprec-ext-operator": found["Service", "deeprec-ext-operator"], "deeprec-ext-aimasters": service}
    for name, one in pairs.items():
        monitor = found["ServiceMonitor", name]["spec"]
        assert monitor["selector"]["matchLabels"].items() <= one["metadata"]["labels"].items()
        assert {endpoint["port"] for endpoint in monitor["endpoints"]} <= {
            port["name"] for port in one["spec"]["ports"]
        }


# ------------------------------------------------------------------------------------------------------------ images


def test_the_master_sides_image_has_no_tensorflow_and_all_extras_that_it_needs(root: Path):
    text = (root / "tfjob" / "images" / "Dockerfile").read_text()
    extras = re.search(r'"/source\[(.+)\]"', text)[1].split(",")
    assert set(extras) == {"kubernetes", "dashboard", "autoscale", "history"}
    assert "pip install" in text and "tensorflow-" not in text and "[tf" not in text


@pytest.mark.parametrize("name", ["Dockerfile", "examples.Dockerfile"])
def test_images_run_as_a_numbered_user_and_copy_what_the_context_has(root: Path, name: str):
    lines = (root / "tfjob" / "images" / name).read_text().splitlines()
    assert "USER 65532:65532" in lines
    ignored = (root / ".dockerignore").read_text().splitlines()
    sources = [line.split()[1] for line in lines if line.startswith("COPY") and "--from" not in line]
    assert all(source == "." or f"!{source}" in ignored for source in sources)
    wanted = [line[1:] for line in ignored if line.startswith("!")]
    assert all((root / path).exists() for path in wanted)
    assert {"deeprec_ext", "tfjob", "pyproject.toml", "setup.py", "README.md", "LICENSE"} <= set(wanted)


def test_the_version_of_images_and_chart_is_the_packages(root: Path):
    version = re.search(r'__version__ = "(.+)"', (root / "deeprec_ext" / "__init__.py").read_text())[1]
    chart_version = yaml.safe_load((MANIFESTS / "chart" / "Chart.yaml").read_text())["appVersion"]
    image = kustomized(MANIFESTS / "base")["Deployment", "deeprec-ext-operator"]["spec"]["template"]["spec"][
        "containers"
    ][0]
    assert {chart_version, image["image"].split(":")[1], VALUES["image"].split(":")[1]} == {version}
