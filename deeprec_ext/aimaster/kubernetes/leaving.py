"""What is kept of a job when its AIMaster goes: the summary, what was decided, and the report as Markdown.

The run directory goes with the pod, unless it lies on a claim. These are small, and `deeprec-ext status | decisions | report`
show them as long as the TFJob exists.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

from deeprec_ext.aimaster.kubernetes.ending import leave_word
from deeprec_ext.aimaster.kubernetes.keeping import DECISIONS, SUMMARY
from deeprec_ext.errors import DeepRecError

log = logging.getLogger(__name__)

DECISIONS_BYTES_MAX, REPORT_BYTES_MAX = 200 << 10, 300 << 10
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


async def report(workdir: Path) -> str:
    """As `deeprec-ext report --markdown` writes it, in a process of its own; empty if it fails."""
    command = [sys.executable, "-m", "deeprec_ext.cli.main", "report", str(workdir), "--markdown"]
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
            return ""
        out, error = talking.result()
    finally:
        talking.cancel()
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode or len(out) > REPORT_BYTES_MAX:
        why = error.decode(errors="replace")[-500:] if process.returncode else f"it has {len(out)} bytes"
        log.warning("no report is kept: %s", why)
        return ""
    return out.decode(errors="replace")
