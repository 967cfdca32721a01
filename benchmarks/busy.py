"""A busy machine is not a dead one: a job of real processes beside many times as much work as the machine has cores.

    python -m benchmarks.busy                              # 20 times as many spinning processes as cores, one minute
    python -m benchmarks.busy --load 50 --seconds 120

DeepFM, 2 PS, chief and a worker. Counted: roles that were given up although nothing was done to them, the longest time without
a step, and, in the same load, how long it takes until a PS that really hangs (SIGSTOP) is noticed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from benchmarks.job import end_on_signals, running, say
from benchmarks.stock import steps
from benchmarks.stock.cluster import ROOT

SCRIPT = str(ROOT / "benchmarks" / "stock" / "train.py")
SPIN = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): pass"


@contextlib.contextmanager
def load(processes: int) -> Iterator[None]:
    """So many processes that want a core each; they end with this one at the latest."""
    hogs = [subprocess.Popen([sys.executable, "-I", "-S", "-c", SPIN, str(os.getpid())]) for _ in range(processes)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
        for hog in hogs:
            hog.wait()


def measure(factor: float, seconds: float) -> dict[str, Any]:
    command = [SCRIPT, "--state", "64000000", "--steps", str(10**9)]
    with running(command, ps=2, workers=1, label="busy") as job:
        job.wait_steady(3.0)
        before = len(job.events("failure"))
        with load(round(factor * (os.cpu_count() or 1))):
            began = time.time()
            say(f"{factor:g} times as much load as cores for {seconds:g} s")
            end = time.monotonic() + seconds
            job.until(lambda: time.monotonic() > end, "the end of the load", seconds + 60)
            given_up = job.events("failure")[before:]
            made = {
                name: [one.time for one in all_of if one.time > began]
                for name, all_of in steps.read(job.recorded).items()
            }
            struck = job.send("ps-1", signal.SIGSTOP)
            noticed = job.until(
                lambda: [
                    one for one in job.events("failure")[before:] if one["role"] == "ps-1" and one["time"] > struck
                ],
                "notice of the hung PS",
            )
    return {
        "load": factor, "seconds": seconds, "cores": os.cpu_count(),
        "given_up": [f"{one['role']}: {one['cause']}" for one in given_up],
        "steps": {name: len(times) for name, times in made.items()},
        "longest_without_a_step": {
            name: max((b - a for a, b in pairwise([began, *times])), default=seconds) for name, times in made.items()
        },
        "hung_noticed_seconds": noticed[0]["time"] - struck,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", type=float, default=20.0, help="spinning processes for each core (default: 20)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (default: 60)")
    arguments = parser.parse_args()
    end_on_signals()
    print(json.dumps(measure(arguments.load, arguments.seconds), indent=2))


if __name__ == "__main__":
    main()
