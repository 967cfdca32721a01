"""`deeprec-ext run … -- python train.py`: a whole elastic job on this machine."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deeprec_ext.aimaster.core.extras import require
from deeprec_ext.autoscaler.history.start import describe
from deeprec_ext.autoscaler.policy.limits import contradiction
from deeprec_ext.bounds import whole
from deeprec_ext.cli import pooled
from deeprec_ext.cli.checks import without_estimator
from deeprec_ext.cli.display import make_display
from deeprec_ext.cli.ending import print_result
from deeprec_ext.errors import UsageError
from deeprec_ext.launch.command import resolve_command
from deeprec_ext.launch.ending import STOPPED, SUCCEEDED
from deeprec_ext.launch.events import load_events
from deeprec_ext.launch.interrupts import Interrupts, leave_gone_terminal
from deeprec_ext.launch.job import Display, Job, Result
from deeprec_ext.launch.limits import Limits, growth, resolve_limits
from deeprec_ext.launch.plan import RunPlan, backup_settings, check_autoscale, describe_plan, new_job_name
from deeprec_ext.launch.pool.membership import Membership
from deeprec_ext.launch.ports import check_free
from deeprec_ext.launch.records.history import bounds_of, estimate, history_place, size_of
from deeprec_ext.launch.resources import Ceilings, Requests, parse_ceilings, parse_requests
from deeprec_ext.launch.roles.isolation import MODES, NO_PORT, open_network
from deeprec_ext.launch.roles.registry import LOCAL, RUNNERS
from deeprec_ext.launch.workdir import (
    Unused,
    check_directory,
    default_directory,
    make_directory,
    try_directory,
    writable,
)
from deeprec_ext.layout import choose, facts_of_command, job_label, layout_called, script_name
from deeprec_ext.options import OTHERS, Settings, all_rows, check_rate, flags_said, rows, split_setting, values_given
from deeprec_ext.rundir import RunDirectory, files_private

INTERRUPTED = 130


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "run", help="train a script on this machine with PS and workers that can be scaled",
        usage="deeprec-ext run [flags] -- python train.py ...",
        description="Starts an AIMaster, PS, a chief and workers as local processes, and shows one live table.",
    )  # fmt: skip
    add_arguments(parser)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_flags(parser)
    parser.add_argument(
        "script", nargs=argparse.REMAINDER, metavar="-- python train.py ...", help="the command that trains"
    )


def add_flags(parser: argparse.ArgumentParser) -> None:
    for row in all_rows():
        if row.flag:
            row.add_flag(parser)
    parser.add_argument(
        "--history", metavar="FILE",
        help="finished jobs, from which --autoscale estimates the first size: a file, https://HOST:PORT of a service "
        "(`deeprec-ext history`), or off (default: one file per user)",
    )  # fmt: skip
    parser.add_argument(
        "--history-certs", type=Path, metavar="DIR", help="the certificates with which that service is asked"
    )
    parser.add_argument("--events", type=Path, metavar="FILE", help="YAML file that scripts scalings and failures")
    parser.add_argument("--workdir", type=Path, metavar="DIR", help="run directory (default runs/<script>-<date-time>)")
    parser.add_argument("--resume", action="store_true", help="go on with the job in --workdir")
    parser.add_argument(
        "--port", type=whole("count"), metavar="PORT", help="port of the AIMaster (default: any free one)"
    )
    parser.add_argument(
        "--isolate", choices=MODES, default="auto",
        help="a network of its own for PS and trainers, which nobody else reaches: on; off; auto (default): where the script "
        "still reaches other machines, through slirp4netns",
    )  # fmt: skip
    parser.add_argument(
        "--backend", choices=tuple(RUNNERS), default=LOCAL,
        help="who runs PS and trainers: this machine (local, the default), or Slurm, as jobs of a cluster (slurm)",
    )  # fmt: skip
    parser.add_argument(
        "--backend-arg", action="append", default=[], metavar="[ROLE:]ARG",
        help="of --backend slurm: an option of sbatch, for all roles or one, as in worker:--gres=gpu:1; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--dashboard", type=whole("count"), metavar="PORT",
        help="serve the dashboard, and metrics for Prometheus, at this port of this machine; 0: any free one",
    )  # fmt: skip
    pooled.add_flags(parser)
    parser.add_argument("--setting", action="append", default=[], metavar="NAME=VALUE", help="see docs/settings.md")
    parser.add_argument("--dry-run", action="store_true", help="print what would be started, and start nothing")
    parser.add_argument("--json", action="store_true", help="print the summary (or the dry run) as JSON on stdout")
    parser.add_argument("--quiet", action="store_true", help="no table and no progress lines")


def make_plan(arguments: argparse.Namespace) -> RunPlan:
    """Everything is checked here, and nothing has happened yet. Raises UsageError."""
    if arguments.autoscale:
        require("autoscale", "--autoscale")
    words = arguments.script[1:] if arguments.script[:1] == ["--"] else arguments.script
    if arguments.resume and arguments.workdir is not None and not words:
        raise UsageError(f"--resume: {_whole_command(check_directory(arguments.workdir, resume=True))}")
    others, sized = flags_said(arguments, OTHERS), not (arguments.ps is None and arguments.workers is None)
    layout = choose(facts_of_command(words), resolve_command(words), layout_called(others.get("layout", "auto")))
    events = load_events(arguments.events) if arguments.events else ()
    if others.get("strategy") == "allreduce":
        check_no_ps(arguments)
        arguments.ps = arguments.slots = arguments.min_ps = arguments.max_ps = 0
    first_ps, first_workers = (1, 0) if arguments.autoscale else (2, 1)  # what nobody has measured starts small
    first_ps = max(arguments.min_ps or 1, first_ps) if arguments.ps is None else arguments.ps
    first_workers = max(arguments.min_workers or 0, first_workers) if arguments.workers is None else arguments.workers
    limits = resolve_limits(
        ps=first_ps, workers=first_workers, slots=arguments.slots, min_ps=arguments.min_ps, max_ps=arguments.max_ps,
        min_workers=arguments.min_workers, max_workers=arguments.max_workers, evaluator=arguments.evaluator, events=events,
    )  # fmt: skip
    grown = growth(
        limits, slots=arguments.slots, max_ps=arguments.max_ps, max_workers=arguments.max_workers, events=events
    )
    requests = parse_requests(vars(arguments))
    ceilings = parse_ceilings(requests, vars(arguments))
    requests = check_ceilings(ceilings, requests, limits, autoscale=arguments.autoscale)
    label = getattr(arguments, "label", "")
    script, label = label or script_name(words, Path.cwd()), label or job_label(words)
    history = history_place(arguments.history, arguments.history_certs)
    start = None
    if arguments.autoscale and not sized and not arguments.resume:
        start = estimate(
            history,
            script,
            limits,
            requests,
            ceilings,
            backups=arguments.backup != "off",
            here=arguments.backend == LOCAL,
        )
        limits = dataclasses.replace(limits, ps=start.size.ps, workers=start.size.workers)
    settings = (
        *backup_settings(others.get("backup")).items(), *check_autoscale(flags_said(arguments, rows(Settings))).items(),
        *(split_setting(text) for text in arguments.setting),
    )  # fmt: skip
    check_rate(values_given(settings).get("rate_scaling", "none"), sums=others.get("strategy") == "allreduce")
    if arguments.isolate == "on" and arguments.port is not None:
        raise UsageError(NO_PORT.format(arguments.port))
    check_backend(arguments.backend, arguments.backend_arg, arguments.isolate)
    pool = pooled.asked(arguments)
    port = check_free(arguments.port, "--port") if arguments.port is not None else 0
    dashboard = check_dashboard(arguments.dashboard) if arguments.dashboard is not None else None
    path = arguments.workdir if arguments.workdir is not None else default_directory(label)
    directory = check_directory(path, arguments.resume)
    job = directory.read_description()["job"] if arguments.resume else new_job_name(directory.path)
    return RunPlan(
        job, layout.command, limits, directory, events, settings, requests, ceilings, arguments.resume, port,
        dashboard_port=dashboard, isolate=arguments.isolate, script=script, history=history, start=start, grown=grown,
        layout=layout, backend=arguments.backend, backend_arguments=tuple(arguments.backend_arg), pool=pool,
    )  # fmt: skip


def check_no_ps(arguments: argparse.Namespace) -> None:
    """Raises UsageError for what is of PS alone."""
    given = [
        flag
        for flag in ("ps", "slots", "min_ps", "max_ps", "ps_cpu", "ps_memory", "max_ps_cpu", "max_ps_memory")
        if getattr(arguments, flag, None)
    ]
    if given:
        raise UsageError(f"--{given[0].replace('_', '-')} with --strategy allreduce: such a job has no PS")
    if arguments.evaluator:
        raise UsageError(
            "--evaluator with --strategy allreduce: an evaluator has no part in sums; evaluate in the script"
        )


def _whole_command(directory: RunDirectory) -> str:
    """What to type to go on with a job. Raises UsageError."""
    description = directory.read_description()
    words = [str(one) for one in description.get("arguments", ())]
    if "--" not in words:
        return f"give the script and its options too, as when it began: -- {shlex.join(description.get('command', ()))}"
    own = words[: words.index("--")]  # the script may have options of these names
    if "--resume" not in own:
        words.insert(1, "--resume")
    if not any(word == "--workdir" or word.startswith("--workdir=") for word in own):
        words[1:1] = ["--workdir", str(directory.path)]
    return (
        "give the script and the options too, as when the job began (other sizes and settings are allowed): "
        f"cd {shlex.quote(str(description.get('cwd', '.')))} && deeprec-ext {shlex.join(words)}"
    )


def check_ceilings(ceilings: Ceilings, requests: Requests, limits: Limits, *, autoscale: bool) -> Requests:
    """What pods request at first. Raises UsageError where no size can be within the limits."""
    if ceilings and not autoscale:
        raise UsageError("--max-ps-cpu, --total-cpu and the like say how far --autoscale may go: give --autoscale too")
    requests, total = ceilings.start(requests), ceilings.total
    for what, most, of_ps, of_worker in (
        ("cpu", total.cpu, requests.ps.cpu, requests.worker.cpu),
        ("memory", total.memory_bytes, requests.ps.memory_bytes, requests.worker.memory_bytes),
    ):
        if most and limits.slots and not (of_ps and of_worker):
            raise UsageError(f"--total-{what}: needs --ps-{what} and --worker-{what} too, or the --max of each")
        if most and not of_worker:
            raise UsageError(f"--total-{what}: needs --worker-{what} too, or --max-worker-{what}")
    if why := contradiction(size_of(requests, limits.ps, limits.workers), bounds_of(limits, ceilings)):
        raise UsageError(f"the limits of --autoscale contradict each other: {why}")
    return requests


def check_backend(backend: str, arguments: Sequence[str], isolate: str) -> None:
    """Raises UsageError for what only the other kind can do."""
    if backend == LOCAL and arguments:
        raise UsageError(f"--backend-arg {arguments[0]}: this machine takes none; give --backend too")
    if backend != LOCAL and isolate == "on":
        raise UsageError(f"--isolate on: a network of its own is one of this machine; --backend {backend} has none")


def check_dashboard(port: int) -> int:
    """The port itself, if the web page can be served there. Raises UsageError that says what is missing."""
    require("dashboard", "--dashboard")
    return check_free(port, "--dashboard") if port else 0


def run(arguments: argparse.Namespace) -> int:
    try:
        plan = make_plan(arguments)
    except KeyboardInterrupt:
        print("deeprec-ext: stopped before anything was started", file=sys.stderr)
        return INTERRUPTED
    if missing := without_estimator(plan.command):  # told, not refused: the text may ask first
        print(f"deeprec-ext: {missing}", file=sys.stderr)
    if arguments.dry_run:
        try_start(plan)
        print_dry_run(plan, arguments.json)
        return 0
    with Interrupts() as interrupts, files_private() as umask:
        made = make_directory(plan.directory.path)
        return _run_in_directory(dataclasses.replace(plan, umask=umask), arguments, interrupts, made)


def try_start(plan: RunPlan) -> None:
    """What the start itself would find, as far as it can be taken back. Raises UsageError."""
    try_directory(plan.directory)
    if plan.pool is not None:
        pooled.described(plan, plan.pool)
    if plan.isolate == "on":
        _, namespace = open_network(plan.isolate, plan.aimaster_port)
        if namespace is not None:
            namespace.close()


def _run_in_directory(
    plan: RunPlan, arguments: argparse.Namespace, interrupts: Interrupts, made: Sequence[Path]
) -> int:
    """`made`: what was not there before, and need not stay if nothing is started."""
    with writable(plan.directory):
        lock = plan.directory.lock()
    with lock, contextlib.ExitStack() as stack:
        unused = stack.enter_context(contextlib.closing(Unused(plan.directory, made)))
        member = stack.enter_context(pooled.membership(plan))
        started = pooled.with_room(plan, member, arguments, interrupts)
        if started is None:
            return INTERRUPTED
        unused.used()
        with writable(plan.directory):
            plan.directory.make()
        display = make_display(started, quiet=arguments.quiet, json_on_stdout=arguments.json)
        try:
            result = asyncio.run(_run(started, display, interrupts, member))
        finally:
            display.close()
    leave_gone_terminal()
    print_result(
        result, plan.directory.path, sys.stderr if arguments.json or arguments.quiet else sys.stdout, arguments.quiet
    )
    if arguments.json:
        print(json.dumps(result.summary, indent=2))
    return exit_code(result)


async def _run(plan: RunPlan, display: Display, interrupts: Interrupts, member: Membership | None) -> Result:
    return await Job(plan, display, interrupts, member).run()


def exit_code(result: Result) -> int:
    """0 done; 1 failed, or scripted events are left; 2 the script was refused; 130 stopped by Ctrl-C, SIGTERM or SIGHUP."""
    if result.outcome.status == STOPPED:
        return INTERRUPTED
    if result.refused:
        return 2
    return 0 if result.outcome.status == SUCCEEDED and not result.events_left else 1


def print_dry_run(plan: RunPlan, as_json: bool) -> None:
    described = describe_plan(plan)
    if as_json:
        print(json.dumps(described, indent=2))
        return
    limits = plan.limits
    print(f"would start in {plan.directory.path}: {plan.roles_shown()}")
    print(f"command: {' '.join(plan.command)}")
    if limits.slots:
        print(f"layout: {plan.layout}")
    ps = f"slots {limits.slots}; PS {limits.min_ps} to {limits.max_ps}" if limits.slots else "in step, without PS"
    print(f"{ps}; workers {limits.min_workers} to {limits.max_workers}")
    for line in plan.grown:
        print(f"limits: {line}")
    if plan.start is not None:
        print(f"first size: {describe(plan.start)}")
    if plan.requests:
        print(f"each PS: {plan.requests.ps}; " * bool(limits.slots) + f"each worker: {plan.requests.worker}")
    if plan.pool is not None:
        print(pooled.described(plan, plan.pool))
    for event in described["events"]:
        print(f"event: {event}")
