"""A script as far as its model is declared: its chief alone, in a process that then ends.

The chief waits for a first view that never comes. So nothing is initialised, trained or written; what the script itself does
before it has a graph, it does.
"""

from __future__ import annotations

import asyncio
import dataclasses
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc.aio

from deeprec_ext.aimaster.rpc.border import Border
from deeprec_ext.errors import UsageError
from deeprec_ext.launch.plan import RunPlan, role_command
from deeprec_ext.launch.ports import HOST
from deeprec_ext.launch.records.logs import why
from deeprec_ext.launch.resources import Requests
from deeprec_ext.launch.roles.guard import Guard
from deeprec_ext.launch.roles.local import LocalRunner
from deeprec_ext.launch.roles.printing import Printing
from deeprec_ext.launch.roles.runner import JobOutline
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc
from deeprec_ext.retries import pauses
from deeprec_ext.rundir import RunDirectory
from deeprec_ext.security.authority import create_certificates, issue
from deeprec_ext.security.credentials import SERVER_OPTIONS, add_port

CHIEF = "chief-0"

STOP_SECONDS = 2.0
"""For calls to end by themselves."""

TELL_SECONDS, TELL_MAX_SECONDS = 3.0, 30.0
"""After so long it is told that the script is still waited for, then each time after twice as long."""

Waiting = Callable[[float, str], None]
"""Is told the seconds since the script was started, and the last line that it has printed."""


class _Listening(rpc.AgentsServicer):
    """Of an AIMaster as much as hears a declaration."""

    def __init__(self) -> None:
        self.heard: asyncio.Future[pb.DeclareRequest] = asyncio.get_running_loop().create_future()
        self.over = asyncio.Event()

    async def Register(self, request: pb.RegisterRequest, context: Any) -> pb.RegisterReply:
        await self.over.wait()  # before the server ends: it would print the traceback of a call that it cuts off
        await context.abort(grpc.StatusCode.UNAVAILABLE, "only the model was asked for")
        raise AssertionError("abort raises")

    async def Declare(self, request: pb.DeclareRequest, context: Any) -> pb.DeclareReply:
        if not self.heard.done():
            self.heard.set_result(request)
        return pb.DeclareReply(heard=True)


async def declared(
    plan: RunPlan, limit_seconds: float, waiting: Waiting = lambda seconds, line: None
) -> pb.Declaration:
    """What the script of this plan declares. Raises UsageError: it declares nothing, ends before, or takes longer."""
    with tempfile.TemporaryDirectory(prefix="deeprec-ext-estimate-") as name:
        directory = RunDirectory(Path(name))
        plan = dataclasses.replace(plan, directory=directory)
        create_certificates(directory.certificates, plan.job)
        issue(directory.certificates, plan.job, CHIEF)
        listening, guard = _Listening(), Guard()
        server = grpc.aio.server(options=SERVER_OPTIONS, interceptors=[Border()])
        rpc.add_AgentsServicer_to_server(listening, server)  # type: ignore[no-untyped-call]
        port = add_port(server, f"{HOST}:0", "aimaster", directory.certificates)
        log = directory.log(CHIEF)
        printing = Printing(log)
        try:
            await server.start()
            request = await _heard(plan, f"{HOST}:{port}", listening, guard, printing, limit_seconds, waiting)
        except UsageError as error:
            printing.drain()
            raise UsageError(": ".join(filter(None, (str(error), why(log))))) from None
        finally:
            printing.close()
            listening.over.set()
            await server.stop(STOP_SECONDS)
            guard.close()
    if not request.HasField("declaration"):
        raise UsageError(f"the script declares no model: {request.why_not or 'it does not say why'}")
    return request.declaration


async def _heard(
    plan: RunPlan, address: str, listening: _Listening, guard: Guard, printing: Printing, limit_seconds: float,
    waiting: Waiting,
) -> pb.DeclareRequest:  # fmt: skip
    runner = LocalRunner(JobOutline(plan.job, plan.directory.path, Requests()), guard)
    process = await runner.start(CHIEF, 1, role_command(plan, address, "chief", 0), printing, None)
    ended = asyncio.ensure_future(process.wait())
    try:
        first: list[asyncio.Future[Any]] = [listening.heard, ended]
        began = time.monotonic()
        for pause in pauses(TELL_SECONDS, TELL_MAX_SECONDS):
            left = began + limit_seconds - time.monotonic()
            done, _ = await asyncio.wait(first, timeout=min(pause, left), return_when=asyncio.FIRST_COMPLETED)
            if done or pause >= left:
                break
            waiting(time.monotonic() - began, why(plan.directory.log(CHIEF), by_signal=True))
        if listening.heard.done():
            return listening.heard.result()
        if ended.done():
            raise UsageError(f"the script has ended (exit code {ended.result()}) before it had a model to train on PS")
        raise UsageError(f"the script has not come to its model within {limit_seconds:g} s")
    finally:
        await process.stop(0)
        await ended
        await runner.close()
