"""`python -m deeprec_ext.aimaster`: the AIMaster of one job as a process."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import logging
import resource
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from deeprec_ext import env
from deeprec_ext.aimaster.core.extras import parse_address, require
from deeprec_ext.aimaster.hosting import EXIT_FAILED, EXIT_USAGE, Hosted
from deeprec_ext.aimaster.pods.backend import LauncherBackend
from deeprec_ext.aimaster.rebuilding import opening, rebuild_if_lost
from deeprec_ext.aimaster.rpc.server import AIMaster
from deeprec_ext.autoscaler.history.history import Finished
from deeprec_ext.errors import DeepRecError, UsageError
from deeprec_ext.history.places import jobs_of, place_at
from deeprec_ext.options import SPECIFICATION_MAX, JobSpec, read_specification
from deeprec_ext.printable import LineFormatter, printable
from deeprec_ext.rundir import files_private

log = logging.getLogger("deeprec_ext.aimaster")
_SPECIFICATION = env.PREFIX + env.SPECIFICATION


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, JobSpec]:
    """What concerns this process, and what the job is. Raises UsageError; argparse's own errors exit with 2."""
    parser = argparse.ArgumentParser(prog="python -m deeprec_ext.aimaster", description=__doc__)
    parser.add_argument(
        "--spec", metavar="FILE",
        help=f"what the job is: JSON (deeprec_ext/options.py); - is stdin (default: the environment's {_SPECIFICATION})",
    )  # fmt: skip
    parser.add_argument("--listen", required=True, metavar="HOST:PORT")
    parser.add_argument("--workdir", required=True, type=Path, help="run directory: aimaster.db and events.jsonl")
    pods = parser.add_mutually_exclusive_group(required=True)
    pods.add_argument("--launcher", metavar="HOST:PORT", help="where pods come from: the launcher of this machine")
    pods.add_argument("--tfjob", metavar="NAMESPACE/NAME", help="or this TFJob's cluster: they are made here")
    parser.add_argument("--certs", help="directory of the certificates; without it there is no TLS (tests only)")
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        help="serve metrics (/metrics), /healthz and the dashboard there; port 0: any free one",
    )
    parser.add_argument(
        "--history",
        metavar="WHERE",
        help="of finished jobs: with --tfjob HOST:PORT of the cluster's service, with --launcher a file or https://HOST:PORT",
    )
    parser.add_argument("--history-certs", metavar="DIR", type=Path, help="the certificates with which it is asked")
    parser.add_argument("--resume", action="store_true", help="the run was stopped: start all its roles anew")
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        raise UsageError(
            f"{' '.join(unknown)[:200]}: no flag of this release, whose AIMaster takes one specification (--spec). Who has "
            "started it is of another one: give launcher or operator and the AIMaster's image the same"
        )
    if options.tfjob:
        require("kubernetes", "--tfjob")
        if not all(options.tfjob.partition("/")):
            raise UsageError(f"--tfjob {options.tfjob}: write NAMESPACE/NAME")
    if options.history and options.tfjob and not options.history_certs:
        raise UsageError("--history: with --tfjob it goes with --history-certs")
    if options.http:
        require("dashboard", "--http")
        parse_address(options.http)
    spec = read_specification(_specification(options.spec))
    if spec.settings.autoscale:
        require("autoscale", "--setting autoscale=true")
    return options, dataclasses.replace(spec, workdir=options.workdir, resume=options.resume)


def _specification(file: str | None) -> str:
    if file is None:
        if not (text := env.specification()):
            raise UsageError(f"what is the job? Give --spec FILE, or its text as {_SPECIFICATION} in the environment")
        return text
    try:
        with sys.stdin if file == "-" else open(file, encoding="utf-8") as stream:
            return stream.read(SPECIFICATION_MAX + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--spec {file}: cannot be read ({error})") from None


def raise_file_limit() -> None:
    """Every agent is a connection, and the usual soft limit of 1 024 files ends a large job in a busy accept loop."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            log.warning("the limit of open files stays at %d: %s", soft, error)


async def serve(options: argparse.Namespace, spec: JobSpec) -> int:
    """Until a signal, a newer AIMaster, or an error; returns the exit code."""
    spec.workdir.mkdir(parents=True, exist_ok=True)
    backend = LauncherBackend(options.launcher, spec.name, options.certs, elsewhere=spec.elsewhere)
    place = place_at(options.history, options.history_certs) if options.history is not None else None

    def jobs() -> list[Finished]:
        return jobs_of(place, spec.script)

    async def begin() -> AIMaster:
        store = opening.store_of(spec)
        if spec.resume:
            opening.resume_from_copy(store)
        else:
            opening.quarantine_what_went_back(store)
        if await rebuild_if_lost(spec, backend, options.certs, options.listen):
            opening.add_history(store)
        return AIMaster(spec, backend, options.certs, jobs=jobs)

    master = await opening.opened(spec, options.certs, options.listen, begin)
    host = Hosted(master)
    await host.begin(options.listen, options.http, options.certs)
    await host.until_over()
    await host.close()
    return 0 if host.stopped else EXIT_FAILED


async def serve_tfjob(options: argparse.Namespace, spec: JobSpec) -> int:
    """In a pod of the TFJob's cluster, with packages that others do not need."""
    from deeprec_ext.aimaster.kubernetes import running

    return await running.serve(options, spec)


BACKENDS: Mapping[str, Callable[[argparse.Namespace, JobSpec], Coroutine[Any, Any, int]]] = {
    "launcher": serve, "tfjob": serve_tfjob,
}  # fmt: skip
"""Where pods come from, by the flag that says so. Each serves with a `pods.backend.PodBackend` of its own."""


def main(arguments: Sequence[str] | None = None) -> int:
    line = "%(asctime)s %(levelname).1s %(name)s: %(message)s"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(line))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    with files_private():
        return _run(sys.argv[1:] if arguments is None else arguments)


def _run(arguments: Sequence[str]) -> int:
    try:
        options, spec = parse(arguments)
        raise_file_limit()
        chosen = next(serve for flag, serve in BACKENDS.items() if getattr(options, flag) is not None)
        return asyncio.run(chosen(options, spec))
    except UsageError as error:
        print(f"aimaster: {printable(str(error))}", file=sys.stderr)
        return EXIT_USAGE
    except DeepRecError as error:
        print(f"aimaster: {printable(str(error))}", file=sys.stderr)
        return EXIT_FAILED
