"""What every process of a job with PS begins with, PS and trainers alike: its TensorFlow server."""

from __future__ import annotations

import contextlib

from deeprec_ext import env
from deeprec_ext.elastic.runtime.ops import Ops, Program
from deeprec_ext.elastic.runtime.view import elastic_config
from deeprec_ext.tf_private.servers import original_server_class


def start_server() -> tuple[object, str]:
    """An elastic server: it knows nobody, membership comes with each session. Returns it and its host:port."""
    server = original_server_class()(
        {"localhost": [env.address() or "127.0.0.1:0"]}, job_name="localhost", task_index=0
    )
    address = server.target.removeprefix("grpc://")
    _start_threads(server.target, address)
    return server, address


def _start_threads(target: str, address: str) -> None:
    """Opens a session, at the usual priority. With its first one TensorFlow starts the threads that take what other processes
    answer, for good: had it been opened beside training (`background.politely`), they would be as nice as that, and on a
    busy machine every step would wait for them.
    """
    ops = Ops()
    with contextlib.closing(Program(target, elastic_config({0: address}))) as program:
        program.run(ops, [ops.add("NoOp", device="/job:ps/task:0")])
