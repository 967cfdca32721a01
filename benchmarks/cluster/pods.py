"""What the experiments share: a Kubernetes whose node has so many slots, an operator, jobs of real pods, what is seen of them.

A slot is an extended resource of the node, of which each pod that trains requests one: two cores stand in for a cluster. The
pods are real (containerd, kubelet), and so is who decides on them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shlex
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from benchmarks.job import end_on_signals, say
from tests.cluster.e2e import ROOT, Failed, aimaster_overlay, cluster, pod_spec
from tests.cluster.kube import NAMESPACES, Operator, install_crd
from tfjob.api.client import Api
from tfjob.model.kinds import NODES, PODS, TFJOBS, Manifest

SLOT = "deeprec.io/slot"
NAMESPACE = "shared"
EVERY_SECONDS = 0.25
LIMIT_SECONDS = 900.0


@dataclass(frozen=True)
class Kind:
    """What trains in the pods of a job, each record of which takes a known time (`paced.py`).

    Args:
        command: of Python; `--records`, `--notes` and `--name` are added to it.
        ps: how many it has, with a slot each.
    """

    command: tuple[str, ...]
    ps: int = 0


KINDS = {
    "paced": Kind(("-m", "benchmarks.cluster.paced")),
    "ps": Kind((str(ROOT / "benchmarks" / "cluster" / "paced_wide_deep.py"),), ps=1),
    "resnet": Kind((str(ROOT / "benchmarks" / "cluster" / "paced_resnet.py"),)),
}


@dataclass
class Seen:
    """Pods that run on slots, over time."""

    slots: int
    samples: list[tuple[float, Mapping[str, int]]] = field(default_factory=list)  # time, owner → pods that run

    def first(self, owner: str, most: int, since: float) -> float | None:
        """When this one ran on so many slots at the most."""
        return next((at for at, count in self.samples if at >= since and count.get(owner, 0) <= most), None)

    def used_share(self, since: float, until: float) -> float:
        """Mean over time of the slots whose pod runs."""
        inside = [sum(count.values()) for at, count in self.samples if since <= at <= until]
        return statistics.fmean(inside) / self.slots if inside else 0.0


class World:
    """One cluster, in which jobs come and go."""

    def __init__(self, api: Api, base: Path, slots: int) -> None:
        self.api, self.base, self.seen = api, base, Seen(slots)
        self.began = time.time()
        self.notes = base / "notes"
        self.notes.mkdir()
        self.notes.chmod(0o777)

    @property
    def address(self) -> str:
        """Of this machine, as the node and its pods see it."""
        lines = (self.base.parent / "env").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)["HOST_IP"]

    def say(self, text: str) -> None:
        say(f"{time.time() - self.began:6.1f} s  {text}")

    def job(
        self, name: str, workers: int, records: int, *, kind: str = "paced", least: int = 0,
        annotations: Mapping[str, str] = {}, priority: str = "",
    ) -> Manifest:  # fmt: skip
        """A job of a chief and so many workers beside it, which may be as few as `least`, and of the PS of its kind."""
        command, ps = KINDS[kind].command, KINDS[kind].ps
        spec = pod_spec(self.notes)
        (container,) = spec["containers"]
        container.update(name="tensorflow", resources={"limits": {SLOT: "1"}, "requests": {SLOT: "1"}}, command=[
            "python", *command, "--records", str(records), "--notes", str(self.notes), "--name", name,
        ])  # fmt: skip
        container["env"].append({"name": "PYTHONPATH", "value": str(ROOT)})
        (mount,) = [one for one in container["volumeMounts"] if one["mountPath"] == str(self.notes)]
        mount.pop("readOnly", None)
        pod = {"containers": [container], "volumes": spec["volumes"]}
        if priority:
            pod["priorityClassName"] = priority

        def replicas(count: int) -> Manifest:
            return {"replicas": count, "restartPolicy": "Never", "template": {"spec": pod}}

        given = {
            "enabled": "true", "package": "image", "min-workers": str(least), "max-workers": str(workers),
            **({"max-ps": str(ps)} if ps else {"strategy": "allreduce"}), **annotations,
        }  # fmt: skip
        return {
            "apiVersion": "kubeflow.org/v1", "kind": "TFJob",
            "metadata": {"name": name, "annotations": {f"aimaster.deeprec.io/{key}": value for key, value in given.items()}},
            "spec": {"tfReplicaSpecs": {
                **({"PS": replicas(ps)} if ps else {}), "Chief": replicas(1), "Worker": replicas(workers),
            }},
        }  # fmt: skip

    async def submit(self, manifest: Manifest) -> float:
        await self.api.create(TFJOBS, NAMESPACE, manifest)
        self.say(f"{manifest['metadata']['name']} is submitted")
        return time.time()

    def first_step(self, name: str) -> float | None:
        """When a process of this job made its first step."""
        times = [
            float(path.read_text().split()[0]) for path in self.notes.glob(f"{name}-*") if path.read_text().strip()
        ]
        return min(times, default=None)

    async def trains(self, name: str) -> float | None:
        """The same. Raises Failed where it ended before."""
        if (at := self.first_step(name)) is None:
            await self.ended(name)
        return at

    async def ended(self, name: str) -> float | None:
        """When it succeeded. Raises Failed."""
        job = await self.api.get(TFJOBS, NAMESPACE, name)
        for one in (job.get("status") or {}).get("conditions") or []:
            if one["type"] == "Failed" and one["status"] == "True":
                raise Failed(f"{name}: {one['message']}")
            if one["type"] == "Succeeded" and one["status"] == "True":
                return time.time()
        return None

    async def until(
        self, what: str, condition: Callable[[], Awaitable[Any]] | Callable[[], Any], seconds: float = LIMIT_SECONDS
    ) -> Any:
        deadline = time.time() + seconds
        while True:
            found = condition()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                self.say(what)
                return found
            if time.time() > deadline:
                raise Failed(f"not within {seconds:.0f} s: {what}; {await self.told()}")
            await asyncio.sleep(EVERY_SECONDS)

    async def told(self) -> str:
        """The line of status and the allowance of each job."""
        jobs, _ = await self.api.list_all(TFJOBS, NAMESPACE)
        lines = []
        for job in jobs:
            notes = job["metadata"].get("annotations") or {}
            lines += [f"{job['metadata']['name']}: " + "; ".join(
                str(notes.get(f"aimaster.deeprec.io/{key}", "")) for key in ("status", "allowance")
            )]  # fmt: skip
        return " | ".join(lines)

    async def look(self) -> None:
        """For ever: who has which slots."""
        while True:
            found, _ = await self.api.list_all(PODS, None)
            counts: dict[str, int] = {}
            for pod in found:
                asked = pod["spec"]["containers"][0].get("resources", {}).get("requests", {}).get(SLOT)
                if asked and (pod.get("status") or {}).get("phase") == "Running":
                    labels = pod["metadata"].get("labels") or {}
                    owner = labels.get("training.kubeflow.org/job-name") or labels.get("app") or "others"
                    counts[owner] = counts.get(owner, 0) + int(asked)
            self.seen.samples.append((time.time(), counts))
            await asyncio.sleep(EVERY_SECONDS)


@contextlib.asynccontextmanager
async def world(slots: int, *operator_words: str) -> AsyncIterator[World]:
    """A cluster of its own, with an operator; taken down at the end."""
    lines = cluster("up").splitlines()
    values = dict(word.split("=", 1) for line in lines for word in shlex.split(line) if "=" in word)
    run, kubeconfig = values["CLUSTER_RUN"], values["KUBECONFIG"]
    base = Path(run) / "experiment"
    base.mkdir()
    operator = None
    try:
        cluster("node-up", run=run)
        os.environ["KUBECONFIG"] = kubeconfig
        await asyncio.to_thread(install_crd, kubeconfig)
        overlay = base / "overlay.yaml"
        overlay.write_text(yaml.safe_dump(aimaster_overlay()))
        async with Api.from_environment() as api:
            await api.create(NAMESPACES, None, {"metadata": {"name": NAMESPACE}})
            amounts = {"capacity": {SLOT: str(slots)}, "allocatable": {SLOT: str(slots)}}
            await api.patch(NODES, None, "node1", {"status": amounts}, "status")
            operator = Operator(
                kubeconfig, base / "operator.log", "--image", "localhost/busybox:1", "--aimaster-overlay", str(overlay),
                "--lease-namespace", "default", *operator_words,
            )  # fmt: skip
            made = World(api, base, slots)
            looking = asyncio.ensure_future(made.look())
            try:
                yield made
            except Failed:
                print((base / "operator.log").read_text()[-4000:], file=sys.stderr)
                raise
            finally:
                looking.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await looking
    finally:
        if operator is not None:
            operator.stop()
        await asyncio.to_thread(cluster, "down", "--purge", run=run)


def run_as_program(
    parser: argparse.ArgumentParser, measure: Callable[[argparse.Namespace], Coroutine[Any, Any, Any]]
) -> int:
    """Prints what was measured as JSON."""
    arguments = parser.parse_args()
    end_on_signals()  # or the node, its pods and the operator would be left
    cluster("build", "--node", timeout=3600)
    try:
        print(json.dumps(asyncio.run(measure(arguments)), indent=1))
    except Failed as error:
        print(error, file=sys.stderr)
        return 1
    return 0
