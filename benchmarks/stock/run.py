"""Stock TensorFlow, measured: the step time, and what another number of PS costs by stop – checkpoint – restart.

    python -m benchmarks.stock.run --state 256MB --ps 1 2 4 3 1 --workers 1

Prints JSON. The restart is as kind to stock TensorFlow as can be: all processes are told to stop at once, the new ones
start at once, no worker has a start delay, and a waiting worker looks every half second (--as-is: every 30 s) whether the
chief is ready.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.stock import steps
from benchmarks.stock.cluster import ROOT, Cluster, cluster

SCRIPT = ROOT / "benchmarks" / "stock" / "train.py"
START_LIMIT_SECONDS = 300.0
NEVER = 10**9


def _wait_for_steps(running: Cluster, directory: Path, trainers: Sequence[str], since: float, count: int) -> None:
    """Until each trainer has completed `count` steps after `since`."""
    deadline = time.monotonic() + START_LIMIT_SECONDS
    while True:
        seen = steps.read(directory)
        if all(sum(step.time > since for step in seen.get(name, ())) >= count for name in trainers):
            return
        for name, process in {**running.servers, **running.trainers}.items():
            if process.poll() is not None:
                raise RuntimeError(
                    f"{name} ended with exit code {process.returncode} while it should train; see its log"
                )
        if time.monotonic() > deadline:
            raise RuntimeError(f"no {count} steps of {', '.join(trainers)} within {START_LIMIT_SECONDS:g} s")
        time.sleep(0.25)


def measure(
    ps: Sequence[int], *, state: str = "256MB", workers: int = 1, parts: int = 1, batch: int = 512, steps_each: int = 300,
    poll_seconds: float | None = 0.5, workdir: Path | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Trains with ps[0] servers, stops, goes on with ps[1], and so on.

    Args:
      ps: numbers of PS, one after the other.
      state: of benchmarks.models.STATE_BYTES, or a number of bytes.
      workers: beside the chief.
      steps_each: steps of every trainer before the next change.
      poll_seconds: how often a waiting worker looks; None: stock's 30 s.

    Returns:
      A dictionary ready for JSON; all times in seconds.
    """
    base = Path(workdir or tempfile.mkdtemp(prefix="stock-"))
    recorded = base / "steps"
    recorded.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable, str(SCRIPT), "--state", state, "--parts", str(parts), "--batch", str(batch), "--steps", str(NEVER),
        "--model-dir", str(base / "model"),
    ]  # fmt: skip
    environment = {steps.DIRECTORY_VARIABLE: str(recorded)}
    if poll_seconds is not None:
        environment["BENCHMARK_POLL_SECONDS"] = str(poll_seconds)
    trainers = ["chief-0", *(f"worker-{index}" for index in range(workers))]

    trained: list[dict[str, Any]] = []
    changes: list[dict[str, Any]] = []
    requested = stopped = 0.0
    for position, count in enumerate(ps):
        with cluster(count, workers, command, base / "logs", environment) as running:
            began = time.time()
            _wait_for_steps(running, recorded, trainers, began, 20)
            if position:
                pauses = _pauses(steps.read(recorded), requested, stopped, began)
                changes.append({"from": ps[position - 1], "to": count, **pauses})
            warm = time.time()
            _wait_for_steps(running, recorded, trainers, warm, steps_each)
            seen = steps.read(recorded)
            trained.append(
                {"ps": count, "step_seconds": {name: steps.median_step_seconds(seen[name], warm) for name in trainers}}
            )
            requested = time.time()
            running.request_stop()
            running.wait(120)
            stopped = time.time()
    every = [value for change in changes for value in change["pause_seconds"].values()]
    return {
        "what": "stock TensorFlow: stop - checkpoint - restart",
        "state": state, "parts": parts, "batch": batch, "workers": workers, "poll_seconds": poll_seconds or 30,
        "trained": trained, "changes": changes,
        "pause_seconds": {"p50": statistics.median(every), "max": max(every)} if every else None,
    }  # fmt: skip


def _pauses(seen: dict[str, list[steps.Step]], requested: float, stopped: float, restarted: float) -> dict[str, Any]:
    """Of one change: per trainer the gap in its steps, and from the request to the first new step of the last trainer."""
    pauses, first = {}, []
    for name, of_trainer in seen.items():
        new = [step.time for step in of_trainer if step.time > restarted]
        found = steps.pause(of_trainer, requested, new[0])
        if found is not None:
            pauses[name] = found.seconds
        first.append(new[0])
    return {
        "stop_and_checkpoint_seconds": stopped - requested,
        "pause_seconds": pauses,
        "request_to_all_training_seconds": max(first) - requested,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ps", type=int, nargs="+", default=[1, 2, 4, 3, 1], help="numbers of PS, one after the other")
    parser.add_argument("--workers", type=int, default=1, help="beside the chief")
    parser.add_argument(
        "--state", default="256MB", help="bytes of tables and accumulators: 64MB, 256MB, 1GB, or a number"
    )
    parser.add_argument("--parts", type=int, default=1, help="cut every table into so many parts (8: 18 000 ops)")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--steps-each", type=int, default=300, help="steps of every trainer between two changes")
    parser.add_argument("--as-is", action="store_true", help="leave stock's poll of 30 s")
    parser.add_argument("--workdir", type=Path, help="where checkpoints, logs and step times stay (default: temporary)")
    arguments = parser.parse_args()
    result = measure(
        arguments.ps, state=arguments.state, workers=arguments.workers, parts=arguments.parts, batch=arguments.batch,
        steps_each=arguments.steps_each, poll_seconds=None if arguments.as_is else 0.5, workdir=arguments.workdir,
    )  # fmt: skip
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
