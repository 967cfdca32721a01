"""`queue` of a cluster: what its TFJobs say of themselves and of what they are allowed, read from the API server.

The operator is not asked: what it has decided stands in the jobs' annotations. Whoever may see one namespace only sees the jobs
of that one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from deeprec_ext.arbiter.observed import Cluster, Decision
from deeprec_ext.arbiter.telling import rows
from deeprec_ext.cli.queue import fitted
from deeprec_ext.errors import UnreachableError
from deeprec_ext.printable import printable_lines
from deeprec_ext.units import counted
from tfjob.api.client import Api, ForbiddenError
from tfjob.arbiting.bidders import Classes, bidder_of
from tfjob.arbiting.observing import Seen, observe
from tfjob.arbiting.problems import NO_RIGHTS
from tfjob.arbiting.seen import class_seen, pod_seen, quota_seen
from tfjob.arbiting.standing import standing
from tfjob.arbiting.tally import Pods
from tfjob.model import names
from tfjob.model.events import FORBIDDEN
from tfjob.model.kinds import EVENTS, PODS, PRIORITY_CLASSES, RESOURCE_QUOTAS, TFJOBS, Manifest, Resource

WATCH_SECONDS = 2.0
LACKS_SHOWN = 10


async def run(arguments: argparse.Namespace, api: Api, namespace: str) -> int:
    """`namespace`: where nothing else was said and not all may be seen. Raises ApiError, UnreachableError."""
    while True:
        with contextlib.suppress(*([UnreachableError] if arguments.watch else [])):  # a server that is being restarted
            where, cluster = await look(api, arguments.namespace, namespace)
            said = await lacks(api, where) if cluster.jobs else []
            show(where, cluster, standing(cluster), said, arguments)
        if not arguments.watch:
            return 0
        await asyncio.sleep(WATCH_SECONDS)


async def look(api: Api, namespace: str | None, otherwise: str) -> tuple[str | None, Cluster]:
    """Of which namespace (None: all), and what is there. Raises ApiError, UnreachableError."""
    where = namespace
    try:
        manifests, _ = await api.list_all(TFJOBS, where)
    except ForbiddenError:
        if namespace is not None:
            raise
        where = otherwise
        manifests, _ = await api.list_all(TFJOBS, where)
    bidders = [one for one in map(bidder_of, manifests) if one is not None]
    pods = await _seen(api, PODS, where, pod_seen, labels=names.JOB_LABEL) or []
    quotas = await _seen(api, RESOURCE_QUOTAS, where, quota_seen) or []
    classes = await _seen(api, PRIORITY_CLASSES, None, class_seen)
    return where, observe(
        Seen(bidders, Pods(pods), [], quotas, Classes(classes or (), classes is not None)), time.time()
    )


async def lacks(api: Api, where: str | None) -> list[str]:
    """What the operator has said of rights that it does without, in Events of the jobs; none where these may not be read."""
    found: dict[str, None] = {}
    for reason in (NO_RIGHTS, FORBIDDEN):
        fields = f"involvedObject.kind={names.KIND},reason={reason}"
        for one in await _seen(api, EVENTS, where, _told, fields=fields) or []:
            found[one] = None
    return list(found)[:LACKS_SHOWN]


def _told(event: Manifest) -> str:
    """Each once for a namespace."""
    return f"{(event.get('metadata') or {}).get('namespace') or 'default'}: {event.get('message') or ''}"


async def _seen(
    api: Api, resource: Resource, namespace: str | None, see: Callable[[Manifest], Any], labels: str = "", fields: str = ""
) -> list[Any] | None:  # fmt: skip
    """None: they may not be seen."""
    try:
        found, _ = await api.list_all(resource, namespace, labels=labels, fields=fields, shrink=see)
    except ForbiddenError:
        return None
    return [one for one in found if one is not None]


def show(
    where: str | None, cluster: Cluster, decision: Decision, said: list[str], arguments: argparse.Namespace
) -> None:  # fmt: skip
    if arguments.json:
        values = {"namespace": where, "time": cluster.time, "jobs": rows(cluster, decision), "lacks": said}
        print(json.dumps(values, indent=None if arguments.watch else 2), flush=True)
        return
    if arguments.watch and sys.stdout.isatty():
        print("\033[H\033[2J", end="")
    place = "all namespaces" if where is None else f"namespace {where}"
    waiting = sum(not one.runs for one in decision.allowances)
    waits = f", {waiting} of them waiting" if waiting else ""
    print(f"{place}: {counted(len(cluster.jobs), 'elastic job')}{waits}")
    if cluster.jobs:
        print(printable_lines("\n".join([*fitted(cluster, decision), *said])), flush=True)  # nodes were not looked at
