"""What a thread waits for the interpreter beside another one that works in Python, by the other's niceness, on a full machine.

    python -m benchmarks.nice_threads        # half a minute

Whoever comes back from TensorFlow needs the interpreter. A nicer thread that has it gets no processor to give it back with.
Three processes fill the machine; one thread of this process works, the other comes back every 2 ms. The switch interval is
Python's own (5 ms), and that of trainers.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time

from deeprec_ext.elastic.agent.building import SWITCH_SECONDS

AWAY_SECONDS = 0.002
BUSY = "import sys, time\nend = time.time() + float(sys.argv[1])\nwhile time.time() < end: pass"


NICER = 12
"""Of what was done beside training when it was done in Python, and steps waited for it."""


def measure(niceness: int, interval: float, seconds: float) -> list[float]:
    """How much longer than asked for each sleep took, sorted."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(interval)
    over = threading.Event()

    def work() -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
        while not over.is_set():
            sum(range(200))

    others = [subprocess.Popen([sys.executable, "-c", BUSY, str(seconds)]) for _ in range(3)]
    thread = threading.Thread(target=work)
    thread.start()
    found, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.perf_counter()
        time.sleep(AWAY_SECONDS)
        found.append(time.perf_counter() - began - AWAY_SECONDS)
    over.set()
    thread.join()
    for other in others:
        other.wait()
    sys.setswitchinterval(before)
    return sorted(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=7.0, help="of each of the four")
    arguments = parser.parse_args()
    rows = []
    for interval in (sys.getswitchinterval(), SWITCH_SECONDS):
        for niceness in (0, NICER):
            waits = measure(niceness, interval, arguments.seconds)
            rows.append(
                {
                    "niceness": niceness, "switch_interval_ms": 1000 * interval, "times": len(waits),
                    "mean_ms": 1000 * statistics.mean(waits), "median_ms": 1000 * statistics.median(waits),
                    "p90_ms": 1000 * waits[int(0.9 * len(waits))], "worst_ms": 1000 * waits[-1],
                }
            )  # fmt: skip
    print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
