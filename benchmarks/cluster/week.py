"""A week of a cluster, simulated: the arbiter against gang scheduling of static sizes, and against no arbiter.

    python -m benchmarks.cluster.week                       # 1 000 jobs, three seeds
    python -m benchmarks.cluster.week --sensitivity         # load, mishaps and wrong bids, one after the other
    python -m benchmarks.cluster.week --jobs 100 --seeds 1 --json

All ways have the same jobs, nodes, mishaps of nodes and need of serving, by seed. What is simulated, and what the numbers of it
rest on, stands in `deeprec_ext/simulator/cluster/week.py`; what is left out, in docs/critiques.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deeprec_ext.arbiter.deciding import decide
from deeprec_ext.simulator.cluster import week as weeks
from deeprec_ext.simulator.cluster.engine import Cluster
from deeprec_ext.simulator.cluster.told import Outcome, outcome
from deeprec_ext.simulator.cluster.ways import Alone, Arbitrated, Gang
from deeprec_ext.units import format_seconds

WAYS: dict[str, Callable[[Cluster], Any]] = {
    "gang": Gang,
    "alone": Alone,
    "arbiter": lambda cluster: Arbitrated(cluster, decide),
}
SENSITIVITY: tuple[tuple[str, dict[str, Any]], ...] = (
    ("load 0.5", {"load": 0.5}),
    ("load 0.8", {}),
    ("load 1.2", {"load": 1.2}),
    ("no mishaps", {"failures": 0.0}),
    ("mishaps × 5", {"failures": 5.0}),
    ("bids wrong by 20 %", {"error": 0.2}),
    ("bids wrong by 50 %", {"error": 0.5}),
    ("bids wrong by a factor of e", {"error": 1.0}),
    ("sizes written as patience needs", {"tuned": True}),
)


@dataclasses.dataclass(frozen=True)
class Setting:
    jobs: int = 1000
    load: float = 0.8
    failures: float = 1.0
    error: float = 0.0
    tuned: bool = False
    days: float = 7.0


def run(setting: Setting, seed: int, way: str) -> Outcome:
    made = weeks.make(
        setting.jobs,
        seed,
        load=setting.load,
        mishaps=weeks.Mishaps().times(setting.failures),
        tuned=setting.tuned,
        days=setting.days,
    )
    cluster = Cluster(made, setting.error)
    cluster.run(WAYS[way](cluster))
    return outcome(cluster)


def _mean_of(one: Outcome, priority: int) -> float:
    """Not a number where no job had this priority."""
    return one.by_priority[priority].completion_mean if priority in one.by_priority else math.nan


ROWS: tuple[tuple[str, Callable[[Outcome], float], Callable[[float], str]], ...] = (
    ("completion, mean", lambda one: one.all.completion_mean, format_seconds),
    ("completion, p50", lambda one: one.all.completion_p50, format_seconds),
    ("completion, p90", lambda one: one.all.completion_p90, format_seconds),
    ("priority 1000, mean", lambda one: _mean_of(one, 1000), format_seconds),
    ("priority 100, mean", lambda one: _mean_of(one, 100), format_seconds),
    ("priority 0, mean", lambda one: _mean_of(one, 0), format_seconds),
    ("first step, mean", lambda one: one.all.first_step_mean, format_seconds),
    ("first step, p90", lambda one: one.all.first_step_p90, format_seconds),
    ("last job ended", lambda one: one.makespan, format_seconds),
    ("use of cores", lambda one: one.use, lambda value: f"{value:.1%}"),
    ("deadlines kept", lambda one: one.all.deadlines_kept / max(1, one.all.deadlines), lambda value: f"{value:.1%}"),
    ("changes of a job", lambda one: one.changes_per_job, lambda value: f"{value:.1f}"),
    ("jobs parked", lambda one: one.parks, lambda value: f"{value:.0f}"),
    ("pods preempted", lambda one: one.evictions, lambda value: f"{value:.0f}"),
    ("lost: paused", lambda one: one.paused_hours, lambda value: f"{value:.1f} h"),
    ("lost: a part was missing", lambda one: one.stood_hours, lambda value: f"{value:.1f} h"),
    ("lost: trained twice", lambda one: one.redone_hours, lambda value: f"{value:.1f} h"),
    ("a serving pod waits, mean", lambda one: one.serving_wait_mean, format_seconds),
    ("a serving pod waits, longest", lambda one: one.serving_wait_max, format_seconds),
    ("serving pods that wait over 2 s", lambda one: one.serving_over_2, lambda value: f"{value:.1%}"),
    ("serving pods that wait over 5 s", lambda one: one.serving_over_5, lambda value: f"{value:.1%}"),
    ("jobs not ended", lambda one: one.unfinished, lambda value: f"{value:.0f}"),
)


def table(found: Mapping[str, Sequence[Outcome]]) -> str:
    """Means over the seeds, and from least to most."""
    lines = ["| | " + " | ".join(found) + " |", "|---|" + "--:|" * len(found)]
    for title, value, text in ROWS:
        cells = []
        for outcomes in found.values():
            values = [number for number in map(value, outcomes) if not math.isnan(number)]
            spread = f" ({text(min(values))}–{text(max(values))})" if len(values) > 1 else ""
            cells.append(text(statistics.fmean(values)) + spread if values else "")
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def against(found: Mapping[str, Sequence[Outcome]], other: str) -> list[float]:
    """Mean completion with the arbiter ÷ with another way - 1, by seed."""
    return [
        ours.all.completion_mean / theirs.all.completion_mean - 1
        for ours, theirs in zip(found.get("arbiter", ()), found.get(other, ()))
    ]


def told(found: Mapping[str, Sequence[Outcome]]) -> str:
    parts = []
    for other in ("gang", "alone"):
        if changes := against(found, other):
            each = ", ".join(f"{one:+.0%}" for one in changes)
            parts.append(f"mean completion against {other}: {statistics.fmean(changes):+.1%} ({each})")
    ours = found.get("arbiter", ())
    if ours:
        mean = statistics.fmean(one.decide_mean_seconds for one in ours)
        most = max(one.decide_max_seconds for one in ours)
        parts.append(
            f"{sum(one.decisions for one in ours)} decisions of {1000 * mean:.1f} ms, at most {1000 * most:.0f} ms"
        )
    return "; ".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3, help="so many, from 0 on")
    parser.add_argument("--ways", default="gang,alone,arbiter", help="default: gang,alone,arbiter")
    parser.add_argument("--load", type=float, default=0.8, help="core hours asked for ÷ there, in the week")
    parser.add_argument("--failures", type=float, default=1.0, help="mishaps of nodes and pods, times so much")
    parser.add_argument("--error", type=float, default=0.0, help="scatter of the logarithm of bids at sizes not tried")
    parser.add_argument("--tuned", action="store_true", help="users do not guess: sizes as their patience needs")
    parser.add_argument(
        "--days", type=float, default=7.0, help="in which the jobs arrive: 143 in one are 1 000 in seven"
    )
    parser.add_argument("--sensitivity", action="store_true", help="several settings, one after the other")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    ways = given.ways.split(",")
    if unknown := set(ways) - set(WAYS):
        parser.error(f"--ways: {sorted(unknown)[0]!r} is none of {', '.join(WAYS)}")
    base = Setting(given.jobs, given.load, given.failures, given.error, given.tuned, given.days)
    settings = [(name, dataclasses.replace(base, **changes)) for name, changes in SENSITIVITY]
    values = {}
    for name, setting in settings if given.sensitivity else [("", base)]:
        found: dict[str, list[Outcome]] = {way: [] for way in ways}
        for seed in range(given.seeds):
            for way in ways:
                began = time.process_time()
                found[way].append(run(setting, seed, way))
                print(
                    f"{name} seed {seed} {way}: {time.process_time() - began:.0f} s of a core",
                    file=sys.stderr,
                    flush=True,
                )
        if given.json:
            values[name or "week"] = {
                "setting": dataclasses.asdict(setting),
                "ways": {way: [dataclasses.asdict(one) for one in outcomes] for way, outcomes in found.items()},
            }
            continue
        print(f"\n{name or 'week'}: {setting}\n")
        print(table(found) if not given.sensitivity else "", told(found), sep="\n", flush=True)
    if given.json:
        print(json.dumps(values))


if __name__ == "__main__":
    main()
