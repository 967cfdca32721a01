"""`deeprec-ext submit job.yaml`: a TFJob, checked and given to a cluster, with an operator or without."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deeprec_ext.cli.cluster.target import Target, add_options
from deeprec_ext.cli.job import print_json
from deeprec_ext.errors import DeepRecError, UnreachableError, UsageError

if TYPE_CHECKING:
    from deeprec_ext.cli.cluster.documents import Document
    from tfjob.api.client import Api
    from tfjob.pods.aimaster import Options

ELASTIC = 'aimaster.deeprec.io/enabled: "true"'


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "submit", help="give a TFJob to a Kubernetes cluster",
        description="Checks the TFJobs in a file, all of them, and creates them. With --no-operator it makes the AIMaster "
        "itself, which makes the rest: for clusters where nobody may install the operator.",
    )  # fmt: skip
    parser.add_argument("file", metavar="FILE", help="YAML or JSON, one or more TFJobs; - is stdin")
    add_options(parser, "where the jobs go that name no namespace (default: as the kubeconfig says)")
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be made; the server checks it, if there is one"
    )
    parser.add_argument(
        "--wait", action="store_true", help="until the jobs have ended; exit code 1 unless all succeeded"
    )
    parser.add_argument("--json", action="store_true", help="print what was made (or would be) as JSON")
    parser.add_argument(
        "--estimate", action="store_true",
        help="run each elastic job's script here until it has declared its model, and write what follows (replicas, requests "
        "that its templates do not name) into its manifest; a job that cannot be estimated is submitted as it is",
    )  # fmt: skip
    parser.add_argument("--require-estimate", action="store_true", help="the same, and no job without: exit code 2")
    parser.add_argument(
        "--script",
        metavar="COMMAND",
        help="with --estimate: 'python train.py ...' as it is here (default: as in the TFJob)",
    )
    parser.add_argument("--history", metavar="FILE", help="with --estimate: finished jobs, as of `estimate`")
    parser.add_argument("--history-certs", type=Path, metavar="DIR", help="the certificates of that service")
    parser.add_argument("--no-operator", action="store_true", help="make the AIMaster here, and no TFJob")
    parser.add_argument("--image", default="", help="with --no-operator: of the AIMaster's pod")
    parser.add_argument(
        "--package-image", default="", help="with --no-operator: brings the package into users' pods (default: --image)"
    )
    parser.add_argument(
        "--aimaster-overlay",
        metavar="FILE",
        type=Path,
        help="with --no-operator: YAML that is laid over the AIMaster's pod",
    )


def run(arguments: argparse.Namespace) -> int:
    from deeprec_ext.cli.cluster.documents import load

    options = options_of(arguments)
    target = Target("", arguments.namespace, arguments.context, arguments.kubeconfig)
    found = load(arguments.file, arguments.namespace, _default_namespace(arguments))
    for one in found:
        if one.elastic is None and not options.operator:
            raise UsageError(
                f"TFJob {one.job.name}: without an operator a job has to be elastic: annotate it with {ELASTIC}"
            )
    if arguments.estimate or arguments.require_estimate:
        found = _estimated(found, arguments)
    for one in found:
        if one.elastic is None:
            print(f"note: TFJob {one.job.name}: is not elastic; the annotation {ELASTIC} makes it so", file=sys.stderr)
    for one in found:
        for text in one.warnings:
            print(f"warning: TFJob {one.job.name}: {text}", file=sys.stderr)
    if arguments.dry_run:
        return dry_run(found, options, target, arguments.json)

    async def talk(api: Api, namespace: str) -> int:
        return await _submit(api, found, options, arguments)

    return target.run(talk)


def _estimated(found: list[Document], arguments: argparse.Namespace) -> list[Document]:
    """With what was estimated of each; as it is, and why, where nothing was. Raises UsageError where something has to be."""
    from deeprec_ext.cli.cluster.estimating import with_estimate

    if arguments.script and len(found) > 1:
        raise UsageError("--script is of one job, and there are several: let each TFJob name its command")
    made = []
    for one in found:
        try:
            one = with_estimate(one, arguments.script, arguments.history, arguments.history_certs)
        except UsageError as error:
            if arguments.require_estimate:
                raise UsageError(f"TFJob {one.job.name} is not estimated: {error}") from error
            print(f"note: TFJob {one.job.name} is not estimated, and goes as it is: {error}", file=sys.stderr)
        made.append(one)
    return made


def options_of(arguments: argparse.Namespace) -> Options:
    """Raises UsageError."""
    from deeprec_ext.cli.operator import read_overlay
    from tfjob.pods.aimaster import Options

    if not arguments.no_operator:
        for flag in ("image", "package_image", "aimaster_overlay"):
            if getattr(arguments, flag):
                raise UsageError(f"--{flag.replace('_', '-')} goes with --no-operator: an operator has its own")
        return Options("")
    if not arguments.image:
        raise UsageError("--no-operator needs --image: the image of the AIMaster's pod (tfjob/images/Dockerfile)")
    overlay = read_overlay(arguments.aimaster_overlay)
    # Nobody would change the number in a budget when PS are added or leave.
    return Options(arguments.image, arguments.package_image, overlay=overlay, budgets=False, operator=False)


def _default_namespace(arguments: argparse.Namespace) -> str:
    """For documents that name none. Without a cluster a file is checked all the same; whoever then asks the cluster says so."""
    if arguments.namespace:
        return str(arguments.namespace)
    try:
        from deeprec_ext.cli.cluster.target import require_client

        require_client()
        from tfjob.api.kubeconfig import current_namespace

        return current_namespace(arguments.context, arguments.kubeconfig)
    except UsageError:
        return "default"


def dry_run(found: list[Document], options: Options, target: Target, as_json: bool) -> int:
    from deeprec_ext.cli.cluster.creating import try_out
    from deeprec_ext.cli.cluster.planned import lines, planned

    plans = [planned(one, options) for one in found]

    async def talk(api: Api, namespace: str) -> int:
        for one in found:
            await try_out(api, one, options)
        return 0

    refused: DeepRecError | None = None
    try:
        target.run(talk)
        verdict = "the server accepts it"
    except UnreachableError as error:
        verdict = f"no server has checked it: {error}"
    except DeepRecError as error:
        asked = "no Kubernetes cluster is configured" not in str(error) and "pip install" not in str(error)
        refused = error if asked else None
        verdict = f"the server refuses it: {error}" if asked else f"no server has checked it: {error}"
    if as_json:
        print_json({"jobs": plans, "server": verdict})
    else:
        print("\n".join([line for plan in plans for line in lines(plan)] + ([] if refused else [verdict])))
    if refused is not None:
        raise refused
    return 0


async def _submit(api: Api, found: list[Document], options: Options, arguments: argparse.Namespace) -> int:
    from deeprec_ext.cli.cluster.creating import create, create_all, try_out

    if len(found) > 1:
        for one in found:
            await try_out(api, one, options)
    made = []
    for one in found:
        manifest = await (create(api, one) if options.operator else create_all(api, one, options))
        made.append({"namespace": one.job.namespace, "name": one.job.name, "uid": manifest["metadata"].get("uid", "")})
        if not arguments.json:
            what = "TFJob" if options.operator else "job without an operator"
            print(f"{what} {one.job.namespace}/{one.job.name} is submitted", flush=True)
            if not arguments.wait:
                print(f"next: deeprec-ext status -n {one.job.namespace} {one.job.name}", flush=True)
    codes = await _wait(api, found, arguments.json) if arguments.wait else [0] * len(found)
    if arguments.json:
        ends = [{**one, "succeeded": not code} for one, code in zip(made, codes)] if arguments.wait else made
        print_json(ends)
    return max(codes)


async def _wait(api: Api, found: list[Document], quiet: bool) -> list[int]:
    from deeprec_ext.cli.cluster.waiting import wait

    async def one(document: Document) -> int:
        job = document.job
        prefix = f"{job.name}: " if len(found) > 1 else ""

        def say(text: str) -> None:
            print(f"{time.strftime('%H:%M:%S')} {prefix}{text}", file=sys.stderr if quiet else sys.stdout, flush=True)

        return await wait(api, job.namespace, job.name, say)

    return list(await asyncio.gather(*map(one, found)))
