"""`python -m deeprec_ext.aimaster`: the AIMaster of one job as a process."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import logging
import resource
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from deeprec_ext import env
from deeprec_ext.aimaster.core.extras import parse_address, require
from deeprec_ext.aimaster.pods.backend import LauncherBackend
from deeprec_ext.aimaster.rebuilding import opening, rebuild_if_lost
from deeprec_ext.aimaster.rpc.server import AIMaster
from deeprec_ext.errors import DeepRecError, UsageError
from deeprec_ext.options import SPECIFICATION_MAX, JobSpec, read_specification
from deeprec_ext.printable import LineFormatter, printable
from deeprec_ext.rundir import files_private

log = logging.getLogger("deeprec_ext.aimaster")
EXIT_FAILED, EXIT_USAGE = 1, 2
WEB_STOP_SECONDS = 5.0
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
    parser.add_argument("--resume", action="store_true", help="the run was stopped: start all its roles anew")
    options = parser.parse_args(arguments)
    if options.tfjob:
        require("kubernetes", "--tfjob")
        if not all(options.tfjob.partition("/")):
            raise UsageError(f"--tfjob {options.tfjob}: write NAMESPACE/NAME")
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


async def serve_web(master: AIMaster, address: str | None, certs: str | None) -> None:
    """Metrics and dashboard, until cancelled. Whatever happens there is no reason to end the AIMaster."""
    if not address:
        return
    try:
        from deeprec_ext.aimaster.dashboard.http import HttpServer

        await HttpServer(master.job, master.scalings, address, certs).run()
    except Exception:
        log.exception("metrics and dashboard are not served")
        master.job.event("warning", text="metrics and dashboard are not served; see the log of the AIMaster")


async def serve(options: argparse.Namespace, spec: JobSpec) -> int:
    """Until a signal, a newer AIMaster, or an error; returns the exit code."""
    spec.workdir.mkdir(parents=True, exist_ok=True)
    backend = LauncherBackend(options.launcher, spec.name, options.certs, elsewhere=spec.elsewhere)

    async def begin() -> AIMaster:
        store = opening.store_of(spec)
        if spec.resume:
            opening.resume_from_copy(store)
        else:
            opening.quarantine_what_went_back(store)
        if await rebuild_if_lost(spec, backend, options.certs, options.listen):
            opening.add_history(store)
        return AIMaster(spec, backend, options.certs)

    master = await opening.opened(spec, options.certs, options.listen, begin)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    port = await master.start(options.listen)
    log.info("AIMaster %d of job %s listens at port %d", master.job.incarnation, spec.name, port)
    web = loop.create_task(serve_web(master, options.http, options.certs))
    waits = [loop.create_task(event.wait()) for event in (stop, master.job.stale, master.broken)]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for task in (*waits, web):
        task.cancel()
    await asyncio.wait([web], timeout=WEB_STOP_SECONDS)
    if master.job.stale.is_set():
        log.error("agents know a newer AIMaster than %d: this one is stale and ends", master.job.incarnation)
    await master.stop()
    return 0 if stop.is_set() else EXIT_FAILED


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
        if options.tfjob:
            from deeprec_ext.aimaster.kubernetes import running

            return asyncio.run(running.serve(options, spec))
        return asyncio.run(serve(options, spec))
    except UsageError as error:
        print(f"aimaster: {printable(str(error))}", file=sys.stderr)
        return EXIT_USAGE
    except DeepRecError as error:
        print(f"aimaster: {printable(str(error))}", file=sys.stderr)
        return EXIT_FAILED
