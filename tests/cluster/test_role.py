"""An operator and a user with Roles alone, by the server's own RBAC: no right in the cluster, and what is missing is named."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.kube import (
    NAMESPACES,
    ROOT,
    TFJOB,
    Operator,
    as_account,
    conditions_of,
    pods_of,
    set_phase,
    talk,
    until,
)
from tests.unit.tfjob_manifests.building import CONFINED, MANIFESTS, kustomized
from tfjob.api.client import Api
from tfjob.model.arbitrated import allowance_of
from tfjob.model.kinds import (
    EVENTS,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    TFJOBS,
    Manifest,
    Resource,
    resource_of,
)  # fmt: skip

pytestmark = [pytest.mark.usefixtures("crd"), pytest.mark.slow]
Play = Callable[[Callable[[Api, str], Awaitable[None]]], None]
OPERATOR, USER = "deeprec-ext-operator", "somebody"
WEBHOOKS = Resource("mutatingwebhookconfigurations", group="admissionregistration.k8s.io")
VERBS = ("list", "watch", "create")
WHOLE_CLUSTER = [
    *((verb, resource) for resource in (TFJOBS, PODS, SECRETS, EVENTS, RESOURCE_QUOTAS) for verb in VERBS),
    ("list", NODES), ("watch", NODES), ("list", PRIORITY_CLASSES), ("get", PRIORITY_CLASSES), ("patch", WEBHOOKS),
]  # fmt: skip
USES = [
    {"apiGroups": ["kubeflow.org"], "resources": ["tfjobs"], "verbs": ["create", "get", "list"]},
    {"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
]


@pytest.fixture
def others(kubeconfig: str, namespace: str) -> Iterator[tuple[str, str]]:
    """Two namespaces more."""
    names = f"{namespace}-more", f"{namespace}-bare"

    async def make(api: Api) -> None:
        for name in names:
            await api.create(NAMESPACES, None, {"metadata": {"name": name}})

    async def remove(api: Api) -> None:
        for name in names:
            await api.delete(NAMESPACES, None, name)

    talk(kubeconfig, make)
    yield names
    talk(kubeconfig, remove)


async def install(api: Api, home: str, *namespaces: str) -> None:
    """The account and its Lease from the overlay, and rights in these namespaces: nothing but our manifests."""
    overlay = kustomized(MANIFESTS / "overlays" / CONFINED)
    own = [overlay[kind, OPERATOR] for kind in ("ServiceAccount", "Role", "RoleBinding")]
    for body in yaml.safe_load_all(yaml.safe_dump_all(own).replace("namespace: deeprec-ext\n", f"namespace: {home}\n")):
        await api.create(resource_of(body), home, body)
    await give(api, home, *namespaces)


async def give(api: Api, home: str, *namespaces: str) -> None:
    """What `render_chart.py` prints."""
    words = [
        str(MANIFESTS / "render_chart.py"),
        "--installed-in",
        home,
        "--components",
        "arbiter",
        "--rights",
        *namespaces,
    ]
    printed = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=60, check=True).stdout
    for body in yaml.safe_load_all(printed):
        assert body["kind"] in ("Role", "RoleBinding")
        await api.create(resource_of(body), body["metadata"]["namespace"], body)


async def user(api: Api, namespace: str) -> None:
    """May make and see TFJobs there."""
    await api.create(SERVICE_ACCOUNTS, namespace, {"metadata": {"name": USER}})
    await api.create(ROLES, namespace, {"metadata": {"name": USER}, "rules": USES})
    subjects = [{"kind": "ServiceAccount", "name": USER, "namespace": namespace}]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": USER}
    await api.create(ROLE_BINDINGS, namespace, {"metadata": {"name": USER}, "roleRef": reference, "subjects": subjects})


async def may(api: Api, verb: str, resource: Resource, namespace: str = "") -> bool:
    """As the server answers whoever asks."""
    asked = {"verb": verb, "group": resource.group, "resource": resource.plural, "namespace": namespace}
    body = {
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": asked}
    }  # fmt: skip
    found = await api.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    return bool(found["status"]["allowed"])


def elastic(name: str) -> Manifest:
    made = copy.deepcopy(TFJOB)
    made["metadata"] = {"name": name, "annotations": {"aimaster.deeprec.io/enabled": "true"}}
    for type_, count in (("PS", 1), ("Worker", 1)):
        made["spec"]["tfReplicaSpecs"][type_]["replicas"] = count
    for spec in made["spec"]["tfReplicaSpecs"].values():
        spec["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1", "memory": "1Gi"}}
    return made


def command(kubeconfig: str, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KUBECONFIG": kubeconfig, "PYTHONPATH": str(ROOT)}
    full = [sys.executable, "-m", "deeprec_ext.cli.main", *words]
    return subprocess.run(full, env=environment, capture_output=True, text=True, timeout=60)


async def allowance(api: Api, namespace: str, name: str) -> Any:
    found = await api.get(TFJOBS, namespace, name)
    return allowance_of(found["metadata"].get("annotations") or {}, f"{namespace}/{name}")[0]


def test_with_roles_alone_jobs_are_run_in_their_namespaces_and_what_is_missing_is_named(
    kubeconfig: str, namespace: str, others: tuple[str, str], play: Play, tmp_path: Path
) -> None:
    """Three namespaces: one with a quota, one without, and one where nobody has given the operator anything."""
    more, bare = others

    async def make(api: Api, namespace: str) -> None:
        await install(api, namespace, namespace, more)
        await user(api, namespace)
        hard = {"requests.cpu": "8", "requests.memory": "16Gi"}
        await api.create(RESOURCE_QUOTAS, namespace, {"metadata": {"name": "all"}, "spec": {"hard": hard}})
        for one, name in ((more, "free"), (bare, "lost")):
            await api.create(TFJOBS, one, elastic(name))

    play(make)
    as_operator = as_account(kubeconfig, namespace, OPERATOR, tmp_path)
    as_user = as_account(kubeconfig, namespace, USER, tmp_path)

    async def rights(api: Api) -> None:
        assert [one for one in WHOLE_CLUSTER if await may(api, *one)] == []
        assert await may(api, "list", PODS, namespace) and await may(api, "list", PODS, more)
        assert not await may(api, "list", PODS, bare) and not await may(api, "list", SECRETS, namespace)

    talk(as_operator, rights)
    places = [word for one in (namespace, more, bare) for word in ("--namespace", one)]
    log = tmp_path / "operator.log"
    operator = Operator(as_operator, log, *places, "--arbiter", "--image", "deeprec-ext:1")
    try:
        file = tmp_path / "job.yaml"
        file.write_text(yaml.safe_dump_all([elastic("quoted"), plain("usual")]))
        submitted = command(as_user, "submit", str(file), "-n", namespace)
        assert submitted.returncode == 0, submitted.stderr

        async def scenario(api: Api, namespace: str) -> None:
            async def pods() -> bool:
                made = {name for one in (("quoted", namespace), ("usual", namespace), ("free", more))
                        for name in await pods_of(api, one[1], one[0])}  # fmt: skip
                wanted = {"quoted-aimaster", "usual-ps-0", "usual-chief-0", "usual-worker-0", "free-aimaster"}
                return wanted <= made

            await until(api, pods, f"pods\n{log.read_text()[-3000:]}")
            for name in await pods_of(api, namespace, "usual"):
                await set_phase(api, namespace, name, "Running")

            async def runs() -> bool:
                return "Running" in await conditions_of(api, namespace, "usual")

            await until(api, runs, "the condition Running")
            told = await until(api, lambda: allowance(api, namespace, "quoted"), "the quota is the room")
            assert told.runs
            assert await allowance(api, more, "free") is None, "nobody knows of its room"
            assert not await pods_of(api, bare, "lost")

            async def types() -> tuple[set[str], ...]:
                told = [await api.list_all(EVENTS, one, fields="reason=ArbiterConfined") for one in (namespace, more)]
                return tuple({one["type"] for one in found} for found, _ in told)

            async def both() -> bool:
                return await types() == ({"Normal"}, {"Warning"})

            await until(api, both, "both jobs are told, the one without a quota as a warning")

        play(scenario)
        queue = command(as_user, "queue", "-n", namespace, "--json")
        assert queue.returncode == 0, queue.stderr
        shown = json.loads(queue.stdout)
        assert [one["job"] for one in shown["jobs"]] == [f"{namespace}/quoted"]
        assert any("ResourceQuota" in one and "no nodes" in one for one in shown["lacks"])
        unnamed = command(as_user, "queue")
        assert unnamed.returncode == 1 and "tfjobs" in unnamed.stderr, "the kubeconfig names the namespace default"
        status = command(as_user, "status", "-n", namespace, "usual", "--json")
        assert status.returncode == 0 and json.loads(status.stdout)["state"] == "Running", status.stderr
        jobs = command(as_user, "jobs", "-n", namespace)
        assert jobs.returncode == 2 and "verb list on pods" in jobs.stderr and jobs.stderr.count("\n") == 1

        async def later(api: Api, namespace: str) -> None:
            await give(api, namespace, bare)
            await until(api, lambda: pods_of(api, bare, "lost"), "with the rights its job is run, without a restart")

        play(later)
    finally:
        assert operator.stop() == 0
    said = [line for line in log.read_text().splitlines() if "may not" in line]
    for words in ("list nodes:", f"list tfjobs in namespace {bare}:"):
        assert len([line for line in said if words in line]) == 1, said
    assert "`- {apiGroups: [kubeflow.org], resources: [tfjobs], verbs: [list]}`" in log.read_text()
    assert f"in namespace {more}" not in "".join(said) and f"in namespace {namespace}:" not in "".join(said)


def plain(name: str) -> Manifest:
    made = elastic(name)
    del made["metadata"]["annotations"]
    return made
