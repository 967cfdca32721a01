"""What an estimated first size is worth: the time until a job trains as fast as it will, against 1 PS and no worker.

    python -m benchmarks.first_size                       # ten scenarios, an hour and a half on two cores
    python -m benchmarks.first_size --only wide,held-wide --minutes 3

Each scenario is a model, on the machine as it is or with roles held to a share of a core. A first job starts at 1 PS and no
worker with `--autoscale`, trains for so many minutes and leaves its record in a history; a second one, of the same script, is
given no size and that history. Told is when each has reached 95 % of its own final throughput (its last third) for
twenty seconds on end, counted from the start of its command.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.job import Job, end_on_signals, running, say
from benchmarks.stock import steps
from benchmarks.stock.cluster import ROOT
from deeprec_ext.proto import deeprec_ext_pb2 as pb

SCRIPT = ROOT / "benchmarks" / "stock" / "train.py"
REACHED = 0.95
WINDOW_SECONDS = 10.0
WINDOWS = 2
"""On end, at that throughput."""

MODELS = {
    "wide": ("--fields", "26", "--hidden", "64", "--state", "64MB"),
    "narrow": ("--fields", "8", "--hidden", "64", "--state", "64MB"),
    "dense": ("--fields", "26", "--hidden", "512", "--state", "64MB"),
    "hot": ("--fields", "2", "--dim", "64", "--hidden", "64", "--state", "64MB"),
    "large": ("--fields", "26", "--hidden", "64", "--state", "256MB"),
}
LIMITS = {"": (), "held-": ("--ps-cpu", "0.3", "--worker-cpu", "0.3")}


@dataclass(frozen=True)
class Run:
    """How one job came to its speed."""

    reached_seconds: float
    final: float  # examples/s
    first: tuple[int, int]  # (PS, workers)
    last: tuple[int, int]


def reached(times: Sequence[float], began: float, ended: float) -> tuple[float, float]:
    """(seconds until `REACHED` of the final speed was kept for `WINDOWS` windows, final steps/s) of moments of steps."""
    count = int((ended - began) // WINDOW_SECONDS)
    rates = [0.0] * count
    for moment in times:
        if began <= moment < began + count * WINDOW_SECONDS:
            rates[int((moment - began) // WINDOW_SECONDS)] += 1 / WINDOW_SECONDS
    final = statistics.median(rates[2 * count // 3 :])
    for number in range(count - WINDOWS + 1):
        if all(rate >= REACHED * final for rate in rates[number : number + WINDOWS]):
            return number * WINDOW_SECONDS, final
    return ended - began, final


def size_of(job: Job) -> tuple[int, int]:
    status = job.until(job.status, "answer of the AIMaster")
    assert status is not None
    ps = sum(role.role == pb.PS and bool(role.slots) for role in status.roles)
    return ps, sum(role.role == pb.WORKER and role.heartbeat.training for role in status.roles)


def train(name: str, model: Sequence[str], limits: Sequence[str], history: Path, batch: int, minutes: float) -> Run:
    estimated = name.endswith("estimated")
    flags = (*limits, "--autoscale", "--max-ps", "4", "--max-workers", "4", "--history", str(history))
    command = [str(SCRIPT), *model, "--batch", str(batch), "--steps", str(10**9)]
    began = time.time()
    with running(command, ps=1, workers=0, flags=flags, label="first-size", sized=not estimated) as job:
        job.wait_steps(1, 0.0)
        [decided] = [event for event in job.events("decision") if event.get("action") == "start"][:1] or [{}]
        say(f"{name}: {decided.get('reason', 'no first decision')}")
        job.until(lambda: time.time() > began + 60, "a minute", 120)
        first = size_of(job)
        job.until(lambda: time.time() > began + 60 * minutes, f"{minutes:g} minutes", 60 * minutes + 60, every=1.0)
        ended, last = time.time(), size_of(job)
        times = [step.time for found in steps.read(job.recorded).values() for step in found]
        seconds, rate = reached(times, began, ended)
    say(f"{name}: {last[0]} PS, {last[1]} workers, {batch * rate:.0f} examples/s, reached after {seconds:.0f} s")
    return Run(seconds, batch * rate, first, last)


def main() -> None:
    scenarios = [limit + model for limit in LIMITS for model in MODELS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(scenarios), metavar="NAME,...", help="of: %(default)s")
    parser.add_argument("--minutes", type=float, default=4.0, help="that each job trains")
    parser.add_argument("--batch", type=int, default=512)
    arguments = parser.parse_args()
    end_on_signals()
    rows: list[dict[str, Any]] = []
    for name in arguments.only.split(","):
        limit = "held-" if name.startswith("held-") else ""
        model, limits = MODELS[name[len(limit) :]], LIMITS[limit]
        with tempfile.TemporaryDirectory(prefix="first-size-") as place:
            history = Path(place) / "history.db"
            small, estimated = (
                train(f"{name}, {kind}", model, limits, history, arguments.batch, arguments.minutes)
                for kind in ("small", "estimated")
            )
        rows.append({
            "scenario": name, "small": vars(small), "estimated": vars(estimated),
            "ratio": estimated.reached_seconds / small.reached_seconds, "finals": estimated.final / small.final,
        })  # fmt: skip
        print(json.dumps(rows[-1]), flush=True)
    print(json.dumps({"median": statistics.median(row["ratio"] for row in rows), "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
