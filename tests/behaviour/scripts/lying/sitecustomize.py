"""First on the path of a job's processes: makes liars of those that LYING names. Their own agents tell, beside what they
rightly say, every edge of every field, once there is a file `lie` in the run directory; `lied-<role>`: all is said."""

import importlib.util
import os
import sys
import threading
import time
from importlib.machinery import PathFinder
from pathlib import Path

HERE = os.path.dirname(os.path.abspath(__file__))
NAME = f"{os.environ.get('DEEPREC_EXT_ROLE')}-{os.environ.get('DEEPREC_EXT_INDEX')}"


def lie():
    workdir = Path(os.environ["DEEPREC_EXT_WORKDIR"])
    while (module := sys.modules.get("deeprec_ext.elastic.agent.agent")) is None or not hasattr(module, "Agent"):
        time.sleep(0.01)
    agents, start = [], module.Agent.start

    def started(self):
        reply = start(self)
        agents.append(self)
        return reply

    module.Agent.start = started
    while not agents or not (workdir / "lie").exists():
        time.sleep(0.1)
    from benchmarks.lies.edges import UNARY, lies
    from benchmarks.lies.within import ENDS_THE_JOB

    own = {*UNARY, *(("data", *ENDS_THE_JOB) if NAME.startswith("chief") else ())}
    for one in lies(int(os.environ["LIES"]), 5, "train"):
        if one.kind not in own:
            agents[0].send(one.message)
            while agents[0].congested:  # a stream that was closed is made again
                time.sleep(0.01)
    (workdir / f"lied-{NAME}").touch()


if NAME in os.environ.get("LYING", "").split(","):
    threading.Thread(target=lie, daemon=True).start()
spec = PathFinder.find_spec("sitecustomize", [entry for entry in sys.path if os.path.abspath(entry or ".") != HERE])
if spec is not None and spec.loader is not None:
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
