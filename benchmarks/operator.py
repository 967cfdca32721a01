"""The TFJob operator on a real API server (KUBECONFIG): how fast pods are asked for, and what a job costs.

    python -m benchmarks.operator                   # 100 jobs of 10 pods, then 500; ten minutes
    python -m benchmarks.operator --jobs 20 100

For each count: all TFJobs are created, and the time is taken until every pod and service exists and every job says Created;
then the operator is killed and started again, and for a while nothing must be written that is there already; then twenty jobs
get another worker, one after the other. Pods are not scheduled (they name a scheduler that does not exist): what is measured
is the operator and the API server.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks.job import say
from deeprec_ext.launch.ports import free_port
from tfjob.api.client import Api, NotFoundError
from tfjob.model.kinds import PODS, SERVICES, TFJOBS, Manifest, Resource

ROOT = Path(__file__).resolve().parents[1]
NAMESPACE = "operator-benchmark"
NAMESPACES = Resource("namespaces")
LIMIT_SECONDS = 900.0
SCALINGS = 20
QUIET_SECONDS = 15.0

_CONTAINER: Manifest = {
    "name": "tensorflow", "image": "localhost/busybox:1", "command": ["sleep", "3600"],
    "ports": [{"name": "tfjob-port", "containerPort": 2222}],
}  # fmt: skip


def _replicas(count: int) -> Manifest:
    template = {"spec": {"containers": [copy.deepcopy(_CONTAINER)], "schedulerName": "nobody"}}
    return {"replicas": count, "restartPolicy": "OnFailure", "template": template}


TFJOB: Manifest = {
    "apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "job"},
    "spec": {"tfReplicaSpecs": {"PS": _replicas(3), "Chief": _replicas(1), "Worker": _replicas(6)}},
}  # fmt: skip
PODS_OF_A_JOB = 10


class Operator:
    def __init__(self, log: Path) -> None:
        self.port = free_port()
        words = ["operator", "--metrics-port", str(self.port), "--namespace", NAMESPACE, "--no-leader-election"]
        command = [sys.executable, "-m", "deeprec_ext.cli.main", *words]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with log.open("ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        self.seen = psutil.Process(self.process.pid)

    def cpu_seconds(self) -> float:
        times = self.seen.cpu_times()
        return float(times.user + times.system)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)


async def main(arguments: argparse.Namespace) -> dict[str, Any]:
    rows = []
    log = Path(tempfile.mkdtemp(prefix="operator-")) / "operator.log"
    async with Api.from_environment() as api:
        await _fresh_namespace(api)
        try:
            for count in arguments.jobs:
                rows.append(await one(api, count, log, last=count == arguments.jobs[-1]))
        finally:
            await api.delete(NAMESPACES, None, NAMESPACE)
    return {"rows": rows, "log": str(log)}


async def one(api: Api, count: int, log: Path, *, last: bool) -> dict[str, Any]:
    operator = Operator(log)
    try:
        await asyncio.sleep(3.0)
        began, before = time.monotonic(), operator.cpu_seconds()
        names = [f"job-{count}-{number}" for number in range(count)]
        await _gather([_create(api, name) for name in names])
        asked = time.monotonic() - began
        await _until(api, count, PODS_OF_A_JOB * count)
        seconds, cpu = time.monotonic() - began, operator.cpu_seconds() - before
        rss = operator.seen.memory_info().rss
        versions = await _versions(api)
        operator.kill()
        operator = Operator(log)
        await asyncio.sleep(QUIET_SECONDS)
        after = await _versions(api)
        scaled = [await _scale(api, name) for name in names[:SCALINGS]]
        errors = sum(" E " in line or "Traceback" in line for line in log.read_text().splitlines())
        row = {
            "jobs": count, "pods": PODS_OF_A_JOB * count, "seconds": round(seconds, 1), "asking_seconds": round(asked, 1),
            "operator_cpu_seconds": round(cpu, 1), "operator_cpu_ms_per_pod": round(1000 * cpu / PODS_OF_A_JOB / count, 2),
            "operator_rss_mb": round(rss / 1e6), "errors": errors,
            "writes_after_restart": len(set(after.items()) ^ set(versions.items())),
            "scaling_seconds": round(statistics.median(scaled), 3), "scaling_seconds_max": round(max(scaled), 3),
        }  # fmt: skip
        say(json.dumps(row))
        if not last:
            await _gather([_delete(api, name) for name in names])
            await _until(api, 0, 0)
        return row
    finally:
        operator.kill()


async def _scale(api: Api, name: str) -> float:
    """Seconds from a user's `replicas` to the new pod in the API server."""
    workers = TFJOB["spec"]["tfReplicaSpecs"]["Worker"]["replicas"]
    began = time.monotonic()
    await api.patch(TFJOBS, NAMESPACE, name, {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": workers + 1}}}})
    while True:
        try:
            await api.get(PODS, NAMESPACE, f"{name}-worker-{workers}")
            return time.monotonic() - began
        except NotFoundError:
            if time.monotonic() - began > LIMIT_SECONDS:
                raise SystemExit(f"no further worker of {name} within {LIMIT_SECONDS:.0f} s") from None
            await asyncio.sleep(0.01)


async def _create(api: Api, name: str) -> None:
    await api.create(TFJOBS, NAMESPACE, {**TFJOB, "metadata": {"name": name}})


async def _delete(api: Api, name: str) -> None:
    await api.delete(TFJOBS, NAMESPACE, name)


async def _gather(work: Sequence[Any]) -> None:
    for start in range(0, len(work), 32):
        await asyncio.gather(*work[start : start + 32])


async def _until(api: Api, jobs: int, pods: int) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while True:
        found = [len((await api.list_all(resource, NAMESPACE))[0]) for resource in (PODS, SERVICES)]
        created = 0
        if found == [pods, pods]:
            listed, _ = await api.list_all(TFJOBS, NAMESPACE)
            created = sum(bool((one.get("status") or {}).get("conditions")) for one in listed)
            if created == jobs:
                return
        if time.monotonic() > deadline:
            raise SystemExit(
                f"not within {LIMIT_SECONDS:.0f} s: {pods} pods of {jobs} jobs; there are {found}, {created}"
            )
        await asyncio.sleep(0.5)


async def _versions(api: Api) -> dict[str, str]:
    """Of everything that the operator writes."""
    found: dict[str, str] = {}
    for resource in (PODS, SERVICES, TFJOBS):
        for one in (await api.list_all(resource, NAMESPACE))[0]:
            metadata = one["metadata"]
            found[f"{resource.plural}/{metadata['name']}"] = metadata["resourceVersion"]
    return found


async def _fresh_namespace(api: Api) -> None:
    await api.delete(NAMESPACES, None, NAMESPACE)
    deadline = time.monotonic() + LIMIT_SECONDS
    while any(one["metadata"]["name"] == NAMESPACE for one in (await api.list_all(NAMESPACES, None))[0]):
        if time.monotonic() > deadline:
            raise SystemExit(f"the namespace {NAMESPACE} of an earlier run does not go away")
        await asyncio.sleep(0.5)
    await api.create(NAMESPACES, None, {"metadata": {"name": NAMESPACE}})


def told(result: dict[str, Any]) -> str:
    lines = [
        "| jobs | pods | until all exist | operator's CPU per pod | operator's memory | errors | writes after its restart "
        "| scaling request to pod, median, max |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        lines.append(
            f"| {row['jobs']} | {row['pods']} | {row['seconds']} s | {row['operator_cpu_ms_per_pod']} ms "
            f"| {row['operator_rss_mb']} MB | {row['errors']} | {row['writes_after_restart']} "
            f"| {row['scaling_seconds']}, {row['scaling_seconds_max']} s |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, nargs="+", default=[100, 500])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result here too")
    given = parser.parse_args()
    measured = asyncio.run(main(given))
    if given.json:
        given.json.write_text(json.dumps(measured, indent=1))
    print(told(measured))
