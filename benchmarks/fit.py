"""What `Model.fit` costs: its steps, pauses and losses of a PS, beside the same model hand-written as an Estimator.

    python -m benchmarks.fit                     # three pairs of jobs, about ten minutes on two cores
    python -m benchmarks.fit --pairs 1 --fields 8
    python -m benchmarks.fit --pairs 4 --steps 500 --workers 1 --pauses 4 --kills 2 --setting pack=off

One PS and the chief, in processes of their own, whatever Keras or Estimator does around a step included. Jobs take turns; the
ratio is that of the medians of all steps. Beside it, the processor time of both processes for a step, which other load on the
machine changes less.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import time
from typing import Any

import psutil

from benchmarks.failover import strike
from benchmarks.job import Job, end_on_signals, running, say
from benchmarks.stock import steps
from benchmarks.stock.cluster import ROOT

SCRIPTS = {"estimator": "train.py", "fit": "fit.py"}
WARM_STEPS = 200
"""They do not count: graphs are traced and compiled, caches and connections wake up."""

NEVER = 10**9


def _processor_seconds(job: Job) -> dict[str, float]:
    found = {}
    for role in ("chief-0", "ps-0"):
        times = psutil.Process(job.pid(role)).cpu_times()
        found[role.split("-")[0]] = times.user + times.system
    return found


def measure(front: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Times of steps in seconds, and the processor seconds of a step."""
    script = str(ROOT / "benchmarks" / "stock" / SCRIPTS[front])
    command = [script, "--state", arguments.state, "--fields", str(arguments.fields), "--batch", str(arguments.batch)]
    command += ["--steps", str(NEVER), *(["--auc"] if front == "fit" and arguments.auc else [])]
    flags = ["--max-ps", "2", *(word for one in arguments.setting for word in ("--setting", one))]
    with running(command, ps=1, workers=arguments.workers, flags=flags, label=front) as job:
        job.wait_steps(WARM_STEPS, 0.0)
        began, before = time.time(), _processor_seconds(job)
        seen = job.wait_steps(arguments.steps, began)["chief-0"]
        now, after = time.time(), _processor_seconds(job)
        counted = [one for one in seen if began < one.time <= now]
        gaps = [later.time - earlier.time for earlier, later in zip(counted, counted[1:])]
        result = {"gaps": gaps, **{role: (after[role] - before[role]) / len(counted) for role in after}}
        result["pauses"] = [_pause(job, count) for count in ((2, 1) * arguments.pauses)[: arguments.pauses]]
        result["kills"] = _kills(job, arguments.kills) if arguments.kills else []
        return result


def _pause(job: Job, ps: int) -> float:
    """Seconds for which the trainer that stood longest stood still while the number of PS changed."""
    time.sleep(5)  # steps before it, to know a usual one
    began = time.time()
    job.ask(ps=ps)
    job.until(lambda: [one for one in job.events("scaling_ended") if one["time"] > began], "end of the change")
    ended = time.time()
    found = [steps.pause(seen, began, ended) for seen in job.wait_steps(20, ended).values()]
    return max(pause.seconds for pause in found if pause is not None)


def _kills(job: Job, count: int) -> list[float]:
    """Seconds from `kill -9` of one of 2 PS, whose slots have copies, to the first good step of the last trainer."""
    job.ask(ps=2)
    job.ps = 2
    found = []
    for _ in range(count):
        job.wait_steady(3.0)
        found.append(strike(job, job.servers()[-1], signal.SIGKILL)["seconds"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2000, help="that are measured in each job")
    parser.add_argument("--state", default="16MB")
    parser.add_argument("--fields", type=int, default=26)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--auc", action="store_true", help="fit measures the AUC of what it trains, besides")
    parser.add_argument(
        "--workers", type=int, default=0, help="beside the chief, whose steps and processor count alone"
    )
    parser.add_argument(
        "--pauses", type=int, default=0, metavar="N", help="so many changes of 1 → 2 → 1 PS in each job"
    )
    parser.add_argument(
        "--kills", type=int, default=0, metavar="N", help="so many PS of 2 are killed at the end of each job"
    )
    parser.add_argument("--setting", action="append", default=[], metavar="KEY=VALUE", help="of the jobs")
    arguments = parser.parse_args()
    end_on_signals()
    jobs: dict[str, list[dict[str, Any]]] = {front: [] for front in SCRIPTS}
    for number in range(arguments.pairs):
        for front in SCRIPTS if number % 2 == 0 else reversed(SCRIPTS):
            jobs[front].append(measure(front, arguments))
            one = jobs[front][-1]
            say(
                f"{front}: {1e3 * statistics.median(one['gaps']):.2f} ms a step; processor: chief "
                f"{1e3 * one['chief']:.2f}, PS {1e3 * one['ps']:.2f} ms; pauses {one['pauses']}; "
                f"kills {one['kills']}"
            )
    result: dict[str, Any] = {}
    for front, found in jobs.items():
        result[front] = {
            "step_ms": 1e3 * statistics.median(gap for one in found for gap in one["gaps"]),
            **{f"{role}_cpu_ms": 1e3 * statistics.mean(one[role] for one in found) for role in ("chief", "ps")},
            **{
                f"{kind}_seconds": sorted(second for one in found for second in one[kind])
                for kind in ("pauses", "kills")
            },
        }
    result["ratio"] = result["fit"]["step_ms"] / result["estimator"]["step_ms"]
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
