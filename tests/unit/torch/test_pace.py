"""Steps of optimizers and learning rates that a script decides by counts of its own: alike in all processes, or told."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not here: make torch")

from deeprec_ext.torch.pace import RATES_DIFFER, STEPS_DIFFER  # noqa: E402
from deeprec_ext.torch.snapshot import Snapshot  # noqa: E402


class Process:
    def __init__(self, rate: float | list[float] = 0.1, kind=torch.optim.Adam) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Linear(3, 2)
        rates = rate if isinstance(rate, list) else [rate]
        groups = [{"params": [one], "lr": lr} for one, lr in zip(self.model.parameters(), rates * 2)]
        self.optimizer = kind(groups, lr=1.0)
        self.snapshot = Snapshot()
        self.snapshot.holds(self.model)
        self.snapshot.watch(self.optimizer)
        self.pace = self.snapshot.pace

    def set(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def step(self) -> None:
        for one in self.model.parameters():
            one.grad = torch.ones_like(one)
        self.optimizer.step()

    @property
    def bits(self) -> list[bytes]:
        return [one.detach().numpy().tobytes() for one in self.model.parameters()]


def summed(*processes: Process, weights=None, dtype=np.float32) -> list[str]:
    """What each of them is told."""
    given = [one.pace.given(dtype) for one in processes]
    weights = [1.0] * len(given) if weights is None else weights
    total = np.zeros_like(given[0])
    for one, weight in zip(given, weights):
        total += one * dtype(weight)
    total /= dtype(sum(weights))
    return [one.pace.came(total) for one in processes]


RATES = [0.1, 1e-4 / 3, 3e-7, 12.5]


@pytest.mark.parametrize("weights", [(16.0, 16.0, 16.0), (16.0, 0.0, 7.0), (4096.0, 33.0, 1.0)])
def test_rates_that_are_alike_are_used_to_the_bit_also_by_who_has_another_and_gave_nothing(weights):
    for rate in RATES:
        processes = [Process(rate), Process(rate if weights[1] else 0.7), Process(rate)]
        alone = Process(rate)
        assert summed(*processes, weights=weights) == [""] * 3
        for one in (*processes, alone):
            one.step()
        assert len({tuple(one.bits) for one in (*processes, alone)}) == 1
        assert processes[1].optimizer.param_groups[0]["lr"] == (rate if weights[1] else 0.7)  # the script sees its own


def test_rates_that_differ_are_the_mean_in_each_step_and_weights_stay_equal():
    one, other = Process(0.1), Process(0.3)
    alone = Process(0.15)
    alone.step()
    for count in range(5):
        one.set(0.1 / (1 + count))
        other.set(0.3 / (1 + 7 * count))
        assert summed(one, other, weights=(30.0, 10.0)) == ["", ""]
        assert one.pace.rates_differ
        for each in (one, other):
            each.step()
        assert one.bits == other.bits
        if not count:  # 30 records of 0.1 and 10 of 0.3
            torch.testing.assert_close(one.model.weight, alone.model.weight)


def test_groups_keep_rates_of_their_own():
    one, other, alone = (Process([0.1, 0.02]) for _ in range(3))
    assert summed(one, other) == ["", ""] and not one.pace.rates_differ
    for each in (one, other, alone):
        each.step()
    assert one.bits == other.bits == alone.bits


def test_a_rate_that_is_set_after_the_sum_counts_and_is_told_where_it_differs():
    one, other = Process(0.1), Process(0.1)
    for first, second in ((0.2, 0.2), (0.3, 0.4)):
        assert summed(one, other) == ["", ""]
        one.set(first)
        other.set(second)
        one.step()
        other.step()
    assert summed(one, other) == [RATES_DIFFER] * 2
    assert one.bits != other.bits


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (1.0, 1.0, 0.0), (64.0, 64.0, 64.0 * 300)])
def test_steps_that_are_not_made_by_all_are_told(weights):
    processes = [Process(), Process(), Process()]
    assert summed(*processes, weights=weights) == [""] * 3
    for one in processes[:2]:
        one.step()
    told = summed(*processes, weights=weights)
    assert told[2] == STEPS_DIFFER and (not weights[2] or set(told) == {STEPS_DIFFER})


def test_optimizers_of_models_that_are_not_summed_are_each_process_s_own():
    one, other = Process(), Process()
    for each in (one, other):
        each.own = torch.nn.Linear(2, 2)
        each.beside = torch.optim.SGD(each.own.parameters(), lr=0.1)
        each.snapshot.watch(each.beside)
    one.own.weight.grad = torch.ones(2, 2)
    one.beside.step()
    one.beside.param_groups[0]["lr"] = 7.0
    assert summed(one, other) == ["", ""]


def test_the_rate_follows_the_number_of_workers_where_that_is_wanted():
    one = Process(0.1, torch.optim.SGD)
    one.pace.settings = SimpleNamespace(rate_scaling="linear", rate_base=1, rate_warmup_steps=2)
    one.pace.members = 3
    before = one.model.bias.detach().clone()
    for factor in (2.5, 3.0):
        assert summed(one) == [""]
        one.step()
        np.testing.assert_allclose((before - one.model.bias).detach().numpy(), 0.1 * factor, rtol=1e-5)
        before = one.model.bias.detach().clone()
    other = Process(0.1, torch.optim.SGD)
    other.snapshot.put(one.snapshot.take())
    assert float(other.pace.factor.take()) == 3.0 and one.optimizer.param_groups[0]["lr"] == 0.1


def test_an_optimizer_can_be_copied_and_scheduled_as_before():
    one = Process()
    schedule = torch.optim.lr_scheduler.StepLR(one.optimizer, 1, gamma=0.5)
    one.step()
    schedule.step()
    assert [group["lr"] for group in one.optimizer.param_groups] == [0.05, 0.05]
    again = copy.deepcopy(one.optimizer)
    assert again.state_dict()["param_groups"] == one.optimizer.state_dict()["param_groups"]
    again.step()


class Own(torch.optim.Optimizer):
    """Finds its rates itself, as Adafactor does, or sets them in its step."""

    def __init__(self, groups, lr=None) -> None:
        super().__init__([{**group, "lr": None} for group in groups], {"lr": None})
        self.sets: float | None = None

    def step(self, closure=None) -> None:
        for group in self.param_groups:
            for one in group["params"]:
                one.data -= 0.5 * one.grad
            group["lr"] = self.sets


def test_an_optimizer_that_finds_its_rates_itself_is_left_to_it():
    processes = [Process(kind=Own), Process(kind=Own)]
    for sets in (None, 0.25, 0.125):
        assert summed(*processes) == ["", ""]
        for one in processes:
            one.optimizer.sets = sets
            one.step()
            assert [group["lr"] for group in one.optimizer.param_groups] == [sets] * 2
    assert processes[0].bits == processes[1].bits
