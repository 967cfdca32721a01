"""What is left of a job that has ended: the AIMaster has put it into its ConfigMap, before its pod and its files went."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from deeprec_ext.aimaster.kubernetes.keeping import DECISIONS, REPORT, SUMMARY
from deeprec_ext.errors import UsageError
from tfjob.api.client import Api, NotFoundError
from tfjob.api.finding import Found, aimaster_pod, find, is_running
from tfjob.model import names
from tfjob.model.kinds import CONFIG_MAPS
from tfjob.pods.rights import state_name


async def read(api: Api, namespace: str, found: Found) -> Mapping[str, str]:
    """File name → content; empty while the job runs. Raises ApiError, UnreachableError."""
    try:
        state = await api.get(CONFIG_MAPS, namespace, state_name(found.name))
    except NotFoundError:
        return {}
    owners = [one.get("uid") for one in state["metadata"].get("ownerReferences") or []]
    return (state.get("data") or {}) if found.uid in owners else {}  # else of an earlier job of this name


def summary(kept: Mapping[str, str]) -> dict[str, Any] | None:
    with contextlib.suppress(KeyError, ValueError):
        found = json.loads(kept[SUMMARY])
        return found if isinstance(found, dict) else None
    return None


async def of_ended(api: Api, namespace: str, name: str, what: str) -> str | None:
    """One of the files that are kept; None: the job has not ended. Raises UsageError when it has ended without one."""
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
    if what in kept:
        return kept[what]
    raise UsageError(
        f"TFJob {name} has ended, and {_called(what)} went with the pod of its AIMaster; the annotation "
        f"{names.ANNOTATION_PREFIX}state-volume keeps the run directory on a claim"
    )


def _called(what: str) -> str:
    return {DECISIONS: "its record of decisions", REPORT: "what a report is made of"}.get(what, what)
