"""Which models the zoo has, what a run leaves that was cut short, and how estimates are judged."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from dataclasses import asdict

import pytest

from benchmarks.zoo.cases import DENSE_BYTES_MAX, FAMILIES, OPTIMIZERS, REPEATED, ROWS, STATE_BYTES_MAX, cases
from benchmarks.zoo.run import read
from benchmarks.zoo.score import Run, judged
from deeprec_ext.autoscaler.history.estimates import EXAMPLES_PER_SECOND, PS_MEMORY
from deeprec_ext.autoscaler.history.history import Finished
from deeprec_ext.autoscaler.model.memory_model import Layout, for_count
from deeprec_ext.autoscaler.observe.observed import Model, Size, Window
from tests.unit.autoscaler.facts import fact


def test_the_zoo_is_the_same_each_time_and_has_what_it_should():
    all_ = cases()
    assert all_ == cases()
    assert len(all_) >= 60 and len({case.name for case in all_}) == len(all_)
    assert set(Counter(case.family for case in all_).values()) == {len(all_) // len(FAMILIES)}
    assert {case.family for case in all_[: len(FAMILIES)]} == set(FAMILIES)  # a part of the list has all
    assert {case.optimizer for case in all_} == set(OPTIMIZERS)
    assert {case.rows for case in all_} == set(ROWS)
    assert all(case.state_bytes <= (DENSE_BYTES_MAX if case.optimizer == "adam" else STATE_BYTES_MAX) for case in all_)


def test_some_run_twice():
    again = [case for case in cases() if case.name.endswith("-again")]
    assert len(again) == REPEATED * len(FAMILIES)
    by_name = {case.name: case for case in cases()}
    for case in again:
        name = case.name.removesuffix("-again")
        assert dataclasses.replace(case, name=name) == by_name[name]


def test_a_torn_line_is_left_out(tmp_path, capsys):
    file = tmp_path / "runs.jsonl"
    assert read(file) == []
    file.write_text('{"case": 1}\n{"case": 2}\n{"ca')
    assert read(file) == [{"case": 1}, {"case": 2}]
    assert "left out" in capsys.readouterr().err


def run_of(number: int, family: str, heavier: float = 1.0) -> Run:
    layout = Layout((10**6 * (1 + number),) * 8, (0,) * 8, (0,) * 8, (1,) * 8)
    computed = for_count(layout, 1)
    window = fact(Window, 0.0, 20.0, Size(1, 0), 1000.0, 64.0, trainer_cpu_cores=0.5, ps_cpu_cores=0.25, host_cores=2.0)
    job = Finished(
        "zoo", 1e9, "stopped", 40.0, fact(Model, 0, 8 * 10**6 * (1 + number), 0, 64.0), (window,),
        round(heavier * computed.total), 600_000_000, 10**5, fingerprint=f"{family} {number}", machine="2 x some",
        ps_computed_bytes=computed.total, ps_stored_bytes=computed.stored,
    )  # fmt: skip
    line = {"case": {"family": family}, "layout": asdict(layout), "job": asdict(job)}
    return Run(json.loads(json.dumps(line)))


def test_what_is_judged_was_not_shown():
    runs = [run_of(number, "mlp") for number in range(2)]
    seen: list[tuple[str, str]] = []

    def shown(run: Run, other: Run) -> bool:
        seen.append((run.job.fingerprint, other.job.fingerprint))
        return True

    found = judged(runs, runs, shown)
    assert seen == [("mlp 0", "mlp 1"), ("mlp 1", "mlp 0")]
    assert found[PS_MEMORY]["jobs"] == 2
    assert found[EXAMPLES_PER_SECOND] == {"jobs": 0}  # one stranger says nothing of another


def test_an_error_is_a_share_of_what_was_used_and_who_used_more_than_the_interval_would_have_died():
    runs = [run_of(0, "mlp"), run_of(1, "mlp", heavier=3.0)]
    row = judged(runs, runs, lambda run, other: True)[PS_MEMORY]
    assert row["median_error"] == pytest.approx((0.0 + (1 - 1 / 3.0)) / 2, abs=0.01)
    assert row["within"] == 0.5
    assert row["would_have_died"] == 1
