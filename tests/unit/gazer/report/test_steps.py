"""Rules about trainers, each from both sides."""

from __future__ import annotations

import pytest

from deeprec_ext.gazer.report.document import Table
from deeprec_ext.gazer.report.findings import trainers as rules
from deeprec_ext.gazer.report.sections.running import steps
from deeprec_ext.gazer.report.steps import compare, trainer_uses
from deeprec_ext.gazer.report.story import Scaling
from tests.unit.gazer.report.stories import BEGAN, TRAINERS, case, steady, traces


def one_slow(rate, **parts):
    """worker-1 with this many steps a second, the others with ten."""
    values = steady()
    values["worker-1"].update(steps_per_second=rate, **parts)
    return values


def test_a_trainer_that_is_slower_all_the_time_is_a_straggler():
    [finding] = rules.straggler(case(one_slow(4.0, step_seconds=0.25)))
    assert finding.text == "worker-1 is a straggler: its steps take 2.5 times as long as those of the others"
    assert finding.subject == "worker-1"
    assert "all of its steps are slow" in finding.evidence[2]


def test_a_trainer_that_stands_still_in_bursts_is_one_though_its_median_step_is_quick():
    bursts = one_slow(lambda time: 2.0 if time % 4 else 6.0, step_seconds=0.1)
    [finding] = rules.straggler(case(bursts))
    assert finding.subject == "worker-1"
    assert "stands still in between" in finding.evidence[2]


def test_a_trainer_that_makes_no_step_for_long_counts_as_very_slow():
    stopped = one_slow(lambda time: 0.0 if 50 < time < 290 else 10.0)
    [finding] = rules.straggler(case(stopped))
    assert finding.subject == "worker-1"


def test_a_straggler_that_waits_for_input_is_told_so():
    [finding] = rules.straggler(case(one_slow(4.0, input_wait_share=0.6)))
    assert "waits for input for 60 %" in finding.evidence[2]


@pytest.mark.parametrize(
    "values",
    [
        steady(),
        one_slow(7.5),  # a third slower: an uneven machine
        one_slow(lambda time: 3.0 if time < 90 else 10.0),  # slow for less than a third of the time
        {"worker-1": one_slow(3.0)["worker-1"]},  # nobody to compare with
        {},
    ],
)
def test_no_straggler(values):
    assert not list(rules.straggler(case(values)))


def test_a_trainer_that_is_slow_only_while_a_scaling_goes_on_is_none():
    slow = one_slow(lambda time: 1.0 if 60 < time < 280 else 10.0)
    scaling = Scaling("scale-up", "ps", BEGAN + 60, 216.0, "committed")
    assert not list(rules.straggler(case(slow, scalings=(scaling,))))
    assert list(rules.straggler(case(slow, scalings=())))


def test_too_short_a_run_has_no_straggler():
    values = one_slow(2.0)
    short = case(values, scalings=(Scaling("scale-up", "ps", BEGAN + 32, 300.0, "committed"),))
    assert not list(rules.straggler(short))


def test_pieces_of_time_are_long_enough_for_slow_steps():
    """A step each four seconds: in pieces of five seconds one trainer would have one step and another two."""
    values = {name: {"steps_per_second": rate, "step_seconds": 4.0} for name, rate in zip(TRAINERS, (0.25, 0.25, 0.24))}
    assert {one.name: len(one.ratios) for one in compare(case(values))} == dict.fromkeys(TRAINERS, 7)


def test_the_figures_of_a_trainer_are_those_of_its_calm_time():
    values = steady()
    values["chief-0"]["step_longest_seconds"] = lambda time: 9.0 if time < 10 else 0.2
    use = trainer_uses(case(values))[0]
    assert (use.name, use.mean_seconds, use.longest_seconds) == ("chief-0", pytest.approx(0.1), 0.2)


def test_mean_and_median_are_of_the_same_steps():
    """A trainer that makes 25 quick steps a second, and now and then a few slow ones in a sample: by time the medians of such
    samples counted as much as the others, and half of the steps "took" five times the mean."""
    values = steady()
    slow = lambda time: time % 10 == 0  # noqa: E731
    values["chief-0"] |= {
        "steps_per_second": lambda time: 1.0 if slow(time) else 25.0, "step_seconds": lambda time: 1.0 if slow(time) else 0.04,
        "step_p95_seconds": lambda time: 1.5 if slow(time) else 0.06,
    }  # fmt: skip
    use = trainer_uses(case(values))[0]
    assert (use.median_seconds, use.p95_seconds) == (0.04, 0.06)
    assert use.mean_seconds == pytest.approx(1 / 20.2, rel=0.05)


def test_a_trainer_without_calm_time_has_dashes_and_no_zeros():
    busy = case(steady(), scalings=(Scaling("scale-up", "ps", BEGAN, 400.0, "committed"),))
    (table,) = (block for block in steps(busy).blocks if isinstance(block, Table))
    assert {row[1:] for row in table.rows} == {("–",) * 8 + ("0:00",)}
    (table,) = (block for block in steps(case(steady())).blocks if isinstance(block, Table))
    assert all("–" not in row for row in table.rows)


# ------------------------------------------------------------------------------------------------------------- input


def test_trainers_that_wait_for_the_data_ledger_are_starved():
    values = steady()
    values["worker-0"]["input_wait_share"] = 0.4
    [finding] = rules.starved(case(values))
    assert "40 %" in finding.text
    assert finding.subject == "worker-0"


def test_traced_steps_that_wait_for_the_input_pipeline_tell_it_too():
    [finding] = rules.starved(case(traces=traces(input_seconds=0.05)))
    assert "50 %" in finding.text
    assert "10 traced steps" in finding.evidence[0]


@pytest.mark.parametrize("found", [traces(input_seconds=0.02), traces(2, input_seconds=0.09), ()])
def test_not_starved(found):
    assert not list(rules.starved(case(traces=found)))


# -------------------------------------------------------------------------------------------------------------- gaps


def standing_still(every):
    values = steady()
    values["chief-0"]["step_longest_seconds"] = lambda time: 4.0 if time % every == 0 else 0.2
    return values


def test_a_chief_that_stands_still_again_and_again_probably_writes_checkpoints():
    [finding] = rules.gaps(case(standing_still(40)))
    assert finding.text == (
        "chief-0 stands still 7 times, for up to 4.0 s, about every 40.0 s: probably while it writes checkpoints"
    )
    assert "save_checkpoints_secs" in finding.advice


def test_gaps_without_a_clock_are_not_blamed_on_checkpoints():
    values = steady()
    values["chief-0"]["step_longest_seconds"] = lambda time: 4.0 if time in (30, 120, 130, 250) else 0.2
    [finding] = rules.gaps(case(values))
    assert finding.text == "chief-0 stands still 4 times, for up to 4.0 s"


def test_when_all_stand_still_at_once_it_is_not_one_of_them():
    values = standing_still(40)
    values["worker-0"]["step_longest_seconds"] = values["chief-0"]["step_longest_seconds"]
    assert not list(rules.gaps(case(values)))


def test_a_single_very_long_step_is_told():
    values = steady()
    for name in ("chief-0", "worker-1"):
        values[name]["step_longest_seconds"] = lambda time: 24.9 if time == 120 else 0.2
    values["worker-0"]["step_longest_seconds"] = lambda time: 24.9 if time == 6 else 0.2  # while it warms up
    [finding] = rules.stood(case(values))
    assert finding.text == "A step of chief-0 took 24.9 s; usual are 100 ms"
    assert finding.evidence[0].startswith("2:00 after the start of the job") and finding.evidence[1].endswith(
        ": worker-1"
    )
    assert not list(rules.stood(case(steady())))
    values = steady()
    values["chief-0"]["step_longest_seconds"] = lambda time: 12.0 if time % 40 == 0 else 0.2
    assert list(rules.gaps(case(values))) and not list(rules.stood(case(values))), "one finding for one thing"


@pytest.mark.parametrize("every", [1000, 120, 2])  # never, too seldom to matter, in every sample: that is how steps are
def test_no_gaps(every):
    assert not list(rules.gaps(case(standing_still(every))))
