"""What is kept of a job when its AIMaster goes: the summary, what was decided, and the report.

The run directory goes with the pod, unless it lies on a claim. These are small, and `deeprec-ext status | decisions | report`
show them as long as the TFJob exists.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gzip
import json
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deeprec_ext.aimaster.kubernetes.ending import leave_word
from deeprec_ext.aimaster.kubernetes.keeping import DECISIONS, PACKED_REPORTS, REPORT, SUMMARY, Content
from deeprec_ext.errors import DeepRecError

log = logging.getLogger(__name__)

DECISIONS_BYTES_MAX, REPORT_BYTES_MAX = 200 << 10, 300 << 10
PACKED_BYTES_MAX = 250 << 10
"""Of a form of the report that is kept compressed. In all 1 MB are kept, and the job's state comes first."""
REPORT_SECONDS = 30.0
"""The operator waits two minutes for the end of the AIMaster."""


def end_again(summary: str, termination_log: Path) -> int:
    """Exit code of an AIMaster whose job had ended already: the kubelet starts it again when the job has failed."""
    with contextlib.suppress(ValueError, AttributeError):
        found = json.loads(summary)
        if found.get("status") == "succeeded":
            return 0
        leave_word(termination_log, found.get("reason") or "the job has failed")
    return 1


async def gather(workdir: Path) -> dict[str, str]:
    """Summary and decisions: file name → content, the most important first. Raises OSError when there is no summary."""
    files = {SUMMARY: (workdir / "summary.json").read_text(encoding="utf-8")}
    if found := await asyncio.get_running_loop().run_in_executor(None, decisions, workdir):
        files[DECISIONS] = found
    return files


def decisions(workdir: Path) -> str:
    """The newest that changed something, without their observations, as JSON; empty where nothing was recorded."""
    from deeprec_ext.autoscaler.policy.record import NAME, read

    if not (workdir / NAME).exists():
        return ""
    try:
        entries = read(workdir)
    except (DeepRecError, OSError) as error:
        log.warning("decisions are not kept: %s", error)
        return ""
    kept: list[dict[str, Any]] = []
    size = 2
    for entry in reversed(entries):
        if entry.decision.action == "keep":
            continue
        outcome = dataclasses.asdict(entry.outcome) if entry.outcome is not None else None
        one = {"at": entry.at, "decision": json.loads(entry.decision.to_json()), "outcome": outcome}
        size += len(json.dumps(one)) + 2
        if size > DECISIONS_BYTES_MAX:
            break
        kept.insert(0, one)
    return json.dumps(kept)


async def report(workdir: Path) -> dict[str, Content]:
    """File name → content, the most important first: as Markdown, and what fits of the other forms, compressed.

    Made in a process of its own; empty if it fails.
    """
    command = [sys.executable, "-m", "deeprec_ext.cli.report", str(workdir)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env=environment,
    )  # fmt: skip
    talking = asyncio.ensure_future(process.communicate())
    try:
        await asyncio.wait({talking}, timeout=REPORT_SECONDS)
        if not talking.done():
            log.warning("no report is kept: it was not written within %.0f s", REPORT_SECONDS)
            return {}
        out, error = talking.result()
    finally:
        talking.cancel()
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        log.warning("no report is kept: %s", error.decode(errors="replace")[-500:])
        return {}
    return fitting(json.loads(out))


def fitting(forms: Mapping[str, str]) -> dict[str, Content]:
    """What may be kept of a report, by file name.

    Args:
        forms: `markdown`, `html` and `json`.
    """
    found: dict[str, Content] = {}
    whole = {form: text.encode(errors="replace") for form, text in forms.items()}
    if len(whole["markdown"]) <= REPORT_BYTES_MAX:
        found[REPORT] = str(whole["markdown"], "utf-8")
    else:
        log.warning("the report as Markdown is not kept: it has %d bytes", len(whole["markdown"]))
    for form, name in PACKED_REPORTS.items():
        packed = gzip.compress(whole[form], mtime=0)
        if len(packed) <= PACKED_BYTES_MAX:
            found[name] = packed
        else:
            log.warning("the report as %s is not kept: it has %d bytes, compressed", form, len(packed))
    return found
