"""Twenty minutes of a cluster that is too small for its jobs: one comes every 50 seconds, they train and end, pods land where
the scheduler likes, and a service grows and shrinks now and then."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter

import pytest

from deeprec_ext.arbiter.deciding import decide
from deeprec_ext.arbiter.observed import Allowance, Cluster, Job, Placed
from tests.unit.arbiter.clusters import NOW, bid, cores, job, nodes, pod, worth

SECONDS, STEP = 1200.0, 5.0


class Hours:
    """Nodes of eight cores, pods of one."""

    def __init__(self, seed: int) -> None:
        self.chance, self.nodes, self.now = random.Random(seed), nodes(6, 8.0), NOW
        self.jobs: list[Job] = []
        self.serving: list[str] = []  # nodes of its pods of four cores
        self.changes: Counter[str] = Counter()
        self.used: list[float] = []
        self.waited: list[float] = []
        self.minutes = 0.0  # of all jobs

    def run(self) -> None:
        while self.now < NOW + SECONDS:
            self.now += STEP
            if self.chance.random() < 0.1:
                self._come()
            self._train()
            self.minutes += len(self.jobs) * STEP / 60.0
            busy = (self.now - NOW) % 600.0 > 500.0
            self.serving = self.serving if busy else []
            waiting = tuple(pod(f"serving-{at}", 9, 4.0) for at in range(len(self.serving), 2 if busy else 0))
            taken = Counter(self.serving)
            free = [dataclasses.replace(one, free=cores(8.0 - 4.0 * taken[one.name])) for one in self.nodes]
            seen = Cluster(self.now, tuple(free), waiting, (), tuple(self.jobs))
            decision = decide(seen)
            if not busy and sum(1 + one.most.workers for one in self.jobs) >= 48:
                self.used.append(decision.used_share)
            self._carry_out(decision.allowances, len(waiting))

    def _come(self) -> None:
        most, power = self.chance.choice((3, 7, 15)), self.chance.uniform(0.5, 1.0)
        new = job(f"j-{self.now:.0f}", most=(0, most), priority=self.chance.choice((0, 0, 5)), arrived=self.now)
        left = self.chance.uniform(1e4, 6e5)
        told = bid((0, 1), (0, most), worth(power, (0, 1), (0, most)), left=left, change_seconds=5.0)
        self.jobs.append(dataclasses.replace(new, bid=told))

    def _train(self) -> None:
        after = []
        for one in self.jobs:
            assert one.bid is not None
            trained = STEP * 100.0 * len(one.placed) ** 0.8 if one.placed else 0.0
            if one.bid.left > trained:
                after.append(dataclasses.replace(one, bid=dataclasses.replace(one.bid, left=one.bid.left - trained)))
        self.jobs = after

    def _carry_out(self, allowances: tuple[Allowance, ...], serving: int) -> None:
        pods = [list(one.placed[: 1 + now.workers] if now.runs else ()) for one, now in zip(self.jobs, allowances)]
        used = Counter(each.node for placed in pods for each in placed)
        used.update([node for node in self.serving for _ in range(4)])
        for _ in range(serving):
            node = min((each.name for each in self.nodes), key=lambda name: used[name])
            if used[node] <= 4:
                self.serving.append(node)
                used[node] += 4
        for at, (one, now) in enumerate(zip(self.jobs, allowances)):
            before = one.allowance
            if before is not None and (before.runs, before.workers) != (now.runs, now.workers):
                self.changes[one.name] += 1
            for _ in range(1 + now.workers - len(pods[at]) if now.runs else 0):
                room = [each.name for each in self.nodes if used[each.name] < 8]
                if room:
                    pods[at].append(Placed("worker" if pods[at] else "chief", self.chance.choice(room)))
                    used[pods[at][-1].node] += 1
            if pods[at] and not one.started:
                self.waited.append(self.now - one.arrived)
            started = one.started or bool(pods[at])
            self.jobs[at] = dataclasses.replace(one, allowance=now, placed=tuple(pods[at]), started=started)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_crowded_cluster_is_used_whole_with_few_changes_and_nobody_waits_long_for_its_least(seed):
    hours = Hours(seed)
    hours.run()
    assert len(hours.used) > 100 and sum(hours.used) / len(hours.used) > 0.99
    assert len(hours.changes) > 15 and sum(hours.changes.values()) < hours.minutes, "not one a minute of each job"
    assert sorted(hours.waited)[len(hours.waited) // 2] <= STEP
