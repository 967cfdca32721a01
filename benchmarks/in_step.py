"""What it costs a job without PS that workers come, go, die and hang: 100 MB of weights, every process real.

    python -m benchmarks.in_step                          # five of each, some four minutes on two cores
    python -m benchmarks.in_step --megabytes 4 --times 10

The script (`train` of this file) is NumPy alone: its gradients are as large as its weights, a step's work is slept, so that two
cores hold four processes. Each worker writes down when it has completed a step. Told are, of those who were there before and
after:

  more      a worker more: the longest gap between two steps, minus the median step before
  less      a worker less: the same
  kill      kill -9 of a worker: from the kill to the end of the first step of all others without it
  hang      SIGSTOP of a worker, given up after 3 s: from the stop to the same
  restart   the whole job is ended (Ctrl-C) and begun again, with weights written and read: from the order to the first step
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.job import Job, end_on_signals, running, say
from benchmarks.stock import steps
from deeprec_ext import allreduce

SCRIPT = Path(__file__)
FLAGS = ("--strategy", "allreduce", "--workers", "1")
AROUND_SECONDS = 2.0


class Weights:
    def __init__(self, megabytes: float) -> None:
        self.weights, self.step = np.zeros(int(megabytes * 1e6 / 4), np.float32), np.zeros((), np.int64)

    def take(self) -> list[Any]:
        return [self.weights, self.step]

    def put(self, arrays: Any) -> None:
        for mine, other in zip(self.take(), arrays):
            mine[...] = other


def train(arguments: argparse.Namespace) -> None:
    """The job's script."""
    model, file = Weights(arguments.megabytes), arguments.weights
    if file.exists():
        model.weights[:] = np.load(file)
    gradient = np.random.default_rng(os.getpid()).standard_normal(model.weights.size, np.float32)
    member = allreduce.join(model)
    name = f"{os.environ['DEEPREC_EXT_ROLE']}-{os.environ['DEEPREC_EXT_INDEX']}"
    with (Path(os.environ[steps.DIRECTORY_VARIABLE]) / f"{name}.steps").open("a", buffering=1) as told:
        while True:
            time.sleep(arguments.seconds)
            summed = member.sum([gradient], 1.0)
            model.weights -= np.float32(0.01) * summed.arrays[0]
            model.step[...] = summed.step
            told.write(f"{time.time():.4f} {summed.step} {summed.members}\n")
            if arguments.save and name == "chief-0" and arguments.save.exists():
                np.save(file, model.weights)
                arguments.save.unlink()


def begun(job: Job, *names: str) -> None:
    """Until all of these step together: each has completed some steps since now."""
    job.trainers = list(names)
    job.wait_steps(10, time.time())


def gap(job: Job, since: float, *names: str) -> float:
    time.sleep(AROUND_SECONDS)
    seen = steps.read(job.recorded)
    pauses = [steps.pause(seen[name], since, time.time()) for name in names]
    return max(one.seconds for one in pauses if one is not None)


def after(job: Job, struck: float, *names: str) -> float:
    """Seconds from the stroke to the end of the first step of all of these that was summed without who was struck."""

    def firsts() -> list[float] | None:
        late = [first for name in names if (first := _first(job, name, struck, len(names))) is not None]
        return late if len(late) == len(names) else None

    found = job.until(firsts, "step of all others", every=0.02)
    assert found is not None
    return max(found) - struck


def measured(arguments: argparse.Namespace, weights: Path) -> dict[str, list[float]]:
    seen: dict[str, list[float]] = {"more": [], "less": [], "kill": [], "hang": [], "restart": []}
    save = weights.with_suffix(".save")
    command = [
        str(SCRIPT), "train", "--megabytes", str(arguments.megabytes), "--seconds", str(arguments.seconds),
        "--weights", str(weights), "--save", str(save),
    ]  # fmt: skip
    variables = {"PYTHONPATH": str(SCRIPT.parent.parent)}
    started = 0.0
    for turn in range(2):
        with running(command, ps=0, workers=1, flags=FLAGS, label="in-step", variables=variables, sized=False) as job:
            begun(job, "chief-0", "worker-0")
            if turn:
                first = min(one.time for rows in steps.read(job.recorded).values() for one in rows)
                seen["restart"].append(first - started)
                return seen
            for number in range(arguments.times):
                say(f"turn {number + 1} of {arguments.times}")
                for workers, names in ((2, ("chief-0", "worker-0", "worker-1")), (1, ("chief-0", "worker-0"))):
                    since = time.time()
                    job.ask(workers=workers)
                    job.until(lambda count=workers: _workers(job) == count, "change", every=0.05)  # type: ignore[misc]
                    begun(job, *names)
                    seen["more" if workers == 2 else "less"].append(gap(job, since, "chief-0", "worker-0"))
                job.ask(workers=2)
                job.until(lambda: _workers(job) == 2, "change", every=0.05)
                begun(job, "chief-0", "worker-0", "worker-1")
                for kind, number_of in (("kill", signal.SIGKILL), ("hang", signal.SIGSTOP)):
                    struck = job.send("worker-1", number_of)
                    seen[kind].append(after(job, struck, "chief-0", "worker-0"))
                    job.until(lambda: _workers(job) == 2, "worker that comes back", every=0.05)
                    begun(job, "chief-0", "worker-0", "worker-1")
                job.ask(workers=1)
                job.until(lambda: _workers(job) == 1, "change", every=0.05)
            save.touch()
            job.until(lambda: not save.exists(), "weights to be written")
            started = time.time()
    return seen


def _first(job: Job, name: str, struck: float, members: int) -> float | None:
    lines = (job.recorded / f"{name}.steps").read_text().splitlines(keepends=True)
    rows = [line.split() for line in lines if line.endswith("\n")]
    return next((float(when) for when, _, of in rows if float(when) > struck and int(of) == members), None)


def _workers(job: Job) -> int:
    """Beside the chief, of the newest view."""
    views = job.events("view_published")
    return int(views[-1]["workers"]) - 1 if views else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("train",), help=argparse.SUPPRESS)
    parser.add_argument("--megabytes", type=float, default=100.0, help="of weights, and of gradients")
    parser.add_argument("--seconds", type=float, default=0.05, help="that a step's work takes")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--weights", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--save", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.what:
        train(arguments)
        return
    end_on_signals()
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        seen = measured(arguments, Path(place) / "weights.npy")
    if arguments.json:
        print(json.dumps(seen))
        return
    for kind, times in seen.items():
        print(f"{kind:>8}: median {statistics.median(times):.3f} s, worst {max(times):.3f} s of {len(times)}")


if __name__ == "__main__":
    sys.exit(main())
