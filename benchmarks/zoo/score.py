"""How far off the estimates are, for jobs that they were not shown: the product's own `estimate` over the runs of the zoo.

    python -m benchmarks.zoo.score                      # benchmarks/zoo/runs.jsonl; minutes
    python -m benchmarks.zoo.score --file other.jsonl

- *known family*: each job is foretold from all others, its repetition left out too;
- *the same job*: each that ran twice, from all others and the other run of it;
- *unknown family*: each job from those of the other families.

Printed as JSON for each figure: how many jobs had one, the median of |estimate ÷ measured − 1|, the share that lay within the
interval, and how many were called strangers. For the memory of PS also how many jobs took more than what a size is chosen
for (the upper end and a reserve): with that limit they would have died. What is printed holds for this machine and these
synthetic models, and for no other.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.zoo.run import FILE, read
from deeprec_ext.autoscaler.history.estimates import (
    EXAMPLES_PER_SECOND,
    PS_CPU,
    PS_MEMORY,
    WORKER_CPU,
    WORKER_MEMORY,
    Figure,
    estimate,
    with_reserve,
)
from deeprec_ext.autoscaler.history.history import Finished
from deeprec_ext.autoscaler.model.memory_model import Layout
from deeprec_ext.decoding import built

NAMES = (PS_MEMORY, WORKER_MEMORY, PS_CPU, WORKER_CPU, EXAMPLES_PER_SECOND)


class Run:
    """One line of the file."""

    def __init__(self, line: dict[str, Any]) -> None:
        self.family: str = line["case"]["family"]
        self.job: Finished = built(Finished, line["job"], newer=True, measured=True)
        self.layout: Layout = built(Layout, line["layout"])

    def used(self) -> dict[str, float]:
        window = self.job.windows[0]
        return {
            PS_MEMORY: float(self.job.ps_memory_bytes), WORKER_MEMORY: float(self.job.worker_memory_bytes),
            PS_CPU: window.ps_cpu_cores / window.size.ps, WORKER_CPU: window.trainer_cpu_cores,
            EXAMPLES_PER_SECOND: window.examples_per_second,
        }  # fmt: skip

    def foretold(self, jobs: Sequence[Finished]) -> dict[str, Figure]:
        window = self.job.windows[0]
        found = estimate(
            self.job.model, window.size, jobs, layout=self.layout, fingerprint=self.job.fingerprint,
            backups=self.job.backups, checkpoints=False, machine=self.job.machine, cores=window.host_cores,
            computes=self.job.computes,
        )  # fmt: skip
        return {figure.name: figure for figure in found.figures}


def judged(judge: Sequence[Run], runs: Sequence[Run], shown: Callable[[Run, Run], bool]) -> dict[str, Any]:
    """By figure, of the runs to judge. `shown(run, other)`: whether the estimate of the first may know the second, of all."""
    found: dict[str, list[tuple[Figure, float]]] = {name: [] for name in NAMES}
    for run in judge:
        others = [other.job for other in runs if other is not run and shown(run, other)]
        used = run.used()
        for name, figure in run.foretold(others).items() if others else ():
            if used[name] > 0:
                found[name].append((figure, used[name]))
    return {name: _row(name, pairs) for name, pairs in found.items()}


def _row(name: str, pairs: Sequence[tuple[Figure, float]]) -> dict[str, Any]:
    if not pairs:
        return {"jobs": 0}
    row: dict[str, Any] = {
        "jobs": len(pairs), "median_error": round(statistics.median(abs(f.predicted / used - 1) for f, used in pairs), 4),
        "within": round(statistics.fmean(f.low <= used <= f.high for f, used in pairs), 3),
        "strangers": sum(f.strange for f, _ in pairs), "learners": sorted({f.learner for f, _ in pairs if f.learner}),
    }  # fmt: skip
    if name == PS_MEMORY:
        row["would_have_died"] = sum(used > with_reserve(f) for f, used in pairs)
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, default=FILE)
    runs = [Run(line) for line in read(parser.parse_args().file)]
    twice = [run for run in runs if sum(run.job.fingerprint == other.job.fingerprint for other in runs) > 1]

    def is_other(run: Run, other: Run) -> bool:
        return other.job.fingerprint != run.job.fingerprint

    result = {
        "runs": len(runs),
        "known family": judged(runs, runs, is_other),
        "the same job": judged(twice, runs, lambda run, other: True),
        "unknown family": judged(runs, runs, lambda run, other: other.family != run.family),
    }
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
