"""The simulated cluster: nothing is lost, nothing is used twice, and each way to share it does what it says."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
import random

import pytest

from deeprec_ext.arbiter.deciding import decide
from deeprec_ext.arbiter.observed import Count, Pods, Resources
from deeprec_ext.simulator.cluster import week as weeks
from deeprec_ext.simulator.cluster.engine import Cluster
from deeprec_ext.simulator.cluster.learning import Learner
from deeprec_ext.simulator.cluster.line import Line, Refused
from deeprec_ext.simulator.cluster.machines import Machine, Machines, Pod
from deeprec_ext.simulator.cluster.told import outcome
from deeprec_ext.simulator.cluster.ways import Alone, Arbitrated, Gang
from deeprec_ext.simulator.cluster.week import GB, HOUR, WEEK, Costs, Mishaps, Serving, Submitted, Week
from deeprec_ext.simulator.job_model import JobModel
from deeprec_ext.simulator.virtual_clock import Event

CALM = Mishaps(node_failures=0.0, pod_failures=0.0, spot_share=0.0, reclaims=0.0)
EXACT = Costs(pod_start_scatter=0.0)
WAYS = {"gang": Gang, "alone": Alone, "arbiter": lambda cluster: Arbitrated(cluster, decide)}
WORKER = Resources(4.0, 8 * GB)
PODS = Pods(WORKER, Resources(4.0, 8 * GB), WORKER, Resources(0.5, GB))


def job(name, hours=1.0, workers=3, ps=1, arrives=0.0, priority=100, **others) -> Submitted:
    """As written it takes so many hours."""
    model = JobModel(variable_bytes=1e9, shared_seconds=0.002) if ps else JobModel(
        batch=512, compute_core_seconds=8.0, sum_seconds=0.05, variable_bytes=1e8
    )  # fmt: skip
    found = Submitted(
        name,
        arrives,
        priority,
        1.0,
        model,
        Count(ps, workers),
        Count(min(ps, 1), 0),
        Count(3 if ps else 0, 11),
        PODS,
        **others,
    )
    return dataclasses.replace(found, examples=hours * HOUR * found.rate(ps, workers + 1))


def week(*jobs, nodes=1, replicas=(0,), mishaps=CALM, cores=32.0) -> Week:
    return Week(jobs, nodes, Resources(cores, 192 * GB), Serving(replicas), EXACT, mishaps)


class Watched(Cluster):
    """Looks at every node after every event."""

    def _settle(self) -> None:
        super()._settle()
        for machine in self.machines.all:
            cores = sum(pod.request.cpu for pod in machine.pods)
            memory = sum(pod.request.memory_bytes for pod in machine.pods)
            assert cores <= machine.whole.cpu + 1e-6 and memory <= machine.whole.memory_bytes
            assert machine.up or not machine.pods
            assert machine.cores == pytest.approx(machine.whole.cpu - cores)
        used = sum(pod.request.cpu for machine in self.machines.all for pod in machine.pods)
        assert self.machines.used == pytest.approx(used, abs=1e-6)


def ran(given: Week, way: str, error: float = 0.0) -> Cluster:
    cluster = Watched(given, error)
    cluster.run(WAYS[way](cluster))
    return cluster


def ends(cluster: Cluster) -> dict[str, float]:
    return {one.asked.name: one.ended for one in cluster.ended}


def unlucky(seed: int) -> Week:
    """Some hours in which much goes wrong."""
    jobs = [job(f"a-{at}", 0.5 + 0.3 * at, 2 + at, at % 3, 600.0 * at, 100 * (at % 2)) for at in range(5)]
    mishaps = Mishaps(node_failures=0.2, pod_failures=0.1, spot_share=0.5, reclaims=1.0, noticed=0.5)
    replicas = (*itertools.repeat(1, 6), *itertools.repeat(4, 6), *itertools.repeat(2, 200))
    return dataclasses.replace(week(*jobs, nodes=3, replicas=replicas, mishaps=mishaps), seed=seed)


@pytest.mark.parametrize("way", WAYS)
def test_work_done_is_work_asked_whatever_happens(way):
    cluster = ran(unlucky(1), way)
    assert len(cluster.ended) == 5
    for one in cluster.ended:
        assert one.trained - one.lost == pytest.approx(one.asked.examples, rel=1e-6), one.asked.name
    assert sum(one.lost for one in cluster.ended) > 0
    assert not any(pod.role != "serving" for machine in cluster.machines.all for pod in machine.pods if not pod.leaving)


def test_the_same_seed_gives_the_same_week_and_another_does_not():
    told = [repr(outcome(ran(unlucky(seed), "alone"))) for seed in (1, 1, 2)]
    assert told[0] == told[1] != told[2]
    made = [weeks.make(20, seed) for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]


def test_a_gang_waits_for_room_for_all_of_it_and_with_the_arbiter_both_train_at_once():
    two = week(job("first", workers=4), job("second", workers=4))  # 24 cores each, of 32
    gang, alone, arbiter = (ran(two, way) for way in WAYS)
    assert ends(gang)["second"] - ends(gang)["first"] == pytest.approx(HOUR + 35, abs=1.0)
    assert max(one.first_step for one in arbiter.ended) < 60
    assert max(ends(arbiter).values()) < max(ends(gang).values())
    assert max(one.first_step for one in alone.ended) > HOUR, "its chief has room, its PS has none"


def test_a_gang_behind_goes_first_only_where_nobody_in_front_waits_for_it():
    jobs = job("runs", workers=4), job("large", workers=6, arrives=10.0), job("short", 0.5, 0, arrives=20.0)
    found = ends(ran(week(*jobs, job("long", 3.0, 0, arrives=30.0)), "gang"))
    assert found["short"] < found["runs"] < found["large"] < found["long"]
    assert found["large"] == pytest.approx(found["runs"] + HOUR + 35, abs=1.0)


def test_gangs_of_higher_priority_go_first():
    jobs = job("runs", workers=5), job("low", workers=5, arrives=1.0, priority=0), job("high", workers=5, arrives=2.0)
    found = ends(ran(week(*jobs), "gang"))
    assert found["runs"] < found["high"] < found["low"]


@pytest.mark.parametrize("ps", (2, 0))
def test_who_loses_a_pod_goes_back_to_the_checkpoint_or_loses_seconds(ps):
    costs = {}
    for way in ("gang", "arbiter"):
        given = week(job("a", 1.0, 3, ps), nodes=2)
        cluster = Watched(given)
        cluster.clock.at(35.0 + 1700.0, dies(cluster, "worker" if ps == 0 else "ps"))
        cluster.run(WAYS[way](cluster))
        (one,) = cluster.ended
        costs[way] = one.redone + one.paused + one.stood
    assert 500 + 35 + 10 < costs["gang"] < 600 + 35 + 20
    assert costs["arbiter"] < 10


def dies(cluster, role):
    """A pod of this role dies."""

    def strike(event):
        one = cluster.jobs["a"]
        cluster.lose(next(pod for pod in one.pods if pod.role == role and not pod.leaving))

    cluster._strike = strike
    return Event("a", "strike")


def test_of_a_reclaim_with_notice_an_elastic_job_has_replacements_before():
    mishaps = dataclasses.replace(CALM, spot_share=1.0, reclaims=1.0, noticed=1.0)
    given = week(job("a", 4.0, 5), nodes=4, cores=16.0, mishaps=mishaps)
    gang, arbiter = (ran(given, way).ended[0] for way in ("gang", "arbiter"))
    assert gang.redone > 0 and gang.stood > 0
    assert arbiter.redone == arbiter.stood == 0.0


@pytest.mark.parametrize("way", ("gang", "alone", "arbiter"))
def test_serving_has_its_pods_within_seconds_in_a_full_cluster(way):
    given = week(job("a", 2.0, 5, 1, priority=0), replicas=(0, *itertools.repeat(2, 12), 0))
    cluster = ran(given, way)
    (one,) = cluster.ended
    assert len(cluster.serving_waits) == 2 and max(cluster.serving_waits) < 10
    assert (one.evicted > 0) == (way != "arbiter"), "with the arbiter they give way themselves"


@pytest.mark.parametrize("seed", range(20))
def test_who_waits_tries_in_the_order_of_priority_and_age_until_none_of_its_kind_can_have_any(seed):
    chance, line = random.Random(seed), Line()
    pods = [waits(number, chance.choice((0, 5)), chance.choice((1.0, 2.0))) for number in range(30)]
    for one in chance.sample(pods, len(pods)):
        line.add(one)
    gone = chance.sample(pods, 5)
    for one in gone * 2:
        line.drop(one)
    tried: list[int] = []
    over: dict[tuple[int, float], int] = {}

    def tries(one: Pod) -> bool:
        tried.append(one.number)
        line.add(waits(100 + len(tried), chance.choice((0, 5)), 1.0))  # comes too late
        if chance.random() < 0.5:
            line.drop(one)
        if chance.random() < 0.2:
            over[one.priority, one.request.cpu] = len(tried)
            return False
        return True

    line.look(29, tries)
    ordered = sorted((one for one in pods if one not in gone), key=lambda one: (-one.priority, one.number))
    expected, at = [], 0
    for one in ordered:
        if over.get((one.priority, one.request.cpu), 1000) > at:
            expected.append(one.number)
            at += 1
    assert tried == expected


def waits(number: int, priority: int, of_cores: float) -> Pod:
    return Pod("a", "worker", Resources(of_cores, GB), priority, 0.0, number)


def test_who_is_less_important_or_wants_more_finds_nothing_either():
    refused = Refused()
    refused.add(5, Resources(2.0, 4 * GB))
    assert refused.has(5, Resources(2.0, 4 * GB)) and refused.has(0, Resources(4.0, 8 * GB))
    assert not refused.has(6, Resources(4.0, 8 * GB)) and not refused.has(5, Resources(2.0, 3 * GB))
    refused.add(6, Resources(2.0, 4 * GB))
    assert refused.has(6, Resources(2.0, 4 * GB)) and not refused.has(6, Resources(1.0, 9 * GB))


@pytest.mark.parametrize("seed", range(20))
def test_victims_are_the_least_important_and_the_fewest_on_one_node(seed):
    chance = random.Random(seed)
    machines = Machines(4, Resources(8.0, 64 * GB), 0.0)
    for number in range(40):
        machines.place(waits(number, chance.choice((0, 5, 9)), chance.choice((1.0, 2.0))))
    for one in chance.sample(list(machines.all[0].pods), 2):
        one.leaving = True
    asks = waits(100, chance.choice((0, 5, 9)), chance.choice((2.0, 4.0, 8.0)))
    found = machines.victims(asks)

    def needed(machine: Machine) -> list[Pod] | None:
        """Those of it that go, worked out anew."""
        lower = [one for one in machine.pods if one.priority < asks.priority and not one.leaving]
        free, chosen = machine.cores, []
        for one in sorted(lower, key=lambda one: (one.priority, -one.number)):
            if free < asks.request.cpu:
                chosen.append(one)
                free += one.request.cpu
        return chosen if free >= asks.request.cpu else None

    able = [chosen for one in machines.all if (chosen := needed(one))]
    best = min(((max(one.priority for one in chosen), len(chosen)) for chosen in able), default=None)
    assert (best is None) == (not found)
    assert not found or ((max(one.priority for one in found), len(found)) == best and found in able)


def test_growth_without_room_is_given_up_and_tried_again_later():
    given = week(job("full", 3.0, 5), job("grows", 3.0, 0, arrives=10.0), cores=36.0)
    cluster = ran(given, "alone")
    (grows,) = (one for one in cluster.ended if one.asked.name == "grows")
    assert grows.changes >= 1 and grows.blocked_until >= 1800


def test_a_bid_is_what_was_measured_and_no_more():
    asked = job("a", noise=0.02)
    learner = Learner(asked, 0)
    assert learner.worth(asked.written) == () and learner.wanted == asked.written
    learner.look(Count(1, 1), 100.0)
    worth = {Count(one.ps, one.workers): one.examples_per_second for one in learner.worth(Count(1, 1))}
    off = {count: abs(rate / asked.rate(count.ps, count.workers + 1) - 1) for count, rate in worth.items()}
    assert off[Count(1, 1)] < 0.05 < max(off.values())
    assert len(worth) > 10 and learner.wanted.workers <= 3, "twice of what was tried at most"
    learner.look(Count(1, 5), 200.0)
    known = {Count(one.ps, one.workers): one.examples_per_second for one in learner.worth(Count(1, 5))}
    assert abs(known[Count(1, 5)] / asked.rate(1, 6) - 1) < 0.05


def test_wrong_bids_are_wrong_where_nothing_was_measured():
    asked = job("a", noise=0.02)
    right, wrong = Learner(asked, 0), Learner(asked, 0, error=0.5)
    for one in right, wrong:
        one.look(Count(1, 3), 100.0)
    assert wrong.rate(Count(1, 3)) == right.rate(Count(1, 3))
    off = [abs(math.log(wrong.rate(Count(1, n)) / right.rate(Count(1, n)))) for n in range(4, 12)]
    assert 0.1 < sum(off) / len(off) < 1.0


def test_a_week_has_the_shape_that_was_published():
    given = weeks.make(3000, 1)
    hours = sorted(one.examples / one.rate(min(1, one.most.ps), 1) / 3600 for one in given.jobs)
    shares = collections.Counter("small" if one < 1 else "medium" if one < 10 else "large" for one in hours)
    assert shares["small"] / 3000 == pytest.approx(0.768, abs=0.03)
    assert shares["medium"] / 3000 == pytest.approx(0.168, abs=0.03)
    assert sum(hours[-63:]) / sum(hours) > 0.6, "2.1 % of the jobs have most of the work"
    arrivals = [one.arrives for one in given.jobs]
    assert min(arrivals) >= 0 and max(arrivals) < WEEK + HOUR
    weekend = sum(one >= 5 * 86400 for one in arrivals) / 3000
    assert weekend == pytest.approx(2 * 0.6 / 7, abs=0.05)


def test_load_is_what_gangs_ask_for():
    given = weeks.make(400, 2, load=0.8, mishaps=CALM)
    asked = sum(
        one.cores(one.written, other=False) * one.examples / one.rate(one.written.ps, one.written.workers + 1)
        for one in given.jobs
    )
    serving = sum(given.serving.replicas[: 7 * 288]) * 300 * given.serving.pod.cpu
    there = given.nodes * given.node.cpu * WEEK
    assert serving / there == pytest.approx(0.15, abs=0.02)
    assert (asked + serving) / there == pytest.approx(0.8, abs=0.07) or given.nodes * given.node.cpu < 1.6 * max(
        one.cores(one.written) for one in given.jobs
    )
