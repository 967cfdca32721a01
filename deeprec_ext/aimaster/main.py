"""`python -m deeprec_ext.aimaster`: the AIMaster of one job as a process."""

from __future__ import annotations

import argparse
import asyncio
import logging
import resource
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from deeprec_ext.aimaster.core.extras import parse_address, require_autoscale, require_dashboard, require_kubernetes
from deeprec_ext.aimaster.pods.backend import LauncherBackend
from deeprec_ext.aimaster.rebuilding import opening, rebuild_if_lost
from deeprec_ext.aimaster.rpc.server import AIMaster
from deeprec_ext.bounds import real, whole
from deeprec_ext.errors import DeepRecError, UsageError
from deeprec_ext.options import JobSpec, Settings, split_setting, values_given
from deeprec_ext.printable import LineFormatter, printable
from deeprec_ext.rundir import files_private

log = logging.getLogger("deeprec_ext.aimaster")
EXIT_FAILED, EXIT_USAGE = 1, 2
WEB_STOP_SECONDS = 5.0


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, JobSpec]:
    """Raises UsageError; argparse's own errors exit with 2."""
    parser = argparse.ArgumentParser(prog="python -m deeprec_ext.aimaster", description=__doc__)
    parser.add_argument("--job", required=True, help="name of the job")
    parser.add_argument("--listen", required=True, metavar="HOST:PORT")
    parser.add_argument("--workdir", required=True, type=Path, help="run directory: aimaster.db and events.jsonl")
    pods = parser.add_mutually_exclusive_group(required=True)
    pods.add_argument("--launcher", metavar="HOST:PORT", help="where pods come from: the launcher of this machine")
    pods.add_argument("--tfjob", metavar="NAMESPACE/NAME", help="or this TFJob's cluster: they are made here")
    parser.add_argument(
        "--elsewhere", action="store_true", help="with --launcher: pods run on other machines, and keep their size"
    )
    parser.add_argument(
        "--package-image", default="", help="with --tfjob: brings this package into the pods of the job"
    )
    parser.add_argument(
        "--no-operator", action="store_true", help="with --tfjob: it is kept in the ConfigMap NAME-tfjob"
    )
    parser.add_argument(
        "--gang-scheduler", default="", metavar="NAME", help="with --tfjob: they belong to its PodGroup"
    )
    parser.add_argument(
        "--beside-kubeflow",
        action="store_true",
        help="with --tfjob: its training operator makes the pods, by `replicas`",
    )
    parser.add_argument("--certs", help="directory of the certificates; without it there is no TLS (tests only)")
    parser.add_argument("--ps", type=whole("PS"), default=2)
    parser.add_argument("--workers", type=whole("workers"), default=1, help="beside the chief")
    parser.add_argument("--slots", type=whole("slots"), help="default: 2 x max PS, at least 8")
    parser.add_argument("--min-ps", type=whole("PS"), default=1)
    parser.add_argument("--max-ps", type=whole("PS"), default=0, help="default: as many as slots")
    parser.add_argument("--min-workers", type=whole("workers"), default=0)
    parser.add_argument("--max-workers", type=whole("workers"), default=1000)
    parser.add_argument(
        "--ps-cpu", type=real("cores"), default=0.0, metavar="CORES", help="that a PS requests; 0: none"
    )
    parser.add_argument("--worker-cpu", type=real("cores"), default=0.0, metavar="CORES")
    parser.add_argument("--ps-memory", type=whole("bytes"), default=0, metavar="BYTES")
    parser.add_argument("--worker-memory", type=whole("bytes"), default=0, metavar="BYTES")
    parser.add_argument(
        "--max-ps-cpu", type=real("cores"), default=0.0, metavar="CORES", help="to which --autoscale may raise it"
    )
    parser.add_argument("--max-worker-cpu", type=real("cores"), default=0.0, metavar="CORES")
    parser.add_argument("--max-ps-memory", type=whole("bytes"), default=0, metavar="BYTES")
    parser.add_argument("--max-worker-memory", type=whole("bytes"), default=0, metavar="BYTES")
    parser.add_argument(
        "--total-cpu", type=real("cores"), default=0.0, metavar="CORES", help="of all pods; 0: no limit"
    )
    parser.add_argument("--total-memory", type=whole("bytes"), default=0, metavar="BYTES")
    parser.add_argument("--start", default="", metavar="TEXT", help="how the first size was estimated")
    parser.add_argument("--evaluator", action="store_true")
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        help="serve metrics (/metrics), /healthz and the dashboard there; port 0: any free one",
    )
    parser.add_argument("--resume", action="store_true", help="the run was stopped: start all its roles anew")
    parser.add_argument("--setting", action="append", default=[], metavar="NAME=VALUE", help="see deeprec_ext.options")
    options = parser.parse_args(arguments)
    slots = options.slots or max(8, 2 * max(options.ps, options.max_ps))
    if options.ps < 1:
        raise UsageError(f"--ps {options.ps}: a job needs at least one PS")
    if options.ps > slots or options.max_ps > slots:
        raise UsageError(f"--ps {max(options.ps, options.max_ps)} is more than the {slots} slots; raise --slots")
    if options.workers < 0:
        raise UsageError(f"--workers {options.workers}: give 0 or more")
    if options.tfjob:
        require_kubernetes("--tfjob")
        if not all(options.tfjob.partition("/")):
            raise UsageError(f"--tfjob {options.tfjob}: write NAMESPACE/NAME")
    elif options.no_operator:
        raise UsageError("--no-operator says where a TFJob is written: it needs --tfjob")
    if options.http:
        require_dashboard("--http")
        parse_address(options.http)
    given = values_given(map(split_setting, options.setting))
    spec = JobSpec(
        name=options.job, workdir=options.workdir, slots=slots, ps=options.ps, workers=options.workers,
        evaluator=options.evaluator, min_ps=options.min_ps, max_ps=options.max_ps, min_workers=options.min_workers,
        max_workers=options.max_workers, settings=Settings(**given),
        given=frozenset(given), resume=options.resume,
        ps_cpu=options.ps_cpu, worker_cpu=options.worker_cpu, ps_memory_bytes=options.ps_memory,
        worker_memory_bytes=options.worker_memory, max_ps_cpu=options.max_ps_cpu, max_worker_cpu=options.max_worker_cpu,
        max_ps_memory_bytes=options.max_ps_memory, max_worker_memory_bytes=options.max_worker_memory,
        total_cpu=options.total_cpu, total_memory_bytes=options.total_memory, start=options.start,
        own_pods=not options.beside_kubeflow,
    )  # fmt: skip
    if spec.settings.autoscale:
        require_autoscale("--setting autoscale=true")
    return options, spec


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
    backend = LauncherBackend(options.launcher, spec.name, options.certs, elsewhere=options.elsewhere)

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
