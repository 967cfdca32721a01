"""What the start of a PS costs: with TensorFlow's runtime alone (`tf_private/bare.py`), and with all of TensorFlow.

    python -m benchmarks.ps_start                 # eleven pairs
    python -m benchmarks.ps_start --json start.json

A process imports what a PS imports and starts its TensorFlow server; the two kinds take turns. Told are the processor time and
the time by the clock from the start of the process, and its resident memory then.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

PROGRAM = """
import json, os, sys, time
import psutil
from deeprec_ext.tf_private import bare
if sys.argv[1] == "bare":
    assert bare.install()
from deeprec_ext.elastic.ps import parameter_server
from deeprec_ext.elastic.runtime import starting
kept = starting.start_server()
used, now = time.process_time(), time.monotonic()
memory = psutil.Process().memory_info().rss
print(json.dumps({"cpu_seconds": used, "seconds": now - float(sys.argv[2]), "bytes": memory}))
sys.stdout.flush()
os._exit(0)
"""
KINDS = ("bare", "whole")


def start(kind: str) -> dict[str, float]:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, kind, str(time.monotonic())],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode:
        raise SystemExit(f"a PS did not start:\n{done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result here too")
    arguments = parser.parse_args()
    for kind in KINDS:
        start(kind)  # files into the cache
    runs: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    for _ in range(arguments.pairs):
        for kind in KINDS:
            runs[kind].append(start(kind))
    medians = {
        kind: {key: statistics.median(run[key] for run in of_kind) for key in of_kind[0]}
        for kind, of_kind in runs.items()
    }
    print("| a PS with | processor time | by the clock | resident memory |")
    print("|---|---|---|---|")
    for kind, one in medians.items():
        print(f"| {kind} | {one['cpu_seconds']:.2f} s | {one['seconds']:.2f} s | {one['bytes'] / 1e6:.0f} MB |")
    if arguments.json:
        arguments.json.write_text(json.dumps({"medians": medians, "runs": runs}, indent=2))


if __name__ == "__main__":
    main()
