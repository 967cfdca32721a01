"""Processor time of one decision of the arbiter, and whether anything is changed where nothing has.

    python -m benchmarks.cluster.decision_time [--jobs 500] [--nodes 300] [--waiting 20] [--repeat 5] [--seed 1] [--kinds 1]
        [--json]

A cluster is made up: nodes of 8 to 32 cores; jobs of three priorities with 0 to 2 PS at least, up to 32 workers of 1 to 4
cores, nine of ten with a model of up to 20 sizes; pods of others that wait. Together they want far more than there is. Decided
is on all of it as new; on the same with every pod on its node; with one more job; and with a serving pod of high priority more.
With `--kinds N` nodes are of N groups, each job's pods may go to one or two of these, and two quotas beside its namespace's
count them.
Target: 0.2 s for 500 jobs on 300 nodes (the median of `--repeat`).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import statistics
import time
from collections.abc import Sequence

from deeprec_ext.arbiter.deciding import decide
from deeprec_ext.arbiter.observed import (
    Bid,
    Bound,
    Bounds,
    Cluster,
    Count,
    Decision,
    Job,
    Node,
    Placed,
    Pods,
    Quota,
    Resources,
    Waiting,
    Worth,
)

NOW, GIB = 1_000_000.0, 1 << 30
WORKERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


def cores(count: float) -> Resources:
    return Resources(count, int(count * GIB))


def made_up_job(at: int, chance: random.Random) -> Job:
    ps, most = chance.choice((0, 0, 1, 2)), chance.choice((2, 4, 8, 16, 32))
    power = chance.uniform(0.5, 0.95)
    worth = tuple(
        Worth(count, workers, 100.0 * (workers + 1) ** power * count**0.1 if count else 100.0 * (workers + 1) ** power)
        for count in ([0] if not ps else [ps, 2 * ps]) for workers in WORKERS if workers <= most
    )  # fmt: skip
    least, top = Count(ps, 1), Count(2 * ps, most)
    bid = Bid(NOW, least, top, worth, chance.uniform(1e4, 1e7), 8.0, 2.0, training=True)
    pod = cores(chance.choice((1.0, 2.0, 4.0)))
    return Job(
        name=f"team-{at % 7}/job-{at}", priority=chance.choice((0, 0, 0, 10, 100)), weight=1.0, least=least, most=top,
        pods=Pods(cores(1.0), pod, pod, cores(0.2)), placed=(), queue="", arrived=NOW - 10_000.0 + at, started=False,
        strict=False, written=Count(ps, max(1, most // 2)), allowance=None, bid=bid if chance.random() < 0.9 else None,
        silent_seconds=1.0,
    )  # fmt: skip


def made_up(jobs: int, nodes: int, waiting: int, seed: int) -> Cluster:
    chance = random.Random(seed)
    room = tuple(Node(f"node-{at:05}", Resources(chance.choice((8.0, 16.0, 32.0)), 128 * GIB)) for at in range(nodes))
    pods = tuple(
        Waiting(f"other-{at}", chance.choice((0, 50, 1000)), cores(chance.choice((1.0, 4.0, 8.0))), NOW - 5.0)
        for at in range(waiting)
    )
    return Cluster(NOW, room, pods, (), tuple(made_up_job(at, chance) for at in range(jobs)))


def bounded(seen: Cluster, kinds: int, seed: int) -> Cluster:
    """The same, with nodes of so many groups, and jobs that may not go to all of them and are counted by several quotas."""
    chance = random.Random(seed)
    nodes = tuple(dataclasses.replace(one, group=str(at % kinds)) for at, one in enumerate(seen.nodes))
    limits = ("cpu", "memory", "pods")
    cpu = sum(one.free.cpu for one in nodes) / kinds
    quotas = tuple(
        Quota(f"{what}-{at}", cores(cpu), limits, 10_000) for what in ("queue", "cohort") for at in range(kinds)
    )
    jobs = []
    for job in seen.jobs:
        own, other = chance.randrange(kinds), chance.randrange(kinds)
        names = (f"queue-{own}", f"cohort-{other}")
        fixed, scaled = Bound((str(own),), names), Bound(tuple(sorted({str(own), str(other)})), names)
        jobs.append(dataclasses.replace(job, bounds=Bounds(fixed, fixed, scaled, fixed)))
    return dataclasses.replace(seen, nodes=nodes, quotas=quotas, jobs=tuple(jobs))


def running(seen: Cluster, decision: Decision) -> Cluster:
    """A minute later: every pod that was allowed is on a node, the first with room, and those of others as well."""
    free = [one.free.cpu for one in seen.nodes]

    def node(pod: Resources, groups: tuple[str, ...] | None) -> str:
        may = (at for at, one in enumerate(seen.nodes) if groups is None or one.group in groups)
        at = next((at for at in may if free[at] + 1e-9 >= pod.cpu), -1)
        if at >= 0:
            free[at] -= pod.cpu
        return seen.nodes[at].name if at >= 0 else ""

    jobs = []
    for job, given in zip(seen.jobs, decision.allowances):
        wanted = [("chief", 1), ("other", 1), ("ps", given.ps), ("worker", given.workers)] if given.runs else []
        bounds = job.bounds or Bounds()
        pods = [
            (role, node(getattr(job.pods, role), getattr(bounds, role).groups))
            for role, count in wanted
            for _ in range(count)
        ]
        placed = tuple(Placed(role, where) for role, where in pods if where)
        jobs.append(dataclasses.replace(job, allowance=given, placed=placed, started=given.runs))
    return dataclasses.replace(seen, jobs=tuple(jobs), waiting=(), time=seen.time + 60.0)


def measured(seen: Cluster, repeat: int) -> tuple[float, Decision]:
    """(median of the processor time in seconds, the decision)."""
    seconds = []
    for _ in range(repeat):
        began = time.process_time()
        decision = decide(seen)
        seconds.append(time.process_time() - began)
    return statistics.median(seconds), decision


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--nodes", type=int, default=300)
    parser.add_argument("--waiting", type=int, default=20, help="pods of others that wait")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", type=int, default=1, help="groups of nodes, beyond one with quotas")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    new = made_up(options.jobs, options.nodes, options.waiting, options.seed)
    if options.kinds > 1:
        new = bounded(new, options.kinds, options.seed)
    there = running(new, decide(new))
    for _ in range(3):  # where pods went to other nodes than was thought
        there = running(there, decide(there))
    more = made_up_job(options.jobs, random.Random(options.seed + 1))
    more = dataclasses.replace(more, bounds=new.jobs[0].bounds)
    serving = Waiting("serving", 1000, cores(8.0), there.time)
    found = []
    for what, seen in (
        ("all jobs are new", new), ("nothing has changed", there),
        ("one job more", dataclasses.replace(there, jobs=(*there.jobs, more))),
        ("one serving pod more", dataclasses.replace(there, waiting=(serving,))),
    ):  # fmt: skip
        seconds, decision = measured(seen, options.repeat)
        found.append({
            "what": what, "seconds": round(seconds, 4), "changed": len(decision.changed),
            "run": sum(one.runs for one in decision.allowances), "used_share": round(decision.used_share, 4),
        })  # fmt: skip
    if options.json:
        print(json.dumps({"jobs": options.jobs, "nodes": options.nodes, "decisions": found}))
        return
    print(f"{options.jobs} jobs on {options.nodes} nodes")
    for one in found:
        print(f"{one['what']:22} {one['seconds']:.3f} s  {one['changed']} changed, {one['run']} run, "
              f"{100 * float(str(one['used_share'])):.1f} % of the cores")  # fmt: skip


if __name__ == "__main__":
    main()
