"""What the tests ask of the API server, and an operator as a process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml

from benchmarks.operator import TFJOB as TFJOB  # the same job is measured
from tfjob.api.client import Api, ConflictError
from tfjob.model.kinds import PODS, SERVICE_ACCOUNTS, SERVICES, TFJOBS, Manifest, Resource

ROOT = Path(__file__).resolve().parents[2]
CRDS = Resource("customresourcedefinitions", group="apiextensions.k8s.io")
NAMESPACES = Resource("namespaces")
T = TypeVar("T")
LIMIT_SECONDS = 60.0


def talk(kubeconfig: str, conversation: Callable[[Api], Awaitable[T]]) -> T:
    """Runs a coroutine with a client of this cluster."""
    os.environ["KUBECONFIG"] = kubeconfig

    async def main() -> T:
        async with Api.from_environment() as api:
            return await conversation(api)

    return asyncio.run(main())


def install_crd(kubeconfig: str) -> None:
    body = yaml.safe_load((ROOT / "tfjob" / "manifests" / "crd" / "crd.yaml").read_text())

    async def install(api: Api) -> None:
        try:
            await api.create(CRDS, None, body)
        except ConflictError:
            await api.patch(CRDS, None, body["metadata"]["name"], {"spec": body["spec"]})
        await until(api, lambda: _established(api, body["metadata"]["name"]), "the CRD is established")

    talk(kubeconfig, install)


async def _established(api: Api, name: str) -> bool:
    found = await api.get(CRDS, None, name)
    conditions = found.get("status", {}).get("conditions") or []
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


async def until(
    api: Api, condition: Callable[[], Awaitable[T]], what: str, seconds: float = LIMIT_SECONDS, every: float = 0.2
) -> T:
    """Waits until it is true; returns it."""
    deadline = time.monotonic() + seconds
    while True:
        found = await condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        await asyncio.sleep(every)


async def pods_of(api: Api, namespace: str, job: str) -> dict[str, Manifest]:
    found, _ = await api.list_all(PODS, namespace, labels=f"training.kubeflow.org/job-name={job}")
    return {one["metadata"]["name"]: one for one in found}


async def services_of(api: Api, namespace: str, job: str) -> dict[str, Manifest]:
    found, _ = await api.list_all(SERVICES, namespace, labels=f"training.kubeflow.org/job-name={job}")
    return {one["metadata"]["name"]: one for one in found}


async def conditions_of(api: Api, namespace: str, job: str) -> dict[str, Manifest]:
    """By type, only those that are True."""
    found = await api.get(TFJOBS, namespace, job)
    conditions = (found.get("status") or {}).get("conditions") or []
    return {one["type"]: one for one in conditions if one["status"] == "True"}


async def set_phase(
    api: Api, namespace: str, pod: str, phase: str, *, exit_code: int | None = None, container: str = "tensorflow"
) -> None:
    """What kubelet would say of a pod: these tests have a control plane without a node."""
    state: dict[str, Any] = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    if exit_code is not None:
        state = {"terminated": {"exitCode": exit_code, "reason": "Completed" if exit_code == 0 else "Error"}}
    status = {
        "phase": phase,
        "containerStatuses": [{
            "name": container, "state": state, "ready": phase == "Running", "restartCount": 0, "image": "", "imageID": "",
        }],
    }  # fmt: skip
    await api.patch(PODS, namespace, pod, {"status": status}, "status")


def as_account(kubeconfig: str, namespace: str, account: str, directory: Path) -> str:
    """A kubeconfig of the same cluster, as a service account sees it."""

    async def token(api: Api) -> str:
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        made = await api.request("POST", SERVICE_ACCOUNTS.path(namespace, account, "token"), request)
        return str(made["status"]["token"])

    text = talk(kubeconfig, token)
    found: Manifest = yaml.safe_load(Path(kubeconfig).read_text())
    found["users"] = [{"name": one["name"], "user": {"token": text}} for one in found["users"]]
    path = directory / f"kubeconfig-of-{account}"
    path.write_text(yaml.safe_dump(found))
    return str(path)


class Operator:
    """`deeprec-ext operator` as a process; ended by its pid."""

    def __init__(self, kubeconfig: str, log: Path, *words: str) -> None:
        self.log = log
        command = [sys.executable, "-m", "deeprec_ext.cli.main", "operator", "--metrics-port", "0", *words]
        environment = {**os.environ, "KUBECONFIG": kubeconfig, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        with log.open("ab") as output:
            self.process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def stop(self) -> int:
        """In order; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the operator does not end:\n{self.log.read_text()[-3000:]}") from None
