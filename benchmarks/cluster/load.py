"""Clients of the model servers, and what of their load a HorizontalPodAutoscaler sees: an adapter of external metrics.

The adapter is asked by the API server (`external.metrics.k8s.io`, an APIService to a Service without selector, whose Endpoints
lead to this process), which the controller manager asks for the autoscaler. It asks the servers themselves each second and
tells the mean of a few seconds, as those over a time series do. It asks nobody who he is: it serves one number of a test.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import random
import ssl
import statistics
import subprocess
import time
from collections import deque
from collections.abc import AsyncIterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from benchmarks.cluster.model_server import WIDTH
from tfjob.api.client import Api
from tfjob.model.kinds import PODS, SERVICES, Manifest, Resource

API_SERVICES = Resource("apiservices", group="apiregistration.k8s.io")
ENDPOINTS = Resource("endpoints")
CLUSTER_ROLES = Resource("clusterroles", group="rbac.authorization.k8s.io")
CLUSTER_ROLE_BINDINGS = Resource("clusterrolebindings", group="rbac.authorization.k8s.io")
GROUP, VERSION, METRIC = "external.metrics.k8s.io", "v1beta1", "requests_in_flight"
PORT = 8000
TELLING = "serving-load"
KEPT, ASK_SECONDS = 5, 1.0
"""How many answers of all servers are averaged, and how often they are asked."""
ANSWER_SECONDS = 30.0


class Clients:
    """As many as are wanted, each of whom asks, waits for the answer, and asks again."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._tasks: list[asyncio.Task[None]] = []
        self._wanted = 0
        self.answers: list[tuple[float, float]] = []  # when it came, seconds that it took
        self.failed = 0

    async def be(self, count: int) -> None:
        """Who is too many goes once he has his answer."""
        self._wanted, gone = count, self._tasks[count:]
        self._tasks = self._tasks[:count]
        self._tasks += [asyncio.create_task(self._ask(number)) for number in range(len(self._tasks), count)]
        await asyncio.gather(*gone)

    async def _ask(self, number: int) -> None:
        # A connection for each request: the Service chooses a server for a connection.
        connector = aiohttp.TCPConnector(force_close=True)
        chance = random.Random(number)
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            while number < self._wanted:
                began = time.time()
                try:
                    body = {"x": [chance.random() for _ in range(WIDTH)]}
                    async with session.post(self._url, json=body) as answer:
                        good = answer.status == 200 and 0.0 <= (await answer.json())["y"] <= 1.0
                except (aiohttp.ClientError, asyncio.TimeoutError, OSError):
                    good = False
                if good:
                    self.answers.append((time.time(), time.time() - began))
                else:
                    self.failed += 1
                    await asyncio.sleep(0.1)

    def told(self, since: float) -> dict[str, Any]:
        times = sorted(seconds for at, seconds in self.answers if at >= since)
        if len(times) < 2:
            return {"answers": len(times)}
        return {
            "answers": len(times), "median, s": round(statistics.median(times), 3),
            "p99, s": round(times[int(0.99 * len(times))], 3),
        }  # fmt: skip


class Adapter:
    """The requests that are in all servers, as the metric of one name."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api, self._namespace = api, namespace
        self._values: deque[int] = deque(maxlen=KEPT)
        self.asked = 0

    @property
    def value(self) -> float:
        return statistics.fmean(self._values) if self._values else 0.0

    async def watch(self) -> None:
        """For ever: asks all servers."""
        timeout = aiohttp.ClientTimeout(total=ASK_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                found, _ = await self._api.list_all(PODS, self._namespace, labels="app=serving")
                ready = [pod["status"]["podIP"] for pod in found if _is_ready(pod)]
                told = await asyncio.gather(*(_load(session, address) for address in ready))
                self._values.append(sum(told))
                await asyncio.sleep(ASK_SECONDS)

    def application(self) -> web.Application:
        made = web.Application()
        made.router.add_get(f"/apis/{GROUP}/{VERSION}", self._resources)
        made.router.add_get(f"/apis/{GROUP}/{VERSION}/namespaces/{{namespace}}/{METRIC}", self._metric)
        return made

    async def _resources(self, _: web.Request) -> web.Response:
        return web.json_response({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/{VERSION}",
            "resources": [{
                "name": METRIC, "singularName": "", "namespaced": True, "kind": "ExternalMetricValueList", "verbs": ["get"],
            }],
        })  # fmt: skip

    async def _metric(self, _: web.Request) -> web.Response:
        self.asked += 1
        item = {
            "metricName": METRIC, "metricLabels": {}, "value": f"{round(1000 * self.value)}m",
            "timestamp": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }  # fmt: skip
        return web.json_response({
            "kind": "ExternalMetricValueList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}, "items": [item],
        })  # fmt: skip


@contextlib.asynccontextmanager
async def told(api: Api, namespace: str, address: str, place: Path) -> AsyncIterator[Adapter]:
    """An adapter that the API server finds, at an address of this machine that it and the node reach."""
    name = f"{TELLING}.{namespace}.svc"
    key, certificate = place / "adapter.key", place / "adapter.crt"
    words = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    words += ["-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"]
    subprocess.run([*words, "-keyout", key, "-out", certificate], check=True, stderr=subprocess.DEVNULL, timeout=30)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    adapter = Adapter(api, namespace)
    runner = web.AppRunner(adapter.application(), access_log=None)
    await runner.setup()
    watching = asyncio.create_task(adapter.watch())
    try:
        site = web.TCPSite(runner, address, 0, ssl_context=context)
        await site.start()
        for resource, place_of, body in _ways(runner.addresses[0][1], namespace, address, certificate.read_bytes()):
            await api.create(resource, place_of, body)
        yield adapter
    finally:
        await _ended(watching)
        await runner.cleanup()


def _ways(port: int, namespace: str, address: str, certificate: bytes) -> list[tuple[Resource, str | None, Manifest]]:
    """Objects and their namespaces: how the API server reaches the adapter, and the autoscaler's right to ask it."""
    metadata = {"name": TELLING}
    service = {"metadata": metadata, "spec": {"ports": [{"port": 443, "targetPort": port}]}}
    endpoints = {"metadata": metadata, "subsets": [{"addresses": [{"ip": address}], "ports": [{"port": port}]}]}
    api_service = {
        "metadata": {"name": f"{VERSION}.{GROUP}"},
        "spec": {
            "group": GROUP, "version": VERSION, "groupPriorityMinimum": 100, "versionPriority": 100,
            "service": {"name": TELLING, "namespace": namespace, "port": 443},
            "caBundle": base64.b64encode(certificate).decode(),
        },
    }  # fmt: skip
    role = {"metadata": metadata, "rules": [{"apiGroups": [GROUP], "resources": [METRIC], "verbs": ["get", "list"]}]}
    binding = {
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": TELLING},
        "subjects": [{"kind": "ServiceAccount", "name": "horizontal-pod-autoscaler", "namespace": "kube-system"}],
    }
    return [
        (SERVICES, namespace, service), (ENDPOINTS, namespace, endpoints), (CLUSTER_ROLES, None, role),
        (CLUSTER_ROLE_BINDINGS, None, binding), (API_SERVICES, None, api_service),
    ]  # fmt: skip


def _is_ready(pod: Manifest) -> bool:
    status = pod.get("status") or {}
    conditions = {one["type"]: one["status"] for one in status.get("conditions") or []}
    return bool(status.get("podIP")) and conditions.get("Ready") == "True"


async def _load(session: aiohttp.ClientSession, address: str) -> int:
    """0 of one that does not answer: it may just be ending."""
    try:
        async with session.get(f"http://{address}:{PORT}/load") as answer:
            return int((await answer.json())["in_flight"])
    except (aiohttp.ClientError, asyncio.TimeoutError, OSError):
        return 0


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
