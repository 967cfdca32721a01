"""The history of jobs against a real API server: certificates by the operator, the service as a process, mTLS between.

There is no node. AIMasters run here, with the words, the specification and the files that their pods have; agents that pretend
stand for the processes of the other pods.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import copy
import dataclasses
import json
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from deeprec_ext import env
from deeprec_ext.aimaster.kubernetes import running
from deeprec_ext.aimaster.main import parse
from deeprec_ext.autoscaler.history import finished
from deeprec_ext.launch.ports import free_port
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.cluster.kube import TFJOB, pods_of, set_phase, until
from tests.unit.aimaster.rpc.test_declaring import GB, LIMIT, declaration, declare
from tests.unit.aimaster.world import SETTINGS, FakeAgent, catalogue
from tests.unit.history.serving import Serving, serving
from tfjob.api.client import Api, NotFoundError
from tfjob.model import names
from tfjob.model.kinds import EVENTS, PODS, SECRETS, TFJOBS, Manifest, Resource
from tfjob.model.quantities import parse_quantity
from tfjob.operator.certificates.history_certificates import SECRET
from tfjob.pods.certificates import HISTORY_VOLUME

pytestmark = [pytest.mark.usefixtures("crd"), pytest.mark.slow]

GAZER_SECONDS = 0.5
MEASURED_SECONDS = 7.0
"""Of a size: two to settle, two at least to be measured (see `_quick`)."""

CORES, MEMORY = {"ps": 0.3, "trainer": 0.9}, {"ps": 600 << 20, "trainer": 1 << 30}
LIMIT_RANGES = Resource("limitranges")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finished, "SETTLE_SECONDS", 2.0)
    monkeypatch.setattr(finished, "WINDOW_SECONDS_MIN", 2.0)


class Agent(FakeAgent):
    """Makes steps of 100 examples a second, whoever else there is, and says what it uses."""

    def request(self, known: pb.Known | None = None) -> pb.RegisterRequest:
        request = super().request(known)
        request.job = self.world.job  # type: ignore[attr-defined]
        return request

    async def _beat(self) -> None:
        await asyncio.gather(super()._beat(), self._report())

    async def _report(self) -> None:
        used, what = 0.0, "ps" if self.role == pb.PS else "trainer"
        steps = pb.StepSample(steps=5, examples=50, median_seconds=0.1, training=True) if what == "trainer" else None
        while True:
            await asyncio.sleep(GAZER_SECONDS)
            used += CORES[what] * GAZER_SECONDS
            memory = MEMORY[what]
            process = pb.ProcessSample(cpu_seconds=used, rss_bytes=memory, working_set_bytes=memory)
            await self.say(gazer=pb.GazerReport(interval_seconds=GAZER_SECONDS, process=process, steps=steps))


class Node:
    """Runs the pods of one job. Stands where the world and its backend stand for the agents."""

    def __init__(self, api: Api, namespace: str, name: str, address: str, model: pb.Declaration | None = None) -> None:
        """`model`: what its chief declares; None: it waits for its cluster before it has a graph, and says so."""
        self._api, self._namespace, self._name, self._model = api, namespace, name, model
        self.address, self.job = address, f"{namespace}.{name}"
        self.mute: dict[str, set[str]] = {}
        self.fails: dict[str, dict[str, str]] = {}
        self.catalogue, self.answers, self.backend = catalogue(), None, self
        self.agents: dict[str, FakeAgent] = {}
        self._uids: dict[str, str] = {}
        self._exits: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        while True:
            found = {}
            for pod in (await pods_of(self._api, self._namespace, self._name)).values():
                labels = pod["metadata"]["labels"]
                if names.TYPE_LABEL in labels:
                    found[f"{labels[names.TYPE_LABEL]}-{labels[names.INDEX_LABEL]}"] = pod["metadata"]
            for name in self.agents.keys() - found.keys():
                self.agents.pop(name).stop()
            for name, metadata in found.items():
                if self._uids.get(name) != metadata["uid"]:
                    self._uids[name] = metadata["uid"]
                    await set_phase(self._api, self._namespace, metadata["name"], "Running")
                    self.agents[name] = Agent(self, name)  # type: ignore[arg-type]
                    if name == "chief-0":
                        self._declaring = asyncio.ensure_future(declare(self, self._model))  # type: ignore[arg-type]
            await asyncio.sleep(0.2)

    def agent(self, name: str) -> FakeAgent:
        return self.agents[name]

    def exit(self, name: str, code: int) -> None:
        self.agents.pop(name).stop()
        ended = set_phase(self._api, self._namespace, f"{self._name}-{name}", "Succeeded", exit_code=code)
        self._exits.append(asyncio.ensure_future(ended))

    def stop(self) -> None:
        for agent in self.agents.values():
            agent.stop()


def job(name: str, marks: dict[str, str], **replicas: int) -> Manifest:
    made = copy.deepcopy(TFJOB)
    marked = {"enabled": "true", "history": "true", "max-ps": "2", "max-workers": "3", **marks}
    made["metadata"] = {
        "name": name,
        "annotations": {names.ANNOTATION_PREFIX + key: text for key, text in marked.items()},
    }
    specs = made["spec"]["tfReplicaSpecs"]
    for type_, count in {"Chief": 1, **replicas}.items():
        specs[type_]["replicas"] = count
        specs[type_]["template"]["spec"]["containers"][0]["command"] = ["python", "train.py"]
    return made


async def secret_files(api: Api, namespace: str, name: str) -> dict[str, bytes]:
    found = await api.get(SECRETS, namespace, name)
    return {key: base64.b64decode(text) for key, text in (found.get("data") or {}).items()}


class Started:
    """A job, and its AIMaster."""

    def __init__(self, api: Api, namespace: str, name: str, node: Node, aimaster: asyncio.Future[int]) -> None:
        self._api, self._namespace, self.name, self.node, self.aimaster = api, namespace, name, node, aimaster

    async def manifest(self) -> Manifest:
        return await self._api.get(TFJOBS, self._namespace, self.name)

    async def runs(self, *wanted: str) -> None:
        async def so() -> bool:
            assert not self.aimaster.done(), self.aimaster.result()
            return set(self.node.agents) == set(wanted)

        await until(self._api, so, f"{wanted} run")

    async def noted(self, ps: int, workers: int) -> None:
        async def so() -> bool:
            assert not self.aimaster.done(), self.aimaster.result()
            found = await self.manifest()
            text = found["metadata"]["annotations"].get(names.SCALED_TO_ANNOTATION, "{}")
            specs = found["spec"]["tfReplicaSpecs"]
            says = {kind: specs[kind]["replicas"] for kind in ("PS", "Worker")}
            return bool(json.loads(text) == says == {"PS": ps, "Worker": workers})

        await until(self._api, so, f"the TFJob says {ps} PS and {workers} workers")

    async def requests(self, name: str) -> dict[str, float]:
        """Cores and bytes of its container."""
        pod = await self._api.get(PODS, self._namespace, f"{self.name}-{name}")
        found = (pod["spec"]["containers"][0].get("resources") or {}).get("requests") or {}
        return {what: float(parse_quantity(amount)) for what, amount in found.items()}

    async def told(self, text: str) -> str:
        """An Event of the job that has this in it."""

        async def found() -> str:
            events, _ = await self._api.list_all(EVENTS, self._namespace, fields=f"involvedObject.name={self.name}")
            return next((one["message"] for one in events if one["reason"] == "Notice" and text in one["message"]), "")

        return await until(self._api, found, f"an Event says: {text}")

    async def end(self) -> None:
        """In order: the script has ended."""
        self.node.exit("chief-0", 0)
        assert await asyncio.wait_for(self.aimaster, 60) == 0


@contextlib.asynccontextmanager
async def started(
    api: Api, namespace: str, directory: Path, made: Manifest, model: pb.Declaration | None = None
) -> AsyncIterator[Started]:
    name = made["metadata"]["name"]
    await api.create(TFJOBS, namespace, made)

    async def there() -> Manifest | None:
        with contextlib.suppress(NotFoundError):
            return await api.get(PODS, namespace, names.aimaster_name(name))
        return None

    pod = await until(api, there, "its AIMaster is made")
    assert pod is not None
    (container,) = pod["spec"]["containers"]
    (volume,) = [one["secret"] for one in pod["spec"]["volumes"] if one["name"] == HISTORY_VOLUME]
    files = await secret_files(api, namespace, volume["secretName"])
    mounted = directory / name / "certs"
    mounted.mkdir(parents=True)
    for item in volume["items"]:
        (mounted / item["path"]).write_bytes(files[item["key"]])
    assert len(list(mounted.iterdir())) == 3, "the authority's key is not among them"
    words = container["command"][3:]  # python -m deeprec_ext.aimaster
    told = dict(zip(words[::2], words[1::2]))
    address = f"127.0.0.1:{free_port()}"
    told.update({"--listen": address, "--workdir": str(directory / name / "work"), "--history-certs": str(mounted)})
    for flag in ("--certs", "--http"):
        del told[flag]
    (specification,) = [one["value"] for one in container["env"] if one["name"] == env.PREFIX + env.SPECIFICATION]
    with mock.patch.dict(os.environ, {env.PREFIX + env.SPECIFICATION: specification}):
        options, spec = parse([word for pair in told.items() for word in pair])
    settings = dataclasses.replace(SETTINGS, autoscale=spec.settings.autoscale, gazer_seconds=GAZER_SECONDS)
    spec = dataclasses.replace(spec, settings=settings)
    node = Node(api, namespace, name, address, model)
    kubelet = asyncio.ensure_future(node.run())
    aimaster = asyncio.ensure_future(running.serve_with(api, options, spec, directory / name / "termination-log"))
    try:
        yield Started(api, namespace, name, node, aimaster)
    finally:
        for task in (kubelet, aimaster):
            task.cancel()
        await asyncio.wait([kubelet, aimaster], timeout=30)
        node.stop()
        await api.delete(TFJOBS, namespace, name)


Story = Callable[[Callable[[Api, str], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def service(operators: Any, play: Story, tmp_path: Path) -> Iterator[Serving]:
    """With the certificates that an operator has made for it."""
    port, authority = free_port(), tmp_path / "authority"
    authority.mkdir()
    operators("--history", f"127.0.0.1:{port}", "--image", "deeprec-ext:1")

    async def mount(api: Api, namespace: str) -> None:
        async def files() -> dict[str, bytes]:
            with contextlib.suppress(NotFoundError):
                return await secret_files(api, namespace, SECRET)
            return {}

        for name, data in (await until(api, files, "the operator makes the authority")).items():
            (authority / name).write_bytes(data)

    play(mount)
    with serving(f"sqlite:///{tmp_path}/history.db", tmp_path, "--listen", f"127.0.0.1:{port}") as found:
        yield found


async def teach(api: Api, namespace: str, tmp_path: Path) -> None:
    """A job of two sizes, scaled by its user."""
    async with started(api, namespace, tmp_path, job("first", {}, PS=1, Worker=0)) as first:
        await first.runs("ps-0", "chief-0")
        await asyncio.sleep(MEASURED_SECONDS)
        await api.patch(TFJOBS, namespace, "first", {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 2}}}})
        await first.runs("ps-0", "chief-0", "worker-0", "worker-1")
        await first.noted(1, 2)
        await asyncio.sleep(MEASURED_SECONDS)
        await first.end()


def test_a_job_begins_with_what_another_one_has_shown(service: Serving, play: Story, tmp_path: Path) -> None:
    async def scenario(api: Api, namespace: str) -> None:
        await teach(api, namespace, tmp_path)
        ((kept,), _) = await asyncio.to_thread(service.admin.jobs)
        assert (kept.namespace, kept.job.name, kept.job.script) == (namespace, "first", "train.py")
        assert {(one.size.ps, one.size.workers) for one in kept.job.windows} == {(1, 0), (1, 2)}
        made = job("second", {"autoscale": "true"}, PS=2, Worker=0)
        made["spec"]["tfReplicaSpecs"]["Chief"]["template"]["spec"]["containers"][0]["resources"] = {
            "requests": {"cpu": "2"}
        }
        async with started(api, namespace, tmp_path, made) as second:
            await second.noted(1, 2)
            await second.runs("ps-0", "chief-0", "worker-0", "worker-1")
            told = await second.told("each PS requests")
            assert "what a job like it used, and 20% more CPU, 25% more memory" in told
            ps, chief, worker = [await second.requests(name) for name in ("ps-0", "chief-0", "worker-0")]
            assert (ps["memory"], worker["memory"]) == (1.25 * MEMORY["ps"], 1.25 * MEMORY["trainer"])
            assert ps["cpu"] == pytest.approx(1.2 * CORES["ps"], rel=0.2)
            assert worker["cpu"] == pytest.approx(1.2 * CORES["trainer"], rel=0.2)
            assert chief == {"cpu": 2.0, "memory": worker["memory"]}, "what is written stays"
        await api.create(LIMIT_RANGES, namespace, {
            "metadata": {"name": "small"}, "spec": {"limits": [{"type": "Container", "max": {"cpu": "300m"}}]},
        })  # fmt: skip
        async with started(api, namespace, tmp_path, job("third", {"autoscale": "true"}, PS=2, Worker=0)) as third:
            await third.runs("ps-0", "chief-0", "worker-0", "worker-1")
            assert "ps-0 was refused with them" in await third.told("given up")
            assert (await third.requests("worker-0")) == {"cpu": 0.3}, "the cluster's own"

    play(scenario)


def test_a_large_model_has_its_ps_before_the_first_view(service: Serving, play: Story, tmp_path: Path) -> None:
    """Six GB, of which a PS may have three; no job of the script has ended."""
    marks = {"autoscale": "true", "max-ps": "4", "max-ps-memory": f"{LIMIT // 10**6}MB"}

    async def scenario(api: Api, namespace: str) -> None:
        made = job("large", marks, PS=1, Worker=1)
        async with started(api, namespace, tmp_path, made, declaration(6 * GB)) as large:

            async def noted() -> dict[str, int]:
                found = await large.manifest()
                text = found["metadata"]["annotations"].get(names.SCALED_TO_ANNOTATION, "{}")
                return dict(json.loads(text))

            said = await until(api, noted, "the TFJob says what runs")
            assert 3 <= said["PS"] <= 4 and said["Worker"] == 1, "workers are as written"
            await large.runs("chief-0", "worker-0", *(f"ps-{index}" for index in range(said["PS"])))
            await large.end()
        summary = json.loads((tmp_path / "large" / "work" / "summary.json").read_text())
        assert not summary["scaling"] and summary["estimator"]["ps_memory"][0]["predicted"] > 1.5 * GB

    play(scenario)


@pytest.mark.parametrize("what", ["unreachable", "damaged", "a stranger's"])
def test_no_history_keeps_a_job_from_starting(service: Serving, play: Story, tmp_path: Path, what: str) -> None:
    stranger = contextlib.ExitStack()
    if what == "damaged":
        for path in tmp_path.glob("history.db*"):
            path.write_bytes(b"\x00nonsense" * 4096)
    else:
        service.process.terminate()
        service.process.wait(20)
    if what == "a stranger's":
        (tmp_path / "other").mkdir()
        words = ("--listen", f"127.0.0.1:{service.port}")
        stranger.enter_context(serving(f"sqlite:///{tmp_path}/other/history.db", tmp_path / "other", *words))

    async def scenario(api: Api, namespace: str) -> None:
        async with started(api, namespace, tmp_path, job("job", {"autoscale": "true"}, PS=2, Worker=1)) as found:
            await found.noted(2, 1)
            await found.runs("ps-0", "ps-1", "chief-0", "worker-0")
            await found.told("the history is not used, the job begins as it is written")
            assert not await found.requests("ps-0")
            await found.end()

    with stranger:
        play(scenario)
