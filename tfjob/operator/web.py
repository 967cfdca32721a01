"""`/healthz`, `/readyz` and Prometheus' `/metrics` of the operator."""

from __future__ import annotations

import asyncio

from deeprec_ext.errors import UsageError
from tfjob.operator.controller import Controller
from tfjob.operator.webhook import Webhook


def metrics(controller: Controller, webhook: Webhook | None = None) -> str:
    """In the text format of Prometheus."""
    counts = controller.counts
    rows: list[tuple[str, str, str, dict[str, float]]] = [
        ("jobs", "gauge", "TFJobs that are known", {"": len(controller.jobs)}),
        ("queue", "gauge", "jobs that wait to be looked at, or are", {"": len(controller.queue)}),
        ("reconciled_total", "counter", "looks at a job", {"": counts.reconciled}),
        ("reconcile_failed_total", "counter", "of these ended with an error and were repeated", {"": counts.failed}),
        ("decide_seconds_total", "counter", "time spent deciding", {"": counts.seconds}),
        ("status_writes_total", "counter", "statuses written", {"": counts.statuses}),
        ("created_total", "counter", "objects created", {f'{{kind="{k}"}}': n for k, n in counts.created.items()}),
        ("deleted_total", "counter", "objects deleted", {f'{{kind="{k}"}}': n for k, n in counts.deleted.items()}),
    ]
    if webhook is not None:
        reviewed: dict[str, float] = {f'{{answer="{answer}"}}': n for answer, n in webhook.reviewed.items()}
        rows.append(("webhook_reviews_total", "counter", "new TFJobs that the webhook was asked about", reviewed))
    lines = []
    for name, kind, text, values in rows:
        lines += [f"# HELP deeprec_operator_{name} {text}", f"# TYPE deeprec_operator_{name} {kind}"]
        lines += [f"deeprec_operator_{name}{labels} {value:g}" for labels, value in values.items()]
    if webhook is None:  # else jobs are Kubeflow's, and so is counting them
        lines += controller.job_counts.lines()
    return "\n".join(lines) + "\n"


async def serve(
    controller: Controller, port: int, webhook: Webhook | None = None
) -> None:  # fmt: skip
    """For ever. Raises UsageError when the port is taken."""
    from aiohttp import web

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        is_ready = controller.synced and (webhook is None or webhook.serving.is_set())
        return web.Response(text="ok\n" if is_ready else "not yet\n", status=200 if is_ready else 503)

    async def show(_: web.Request) -> web.Response:
        return web.Response(text=metrics(controller, webhook), content_type="text/plain")

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", show)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "0.0.0.0", port).start()  # nosec B104 # a pod's own address
        await asyncio.Event().wait()
    except OSError as error:
        raise UsageError(f"--metrics-port {port}: {error.strerror}; give another, or 0 for none") from error
    finally:
        await runner.cleanup()
