"""The operator as a process: it watches TFJobs and what they own; one of several operators acts."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import os
import signal
import socket
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from deeprec_ext.errors import UsageError
from deeprec_ext.printable import LineFormatter
from tfjob.api.client import CONNECTIONS, Api
from tfjob.api.known import kind_is_known
from tfjob.api.kubeconfig import IN_CLUSTER_NAMESPACE, own_namespace
from tfjob.arbiting.amounts import requested
from tfjob.model import names
from tfjob.model.kinds import TFJOBS
from tfjob.operator.aimasters import AIMasters
from tfjob.operator.arbiter.acting import Arbiter, ArbiterOptions
from tfjob.operator.arbiter.undoing import undo
from tfjob.operator.certificates.history_certificates import HistoryAuthority
from tfjob.operator.certificates.renewals import Renewals
from tfjob.operator.controller import Controller
from tfjob.operator.et.taking import Taking
from tfjob.operator.leader import Leader
from tfjob.operator.own_image import own_image
from tfjob.operator.running import together
from tfjob.operator.sight import EVERYWHERE, Namespaces
from tfjob.operator.web import serve
from tfjob.operator.webhook import Webhook, WebhookOptions
from tfjob.pods.aimaster import Options as AIMasterOptions
from tfjob.pods.gang import resource as pod_groups_of
from tfjob.reconciling import beside
from tfjob.reconciling.observed import Options

log = logging.getLogger(__name__)
LEASE = "deeprec-ext-operator"
STOP_SECONDS = 10.0
ARBITER_SECONDS = 20.0
"""How long a new elastic job waits for the arbiter's first word: a second, or as long as another operator needs to lead."""

KIND_SECONDS = 5.0
"""How often to look whether TFJobs have been installed."""

AIMASTERS = f"{names.JOB_LABEL},app.kubernetes.io/component=aimaster"
"""Labels of the only pods that concern us where Kubeflow's operator makes the others."""


WATCHES = 16
"""At most, of a namespace, or of the whole cluster; each holds a connection: TFJobs, pods, services and PodGroups 4, the
arbiter's pods, quotas, nodes and classes 4, Kueue's kinds 4, Volcano's queues 1, the ET operator's kinds 3."""

Act = Callable[[], Awaitable[None]]
"""What is done for ever by who leads."""


@dataclass(frozen=True)
class OperatorOptions:
    """What `deeprec-ext operator` was started with."""

    aimaster: AIMasterOptions
    namespaces: Namespaces = EVERYWHERE
    lease_namespace: str = ""  # empty: see `home`
    scheduler: str = ""  # gang scheduler
    metrics_port: int | None = 8080
    leader_election: bool = True
    webhook_port: int | None = None  # beside Kubeflow's operator; None: there is none, and jobs are run here
    webhook_url: str = ""
    et: bool = False  # the kinds of the ET operator as well
    arbiter: ArbiterOptions | None = None  # None: every job has what it wants

    @property
    def home(self) -> str:
        """Where its Lease and its certificates are: of its pod; of one outside of the cluster the first of its jobs'."""
        outside = not os.path.exists(IN_CLUSTER_NAMESPACE)
        return self.lease_namespace or (outside and self.namespaces[0]) or own_namespace()


async def run(options: OperatorOptions) -> int:
    """Until SIGTERM or SIGINT, or until the lease is lost (1). Raises UsageError without a cluster."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with Api.from_environment(connections=CONNECTIONS + WATCHES * len(options.namespaces)) as api:
        groups = pod_groups_of(options.scheduler) if options.scheduler else None
        decides = options.arbiter is not None and not options.arbiter.dry_run
        cluster = Options(
            domain=os.environ.get("CUSTOM_CLUSTER_DOMAIN", ""), scheduler=options.scheduler,
            arbiter_seconds=ARBITER_SECONDS if decides else None,
        )  # fmt: skip
        aimaster = await _with_image(api, options.aimaster)
        where = options.home
        history = HistoryAuthority(api, where) if aimaster.history else None
        aimasters = AIMasters(api, aimaster, history)
        if options.webhook_port is None:
            controller = Controller(api, cluster, options.namespaces, aimasters.ensure, groups)
        else:
            controller = Controller(
                api, cluster, options.namespaces, aimasters.ensure, decide=beside.decide, labels=AIMASTERS
            )
        webhook = _webhook(api, options, aimaster, cluster.domain, controller)
        arbiter = _arbiter(api, controller, options, aimaster)
        renewals = Renewals(api, controller.jobs, controller.recorder, history)
        act: list[Act] = [controller.act, renewals.act, *shares(api, controller, arbiter)]
        identity = f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
        leader = Leader(api, where, LEASE, identity, missing=controller.missing)
        taking = Taking(api, controller, options.namespaces, own_pods=webhook is None) if options.et else None
        act += [taking.act] if taking is not None else []
        tasks = {
            "TFJobs and what they own cannot be watched": _watch(api, controller, options.namespaces),
            "the lease is lost": _lead(act, controller, leader if options.leader_election else None),
        }
        if arbiter is not None:
            tasks["the cluster cannot be watched"] = arbiter.watch.run()
        if taking is not None:
            tasks["the ET operator's kinds cannot be watched"] = taking.watch()
        if history is not None:
            tasks["the history has no certificates"] = history.keep()
        if webhook is not None:
            tasks["the webhook cannot be served"] = webhook.run()
        if options.metrics_port is not None:
            tasks["metrics cannot be served"] = serve(controller, options.metrics_port, webhook, arbiter)
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


def _arbiter(
    api: Api, controller: Controller, options: OperatorOptions, aimaster: AIMasterOptions
) -> Arbiter | None:  # fmt: skip
    if options.arbiter is None:
        return None
    pod = requested({"containers": [{"resources": aimaster.resources}]})
    found = dataclasses.replace(options.arbiter, aimaster=pod, scheduler=options.scheduler)
    return Arbiter(api, controller, options.namespaces, found)


def shares(api: Api, controller: Controller, arbiter: Arbiter | None) -> list[Act]:
    """The arbiter; where there is none that writes, what one has allowed before is taken back, or it would hold jobs."""
    undoes = functools.partial(undo, api, controller)
    if arbiter is None:
        return [undoes]
    return [undoes, arbiter.act] if arbiter.dry_run else [arbiter.act]


def _webhook(
    api: Api, options: OperatorOptions, aimaster: AIMasterOptions, domain: str, controller: Controller
) -> Webhook | None:  # fmt: skip
    if options.webhook_port is None:
        return None
    image = aimaster.package_image or aimaster.image
    if not image:
        raise UsageError("pods of elastic jobs need an image that brings the package: start the operator with --image")
    found = WebhookOptions(
        options.webhook_port, options.home, options.webhook_url, options.namespaces, image, domain
    )  # fmt: skip
    return Webhook(api, found, controller.missing)


async def _with_image(api: Api, options: AIMasterOptions) -> AIMasterOptions:
    """AIMasters have the operator's own image unless another was given. Outside a cluster there is none: then empty."""
    if options.image or not os.path.exists(IN_CLUSTER_NAMESPACE):
        return options
    return dataclasses.replace(options, image=await own_image(api, own_namespace(), socket.gethostname()))


async def _watch(api: Api, controller: Controller, namespaces: Namespaces) -> None:
    hint = "this cluster does not know TFJobs: apply tfjob/manifests/crd; waiting for it"
    await kind_is_known(api, TFJOBS, namespaces, hint, KIND_SECONDS)
    await controller.watch()


async def _lead(act: Sequence[Act], controller: Controller, leader: Leader | None) -> None:
    await controller.listed.wait()
    if leader is None:
        await together(one() for one in act)
        return
    await leader.wait()
    acting: asyncio.Task[None] = asyncio.ensure_future(together(one() for one in act))
    try:
        lost = asyncio.ensure_future(leader.lost())
        await asyncio.wait([acting, lost], return_when=asyncio.FIRST_COMPLETED)
        lost.cancel()
    finally:
        acting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await acting


def start(options: OperatorOptions) -> int:
    """Blocks. Raises UsageError."""
    try:
        import aiohttp  # noqa: F401
        import kubernetes  # noqa: F401
    except ImportError as error:
        raise UsageError(f"the operator needs {error.name}: pip install 'deeprec-ext[kubernetes]'") from error
    level = logging.DEBUG if os.environ.get("DEEPREC_EXT_DEBUG") else logging.INFO
    line = "%(asctime)s %(levelname).1s %(name)s: %(message)s"
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter(line))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    result: Awaitable[int] = run(options)
    return asyncio.run(result)  # type: ignore[arg-type]
