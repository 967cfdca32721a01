"""What is left of a job that has ended: the AIMaster has put it into its ConfigMap, before its pod and its files went."""

from __future__ import annotations

import base64
import contextlib
import json
import zlib
from collections.abc import Mapping
from typing import Any

from deeprec_ext.aimaster.kubernetes.keeping import DECISIONS, PACKED_REPORTS, REPORT, SUMMARY
from deeprec_ext.errors import UsageError
from tfjob.api.client import Api, NotFoundError
from tfjob.api.finding import Found, aimaster_pod, find, is_running
from tfjob.model import names
from tfjob.model.kinds import CONFIG_MAPS
from tfjob.pods.rights import state_name

UNPACKED_BYTES_MAX = 64 << 20
"""Of a report: whoever may write the ConfigMap fills no memory here."""


async def read(api: Api, namespace: str, found: Found) -> Mapping[str, str]:
    """File name → content; empty while the job runs. Raises ApiError, UnreachableError."""
    try:
        state = await api.get(CONFIG_MAPS, namespace, state_name(found.name))
    except NotFoundError:
        return {}
    owners = [one.get("uid") for one in state["metadata"].get("ownerReferences") or []]
    if found.uid not in owners:
        return {}  # of an earlier job of this name
    packed, files = state.get("binaryData") or {}, dict(state.get("data") or {})
    for name in PACKED_REPORTS.values():
        if (text := _unpacked(packed.get(name))) is not None:
            files[name] = text
    return files


def summary(kept: Mapping[str, str]) -> dict[str, Any] | None:
    with contextlib.suppress(KeyError, ValueError):
        found = json.loads(kept[SUMMARY])
        return found if isinstance(found, dict) else None
    return None


async def of_ended(api: Api, namespace: str, name: str, *whats: str) -> tuple[str, str] | None:
    """The first of these files that is kept: its name and what it says; None: the job has not ended.

    Raises UsageError when it has ended without any of them.
    """
    if is_running(await aimaster_pod(api, namespace, name)):
        return None
    found = await find(api, namespace, name)
    if not found.elastic:
        return None
    kept = await read(api, namespace, found)
    if SUMMARY not in kept:
        pod = await aimaster_pod(api, namespace, name)
        phase = ((pod or {}).get("status") or {}).get("phase")
        if not (found.finished or phase in ("Succeeded", "Failed")):
            return None
    for what in whats:
        if (text := kept.get(what)) is not None:
            return what, text
    raise UsageError(
        f"TFJob {name} has ended, and {_called(whats[-1])} went with the pod of its AIMaster; the annotation "
        f"{names.ANNOTATION_PREFIX}state-volume keeps the run directory on a claim"
    )


def _unpacked(packed: Any) -> str | None:
    """None: it is damaged, or larger than any report."""
    try:
        stream = zlib.decompressobj(zlib.MAX_WBITS | 16)  # gzip
        data = stream.decompress(base64.b64decode(packed), UNPACKED_BYTES_MAX)
        return data.decode() if stream.eof else None
    except (ValueError, TypeError, zlib.error):
        return None


def _called(what: str) -> str:
    return {DECISIONS: "its record of decisions", REPORT: "what a report is made of"}.get(what, what)
