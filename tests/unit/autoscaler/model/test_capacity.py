"""What the free cores can pay for."""

from __future__ import annotations

import math

import pytest

from deeprec_ext.autoscaler.model.capacity import Cost, costs_of, least_cost, of_hosts, of_one_host
from deeprec_ext.autoscaler.observe.observed import Host, Size, Window
from tests.unit.autoscaler.facts import fact


def window(size: Size, rate: float, trainer: float, ps: float) -> Window:
    return fact(Window, 0.0, 10.0, size, rate, 10.0, trainer_cpu_cores=trainer, ps_cpu_cores=ps)


def test_an_example_costs_what_all_trainers_and_all_ps_use_for_it():
    costs = costs_of([window(Size(2, 1), 1000.0, 0.5, 0.6), window(Size(2, 1), 500.0, 0.25, 0.3)])
    assert costs == {(2, 2): Cost(pytest.approx(1e-3), pytest.approx(6e-4))}
    assert costs_of([window(Size(2, 1), 1000.0, 0.0, 0.6)]) == {}  # of windows in which sessions were built


def test_a_larger_size_costs_no_less_and_of_a_smaller_one_nobody_knows():
    costs = {(1, 1): Cost(1e-3, 1e-3), (2, 2): Cost(1e-3, 2e-3)}
    assert least_cost(costs, Size(2, 1)) == costs[2, 2]
    assert least_cost(costs, Size(1, 3)) == costs[1, 1]
    assert least_cost({(2, 2): Cost(1, 1)}, Size(1, 4)) is None


def test_a_size_costs_what_the_nearest_ones_below_it_do_and_not_what_the_cheapest_does():
    """2 PS cost half as much again on this host: 3 do not cost what 1 did."""
    costs = {(1, 1): Cost(1e-3, 1e-3), (2, 1): Cost(1e-3, 2e-3), (1, 2): Cost(2e-3, 2e-3)}
    assert least_cost(costs, Size(3, 0)) == costs[2, 1]
    assert least_cost(costs, Size(2, 1)) == costs[2, 1], "as near as 1 PS and 2 trainers, and cheaper"
    assert least_cost({**costs, (2, 2): Cost(3e-3, 3e-3)}, Size(4, 3)) == Cost(3e-3, 3e-3)


def test_processes_of_one_host_share_its_cores():
    assert of_one_host(Cost(6e-4, 4e-4), 2.0) == pytest.approx(2000)
    assert of_one_host(Cost(0, 0), 2.0) == math.inf


def test_on_many_hosts_the_first_that_is_full_rules_and_processes_to_come_bring_their_own():
    hosts = [Host("host-0", 4.0, 0.0, 1.0, 1, 0, 0), Host("host-1", 2.0, 0.0, 0.5, 0, 2, 0)]
    cost = Cost(1e-3, 1e-3)
    assert of_hosts(cost, hosts, Size(1, 1)) == pytest.approx(1500)  # 1.5 cores are free where both trainers are
    assert of_hosts(cost, hosts, Size(1, 3)) == pytest.approx(3000)  # they do half of the work; both hosts are full
    assert of_hosts(cost, hosts, Size(2, 7)) == pytest.approx(6000)
    assert of_hosts(cost, [], Size(1, 1)) == math.inf
