"""The operator as a process: kopf watches TFJobs, informers what they own; one of several operators acts."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import signal
import socket
import threading
import uuid
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any

from deeprec_ext.errors import UnreachableError, UsageError
from deeprec_ext.printable import LineFormatter
from tfjob.aimaster import Options as AIMasterOptions
from tfjob.api.client import IN_CLUSTER_NAMESPACE, Api, ApiError, NotFoundError
from tfjob.model import names
from tfjob.model.kinds import TFJOBS
from tfjob.operator.aimasters import AIMasters
from tfjob.operator.controller import Controller
from tfjob.operator.leader import Leader
from tfjob.operator.own_image import own_image
from tfjob.operator.web import serve
from tfjob.operator.webhook import Webhook, WebhookOptions
from tfjob.pods.gang import resource as pod_groups_of
from tfjob.reconciling import beside
from tfjob.reconciling.observed import Options

log = logging.getLogger(__name__)
LEASE = "deeprec-ext-operator"
STOP_SECONDS = 10.0
KIND_SECONDS = 5.0
"""How often to look whether TFJobs have been installed."""

AIMASTERS = f"{names.JOB_LABEL},app.kubernetes.io/component=aimaster"
"""Labels of the only pods that concern us where Kubeflow's operator makes the others."""


@dataclass(frozen=True)
class OperatorOptions:
    """What `deeprec-ext operator` was started with."""

    aimaster: AIMasterOptions
    namespace: str | None = None  # None: all
    lease_namespace: str = ""  # empty: its own pod's, else `default`
    scheduler: str = ""  # gang scheduler
    metrics_port: int | None = 8080
    leader_election: bool = True
    webhook_port: int | None = None  # beside Kubeflow's operator; None: there is none, and jobs are run here
    webhook_url: str = ""


async def run(options: OperatorOptions) -> int:
    """Until SIGTERM or SIGINT, or until the lease is lost (1). Raises UsageError without a cluster."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with Api.from_environment() as api:
        groups = pod_groups_of(options.scheduler) if options.scheduler else None
        cluster = Options(domain=os.environ.get("CUSTOM_CLUSTER_DOMAIN", ""), scheduler=options.scheduler)
        aimaster = await _with_image(api, options.aimaster)
        aimasters = AIMasters(api, aimaster)
        webhook = _webhook(api, options, aimaster, cluster.domain)
        if webhook is None:
            controller = Controller(api, cluster, options.namespace, aimasters.ensure, groups)
        else:
            controller = Controller(
                api, cluster, options.namespace, aimasters.ensure, decide=beside.decide, labels=AIMASTERS
            )
        identity = f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
        leader = Leader(api, options.lease_namespace or own_namespace(), LEASE, identity)
        ready = asyncio.Event()
        tasks = {
            "TFJobs cannot be watched": _watch_jobs(api, controller, options.namespace, ready),
            "what jobs own cannot be watched": controller.watch(),
            "the lease is lost": _lead(controller, leader if options.leader_election else None, ready),
        }
        if webhook is not None:
            tasks["the webhook cannot be served"] = webhook.run()
        if options.metrics_port is not None:
            tasks["metrics cannot be served"] = serve(controller, ready, options.metrics_port, webhook)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        running: dict[asyncio.Future[Any], str] = {asyncio.ensure_future(work): what for what, work in tasks.items()}
        stopping = asyncio.ensure_future(stop.wait())
        done, _ = await asyncio.wait([*running, stopping], return_when=asyncio.FIRST_COMPLETED)
        broken = [task for task in done if task is not stopping]
        for task in broken:
            log.error("%s: %s", running[task], task.exception() or "it has ended")
        for task in running:
            task.cancel()
        await asyncio.wait([*running], timeout=STOP_SECONDS)
        stopping.cancel()
        if options.leader_election:
            await leader.release()
    return 1 if broken else 0


def _webhook(api: Api, options: OperatorOptions, aimaster: AIMasterOptions, domain: str) -> Webhook | None:
    if options.webhook_port is None:
        return None
    image = aimaster.package_image or aimaster.image
    if not image:
        raise UsageError("pods of elastic jobs need an image that brings the package: start the operator with --image")
    where = options.lease_namespace or own_namespace()
    return Webhook(
        api, WebhookOptions(options.webhook_port, where, options.webhook_url, options.namespace, image, domain)
    )


async def _with_image(api: Api, options: AIMasterOptions) -> AIMasterOptions:
    """AIMasters have the operator's own image unless another was given. Outside a cluster there is none: then empty."""
    if options.image or not os.path.exists(IN_CLUSTER_NAMESPACE):
        return options
    return dataclasses.replace(options, image=await own_image(api, own_namespace(), socket.gethostname()))


async def _lead(controller: Controller, leader: Leader | None, ready: asyncio.Event) -> None:
    await ready.wait()
    if leader is None:
        await controller.act()
        return
    await leader.wait()
    acting: asyncio.Task[None] = asyncio.ensure_future(controller.act())
    try:
        lost = asyncio.ensure_future(leader.lost())
        await asyncio.wait([acting, lost], return_when=asyncio.FIRST_COMPLETED)
        lost.cancel()
    finally:
        acting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await acting


async def _kind_is_known(api: Api, namespace: str) -> None:
    """Waits until somebody has installed it."""
    told = False
    while True:
        try:
            await api.request("GET", TFJOBS.path(namespace), query={"limit": "1"})
            return
        except NotFoundError:
            if not told:
                log.warning("this cluster does not know TFJobs: apply tfjob/manifests/crd; waiting for it")
            told = True
        except (ApiError, UnreachableError) as error:
            log.warning("%s; trying again", error)
        await asyncio.sleep(KIND_SECONDS)


async def _watch_jobs(api: Api, controller: Controller, namespace: str | None, ready: asyncio.Event) -> None:
    """kopf: lists, watches, reconnects, and tells each change. It writes nothing: no handler of ours keeps progress.

    In a thread with a loop of its own: at its end kopf cancels whatever it finds in its loop. Returns only when it has ended.
    """
    import kopf

    if namespace is not None:
        await _kind_is_known(api, namespace)
    loop, stop, is_ready = asyncio.get_running_loop(), threading.Event(), threading.Event()
    registry = kopf.OperatorRegistry()

    @kopf.on.startup(registry=registry)
    async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        settings.peering.standalone = True
        # Else it asks for all namespaces of the cluster, and where that is not allowed, for a minute before it gives up.
        settings.scanning.disabled = namespace is not None
        settings.watching.server_timeout = 300
        settings.watching.client_timeout = 330

    @kopf.on.login(registry=registry)
    def login(**arguments: Any) -> Any:
        return kopf.login_via_client(**arguments)

    @kopf.on.event(names.GROUP, names.VERSION, names.PLURAL, registry=registry)
    async def changed(type: str | None, body: kopf.Body, name: str, namespace: str, **_: Any) -> None:
        if type == "DELETED":
            loop.call_soon_threadsafe(controller.forget, (namespace, name))
        else:
            loop.call_soon_threadsafe(controller.job_changed, plain(body))

    def work() -> None:
        where: dict[str, Any] = {"namespaces": [namespace]} if namespace else {"clusterwide": True}
        operator = kopf.operator(registry=registry, standalone=True, stop_flag=stop, ready_flag=is_ready, **where)
        asyncio.run(operator)

    async def tell_ready() -> None:
        while not is_ready.is_set():
            await asyncio.sleep(0.05)
        ready.set()

    telling = asyncio.ensure_future(tell_ready())
    try:
        await loop.run_in_executor(None, work)
    finally:
        telling.cancel()
        stop.set()


def plain(value: Any) -> Any:
    """kopf's views as the dictionaries they show."""
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value


def own_namespace() -> str:
    """Of the operator's pod; outside a cluster `default`."""
    try:
        with open(IN_CLUSTER_NAMESPACE, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return "default"


def start(options: OperatorOptions) -> int:
    """Blocks. Raises UsageError."""
    try:
        import kopf  # noqa: F401
    except ImportError as error:
        raise UsageError(f"the operator needs {error.name}: pip install 'deeprec-ext[kubernetes]'") from error
    level = logging.DEBUG if os.environ.get("DEEPREC_EXT_DEBUG") else logging.INFO
    line = "%(asctime)s %(levelname).1s %(name)s: %(message)s"
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter(line))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in ("kopf", "aiohttp.access"):
        logging.getLogger(name).setLevel(logging.WARNING)
    result: Awaitable[int] = run(options)
    return asyncio.run(result)  # type: ignore[arg-type]
