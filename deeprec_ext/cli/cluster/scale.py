"""`scale` of a TFJob: in the AIMaster's pod. Who may not run commands there changes the TFJob, as with kubectl."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping
from typing import Any

from deeprec_ext.aimaster.kubernetes.following import HOLD, Asked, read
from deeprec_ext.cli.cluster.forwarding import explain, forward, running_aimaster
from deeprec_ext.cli.cluster.target import words_again
from deeprec_ext.cli.job import print_json
from deeprec_ext.errors import UsageError
from tfjob.api.client import Api, ForbiddenError
from tfjob.api.finding import Found, find, when
from tfjob.model import names
from tfjob.model.annotations import parse as parse_annotations
from tfjob.model.kinds import EVENTS, TFJOBS

LOOK_SECONDS = 1.0
REFUSED = ("ScalingRefused", "ScalingRolledBack")


async def run(name: str, arguments: argparse.Namespace, api: Api, namespace: str) -> int:
    try:
        pod = await running_aimaster(api, namespace, name)
        return await forward(api, namespace, pod, "scale", words_again(arguments))
    except ForbiddenError as error:
        found = await find(api, namespace, name)
        if not found.operator or not _can_be_written(arguments):
            raise explain(error) from error
        if not found.elastic:
            raise UsageError(f"TFJob {name} is not elastic: nobody would follow the change") from error
        print("commands may not be run in the AIMaster's pod: the TFJob is changed instead", file=sys.stderr)
    return await change(api, found, arguments)


def _can_be_written(arguments: argparse.Namespace) -> bool:
    """Into the TFJob: neither plans nor single processes can."""
    return not (arguments.dry_run or arguments.rebalance or arguments.replace)


async def change(api: Api, found: Found, arguments: argparse.Namespace) -> int:
    """By `replicas` or the annotation `hold`. Raises UsageError, ApiError, UnreachableError."""
    job = found.job
    if arguments.hold or arguments.release:
        text = "true" if arguments.hold else "false"
        await api.patch(TFJOBS, job.namespace, job.name, {"metadata": {"annotations": {HOLD: text}}})
        _say(arguments, f"annotation {HOLD} is {text}", {"hold": arguments.hold})
        return 0
    sizes, asked = wanted(found, arguments), read(found.manifest)
    specs = {asked.keys[type_]: {"replicas": count} for type_, count in sizes.items()}
    await api.patch(TFJOBS, job.namespace, job.name, {"spec": {"tfReplicaSpecs": specs}})
    text = ", ".join(f"{count} {type_}" for type_, count in sizes.items())
    told: dict[str, Any] = {"replicas": sizes}
    if len(sizes) == 1:
        [(told["type"], told["replicas"])] = sizes.items()
    if not arguments.wait:
        _say(arguments, f"asked for {text}: replicas of the TFJob are that, and say what runs when it is done", told)
        return 0
    outcome = await _wait(api, job.namespace, job.name, sizes)
    why = await _why(api, job.namespace, job.name) if outcome != "committed" else ""
    _say(arguments, f"{text}: {outcome}{why}", {**told, "outcome": outcome})
    return 0 if outcome == "committed" else 1


def wanted(found: Found, arguments: argparse.Namespace) -> dict[str, int]:
    """Replicas as the TFJob counts them, by "PS" and "Worker". Raises UsageError for what the limits do not allow."""
    job, sizes = found.job, {}
    elastic, _ = parse_annotations(job)
    assert elastic is not None  # it has an AIMaster
    for type_, flag, count, least, most in (
        (names.PS, "--ps", arguments.ps, elastic.min_ps, elastic.max_ps),
        (names.WORKER, "--workers", arguments.workers, elastic.min_workers, elastic.max_workers),
    ):
        if count is None:
            continue
        if type_ == names.PS and not elastic.slots:
            raise UsageError(f"TFJob {job.name} has no PS (strategy allreduce): ask for workers")
        if type_ not in job.specs:
            raise UsageError(
                f"TFJob {job.name} has no {type_}: name it in tfReplicaSpecs (replicas may be 0) to have some"
            )
        if not least <= count <= most:
            raise UsageError(f"{flag} {count}: the annotations of TFJob {job.name} allow {least} to {most}")
        sizes[type_] = count + int(type_ == names.WORKER and not job.chief)  # worker 0 is the chief
    return sizes


async def _wait(api: Api, namespace: str, name: str, sizes: Mapping[str, int]) -> str:
    """The AIMaster notes what runs, and takes `replicas` back when it was not to be had."""
    while True:
        found = await find(api, namespace, name)
        asked: Asked = read(found.manifest)
        if any(asked.sizes.get(type_) != count for type_, count in sizes.items()):
            return "refused or rolled back"
        if all(asked.noted.get(type_) == count for type_, count in sizes.items()):
            return "committed"
        if found.finished:
            return "the job has ended"
        await asyncio.sleep(LOOK_SECONDS)


async def _why(api: Api, namespace: str, name: str) -> str:
    """The newest Event that says so."""
    try:
        listed, _ = await api.list_all(EVENTS, namespace, fields=f"involvedObject.name={name}")
    except ForbiddenError:
        return ""
    told = sorted((one for one in listed if one.get("reason") in REFUSED), key=when)
    return f" ({told[-1].get('message')})" if told else ""


def _say(arguments: argparse.Namespace, text: str, values: dict[str, Any]) -> None:
    if arguments.json:
        print_json({"way": "tfjob", **values})
    else:
        print(text)
