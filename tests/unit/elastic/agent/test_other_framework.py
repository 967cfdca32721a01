"""The agent in a trainer without TensorFlow, as its docstring shows it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc

from deeprec_ext.elastic import agent
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc

BEGINS = """
import os, sys, threading, time
from deeprec_ext.elastic.agent.agent import Agent, Identity
from deeprec_ext.elastic.agent.commands import carry_out
from deeprec_ext.elastic.agent.gate import Gate
from deeprec_ext.elastic.agent.steps import StepClock
from deeprec_ext.proto import deeprec_ext_pb2 as pb
"""
ENDS = """
steps = iter(range(1, 1_000_000))
def step():
    time.sleep(0.001)
    return next(steps)
trainer = Trainer()
trainer.agent.heartbeat_seconds = 0.05
trainer.train(step)
assert "tensorflow" not in sys.modules
print(trainer.clock.steps)
"""


class Master(rpc.AgentsServicer):
    """Lets a process in; pauses, resumes and dismisses it once it trains."""

    def __init__(self) -> None:
        self.acks: dict[int, pb.Ack] = {}
        self.trained, self.acked = threading.Event(), threading.Condition()

    def Register(self, request: pb.RegisterRequest, context: Any) -> pb.RegisterReply:
        return pb.RegisterReply(aimaster_incarnation=1, settings=pb.AgentSettings(heartbeat_seconds=0.05))

    def Stream(self, messages: Iterator[pb.AgentMessage], context: Any) -> Iterator[pb.MasterMessage]:
        threading.Thread(target=self._listen, args=(messages,), daemon=True).start()
        assert self.trained.wait(30)
        commands = (
            pb.Command(id=1, pause=pb.Pause(lease_seconds=20)), pb.Command(id=2, commit=pb.Commit()),
            pb.Command(id=3, resume=pb.Resume()), pb.Command(id=4, leave=pb.Leave()),
        )  # fmt: skip
        for command in commands:
            yield pb.MasterMessage(aimaster_incarnation=1, command=command)
            with self.acked:
                self.acked.wait_for(lambda number=command.id: number in self.acks, 30)  # type: ignore[misc]

    def _listen(self, messages: Iterator[pb.AgentMessage]) -> None:
        try:
            for message in messages:
                if message.heartbeat.step > 3:
                    self.trained.set()
                if message.HasField("ack"):
                    with self.acked:
                        self.acks[message.ack.command_id] = message.ack
                        self.acked.notify_all()
        except grpc.RpcError:
            pass  # the process has ended


def test_a_trainer_of_another_framework_obeys_as_the_docstring_shows() -> None:
    master, server = Master(), grpc.server(futures.ThreadPoolExecutor(4))
    rpc.add_AgentsServicer_to_server(master, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        example = textwrap.dedent(str(agent.__doc__).split("of each:\n\n", 1)[1])
        environment = {"PYTHONPATH": ":".join(sys.path), "PATH": "", "DEEPREC_EXT_AIMASTER": f"127.0.0.1:{port}",
                       "DEEPREC_EXT_ROLE": "worker", "DEEPREC_EXT_INDEX": "0", "DEEPREC_EXT_JOB": "other"}  # fmt: skip
        ended = subprocess.run(
            [sys.executable, "-S", "-c", BEGINS + example + ENDS],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert ended.returncode == 0, ended.stderr
        assert int(ended.stdout.splitlines()[-1]) > 3
    finally:
        server.stop(None)
    assert [number for number, ack in master.acks.items() if ack.ok] == [1, 3, 4]
    assert "does not know the command 'commit'" in master.acks[2].error
