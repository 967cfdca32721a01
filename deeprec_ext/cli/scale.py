"""`deeprec-ext scale JOB --ps 4`: ask a running job for another size."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any

from deeprec_ext.bounds import whole
from deeprec_ext.cli.cluster.target import on_cluster
from deeprec_ext.cli.job import add_job, as_dict, directory_of, print_json, require_running
from deeprec_ext.cli.status import patient_status
from deeprec_ext.cli.table import describe_scaling
from deeprec_ext.errors import UnreachableError, UsageError
from deeprec_ext.launch.client import JobClient
from deeprec_ext.proto import deeprec_ext_pb2 as pb2
from deeprec_ext.rundir import RunDirectory
from deeprec_ext.units import format_bytes


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "scale", help="change the number of PS or workers of a running job", description=__doc__
    )
    add_job(parser)
    parser.add_argument("--ps", type=whole("PS"), metavar="N", help="this many PS")
    parser.add_argument(
        "--workers",
        type=whole("workers"),
        metavar="N",
        help="this many workers beside the chief; with --ps in one change",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--rebalance", action="store_true", help="spread the slots evenly by bytes, with the PS there are"
    )
    what.add_argument("--replace", metavar="ROLE", help="a new process for this PS or worker, e.g. ps-1")
    what.add_argument("--hold", action="store_true", help="a veto: the autoscaler changes nothing until --release")
    what.add_argument("--release", action="store_true", help="take the veto back")
    parser.add_argument("--reason", default="by hand", help="for the events and the summary")
    parser.add_argument("--dry-run", action="store_true", help="print what would be moved, and move nothing")
    parser.add_argument("--wait", action="store_true", help="until it has ended; exit code 1 unless it was committed")
    parser.add_argument("--json", action="store_true", help="print the answer (with --wait: the outcome) as JSON")


def make_request(arguments: argparse.Namespace) -> pb2.ScaleRequest:
    return pb2.ScaleRequest(
        ps=arguments.ps, workers=arguments.workers, rebalance=arguments.rebalance, replace=arguments.replace or "",
        dry_run=arguments.dry_run, reason=arguments.reason,
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    sizes = arguments.ps is not None or arguments.workers is not None
    others = (arguments.rebalance, arguments.replace is not None, arguments.hold, arguments.release)
    if sizes + sum(others) != 1:
        raise UsageError("give --ps, --workers or both, or else one of --rebalance, --replace, --hold and --release")
    if (code := on_cluster("scale", arguments)) is not None:
        return code
    return asyncio.run(_scale(require_running(directory_of(arguments)), arguments))


async def _scale(directory: RunDirectory, arguments: argparse.Namespace) -> int:
    async with JobClient.of(directory) as client:
        await patient_status(client)
        if arguments.hold or arguments.release:
            return await _hold(client, arguments)
        reply = await client.scale(make_request(arguments))
        if arguments.wait and reply.scaling_id and not arguments.dry_run:
            if reply.message and not arguments.json:
                print(f"{reply.message} (scaling {reply.scaling_id})", file=sys.stderr)  # there may be others before it
            ended = await _wait(client, directory, reply.scaling_id)
            if arguments.json:
                print_json(as_dict(ended))
            else:
                print(describe_scaling(ended))
            return 0 if ended.outcome == "committed" else 1
    if arguments.json:
        print_json({
            "scaling_id": reply.scaling_id, "message": reply.message,
            "plan": json.loads(reply.plan_json) if reply.plan_json else None,
        })  # fmt: skip
    else:
        number = f" (scaling {reply.scaling_id})" if reply.scaling_id else ""
        print(f"{reply.message or 'nothing to do'}{number}")
        if reply.plan_json:
            print(describe_plan(json.loads(reply.plan_json)))
    return 0


async def _hold(client: JobClient, arguments: argparse.Namespace) -> int:
    if arguments.dry_run:
        if arguments.json:
            print_json({"would_hold": arguments.hold})
        else:
            print(f"would {'hold' if arguments.hold else 'release'} the autoscaler")
        return 0
    reply = await client.hold(arguments.hold, arguments.reason)
    if arguments.json:
        print_json(as_dict(reply))
    else:
        state = "held: nothing is decided until --release" if reply.hold else "released"
        print(f"the autoscaler is {state}" + ("" if reply.autoscale else " (this job runs without --autoscale)"))
    return 0


async def _wait(client: JobClient, directory: RunDirectory, identifier: int) -> pb2.ScalingStatus:
    """The scaling has its own time limits; here only the end of the job ends the wait. Raises UnreachableError then."""
    while True:
        try:
            for one in (await client.status()).scalings:
                if one.id == identifier and one.outcome:
                    return one
        except UnreachableError:
            if not directory.in_use():
                raise UnreachableError("the job ended before the scaling did") from None
        await asyncio.sleep(0.2)


def describe_plan(plan: dict[str, Any]) -> str:
    """A dry run's plan in one line."""
    moves = plan.get("moves") or []
    return f"would move {len(moves)} slots, {format_bytes(plan.get('bytes') or 0)}; slot map {plan.get('slot_map')}"
