"""Beside Kubeflow's training operator, against a real API server.

Real: the server, its calls of our webhook, admission, patches, watches, garbage collection; our operator as a process, with the
rights that are installed with it; the AIMaster, in this process, with those that the operator gives it. Played: Kubeflow's
controller (`Kubeflow`, what of it matters to us), the kubelet (there is no node) and the training processes (`Node`: agents
that only pretend).
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml

from deeprec_ext.aimaster.kubernetes import running
from deeprec_ext.aimaster.kubernetes.naming import Naming
from deeprec_ext.aimaster.main import parse as parse_command
from deeprec_ext.launch.ports import free_port
from deeprec_ext.options import JobSpec, read_specification, specification
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.cluster.kube import NAMESPACES, TFJOB, Operator, pods_of, set_phase, talk, until
from tests.unit.aimaster.world import SETTINGS, FakeAgent, World
from tests.unit.tfjob_manifests.building import MANIFESTS, kustomized
from tfjob.api.client import Api, ApiError, ConflictError, NotFoundError
from tfjob.model import names
from tfjob.model.kinds import EVENTS, PODS, ROLES, TFJOBS, Manifest, Resource
from tfjob.model.spec import TFJob
from tfjob.operator.webhook import CONFIGURATION, CONFIGURATIONS
from tfjob.pods import replica

pytestmark = [pytest.mark.usefixtures("crd"), pytest.mark.slow]
NUMBERS = itertools.count(1)
RBAC, INSTALLED = "rbac.authorization.k8s.io", "deeprec-ext"
PREFIX = names.ANNOTATION_PREFIX
Conversation = Callable[[Api, str], Awaitable[None]]


@pytest.fixture
def namespace(kubeconfig: str) -> Iterator[str]:
    name = f"beside-{os.getpid()}-{next(NUMBERS)}"

    async def make(api: Api) -> bool:
        with contextlib.suppress(NotFoundError):
            await api.get(CONFIGURATIONS, None, CONFIGURATION)
            return False
        await api.create(NAMESPACES, None, {"metadata": {"name": name}})
        for plural, group, one in installed():
            where = one["metadata"].get("namespace")
            with contextlib.suppress(ConflictError):
                await api.create(Resource(plural, group=group), where, one)
        return True

    async def remove(api: Api) -> None:
        await api.delete(CONFIGURATIONS, None, CONFIGURATION)
        await api.delete(NAMESPACES, None, name)

    if not talk(kubeconfig, make):
        pytest.skip("an operator is installed beside Kubeflow in this cluster: these tests would take its webhook away")
    yield name
    talk(kubeconfig, remove)


def installed() -> list[tuple[str, str, Manifest]]:
    """What of the overlay concerns rights and the webhook: (plural, group, manifest)."""
    plurals = {
        "Namespace": ("namespaces", ""), "ServiceAccount": ("serviceaccounts", ""),
        "ClusterRole": ("clusterroles", RBAC), "ClusterRoleBinding": ("clusterrolebindings", RBAC),
        "Role": ("roles", RBAC), "RoleBinding": ("rolebindings", RBAC),
        "MutatingWebhookConfiguration": (CONFIGURATIONS.plural, CONFIGURATIONS.group),
    }  # fmt: skip
    found = kustomized(MANIFESTS / "overlays" / "beside-kubeflow")
    return [(*plurals[kind], one) for (kind, _), one in found.items() if kind in plurals]


def limited(kubeconfig: str, namespace: str, account: str, directory: Path) -> str:
    """A kubeconfig of this service account."""
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    token = talk(kubeconfig, lambda api: api.request("POST", path, request))["status"]["token"]
    found = yaml.safe_load(Path(kubeconfig).read_text())
    for one in found["users"]:
        one["user"] = {"token": token}
    written = directory / f"{account}.kubeconfig"
    written.write_text(yaml.safe_dump(found))
    return str(written)


@pytest.fixture
def operators(kubeconfig: str, namespace: str, tmp_path: Path) -> Iterator[Callable[[], Operator]]:
    """Starts operators of the namespace, which the server reaches at this machine."""
    started: list[Operator] = []
    config = limited(kubeconfig, INSTALLED, "deeprec-ext-operator", tmp_path)

    def start() -> Operator:
        port, log = free_port(), tmp_path / f"operator-{len(started)}.log"
        one = Operator(
            config, log, "--mode", "beside-kubeflow", "--namespace", namespace, "--lease-namespace", INSTALLED,
            "--image", "deeprec-ext:test", "--webhook-port", str(port),
            "--webhook-url", f"https://127.0.0.1:{port}/tfjobs",
        )  # fmt: skip
        started.append(one)

        async def announced(api: Api) -> None:
            async def there() -> bool:
                assert one.process.poll() is None, log.read_text()[-3000:]
                found = await api.get(CONFIGURATIONS, None, CONFIGURATION)
                return str(port) in str(found["webhooks"][0]["clientConfig"].get("url"))

            await until(api, there, "the server knows the webhook")

        talk(kubeconfig, announced)
        return one

    yield start
    for one in started:
        if one.process.poll() is None:
            assert one.stop() == 0, one.log.read_text()[-3000:]


def job(name: str = "job", *, elastic: bool = True, **annotations: str) -> Manifest:
    made = copy.deepcopy(TFJOB)
    given = {PREFIX + key.replace("_", "-"): value for key, value in annotations.items()}
    made["metadata"] = {"name": name, "annotations": {**({PREFIX + "enabled": "true"} if elastic else {}), **given}}
    specs = made["spec"]["tfReplicaSpecs"]
    for type_, count in (("PS", 2), ("Worker", 1)):
        specs[type_]["replicas"] = count
    specs["PS"]["restartPolicy"] = "Never"
    if given.get(PREFIX + "strategy") == "allreduce":
        del specs["PS"]
    return made


def templates(manifest: Manifest) -> list[Manifest]:
    return [one["template"]["spec"] for one in manifest["spec"]["tfReplicaSpecs"].values()]


def injected(manifest: Manifest) -> bool:
    return all(
        [one["name"] for one in spec.get("initContainers") or []] == ["deeprec-ext"] for spec in templates(manifest)
    )


async def create(api: Api, namespace: str, manifest: Manifest) -> Manifest:
    """Once the server uses the webhook, which it may do some seconds after it was told of it."""
    made: Manifest = {}

    async def admitted() -> bool:
        made.clear()
        made.update(await api.create(TFJOBS, namespace, manifest))
        if not injected(made):
            await api.delete(TFJOBS, namespace, manifest["metadata"]["name"])
        return injected(made)

    await until(api, admitted, "the webhook is asked", every=0.5)
    return made


async def has_aimaster(api: Api, namespace: str, name: str) -> Manifest:
    async def there() -> Manifest | None:
        return (await pods_of(api, namespace, name)).get(f"{name}-aimaster")

    found = await until(api, there, f"the AIMaster of {name}")
    assert found is not None
    return found


async def told(api: Api, namespace: str, name: str, reason: str) -> str:
    async def there() -> str:
        events, _ = await api.list_all(EVENTS, namespace, fields=f"involvedObject.name={name}")
        return next((one["message"] for one in events if one["reason"] == reason), "")

    return await until(api, there, f"the Event {reason}")


# ---------------------------------------------------------------------------------------------------- the operator


def test_an_annotated_job_is_prepared_and_gets_an_aimaster_and_others_stay(operators: Any, play: Any) -> None:
    operators()

    async def scenario(api: Api, namespace: str) -> None:
        made = await create(api, namespace, job())
        assert {one["restartPolicy"] for one in made["spec"]["tfReplicaSpecs"].values()} == {"OnFailure"}
        pod = await has_aimaster(api, namespace, "job")
        (given,) = pod["spec"]["containers"][0]["env"]
        assert not read_specification(given["value"]).own_pods
        assert "instead of what was written for PS (Never)" in await told(api, namespace, "job", "RestartPolicyChanged")
        rules = (await api.get(ROLES, namespace, "job-aimaster"))["rules"]
        assert not [one for one in rules if "create" in one["verbs"] and {"pods", "services"} & set(one["resources"])]
        ordinary = await api.create(TFJOBS, namespace, job("plain", elastic=False))
        assert not any("initContainers" in spec for spec in templates(ordinary))
        await asyncio.sleep(1.0)
        assert set(await pods_of(api, namespace, "job")) == {"job-aimaster"}, "the others are Kubeflow's to make"
        assert not await pods_of(api, namespace, "plain")
        assert "status" not in await api.get(TFJOBS, namespace, "job")

    play(scenario)


def test_what_cannot_be_is_denied_by_the_server_with_the_field_and_a_dry_run_makes_nothing(
    operators: Any, play: Any
) -> None:
    operators()

    async def scenario(api: Api, namespace: str) -> None:
        await create(api, namespace, job("first"))
        with pytest.raises(ApiError, match=r"denied the request: metadata\.annotations\[.*max-ps\]: is 'none'"):
            await api.create(TFJOBS, namespace, job("bad", max_ps="none"))
        dry = await api.request("POST", TFJOBS.path(namespace), job("dry"), query={"dryRun": "All"})
        assert injected(dry)
        found, _ = await api.list_all(TFJOBS, namespace)
        assert [one["metadata"]["name"] for one in found] == ["first"]

    play(scenario)


def test_without_an_operator_jobs_are_created_all_the_same_and_the_next_one_tells(operators: Any, play: Any) -> None:
    first = operators()

    async def scenario(api: Api, namespace: str) -> None:
        await create(api, namespace, job("before"))
        first.kill()
        missed = await api.create(TFJOBS, namespace, job("missed"))
        assert not injected(missed), "failurePolicy Ignore"

    play(scenario)
    operators()

    async def later(api: Api, namespace: str) -> None:
        assert "create it anew" in await told(api, namespace, "missed", "NotElastic")
        await has_aimaster(api, namespace, "before")
        await create(api, namespace, job("after"))
        await has_aimaster(api, namespace, "after")
        assert not await pods_of(api, namespace, "missed")

    play(later)


def test_of_two_operators_both_serve_the_webhook_and_one_acts(operators: Any, play: Any) -> None:
    both = [operators(), operators()]

    async def scenario(api: Api, namespace: str) -> None:
        async def leader() -> list[Operator]:
            return [one for one in both if "leads" in one.log.read_text()]

        (leading,) = await until(api, leader, "a leader")
        # The server asks the second one, which is another than the leader or the leader itself.
        await create(api, namespace, job("one"))
        await has_aimaster(api, namespace, "one")
        leading.kill()
        if leading is both[1]:  # where it was reached is nobody any more: as if the service had one address less
            await api.delete(CONFIGURATIONS, None, CONFIGURATION)
        await api.patch(TFJOBS, namespace, "one", {"metadata": {"annotations": {PREFIX + "max-pss": "1"}}})
        assert "max-ps" in await told(api, namespace, "one", "UnknownAnnotation"), "the other one acts now"

    play(scenario)


# ---------------------------------------------------------------------------------------------------- the AIMaster


class Kubeflow:
    """Stands in for the training operator's controller: makes pods of missing indices from the templates, deletes surplus ones.
    The rest of it (services, status, its own code for TF_CONFIG, restarts of failed pods) is left out."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api, self._namespace = api, namespace

    async def run(self) -> None:
        while True:
            await self._look(TFJob.parse(await self._api.get(TFJOBS, self._namespace, "job")))
            await asyncio.sleep(0.1)

    async def _look(self, job: TFJob) -> None:
        there = await pods_of(self._api, self._namespace, "job")
        for type_, spec in job.specs.items():
            for index in range(spec.replicas):
                if names.pod_name("job", type_, index) not in there:
                    with contextlib.suppress(ConflictError):
                        await self._api.create(PODS, self._namespace, replica.pod(job, type_, index))
            for name, pod in there.items():
                labels = pod["metadata"]["labels"]
                if labels.get(names.TYPE_LABEL) == type_.lower() and int(labels[names.INDEX_LABEL]) >= spec.replicas:
                    await self._api.delete(PODS, self._namespace, name)


class Node(World):
    """The kubelet: what is pending runs, with an agent in it; an agent that leaves has exited 0; a pod that is gone takes its
    agent along. Stands where the world's backend stands for the agents."""

    def __init__(self, directory: Path, api: Api, namespace: str, **spec: object) -> None:
        super().__init__(directory, **spec)
        self.backend = self  # type: ignore[assignment]
        self.api, self.namespace, self.directory = api, namespace, directory
        self.address = f"127.0.0.1:{free_port()}"
        self.agents: dict[str, tuple[str, FakeAgent]] = {}  # by role: uid of its pod
        self._exits: set[asyncio.Task[None]] = set()
        self._lives = 0

    async def run(self) -> None:
        while True:
            found = await pods_of(self.api, self.namespace, "job")
            uids = {pod["metadata"]["uid"] for pod in found.values()}
            for role, (uid, agent) in list(self.agents.items()):
                if uid not in uids:
                    agent.stop()
                    del self.agents[role]
            for name, pod in found.items():
                role = Naming("job", "Chief").role(pod["metadata"]["labels"])
                if role and pod["status"]["phase"] == "Pending" and role not in self.agents:
                    with contextlib.suppress(ApiError):
                        await set_phase(self.api, self.namespace, name, "Running")
                        self.agents[role] = (pod["metadata"]["uid"], FakeAgent(self, role))
            for role, (_, agent) in self.agents.items() if self.spec.sums else ():
                if agent.call is not None and role not in {worker.name for worker in agent.view.workers}:
                    await agent.say(ring=pb.Ring(address=f"{role}:2222"))
            await asyncio.sleep(0.1)

    def exit(self, role: str, code: int) -> None:
        self.agents[role][1].stop()
        phase = "Succeeded" if code == 0 else "Failed"
        task = asyncio.ensure_future(
            set_phase(self.api, self.namespace, f"job-{role}", phase, exit_code=code, container="tensorflow")
        )
        self._exits.add(task)

    def aimaster(self) -> asyncio.Task[int]:
        """A new pod of it, with an empty disk."""
        self._lives += 1
        workdir = self.directory / f"pod-{self._lives}"
        words = ["--tfjob", f"{self.namespace}/job", "--listen", self.address, "--workdir", str(workdir)]
        with mock.patch.dict(os.environ, {"DEEPREC_EXT_SPECIFICATION": specification((), name="job")}):
            options, _ = parse_command(words)
        patient = SETTINGS.__class__(**{**vars(SETTINGS), "acquire_limit_seconds": 60, "release_limit_seconds": 20.0,
                                        "prepare_limit_seconds": 20, "pause_limit_seconds": 10.0, "lease_seconds": 20.0,
                                        "ps_heartbeat_limit_seconds": 30, "worker_heartbeat_limit_seconds": 30})  # fmt: skip
        sizes = {name: getattr(self.spec, name) for name in ("ps", "min_ps", "slots", "workers")}
        spec = JobSpec(**sizes, name="job", workdir=workdir, settings=patient, own_pods=False)
        api = Api.from_environment()  # of the AIMaster's own account
        return asyncio.ensure_future(self._serve(api, options, spec))

    async def _serve(self, api: Api, options: Any, spec: JobSpec) -> int:
        async with api:
            return await running.serve_with(api, options, spec, self.directory / "termination-log")

    async def sizes(self) -> tuple[dict[str, int], dict[str, int], set[str]]:
        """Replicas, their note, and the pods that there are."""
        found = await self.api.get(TFJOBS, self.namespace, "job")
        counts = {kind: one["replicas"] for kind, one in found["spec"]["tfReplicaSpecs"].items() if kind != "Chief"}
        noted = json.loads(found["metadata"]["annotations"].get(PREFIX + "scaled-to", "{}"))
        return counts, noted, set(await pods_of(self.api, self.namespace, "job")) - {"job-aimaster"}

    async def settled(self, *, scalings: int, **counts: int) -> None:
        wanted = {f"job-{kind.lower()}-{index}" for kind, count in counts.items() for index in range(count)}

        async def as_wanted() -> bool:
            with contextlib.suppress(Exception):
                outcomes = [one.outcome for one in (await self.status()).scalings]
                ended = len(outcomes) == scalings and all(one == "committed" for one in outcomes)
                return ended and await self.sizes() == (counts, counts, {*wanted, "job-chief-0"})
            return False

        try:
            await until(self.api, as_wanted, f"{counts}")
        except AssertionError as error:
            raise AssertionError(f"{error}; {await self.sizes()}; {await self.status()}") from error


@contextlib.asynccontextmanager
async def trained(api: Api, namespace: str, directory: Path, *, in_step: bool = False) -> AsyncIterator[Node]:
    """A job that trains, by an AIMaster in this process."""
    await create(api, namespace, job(**({"strategy": "allreduce"} if in_step else {})))
    node = Node(directory, api, namespace, **({"ps": 0, "min_ps": 0, "slots": 0} if in_step else {}))
    tasks = [asyncio.ensure_future(Kubeflow(api, namespace).run()), asyncio.ensure_future(node.run())]
    try:
        yield node
    finally:
        for task in tasks:
            task.cancel()
        for _, agent in node.agents.values():
            agent.stop()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(outcome, asyncio.CancelledError), outcome


async def end(serving: asyncio.Task[int]) -> None:
    serving.cancel()
    await asyncio.wait([serving])


def test_scaling_by_replicas_by_the_aimaster_and_by_hand_over_the_death_of_both(
    operators: Any, play: Any, tmp_path: Path, kubeconfig: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = operators()

    async def scenario(api: Api, namespace: str) -> None:
        async with trained(api, namespace, tmp_path) as node:
            await has_aimaster(api, namespace, "job")
            own = await asyncio.to_thread(limited, kubeconfig, namespace, "job-aimaster", tmp_path)
            monkeypatch.setenv("KUBECONFIG", own)
            serving = node.aimaster()
            await node.settled(scalings=0, PS=2, Worker=1)
            await node.scale(ps=4)
            await node.settled(scalings=1, PS=4, Worker=1)
            first.kill()  # the AIMaster needs no operator
            await node.scale(ps=2)
            await node.settled(scalings=2, PS=2, Worker=1)
            await api.patch(TFJOBS, namespace, "job", {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 3}}}})
            await node.settled(scalings=3, PS=2, Worker=3)
            await end(serving)
            serving = node.aimaster()
            await node.settled(scalings=3, PS=2, Worker=3)
            await node.scale(workers=1)
            await node.settled(scalings=4, PS=2, Worker=1)
            assert (await node.status()).aimaster_incarnation == 2
            node.exit("chief-0", 0)
            assert await serving == 0
            _, _, left = await node.sizes()
            assert left == {"job-chief-0", "job-ps-0", "job-ps-1", "job-worker-0"}, "Kubeflow's policy takes them"

    play(scenario)


def test_a_job_without_ps_is_prepared_scaled_and_ends(
    operators: Any, play: Any, tmp_path: Path, kubeconfig: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    operators()

    async def scenario(api: Api, namespace: str) -> None:
        both = job("both", strategy="allreduce")
        both["spec"]["tfReplicaSpecs"]["PS"] = job()["spec"]["tfReplicaSpecs"]["PS"]
        async with trained(api, namespace, tmp_path, in_step=True) as node:
            with pytest.raises(ApiError, match=r"strategy\]: is 'allreduce'; such a job has no PS: leave out .*PS"):
                await api.create(TFJOBS, namespace, both)
            await has_aimaster(api, namespace, "job")
            own = await asyncio.to_thread(limited, kubeconfig, namespace, "job-aimaster", tmp_path)
            monkeypatch.setenv("KUBECONFIG", own)
            serving = node.aimaster()
            await node.settled(scalings=0, Worker=1)
            await node.scale(workers=3)
            await node.settled(scalings=1, Worker=3)
            members = ["chief-0", "worker-0", "worker-1", "worker-2"]

            async def all_in_step() -> bool:
                return list((await node.status()).ring.members) == members

            await until(api, all_in_step, f"a ring of {members}")
            await api.patch(TFJOBS, namespace, "job", {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 1}}}})
            await node.settled(scalings=2, Worker=1)
            node.exit("chief-0", 0)
            assert await serving == 0

    play(scenario)
