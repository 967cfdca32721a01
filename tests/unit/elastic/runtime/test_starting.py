"""What a process of a job begins with."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import os, socket, threading
import tensorflow as tf
from deeprec_ext.elastic.runtime import starting
from deeprec_ext.elastic.agent.background import NICENESS, politely
from deeprec_ext.elastic.runtime.ops import Ops, Program
from deeprec_ext.elastic.runtime.view import elastic_config

def niceness(thread):
    return int(open(f"/proc/self/task/{thread}/stat").read().rsplit(")", 1)[1].split()[16])

def ask_the_other():
    assert niceness(threading.get_native_id()) == min(19, niceness(os.getpid()) + NICENESS)
    program, ops = Program(f"grpc://{here}", elastic_config({0: here, 1: there})), Ops()
    value = ops.constant(1, tf.int64, "/job:ps/task:1")
    name = ops.binary("AddV2", value, value, "/job:ps/task:0")
    program.load(ops)
    assert program.compile(fetches=[name])() == [2]
    program.close()

first, here = starting.start_server()
try:
    socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    os.environ["DEEPREC_EXT_ADDRESS"] = "::1:0"  # as a manifest writes that of a pod
except OSError:
    pass  # this machine has no IPv6
second, there = starting.start_server()
assert there.startswith("[::1]:" if "DEEPREC_EXT_ADDRESS" in os.environ else "127.0.0.1:"), there
for _ in range(3):
    politely(ask_the_other)
threading.Event().wait(2.0)  # threads that did one thing have ended
usual = niceness(os.getpid())
nice = [
    open(f"/proc/self/task/{one}/comm").read().strip() for one in os.listdir("/proc/self/task") if niceness(one) > usual
]
print("nice:", [one for one in nice if "executor" not in one])  # gRPC starts and ends these as it needs them
"""


def test_no_thread_that_stays_is_as_nice_as_the_first_who_opened_a_session():
    """They took what other processes answer at a tenth of the share of a step, on every PS that came with a scaling."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "nice: []"
