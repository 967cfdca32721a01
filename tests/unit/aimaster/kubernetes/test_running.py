"""All of it: a TFJob in a cluster that pretends, from the first pod to the summary, over the death of the AIMaster's own."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import json
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from deeprec_ext.aimaster.kubernetes import ending, running
from deeprec_ext.aimaster.kubernetes.snapshot import SnapshotError
from deeprec_ext.aimaster.main import main, parse
from deeprec_ext.errors import UsageError
from deeprec_ext.options import JobSpec, Settings, specification
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.rundir import RunDirectory
from tests.unit.aimaster.kubernetes.fake_api import CONFIG_MAPS, PODS, SERVICES, FakeApi
from tests.unit.aimaster.rpc.test_declaring import declare
from tests.unit.aimaster.world import SETTINGS, FakeAgent, World
from tfjob.model.kinds import TFJOBS
from tfjob.model.names import CONFIG_MAP_KEY as KEY
from tfjob.model.names import SCALED_TO_ANNOTATION, STATUS_ANNOTATION

CONTAINER = {"name": "tensorflow", "image": "train:1", "command": ["python", "train.py"]}
TEMPLATE = {"spec": {"containers": [CONTAINER]}}


IN_STEP = {"aimaster.deeprec.io/strategy": "allreduce"}


def tfjob(**annotations: str) -> dict[str, Any]:
    types = {"PS": 2, "Chief": 1, "Worker": 1}
    if IN_STEP.items() <= annotations.items():
        del types["PS"]
    specs = {kind: {"replicas": count, "restartPolicy": "Never", "template": TEMPLATE} for kind, count in types.items()}
    marked = {"aimaster.deeprec.io/enabled": "true", **annotations}
    metadata = {"name": "ctr", "namespace": "team", "uid": "u-ctr", "annotations": marked}
    return {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": metadata, "spec": {"tfReplicaSpecs": specs}}


class Kubelet:
    """Runs an agent in every pod of the job. Stands where the world's backend stands for the agents."""

    def __init__(self, it: Cluster) -> None:
        self._it = it
        self.agents: dict[str, FakeAgent] = {}
        self.everybody: dict[str, FakeAgent] = {}
        self.patient = False  # a pod that is deleted runs on until its process ends
        self.late: set[str] = set()  # whose process starts once there are views
        self._declaring: asyncio.Task[None] | None = None
        self._starting: list[asyncio.Task[None]] = []

    def _start(self, name: str) -> None:
        self.agents[name] = self.everybody[name] = agent = FakeAgent(self._it, name)  # type: ignore[arg-type]
        if self._it.in_step:
            self._starting.append(asyncio.ensure_future(self._join(agent)))

    async def _join(self, agent: FakeAgent) -> None:
        """Of a job without PS: it can sum from now on."""
        while agent.call is None:
            await asyncio.sleep(0.01)
        await agent.say(ring=pb.Ring(address=f"{agent.name}:7"))

    async def _start_late(self, name: str) -> None:
        while "chief-0" not in self.agents or not self.agents["chief-0"].view.workers:
            await asyncio.sleep(0.01)
        self._start(name)

    async def run(self) -> None:
        async for kind, pod in self._it.api.watch(PODS, "team", "0"):
            name, where = pod["metadata"]["name"], pod["metadata"]["name"].partition("-")[2]
            if kind == "ADDED" and where in self._it.no_room:
                continue
            if kind == "ADDED":
                self._it.api.run(name, container=f"{pod['metadata']['uid']}/0")
                if where in self.late:
                    self._starting.append(asyncio.ensure_future(self._start_late(where)))
                else:
                    self._start(where)
                if where == "chief-0" and self._it.autoscaled and not self._it.silent:
                    self._declaring = asyncio.ensure_future(declare(self._it, self._it.model))
            elif kind == "DELETED" or (pod["metadata"].get("deletionTimestamp") and not self.patient):
                self.stop(where)
                if kind != "DELETED":
                    self._it.api.vanish(PODS, name)

    def stop(self, name: str) -> None:
        if (agent := self.agents.pop(name, None)) is not None:
            agent.stop()

    def exit(self, name: str, code: int) -> None:
        self.stop(name)
        uid = self._it.api.objects["pods", f"ctr-{name}"]["metadata"]["uid"]
        self._it.api.exit(f"ctr-{name}", code, f"{uid}/0")
        if "deletionTimestamp" in self._it.api.objects["pods", f"ctr-{name}"]["metadata"]:
            self._it.api.vanish(PODS, f"ctr-{name}")


class Cluster(World):
    def __init__(self, directory: Path, **annotations: str) -> None:
        super().__init__(directory)
        self.api, self.directory = FakeApi(), directory
        self.backend = Kubelet(self)  # type: ignore[assignment]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.api.put(TFJOBS, tfjob(**annotations))
        self.in_step = IN_STEP.items() <= annotations.items()
        if self.in_step:
            self.catalogue = pb.Catalogue()
        self.pods = 0
        self.no_room: set[str] = set()  # whose pods find no node
        self.more: dict[str, Any] = {}  # of the AIMaster's specification
        self.words: list[str] = []  # and of its command line
        self.model: pb.Declaration | None = None  # that the chief declares; None: it has none before its view
        self.silent = False  # nor does it say so

    def aimaster(self, *, no_operator: bool = False, slots: int = 8) -> asyncio.Task[int]:
        """A new pod of it, with an empty disk."""
        self.pods += 1
        workdir = self.directory / f"pod-{self.pods}"
        words = ["--tfjob", "team/ctr", "--listen", self.address, "--workdir", str(workdir), *self.words]
        with mock.patch.dict(os.environ, {SPECIFICATION: specification((), name="job")}):
            options, _ = parse(words)
        told = {"ps": 2, "workers": 1, "settings": SETTINGS, "package_image": "deeprec-ext:1", "slots": slots}
        told |= {"ps": 0, "min_ps": 0, "slots": 0} if self.in_step else {}
        spec = JobSpec(name="job", workdir=workdir, operator=not no_operator, **{**told, **self.more})
        serving = running.serve_with(self.api, options, spec, self.directory / "termination-log")  # type: ignore[arg-type]
        return asyncio.ensure_future(serving)

    @property
    def autoscaled(self) -> bool:
        settings: Settings = self.more.get("settings", SETTINGS)
        return settings.autoscale

    async def trains(self, workers: int = 2) -> None:
        for _ in range(600):
            with contextlib.suppress(Exception):
                status = await self.status()
                if status.live and sum(role.heartbeat.training for role in status.roles) >= workers:
                    return
            await asyncio.sleep(0.01)
        raise AssertionError("it does not train")

    @property
    def annotations(self) -> dict[str, str]:
        found: dict[str, str] = self.api.objects["tfjobs", "ctr"]["metadata"]["annotations"]
        return found

    async def committed(self) -> None:
        for _ in range(800):
            status = await self.status()
            if [one.outcome for one in status.scalings] == ["committed"]:
                return
            await asyncio.sleep(0.01)
        raise AssertionError("not in time")


@contextlib.asynccontextmanager
async def cluster(directory: Path, **annotations: str) -> AsyncIterator[Cluster]:
    it = Cluster(directory, **annotations)
    kubelet = asyncio.ensure_future(it.backend.run())  # type: ignore[attr-defined]
    try:
        yield it
    finally:
        kubelet.cancel()
        for name in list(it.backend.agents):
            it.backend.stop(name)  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "STOP_GRACE_SECONDS", 1.0)
    monkeypatch.setattr(running, "COUNT_SECONDS", 0.1)


def play(directory: Path, test: Callable[[Cluster], Coroutine[Any, Any, None]], **annotations: str) -> None:
    async def run() -> None:
        async with cluster(directory, **annotations) as it:
            await test(it)

    asyncio.run(asyncio.wait_for(run(), 50))


def test_a_tfjob_from_the_first_pod_to_its_summary(tmp_path: Path) -> None:
    async def test(it: Cluster) -> None:
        serving = it.aimaster()
        await it.trains()
        assert it.api.names(PODS) == it.api.names(SERVICES) == ["ctr-chief-0", "ctr-ps-0", "ctr-ps-1", "ctr-worker-0"]
        directory = RunDirectory(tmp_path / "pod-1")
        assert directory.in_use() and directory.read_description()["job"] == "job"
        pod = it.api.objects["pods", "ctr-ps-0"]
        container = pod["spec"]["containers"][0]
        environment = {one["name"]: one.get("value") for one in container["env"]}
        assert environment["DEEPREC_EXT_JOB"] == "team.ctr" and environment["DEEPREC_EXT_SLOTS"] == "8"
        assert environment["DEEPREC_EXT_ADDRESS"] == "$(DEEPREC_EXT_POD_IP):2222"
        assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"
        assert pod["spec"]["restartPolicy"] == "OnFailure" and pod["metadata"]["ownerReferences"][0]["uid"] == "u-ctr"
        assert it.api.objects["services", "ctr-ps-0"]["spec"]["publishNotReadyAddresses"]
        await it.scale(ps=3)
        await it.committed()
        for _ in range(300):
            if json.loads(it.annotations.get(SCALED_TO_ANNOTATION, "{}")).get("PS") == 3:
                break
            await asyncio.sleep(0.01)
        assert it.api.objects["tfjobs", "ctr"]["spec"]["tfReplicaSpecs"]["PS"]["replicas"] == 3
        it.backend.exit("chief-0", 0)
        assert await serving == 0
        phases = {name: one["status"]["phase"] for (kind, name), one in it.api.objects.items() if kind == "pods"}
        assert set(phases.values()) == {"Succeeded"} and len(phases) == 5, "PS and workers leave by exiting 0"
        summary = json.loads((tmp_path / "pod-1" / "summary.json").read_text())
        state = it.api.objects["configmaps", "ctr-aimaster-state"]
        kept, packed = state["data"], state["binaryData"]
        assert json.loads(kept["summary.json"]) == summary  # outlives the pod
        assert "succeeded" in kept["report.md"] and not directory.in_use()
        page = gzip.decompress(base64.b64decode(packed["report.html.gz"])).decode()
        assert page.startswith("<!DOCTYPE html>") and "succeeded" in page and len(packed["report.html.gz"]) < 100_000
        assert "findings" in json.loads(gzip.decompress(base64.b64decode(packed["report.json.gz"])))
        assert (
            set(summary["cost"]["pod_hours"]) == set(summary["cost"]["static_pod_hours"]) == {"ps", "chief", "worker"}
        )
        assert summary["cost"]["pod_hours"]["ps"] > summary["cost"]["static_pod_hours"]["ps"], "a third PS came"
        assert "pod-hours" in it.annotations[STATUS_ANNOTATION] and summary["cost"]["cost"] is None
        assert summary["status"] == "succeeded" and summary["scaling"][0]["outcome"] == "committed"
        assert it.annotations[STATUS_ANNOTATION].startswith("finished: PS ")
        assert {"ScalingRequested", "ScalingCommitted"} <= {reason for _, reason, _ in it.api.told()}

    play(tmp_path, test)


def test_the_aimaster_s_pod_is_lost_and_another_goes_on(tmp_path: Path) -> None:
    async def test(it: Cluster) -> None:
        first = it.aimaster()
        await it.trains()
        await it.scale(workers=2)
        await it.committed()
        agents = dict(it.backend.agents)
        first.cancel()
        await asyncio.wait([first])
        lost = time.time()
        second = it.aimaster(slots=16)  # somebody has changed the annotation: a job keeps its slots
        await it.trains(3)
        status = await it.status()
        assert status.aimaster_incarnation == 2 and [one.outcome for one in status.scalings] == ["committed"]
        assert it.backend.agents == agents, "nobody was started again"
        assert json.loads((tmp_path / "pod-2" / "job.json").read_text())["started"] < lost, "the job runs since before"
        assert "ctr-aimaster-state" in it.api.names(CONFIG_MAPS)
        it.backend.exit("chief-0", 0)
        assert await second == 0
        assert json.loads((tmp_path / "pod-2" / "summary.json").read_text())["scaling"][0]["to"] == 2

    play(tmp_path, test)


@pytest.mark.parametrize("alive", [True, False])
def test_a_damaged_snapshot_stops_only_a_job_in_which_nobody_lives(tmp_path: Path, alive: bool) -> None:
    async def test(it: Cluster) -> None:
        first = it.aimaster()
        await it.trains()
        first.cancel()
        await asyncio.wait([first])
        it.api.change(CONFIG_MAPS, "ctr-aimaster-state", {"binaryData": {"state": "AAAA"}})
        if not alive:
            for name in list(it.backend.agents):
                it.api.vanish(PODS, f"ctr-{name}")
            with pytest.raises(SnapshotError, match="delete the ConfigMap"):
                await it.aimaster()
            return
        second = it.aimaster()
        await it.trains()
        assert (await it.status()).aimaster_incarnation == 2
        second.cancel()
        await asyncio.wait([second])

    play(tmp_path, test)


def test_told_to_end_it_leaves_the_job_alone(tmp_path: Path) -> None:
    async def test(it: Cluster) -> None:
        serving = it.aimaster()
        await it.trains()
        signal.raise_signal(signal.SIGTERM)
        assert await serving == 143, "not 0: the job has not succeeded"
        assert len(it.backend.agents) == 4 and it.api.count("delete", PODS) == 0
        assert not (tmp_path / "termination-log").exists()

    play(tmp_path, test)


def test_a_script_that_fails_at_once_fails_the_job_with_its_last_line(tmp_path: Path) -> None:
    async def test(it: Cluster) -> None:
        serving = it.aimaster()
        for _ in range(300):
            if len(it.backend.agents) == 4:
                break
            await asyncio.sleep(0.01)
        it.backend.stop("chief-0")
        uid = it.api.objects["pods", "ctr-chief-0"]["metadata"]["uid"]
        it.api.exit("ctr-chief-0", 1, f"{uid}/0", message="Traceback\nNo such file: data.csv\n")
        assert await serving == 1
        word = (tmp_path / "termination-log").read_text()
        assert word == "chief-0 exited with code 1 and is not started again: No such file: data.csv"
        assert it.api.names(PODS) == [] and ("Warning", "JobFailed", word) in it.api.told()
        assert it.annotations[STATUS_ANNOTATION].endswith(word)
        (tmp_path / "termination-log").unlink()
        before = it.api.objects["configmaps", "ctr-aimaster-state"]
        assert await it.aimaster() == 1, "the kubelet starts it again"
        assert (tmp_path / "termination-log").read_text() == word
        assert it.api.names(PODS) == [] and it.api.objects["configmaps", "ctr-aimaster-state"] == before

    play(tmp_path, test)


def test_rights_that_are_too_narrow_are_an_event_of_the_tfjob(tmp_path: Path) -> None:
    async def test(it: Cluster) -> None:
        it.api.forbidden = {("create", "services")}
        assert await it.aimaster() == 1
        [(kind, reason, message)] = [one for one in it.api.told() if one[1] == "AIMasterFailed"]
        assert kind == "Warning" and 'cannot create resource "services"' in message, reason

    play(tmp_path, test)


def test_without_an_operator_the_job_lies_in_a_config_map(tmp_path: Path) -> None:
    async def test(it: Cluster) -> None:
        it.api.vanish(TFJOBS, "ctr")
        it.api.put(CONFIG_MAPS, {"metadata": {"name": "ctr-tfjob", "uid": "u-map"}, "data": {KEY: json.dumps(tfjob())}})
        serving = it.aimaster(no_operator=True)
        await it.trains()
        owners = [one["metadata"]["ownerReferences"][0] for (kind, _), one in it.api.objects.items()
                  if kind in ("pods", "services")]  # fmt: skip
        assert len(owners) == 8 and all((one["kind"], one["uid"]) == ("ConfigMap", "u-map") for one in owners)
        await it.scale(workers=2)
        await it.committed()
        it.backend.exit("chief-0", 0)
        assert await serving == 0
        assert not [call for call in it.api.calls if call[1] == "tfjobs"]
        assert ("Normal", "ScalingCommitted") in [one[:2] for one in it.api.told()]

    play(tmp_path, test)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "has no TFJob"),
        ({KEY: "{"}, "has no TFJob"),
        ({KEY: json.dumps({**tfjob(), "metadata": {"name": "x"}})}, "x"),
    ],
)
def test_a_config_map_without_the_job_is_refused(tmp_path: Path, data: dict[str, str], message: str) -> None:
    async def test(it: Cluster) -> None:
        it.api.put(CONFIG_MAPS, {"metadata": {"name": "ctr-tfjob", "uid": "u-map"}, "data": data})
        with pytest.raises(UsageError, match=message):
            await it.aimaster(no_operator=True)

    play(tmp_path, test)


def test_a_tfjob_that_is_not_elastic_is_refused(tmp_path: Path) -> None:
    async def test(it: Cluster) -> None:
        with pytest.raises(UsageError, match="annotate it"):
            await it.aimaster()

    play(tmp_path, test, **{"aimaster.deeprec.io/enabled": "false"})


def test_pods_belong_to_the_gang_if_there_is_one(tmp_path: Path) -> None:
    async def test(it: Cluster) -> None:
        it.more = {"gang_scheduler": "volcano"}
        serving = it.aimaster()
        await it.trains()
        for name in ("ctr-ps-0", "ctr-chief-0", "ctr-worker-0"):
            pod = it.api.objects["pods", name]
            assert pod["spec"]["schedulerName"] == "volcano"
            assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "ctr"
        serving.cancel()
        await asyncio.wait([serving])

    play(tmp_path, test)


COMMON = ["--listen", "127.0.0.1:0", "--workdir", "run"]
SPECIFICATION = "DEEPREC_EXT_SPECIFICATION"


def test_pods_come_from_the_launcher_or_from_a_cluster(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SPECIFICATION, specification((), name="team.ctr", package_image="deeprec-ext:1"))
    options, spec = parse([*COMMON, "--tfjob", "team/ctr"])
    assert options.launcher is None and spec.package_image == "deeprec-ext:1"
    for wrong in ([], ["--tfjob", "team/ctr", "--launcher", "127.0.0.1:1"]):
        with pytest.raises(SystemExit):
            parse([*COMMON, *wrong])
    assert main([*COMMON, "--tfjob", "ctr"]) == 2
    assert "write NAMESPACE/NAME" in capsys.readouterr().err
