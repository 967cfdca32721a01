"""The liar: a process of the job, started as worker-1 with that worker's own certificate, that trains nothing and lies.

What it has sent is counted in `lies.json` of the run directory, so that one that was killed goes on where it was.
"""

from __future__ import annotations

import json
import os
import queue
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from benchmarks.lies.edges import UNARY, Lie, lies
from deeprec_ext import env
from deeprec_ext.proto import PROTOCOL_MAJOR, bounds
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc
from deeprec_ext.security.credentials import certificate_for, open_channel, server_name

COUNT_NAME = "lies.json"
CLOSED_SECONDS = 10.0
REGISTER_SECONDS = 120.0
SETTLE_MESSAGES = 30
"""After so many a stream ends: then what is on it has been taken."""


class Liar:
    def __init__(self, count: int, seed: int, dataset: str, workdir: Path) -> None:
        self._path = workdir / COUNT_NAME
        self._told: dict[str, Any] = {"sent": 0, "kinds": {}, "refused": {}, "processes": 0, "impersonated": 0}
        if self._path.exists():
            self._told = json.loads(self._path.read_text())
        self._told["processes"] += 1
        self._lies = lies(count, seed, dataset)
        self._incarnation = uuid.uuid4().hex
        self._role, self._index = env.role(), env.index()
        certs = env.certificates()
        certificate = certificate_for(certs, self._role, self._index)
        self._channel = open_channel(
            env.aimaster_address() or "", server_name("aimaster", env.job()), certificate, certs
        )
        self._stub = rpc.AgentsStub(self._channel)
        self._view = pb.View()

    def run(self) -> None:
        self._register()
        self._impersonate()
        while self._told["sent"] < len(self._lies):
            self._save()
            lie = self._lies[self._told["sent"]]
            if lie.kind in UNARY:
                self._ask(lie)
            else:
                self._stream()
        self._save()

    def _save(self) -> None:
        temporary = self._path.with_suffix(".new")
        temporary.write_text(json.dumps(self._told))
        temporary.replace(self._path)

    def _count(self, kind: str, refused: str = "") -> None:
        self._told["sent"] += 1
        self._told["kinds"][kind] = self._told["kinds"].get(kind, 0) + 1
        if refused:
            of_kind = self._told["refused"].setdefault(kind, {})
            of_kind[refused] = of_kind.get(refused, 0) + 1

    def _request(self) -> pb.RegisterRequest:
        return pb.RegisterRequest(
            protocol_major=PROTOCOL_MAJOR, job=env.job(), role=self._role.upper(), index=self._index, pid=os.getpid(),
            incarnation=self._incarnation, address="127.0.0.1:1", known_task=-1, host="liar",
        )  # fmt: skip

    def _register(self) -> None:
        deadline = time.monotonic() + REGISTER_SECONDS
        while True:
            try:
                self._view = self._stub.Register(self._request(), timeout=30, wait_for_ready=True).view
                return
            except grpc.RpcError as error:
                if error.code() == grpc.StatusCode.FAILED_PRECONDITION:  # fenced: as another process
                    self._incarnation = uuid.uuid4().hex
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _impersonate(self) -> None:
        """As everybody in the view, with all that the view says of them: none of it may be answered."""
        others = [(one.name, one.incarnation) for one in (*self._view.ps, *self._view.workers)]
        for name, incarnation in others:
            if name == f"{self._role}-{self._index}":
                continue
            request = self._request()
            role, _, index = name.partition("-")
            request.role, request.index, request.incarnation = pb.Role.Value(role.upper()), int(index), incarnation
            attach = iter(
                [pb.AgentMessage(hello=pb.Hello(incarnation=incarnation)), pb.AgentMessage(ack=pb.Ack(ok=True))]
            )
            self._try(partial(self._stub.Register, request, timeout=5))
            self._try(partial(_listen, self._stub.Stream(attach, timeout=5)))

    def _try(self, call: Callable[[], object]) -> None:
        try:
            call()
            self._told["impersonated"] += 1
        except grpc.RpcError as error:  # no answer at all would be a wait, and not a refusal
            self._told["impersonated"] += error.code() == grpc.StatusCode.DEADLINE_EXCEEDED

    def _ask(self, lie: Lie) -> None:
        try:
            message = lie.message
            if isinstance(message, pb.RegisterRequest):
                request = self._request()
                request.MergeFrom(message)
                self._stub.Register(request, timeout=2)
            else:
                asked = pb.MissingRequest(incarnation=self._incarnation)
                asked.MergeFrom(message)
                self._stub.Missing(asked, timeout=2)
            self._count(lie.kind)
        except grpc.RpcError as error:
            self._count(lie.kind, error.code().name)

    def _stream(self) -> None:
        """Lies until one closes the stream, or the next is no message of a stream."""
        waiting: queue.Queue[pb.AgentMessage | None] = queue.Queue()

        def speak() -> Iterator[pb.AgentMessage]:
            yield pb.AgentMessage(hello=pb.Hello(incarnation=self._incarnation))
            while (message := waiting.get()) is not None:
                yield message

        kinds: Counter[str] = Counter()
        last = ""
        for lie in self._lies[self._told["sent"] : self._told["sent"] + SETTLE_MESSAGES]:
            if lie.kind in UNARY:
                break
            message = lie.message
            waiting.put(message)
            kinds[lie.kind] += 1
            last = lie.kind
            if bounds.check(message) is not None:  # it closes the stream
                break
        waiting.put(None)
        code = grpc.StatusCode.OK
        try:
            _listen(self._stub.Stream(speak(), timeout=CLOSED_SECONDS))
        except grpc.RpcError as error:
            code = error.code()
        for kind, times in kinds.items():
            for number in range(times):
                refused = kind == last and number == times - 1 and code != grpc.StatusCode.OK
                self._count(kind, code.name if refused else "")
        if not kinds or code in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION):
            self._register()


def _listen(call: Iterator[object]) -> None:
    for _ in call:
        pass
