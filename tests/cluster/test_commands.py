"""`deeprec-ext submit`, `status`, `scale` and `logs` against a real API server: by who may do all, and by who may do little."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deeprec_ext.cli.cluster import forwarding
from deeprec_ext.cli.main import main
from tests.cluster.kube import NAMESPACES, TFJOB, Operator, set_phase, talk, until
from tfjob.api.client import Api, NotFoundError
from tfjob.model.kinds import CONFIG_MAPS, PODS, ROLE_BINDINGS, ROLES, SECRETS, SERVICE_ACCOUNTS, TFJOBS, Manifest

pytestmark = [pytest.mark.usefixtures("crd"), pytest.mark.slow]
NUMBERS = itertools.count(1)
NO_OPERATOR = ["--no-operator", "--image", "deeprec-ext:1"]


@pytest.fixture
def namespace(kubeconfig: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """KUBECONFIG is set for commands in this process."""
    name = f"commands-{next(NUMBERS)}"

    async def make(api: Api) -> None:
        await api.create(NAMESPACES, None, {"metadata": {"name": name}})
        await until(api, lambda: _is_there(api, SERVICE_ACCOUNTS, name, "default"), "the namespace can be used")

    async def remove(api: Api) -> None:
        await api.delete(NAMESPACES, None, name)

    monkeypatch.setenv("KUBECONFIG", kubeconfig)
    monkeypatch.setattr(forwarding, "START_SECONDS", 0.0)
    talk(kubeconfig, make)
    yield name
    talk(kubeconfig, remove)


async def _is_there(api: Api, resource: Any, namespace: str, name: str) -> bool:
    try:
        await api.get(resource, namespace, name)
    except NotFoundError:
        return False
    return True


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Of an elastic job."""
    made = copy.deepcopy(TFJOB)
    made["metadata"]["annotations"] = {"aimaster.deeprec.io/enabled": "true"}
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(made))
    return str(path)


@pytest.fixture
def narrow(kubeconfig: str, namespace: str, tmp_path: Path) -> list[str]:
    """Flags of somebody who may read and create TFJobs and pods, and make ConfigMaps, and nothing else."""

    async def make(api: Api) -> str:
        await api.create(SERVICE_ACCOUNTS, namespace, {"metadata": {"name": "me"}})
        verbs = ["get", "list", "create"]
        rules = [{"apiGroups": [""], "resources": ["pods", "configmaps"], "verbs": verbs},
                 {"apiGroups": ["kubeflow.org"], "resources": ["tfjobs"], "verbs": verbs}]  # fmt: skip
        await api.create(ROLES, namespace, {"metadata": {"name": "me"}, "rules": rules})
        subjects = [{"kind": "ServiceAccount", "name": "me", "namespace": namespace}]
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "me"}
        await api.create(
            ROLE_BINDINGS, namespace, {"metadata": {"name": "me"}, "roleRef": reference, "subjects": subjects}
        )
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        made = await api.request("POST", SERVICE_ACCOUNTS.path(namespace, "me", "token"), request)
        return str(made["status"]["token"])

    token = talk(kubeconfig, make)
    config: Manifest = yaml.safe_load(Path(kubeconfig).read_text())
    config["users"] = [{"name": "me", "user": {"token": token}}]
    for context in config["contexts"]:
        context["context"]["user"] = "me"
    (tmp_path / "narrow").write_text(yaml.safe_dump(config))
    return ["-n", namespace, "--kubeconfig", str(tmp_path / "narrow")]


def test_a_dry_run_is_checked_by_the_server_and_makes_nothing(
    kubeconfig: str, namespace: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["submit", file, "-n", namespace, "--dry-run"]) == 0
    assert main(["submit", file, "-n", namespace, *NO_OPERATOR, "--dry-run"]) == 0
    assert capsys.readouterr().out.count("the server accepts it") == 2
    assert not talk(kubeconfig, lambda api: api.list_all(TFJOBS, namespace))[0]


def test_a_job_is_submitted_noticed_and_shown(
    kubeconfig: str, namespace: str, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--namespace", namespace, "--lease-namespace", namespace, "--image", "deeprec-ext:1"]
    operator = Operator(kubeconfig, tmp_path / "log", *words)
    try:
        assert main(["submit", file, "-n", namespace]) == 0

        async def there(api: Api) -> bool:
            return await until(api, lambda: _is_there(api, PODS, namespace, "job-aimaster"), "its AIMaster is made")

        talk(kubeconfig, there)
        capsys.readouterr()
        assert main(["status", "-n", namespace, "job", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["state"], found["elastic"]) == ("Created", True)
        assert [pod["name"] for pod in found["pods"]] == ["job-aimaster"]
        assert main(["scale", "-n", namespace, "job", "--ps", "4"]) == 2
        assert "the AIMaster of job does not run (pod job-aimaster: Pending" in capsys.readouterr().err
        assert main(["logs", "-n", namespace, "job", "ps-0"]) == 2
        assert "there are aimaster" in capsys.readouterr().err
    finally:
        assert operator.stop() == 0


def test_without_an_operator_everything_is_made_and_goes_with_the_config_map(
    kubeconfig: str, namespace: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):  # the second time there is nothing to do
        assert main(["submit", file, "-n", namespace, *NO_OPERATOR]) == 0
    capsys.readouterr()
    assert main(["status", "-n", namespace, "job"]) == 0
    assert "without an operator" in capsys.readouterr().out

    async def delete(api: Api) -> None:
        assert {"job-aimaster-certs"} <= {
            one["metadata"]["name"] for one in (await api.list_all(SECRETS, namespace))[0]
        }
        await api.delete(CONFIG_MAPS, namespace, "job-tfjob")

        async def gone() -> bool:
            kinds = ((PODS, "job-aimaster"), (ROLES, "job-aimaster"), (SECRETS, "job-aimaster-certs"))
            return not any([await _is_there(api, resource, namespace, name) for resource, name in kinds])

        await until(api, gone, "what it owns goes with it")

    talk(kubeconfig, delete)


def test_rights_that_are_too_narrow_are_named_by_verb_and_resource(
    kubeconfig: str, namespace: str, file: str, narrow: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["submit", file, *narrow, *NO_OPERATOR]) == 1
    error = capsys.readouterr().err
    assert 'cannot get resource "secrets"' in error and "kubectl delete configmap job-tfjob" in error
    assert main(["submit", file, *narrow]) == 0

    async def run_an_aimaster(api: Api) -> None:
        """As far as the API server knows. There is no node."""
        command = ["python", "-m", "deeprec_ext.aimaster", "--workdir", "/w", "--job", "job"]
        spec = {
            "nodeName": "nowhere",
            "containers": [{"name": "aimaster", "image": "deeprec-ext:1", "command": command}],
        }
        labels = {"training.kubeflow.org/job-name": "job"}
        await api.create(PODS, namespace, {"metadata": {"name": "job-aimaster", "labels": labels}, "spec": spec})
        await set_phase(api, namespace, "job-aimaster", "Running", container="aimaster")

    talk(kubeconfig, run_an_aimaster)
    capsys.readouterr()
    assert main(["status", *narrow, "job"]) == 0
    captured = capsys.readouterr()
    assert 'cannot get resource "pods/exec"' in captured.err and 'cannot list resource "events"' in captured.out
    assert main(["scale", *narrow, "job", "--ps", "4"]) == 1
    assert 'cannot patch resource "tfjobs"' in capsys.readouterr().err
    assert main(["logs", *narrow, "job"]) == 1
    assert 'cannot get resource "pods/log"' in capsys.readouterr().err
    assert main(["scale", "-n", namespace, "job", "--rebalance"]) == 1
    assert "pods/job-aimaster/exec" in capsys.readouterr().err  # allowed, and there is no node
