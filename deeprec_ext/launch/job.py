"""One job on this machine, from its directory to its summary."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import logging
import os
import platform
import shlex
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import grpc.aio

from deeprec_ext.aimaster.job.unwritten import CODE
from deeprec_ext.aimaster.pods import restarting
from deeprec_ext.aimaster.rpc.border import Border
from deeprec_ext.launch.client import JobClient
from deeprec_ext.launch.ending import FAILED, STOPPED, SUCCEEDED, Ending, Outcome, stop_all, wait_for_others
from deeprec_ext.launch.interrupts import NAMES, Interrupts
from deeprec_ext.launch.observer import POLL_SECONDS, Observer
from deeprec_ext.launch.openness import opening
from deeprec_ext.launch.plan import RunPlan, aimaster_command, role_command, start_values
from deeprec_ext.launch.pool.membership import Membership
from deeprec_ext.launch.ports import HOST, free_port
from deeprec_ext.launch.records.eventlog import EventTail
from deeprec_ext.launch.records.history import NOTHING_TO_TEACH, remember
from deeprec_ext.launch.records.logs import place, shown_end
from deeprec_ext.launch.records.story import write_report
from deeprec_ext.launch.records.summary import begins_at, merge_summary, read_stored
from deeprec_ext.launch.resources import Requests
from deeprec_ext.launch.roles.guard import Guard
from deeprec_ext.launch.roles.isolation import IN_STEP, open_network, remove_socket, socket_for
from deeprec_ext.launch.roles.local import LocalRunner
from deeprec_ext.launch.roles.registry import RUNNERS
from deeprec_ext.launch.roles.runner import Command, JobOutline
from deeprec_ext.launch.roles.service import LauncherService
from deeprec_ext.launch.roles.supervisor import Pod, Pods
from deeprec_ext.launch.script import Progress, Script
from deeprec_ext.launch.workdir import writable
from deeprec_ext.proto import PROTOCOL_MAJOR, PROTOCOL_MINOR
from deeprec_ext.proto import deeprec_ext_pb2 as pb2
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc
from deeprec_ext.rundir import RunDirectory
from deeprec_ext.security.authority import create_certificates, issue
from deeprec_ext.security.credentials import SERVER_OPTIONS, add_port
from deeprec_ext.security.renewing import Renewing
from deeprec_ext.security.tokens import make_token, page_line, write_door
from deeprec_ext.wholefiles import write_json

_log = logging.getLogger(__name__)

NETWORK = (
    "network: TensorFlow's ports are open to whoever reaches the nodes of the job, who can read through them what its user can "
    "read; the AIMaster's is not (mutual TLS)"
)

NETWORK_IN_STEP = f"network: {IN_STEP}, and what they send is not encrypted; the AIMaster's is (mutual TLS)"

CHIEF = "chief-0"

TOLD_SECONDS = 5.0
"""For the AIMaster to hear of the end of the chief: who runs that tells both."""
REPORT_SECONDS = 60.0
"""What the report at the end may take: a second is usual, a network disk may be slow."""


@dataclass(frozen=True)
class Scene:
    """What there is to show at one moment."""

    job: str
    directory: Path
    seconds: float
    status: pb2.StatusReply | None
    pods: tuple[pb2.PodStatus, ...] = ()
    script: tuple[Progress, ...] = ()
    ending: str = ""  # what the launcher is doing at the end
    dashboard: str = ""  # address of the web page, and what opens it with the right to scale


class Display(Protocol):
    """Called on the loop, twice a second and for each event; must not block."""

    def update(self, scene: Scene) -> None: ...
    def event(self, event: dict[str, Any]) -> None: ...
    def say(self, line: str) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Result:
    outcome: Outcome
    summary: dict[str, Any]
    events_left: tuple[str, ...]
    refused: bool = False  # the script cannot be made elastic: bad usage, not bad luck


class Job:
    """Call `run` once, on the main thread (children die with the thread that started them). Raises UsageError."""

    def __init__(
        self, plan: RunPlan, display: Display, interrupts: Interrupts, member: Membership | None = None
    ) -> None:
        """`member`: of its pool, where it has joined one."""
        self._member = member
        self._interrupts = interrupts
        self._plan = plan
        self._display = display
        self._ending = Ending()
        self._ending_step = ""
        self._told = ""  # what cannot be written
        self._refused = False
        self._hurry = asyncio.Event()
        self._began = time.monotonic()
        self._started = 0.0  # Unix seconds, as described
        self._guard = Guard()
        about = JobOutline(plan.job, plan.directory.path, plan.requests, plan.backend_arguments)
        self._runner = RUNNERS[plan.backend](about, self._guard)
        isolate = "off" if self._runner.elsewhere else plan.isolate
        self._network, self._namespace = open_network(isolate, plan.aimaster_port, sums=not plan.limits.slots)
        self._socket: Path | None = None
        self._aimaster = ""
        if self._namespace is not None:
            self._socket = socket_for(plan.directory.path)
            self._aimaster = f"unix:{self._socket}"
        self._http = None if plan.dashboard_port is None else f"{HOST}:{plan.dashboard_port or free_port()}"
        self._launcher = self._page = ""
        self._events = EventTail(plan.directory.events, from_end=plan.resume)
        if plan.resume:
            plan.directory.begin_script_again()
        beside = LocalRunner(replace(about, requests=Requests()), self._guard) if self._runner.elsewhere else None
        self._pods = Pods(self._command_of, plan.directory.log, self._judge, self._runner, beside)
        self._pods.broke = self._nobody_looks_after

    async def run(self) -> Result:
        """Everything. Raises UsageError before anything has started; afterwards the outcome says what went wrong."""
        loop = asyncio.get_running_loop()
        with self._interrupts.heard_by(lambda name: loop.call_soon_threadsafe(self._interrupt, name)):
            return await self._run()

    async def _run(self) -> Result:
        plan = self._plan
        server = grpc.aio.server(options=SERVER_OPTIONS, interceptors=[Border()])
        tasks: list[asyncio.Task[None]] = []
        try:
            await self._runner.begin()
            if not self._aimaster:
                self._aimaster = f"{self._runner.host}:{plan.aimaster_port or free_port()}"
            with writable(plan.directory):
                create_certificates(plan.directory.certificates, plan.job)
            if self._http is not None:
                address = f"http://{self._http}/"
                door = write_door(plan.directory.door, address, make_token(plan.directory.certificates))
                self._page = page_line(address, door, plan.directory.certificates)
                self._display.say(f"dashboard: {self._page}")
            if plan.limits.slots:
                self._display.say(f"layout: {plan.layout}")
            log, directory = plan.directory.log(CHIEF), shlex.quote(str(plan.directory.path))
            self._display.say(f"what the script prints: {log}; of all roles: deeprec-ext logs {directory} --follow")
            for line in plan.grown:
                self._display.say(f"limits: {line}")
            elsewhere = NETWORK if plan.limits.slots else NETWORK_IN_STEP
            self._display.say(elsewhere if self._runner.elsewhere else self._network.line)
            if (open_ := opening(plan.directory.path)) is not None:
                self._display.say(f"warning: run directory: {open_.line}; {open_.remedy}")
            rpc.add_LauncherServicer_to_server(LauncherService(self._pods), server)
            self._launcher = f"{HOST}:{add_port(server, f'{HOST}:0', 'launcher', plan.directory.certificates)}"
            await server.start()
            with writable(plan.directory):
                described = describe(plan, self._aimaster, self._launcher, self._http)
                plan.directory.describe(described)
                self._started = float(described["started"])
            async with JobClient(self._aimaster, plan.job, plan.directory.certificates) as client:
                observer = self._observer = Observer(client, self._pods)
                observer.on_status.append(self._notice_failure)
                script = Script(plan.events, client, observer, self._pods, self._display.say, self._seconds)
                await self._pods.create("aimaster", "aimaster", 0)
                renewing = Renewing(plan.directory.certificates, plan.job, self._display.say)
                tasks += [
                    asyncio.create_task(one) for one in (observer.run(), self._show(script), renewing.run())
                ]  # fmt: skip
                scripted = asyncio.create_task(script.run())
                tasks.append(scripted)
                for task in tasks:
                    task.add_done_callback(self._notice_bug)
                outcome = await self._ending.wait()
                outcome = await self._end(outcome, client, scripted)
                if self._member is not None:
                    self._member.leave()
                self._refresh(script)
                return await self._summarise(outcome, script)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._pods.close()
            await server.stop(0)
            await self._runner.close()
            self._guard.close()
            if self._namespace is not None:
                self._namespace.close()
            with contextlib.suppress(OSError):  # a directory that has become read-only keeps them; the result counts
                plan.directory.door.unlink(missing_ok=True)  # another server may get the port
                if self._socket is not None:
                    remove_socket(self._socket, plan.directory.path)

    # ------------------------------------------------------------------------------------ what happens meanwhile

    def _command_of(self, pod: Pod) -> Command:
        if pod.role == "aimaster":
            first = pod.starts <= 1  # later starts are recoveries: the roles live
            resume = self._plan.resume and first
            return aimaster_command(
                self._plan,
                self._aimaster,
                self._launcher,
                resume=resume,
                http=self._http,
                elsewhere=self._runner.elsewhere,
            )
        issue(self._plan.directory.certificates, self._plan.job, pod.name)
        inside = () if self._namespace is None else tuple(self._namespace.descriptors)
        return role_command(self._plan, self._aimaster, pod.role, pod.index, namespaces=inside)

    async def _judge(self, pod: Pod, code: int, by_signal: bool) -> restarting.Verdict:
        """What to do about a role that has ended."""
        ending = self._ending.outcome is not None
        if code and not ending and not pod.deleted and pod.role != "aimaster":
            await self._observer.ask(1.0)  # it may have made its first step since the last poll
        trained = self._observer.trained
        raised = place(pod.log) if pod.role == "chief" and code == 1 and not by_signal else ""
        verdict = restarting.decide(
            restarting.Ended(
                role=pod.role, exit_code=code, by_signal=by_signal, deleted=pod.deleted or ending,
                trained=pod.name in trained if pod.role == "chief" else bool(trained), served=self._observer.served,
                restarts=pod.recent_restarts, error_restarts=pod.recent_error_restarts,
                restarts_max=self._plan.values.restarts_max, cause=pod.cause, unwritten=bool(self._unwritten()),
                raised_at=raised, raised_before=pod.raised_at, trained_seconds=self._observer.trained_seconds(pod.name),
            )
        )  # fmt: skip
        if verdict.action is restarting.Action.FAIL_JOB:
            self._ending.set(self._why(pod, verdict))
        elif verdict.action in (restarting.Action.RESTART, restarting.Action.GIVE_UP):
            what = "starting it again" if verdict.action is restarting.Action.RESTART else "given up"
            error = pod.why() if code and not by_signal else ""
            self._display.say(f"{pod.name} {verdict.reason}{': ' if error else ''}{error}; {what}")
        elif pod.role == "chief" and code == 0 and not pod.deleted:
            self._ending.set(Outcome(SUCCEEDED))
        pod.raised_at = raised  # at last: what is not judged to its end is judged once more
        return verdict

    def _why(self, pod: Pod, verdict: restarting.Verdict) -> Outcome:
        """A refusal explains the exit better than its log does."""
        self._read_events()
        status = self._observer.latest
        detail = () if self._refused else shown_end(pod.log)
        if pod.role != "aimaster" and status is not None and status.state == "failed" and status.failure:
            return Outcome(FAILED, status.failure, detail)
        error = pod.why() if pod.exit_code else ""
        return Outcome(FAILED, f"{pod.name} {verdict.reason}{': ' if error else ''}{error}", detail)

    def _notice_failure(self, status: pb2.StatusReply) -> None:
        if status.state == "failed":
            self._read_events()  # a refusal explains the end better than a log does
            names = [role.name for role in status.roles if role.state == "failed"] or [CHIEF]
            detail = () if self._refused else shown_end(self._plan.directory.log(names[0]))
            reason = status.failure or "the AIMaster reports the job as failed"
            self._ending.set(Outcome(FAILED, reason, detail))

    def _notice_bug(self, task: asyncio.Task[None]) -> None:
        """A task of ours that dies would leave the job running blindly."""
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("the launcher failed", exc_info=error)
            self._ending.set(Outcome(FAILED, f"the launcher failed: {error!r}"))

    def _nobody_looks_after(self, name: str, error: Exception) -> None:
        self._ending.set(Outcome(FAILED, f"the launcher failed with {name}: {error!r}"))

    async def _show(self, script: Script) -> None:
        while True:
            self._refresh(script)
            await asyncio.sleep(POLL_SECONDS)

    def _read_events(self) -> None:
        for event in self._events.poll():
            self._refused = self._refused or event.get("type") == "refusal"
            if event.get("type") == "notice":  # whole: it says what to do
                remedy = f": {event['remedy']}" if event.get("remedy") else ""
                self._display.say(f"notice of {event.get('role')}: {event.get('text')}{remedy}")
            elif event.get("type") != "unused_ps":  # a notice says the same
                self._display.event(event)

    def _unwritten(self) -> str:
        """What cannot be written at present, and why; empty: nothing."""
        status = self._observer.latest
        said = [one.notice.text for one in status.notices if one.notice.code == CODE] if status is not None else []
        logs = self._pods.unwritten
        if logs:
            said.append(f"logs of {', '.join(sorted(logs))}: {next(iter(logs.values()))}")
        return "; ".join(said)

    def _tell_unwritten(self) -> None:
        """When it begins and when it is over: the events that would tell it cannot be written either."""
        unwritten = self._unwritten()
        if unwritten and not self._told:
            self._display.say(f"cannot be written: {unwritten}; {remedy(self._plan.directory)}")
        elif self._told and not unwritten:
            self._display.say("everything can be written again")
        self._told = unwritten

    async def _until_written(self) -> None:
        """At the end: what waits for the disk is part of the result. An interrupt ends the waiting."""
        while self._unwritten() and not self._hurry.is_set():
            self._ending_step = "waiting until everything can be written"
            await self._observer.ask(1.0)
            await asyncio.sleep(POLL_SECONDS)

    def _refresh(self, script: Script) -> None:
        self._read_events()
        self._tell_pool()
        self._tell_unwritten()
        self._display.update(self._scene(script))

    def _tell_pool(self) -> None:
        """Which processes there are. Before the chief there are those that were promised room."""
        if self._member is not None and (chief := self._pods.get(CHIEF)) is not None and chief.starts:
            there = [(pod.role, pod.resources) for pod in self._pods.all() if pod.process is not None or pod.restarting]
            self._member.tell(there, self._observer.silent_seconds)

    def _scene(self, script: Script) -> Scene:
        return Scene(
            self._plan.job, self._plan.directory.path, self._seconds(), self._observer.latest,
            tuple(pod.status() for pod in self._pods.all()), tuple(script.progress), self._ending_step,
            self._page,
        )  # fmt: skip

    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _interrupt(self, name: str) -> None:
        """The first Ctrl-C ends the job in order, the second at once."""
        if self._ending.outcome is not None:
            self._hurry.set()
        else:
            where = begins_at(self._plan.directory)
            if self._plan.limits.slots:
                where = ", with a checkpoint where the chief trains" + (f" (else {where})" if where else "")
            elif where:
                where = f"; {where}"
            self._display.say(f"stopping{where}; Ctrl-C again to stop at once")
            self._ending.set(Outcome(STOPPED, NAMES.get(name, name)))

    # ---------------------------------------------------------------------------------------------------- the end

    async def _end(self, outcome: Outcome, client: JobClient, scripted: asyncio.Task[None]) -> Outcome:
        """In order; an interrupt meanwhile kills what is left."""
        scripted.cancel()
        if outcome.status == SUCCEEDED:
            self._ending_step = "waiting for workers and evaluator"
            await self._unless_hurried(wait_for_others(self._pods, self._plan.values.finish_grace_seconds))
            asked = asyncio.ensure_future(self._told_of_the_end())
            await self._unless_hurried(asked)
            status = asked.result() if asked.done() and not asked.cancelled() else None
            if status is not None and status.state == "failed":
                outcome = Outcome(FAILED, status.failure)
        await self._unless_hurried(self._until_written())
        self._ending_step = "stopping"
        self._pods.closed = True
        await self._unless_hurried(stop_all(self._pods, client, outcome))
        await self._pods.stop([pod.name for pod in self._pods.all()], 0)
        self._ending_step = outcome.status
        return outcome

    async def _told_of_the_end(self) -> Any:
        """The AIMaster's status once it has heard that the chief has ended, as we have; it may know why that is no success."""
        until = time.monotonic() + TOLD_SECONDS
        while True:
            status = await self._observer.ask()  # None: no answer yet, which is no news of the end
            known = status is not None and status.state in ("finishing", "finished", "failed")
            if known or time.monotonic() > until:
                return status
            await asyncio.sleep(POLL_SECONDS)

    async def _unless_hurried(self, work: Any) -> None:
        task, hurry = asyncio.ensure_future(work), asyncio.ensure_future(self._hurry.wait())
        await asyncio.wait([task, hurry], return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if not task.done():
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def _summarise(self, outcome: Outcome, script: Script) -> Result:
        stored = read_stored(self._plan.directory, self._observer.latest)
        summary = merge_summary(stored, outcome, self._pods.all(), script.progress, self._seconds())
        summary["started"] = self._started
        await self._unless_hurried(self._write_summary(summary))
        await self._unless_hurried(self._until_written())
        await self._unless_it_hangs("report", lambda: write_report(self._plan.directory, running=False))
        await self._unless_it_hangs("history of jobs", lambda: self._remember(outcome))
        left = tuple(str(item.event) for item in script.left)
        return Result(outcome, summary, left, outcome.status == FAILED and self._refused)

    async def _write_summary(self, summary: dict[str, Any]) -> None:
        """When that is possible."""
        while True:
            try:
                return write_json(self._plan.directory.summary, summary)
            except OSError as error:
                step = f"waiting until summary.json can be written: {error.strerror or error}"
                if self._ending_step != step:
                    self._display.say(f"{step}; {remedy(self._plan.directory)}; Ctrl-C to do without")
                self._ending_step = step
            await asyncio.sleep(POLL_SECONDS)

    def _remember(self, outcome: Outcome) -> None:
        plan = self._plan
        if plan.history is not None:
            kept = remember(
                plan.history, plan.directory.path, script=plan.script, status=outcome.status, seconds=self._seconds(),
                requests=plan.requests, backups=plan.values.peer_backup != "off", name=plan.job,
                autoscaled=plan.values.autoscale, local_batch=plan.values.step_batch == "each",
            )  # fmt: skip
            if not kept and plan.values.autoscale:
                _log.warning("this job is not remembered: %s", NOTHING_TO_TEACH)

    @staticmethod
    async def _unless_it_hangs(what: str, write: Callable[[], object]) -> None:
        """Whatever goes wrong with it is a line in the log, and does not change how the job ended."""

        def run() -> None:
            try:
                write()
            except Exception as error:
                _log.warning("no %s was written: %s", what, error)
                _log.debug("no %s was written", what, exc_info=True)

        thread = threading.Thread(target=run, daemon=True)  # one that hangs does not keep this process
        thread.start()
        deadline = time.monotonic() + REPORT_SECONDS
        while thread.is_alive() and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        if thread.is_alive():
            _log.warning("no %s was written within %.0f s", what, REPORT_SECONDS)


def remedy(directory: RunDirectory) -> str:
    return f"free space on the file system of {directory.path}, or make it writable again; the job goes on by itself"


def describe(plan: RunPlan, aimaster: str, launcher: str, http: str | None) -> dict[str, Any]:
    """job.json: how the other commands find the job, and what would reproduce it."""
    return {
        "job": plan.job, "aimaster": aimaster, "launcher": launcher, "launcher_pid": os.getpid(),
        "command": list(plan.command), "layout": plan.layout.layout, "layout_reason": plan.layout.reason,
        "cwd": os.getcwd(), "arguments": sys.argv[1:], "limits": asdict(plan.limits), "requests": asdict(plan.requests),
        "ceilings": asdict(plan.ceilings),
        "settings": dict(plan.settings), "events": [str(event) for event in plan.events], "started": time.time(),
        "resumed": plan.resume, "start": start_values(plan.start), "dashboard": f"http://{http}/" if http else "",
        "backend": plan.backend, "isolated": aimaster.startswith("unix:"),
        "versions": {
            "python": platform.python_version(), "executable": sys.executable,
            "protocol": f"{PROTOCOL_MAJOR}.{PROTOCOL_MINOR}",
            **{name: version(name) for name in ("deeprec-ext", "tensorflow", "grpcio", "protobuf")},
        },
    }  # fmt: skip


def version(distribution: str) -> str | None:
    """Without importing it: the master side never imports TensorFlow."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
