"""`/healthz`, `/readyz`, Prometheus' `/metrics` and, with an arbiter, the page `/queue` of the operator."""

from __future__ import annotations

import contextlib

from deeprec_ext.errors import UsageError
from deeprec_ext.gazer.prometheus import CONTENT_TYPE, COUNTER, GAUGE, Exported, Facts, exposition
from tfjob.operator.arbiter.acting import Arbiter
from tfjob.operator.arbiter.page import ARBITER, arbiter_facts, pages
from tfjob.operator.controller import Controller
from tfjob.operator.job_counts import JOBS
from tfjob.operator.webhook import Webhook

PREFIX = "deeprec_operator_"
EXPORTED = (
    Exported(PREFIX + "jobs", GAUGE, "TFJobs that are known"),
    Exported(PREFIX + "queue", GAUGE, "jobs that wait to be looked at, or are"),
    Exported(PREFIX + "reconciled_total", COUNTER, "looks at a job"),
    Exported(PREFIX + "reconcile_failed_total", COUNTER, "of these ended with an error and were repeated"),
    Exported(PREFIX + "decide_seconds_total", COUNTER, "time spent deciding"),
    Exported(PREFIX + "status_writes_total", COUNTER, "statuses written"),
    Exported(PREFIX + "created_total", COUNTER, "objects created", ("kind",)),
    Exported(PREFIX + "deleted_total", COUNTER, "objects deleted", ("kind",)),
    Exported(
        PREFIX + "missing_rights",
        GAUGE,
        "rights that it does without; the log says what follows",
        ("job_namespace", "resource", "verb"),
    ),
    Exported(PREFIX + "webhook_reviews_total", COUNTER, "new TFJobs that the webhook was asked about", ("answer",)),
    *ARBITER,
    *JOBS,
)


def metrics(controller: Controller, webhook: Webhook | None = None, arbiter: Arbiter | None = None) -> bytes:
    """What Prometheus reads."""
    counts = controller.counts
    single: dict[str, float] = {
        "jobs": len(controller.jobs), "queue": len(controller.queue), "reconciled_total": counts.reconciled,
        "reconcile_failed_total": counts.failed, "decide_seconds_total": counts.seconds,
        "status_writes_total": counts.statuses,
    }  # fmt: skip
    by_label = {"created_total": counts.created, "deleted_total": counts.deleted}
    if webhook is not None:
        by_label["webhook_reviews_total"] = webhook.reviewed
    facts: Facts = {
        **{PREFIX + name: [((), value)] for name, value in single.items()},
        **{PREFIX + name: [((label,), n) for label, n in found.items()] for name, found in by_label.items()},
        PREFIX + "missing_rights": [
            ((right.namespace, right.resource.plural, right.verb), 1) for right in controller.missing.rights()
        ],
        **(arbiter_facts(arbiter) if arbiter is not None else {}),
        **({} if webhook is not None else controller.job_counts.facts()),  # beside Kubeflow jobs are its to count
    }
    return exposition(facts, EXPORTED)


async def serve(
    controller: Controller, port: int, webhook: Webhook | None = None, arbiter: Arbiter | None = None
) -> None:
    """For ever. Raises UsageError when the port is taken."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import Route

    from deeprec_ext import webserver

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        is_ready = controller.synced and (webhook is None or webhook.serving.is_set())
        lines = ["ok" if is_ready else "not yet", *(f"it {text}" for text in controller.missing.told())]
        return PlainTextResponse("\n".join(lines) + "\n", 200 if is_ready else 503)

    async def show(_: Request) -> Response:
        return Response(metrics(controller, webhook, arbiter), media_type=CONTENT_TYPE)

    routes = [Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", show)]
    if arbiter is not None:
        routes += pages(arbiter)
    try:
        with contextlib.closing(webserver.bind(webserver.EVERYWHERE, port)) as listener:
            await webserver.serve(Starlette(routes=routes), listener)
    except OSError as error:
        raise UsageError(f"--metrics-port {port}: {error.strerror or error}; give another, or 0 for none") from error
