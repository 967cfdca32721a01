"""What it costs to decide a job's size by its declared model: the time from the start to the chief's first step.

    python -m benchmarks.first_step               # seven pairs, about ten minutes on two cores
    python -m benchmarks.first_step --pairs 3 --state 16MB

A job with `--autoscale` and no size begins in two phases: its chief declares its graph, and the AIMaster decides before
anything is initialised. Beside it the same job with `--autoscale --ps 1 --workers 0`, which begins as it is told. They take
turns; limits allow one PS and no worker, so both train at the same size.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

from benchmarks.job import end_on_signals, running, say
from benchmarks.stock.cluster import ROOT

KINDS = {"told": True, "declared": False}
SCRIPT = ROOT / "benchmarks" / "stock" / "train.py"


def measure(kind: str, arguments: argparse.Namespace) -> float:
    """Seconds from the start of `deeprec-ext run` to the end of the chief's first step."""
    command = [str(SCRIPT), "--state", arguments.state, "--fields", str(arguments.fields), "--steps", str(10**9)]
    limits = ["--autoscale", "--max-ps", "1", "--max-workers", "0"]
    began = time.time()
    with running(command, ps=1, workers=0, flags=limits, label=kind, sized=KINDS[kind]) as job:
        seconds = job.wait_steps(1, 0.0)["chief-0"][0].time - began
        declared = bool(job.events("declared"))
        if declared == KINDS[kind]:
            raise RuntimeError(f"{kind}: the model was {'' if declared else 'not '}declared; see {job.base}")
        return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--state", default="64MB")
    parser.add_argument("--fields", type=int, default=26)
    arguments = parser.parse_args()
    end_on_signals()
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    measure("declared", arguments)  # files into the cache
    for number in range(arguments.pairs):
        for kind in KINDS if number % 2 == 0 else reversed(KINDS):
            found[kind].append(measure(kind, arguments))
            say(f"{kind}: first step after {found[kind][-1]:.2f} s")
    medians = {kind: statistics.median(times) for kind, times in found.items()}
    pairs = [declared / told for told, declared in zip(found["told"], found["declared"])]
    result: dict[str, Any] = {"seconds": found, "medians": medians, "ratio": statistics.median(pairs), "pairs": pairs}
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
