"""`report` of a TFJob: made in the AIMaster's pod and written here; afterwards as it was kept in the ConfigMap."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from deeprec_ext.aimaster.kubernetes.keeping import PACKED_REPORTS, REPORT
from deeprec_ext.cli.cluster import kept
from deeprec_ext.cli.cluster.forwarding import explain, forward, running_aimaster
from deeprec_ext.cli.report import form_of, put
from deeprec_ext.errors import UsageError
from tfjob.api.client import Api, ForbiddenError


async def run(name: str, arguments: argparse.Namespace, api: Api, namespace: str) -> int:
    form = form_of(arguments)
    packed = PACKED_REPORTS.get(form, REPORT)
    kept_as = await kept.of_ended(api, namespace, name, packed, REPORT)
    if kept_as is not None:
        what, text = kept_as
        if what != packed and form == "json":
            raise UsageError(f"TFJob {name} has ended, and its report is kept as Markdown only: use --markdown")
        if what != packed:
            print("the job has ended: its report is kept as Markdown only", file=sys.stderr)
        file = {PACKED_REPORTS["html"]: Path(f"{name}-report.html")}.get(what)
        put(text, arguments.output or (Path(f"{name}-report.md") if what != packed else file))
        return 0
    code, text = await _made(api, namespace, name, form)
    if not code:
        put(text, arguments.output or (Path(f"{name}-report.html") if form == "html" else None))
    return code


async def _made(api: Api, namespace: str, name: str, form: str) -> tuple[int, str]:
    """Exit code and the report. Raises UsageError, ApiError, UnreachableError."""
    pod = await running_aimaster(api, namespace, name)
    parts: list[bytes] = []
    words = ["--output", "-", *([] if form == "html" else [f"--{form}"])]
    try:
        code = await forward(api, namespace, pod, "report", words, stdout=parts.append)
    except ForbiddenError as error:
        raise explain(error) from error
    return code, b"".join(parts).decode(errors="replace")
