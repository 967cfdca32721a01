"""`run --autoscale`: what is said becomes settings, and what contradicts itself is refused with the remedy."""

from __future__ import annotations

import argparse

import pytest

from deeprec_ext.cli.run import add_arguments, make_plan
from deeprec_ext.errors import UsageError
from deeprec_ext.launch.plan import autoscale_settings


def plan(tmp_path, *flags):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return make_plan(parser.parse_args([*flags, "--workdir", str(tmp_path / "run"), "--", "python", "-c", "pass"]))


def test_without_the_flag_nothing_changes(tmp_path):
    made = plan(tmp_path)
    assert (made.limits.ps, made.limits.workers, made.values.autoscale) == (2, 1, False)


def test_with_it_a_job_starts_small_and_within_its_limits(tmp_path):
    made = plan(tmp_path, "--autoscale")
    assert (made.limits.ps, made.limits.workers, made.values.autoscale) == (1, 0, True)
    assert made.values.objective == "fastest"
    made = plan(tmp_path, "--autoscale", "--min-ps", "2", "--min-workers", "3")
    assert (made.limits.ps, made.limits.workers) == (2, 3)
    made = plan(tmp_path, "--autoscale", "--ps", "3", "--workers", "2")
    assert (made.limits.ps, made.limits.workers) == (3, 2)


def test_a_deadline_is_an_objective(tmp_path):
    made = plan(tmp_path, "--autoscale", "--deadline", "30m")
    assert (made.values.objective, made.values.deadline_seconds) == ("deadline", 1800.0)


@pytest.mark.parametrize(
    "arguments, what",
    [
        ((False, "fastest", None), "add --autoscale"),
        ((False, None, "2h"), "add --autoscale"),
        ((True, "best", None), "--objective best"),
        ((True, "deadline", None), "belong together"),
        ((True, "cheapest", "2h"), "belong together"),
        ((True, None, "soon"), "--deadline"),
    ],
)
def test_contradictions_are_refused(arguments, what):
    with pytest.raises(UsageError, match=what):
        autoscale_settings(*arguments)
