"""`run --autoscale`: what is said becomes settings, and what contradicts itself is refused with the remedy."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
from unittest import mock

import pytest

from deeprec_ext.aimaster.main import parse
from deeprec_ext.autoscaler.history.history import History
from deeprec_ext.autoscaler.loop.observing import limits_of
from deeprec_ext.cli.run import add_arguments, make_plan
from deeprec_ext.errors import UsageError
from deeprec_ext.launch.plan import aimaster_command
from tests.unit.autoscaler.history.test_start_in_step import finished


def plan(tmp_path, *flags):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return make_plan(parser.parse_args([*flags, "--workdir", str(tmp_path / "run"), "--", "python", "-c", "pass"]))


def told(made):
    """As the AIMaster reads it."""
    command = aimaster_command(made, "127.0.0.1:1", "127.0.0.1:2")
    with mock.patch.dict(os.environ, command.environment):
        return parse(command.argv[3:])[1]


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


def test_a_job_without_ps_begins_by_the_history_where_nobody_names_its_size(tmp_path):
    path = tmp_path / "history.db"
    with contextlib.closing(History(path)) as history:
        for number in range(4):
            history.add(dataclasses.replace(finished(0, 1, 3), script="python", finished=1000.0 + number))
    flags = ("--strategy", "allreduce", "--autoscale", "--history", str(path))
    made = plan(tmp_path, *flags)
    assert (made.limits.ps, made.limits.slots, made.limits.workers) == (0, 0, 3)
    assert made.start is not None and "4 jobs like it" in told(made).start
    assert plan(tmp_path, *flags, "--max-workers", "2").limits.workers == 2
    for given in ("--workers", "1"), ("--min-workers", "4"):
        assert plan(tmp_path, *flags, *given).limits.workers == int(given[1])
    assert plan(tmp_path, *flags, "--workers", "1").start is None, "somebody has named it"
    nothing = plan(tmp_path, *flags[:3], "--history", "off")
    assert nothing.limits.workers == 0 and "no history of finished jobs is kept" in told(nothing).start


def test_a_deadline_is_an_objective(tmp_path):
    made = plan(tmp_path, "--autoscale", "--deadline", "30m")
    assert (made.values.objective, made.values.deadline_seconds) == ("deadline", 1800.0)


@pytest.mark.parametrize(
    "arguments, what",
    [
        (("--objective", "fastest"), "add --autoscale"),
        (("--deadline", "2h"), "add --autoscale"),
        (("--autoscale", "--objective", "deadline"), "belong together"),
        (("--autoscale", "--objective", "cheapest", "--deadline", "2h"), "belong together"),
        (("--autoscale", "--deadline", "soon"), "--deadline: 'soon' is no duration"),
    ],
)
def test_contradictions_are_refused(tmp_path, arguments, what):
    with pytest.raises(UsageError, match=what):
        plan(tmp_path, *arguments)


def test_a_ceiling_makes_a_request_changeable_and_is_where_it_starts_if_nothing_else_is_said(tmp_path):
    made = plan(tmp_path, "--autoscale", "--ps-cpu", "0.5", "--max-ps-cpu", "2", "--max-worker-memory", "2GiB")
    assert (made.requests.ps.cpu, made.requests.worker.memory_bytes) == (0.5, 2 << 30)
    spec = told(made)
    limits = limits_of(spec)
    assert limits.resizable and (spec.ps_cpu, limits.max_ps_cpu) == (0.5, 2.0)
    assert (spec.worker_memory_bytes, limits.max_worker_memory_bytes) == (2 << 30, 2 << 30)
    assert limits.max_ps_memory_bytes == limits.total_cpu == 0


def test_a_request_without_any_ceiling_is_what_pods_are_held_to(tmp_path):
    made = plan(tmp_path, "--autoscale", "--ps-cpu", "0.5", "--worker-cpu", "1", "--total-cpu", "3")
    spec = told(made)
    assert not limits_of(spec).resizable and limits_of(spec).max_ps_cpu == 0
    assert (spec.worker_cpu, limits_of(spec).total_cpu) == (1.0, 3.0)


@pytest.mark.parametrize(
    "flags, what",
    [
        (("--max-ps-cpu", "2"), "give --autoscale too"),
        (("--autoscale", "--ps-cpu", "2", "--max-ps-cpu", "1"), "is more than --max-ps-cpu 1"),
        (("--autoscale", "--worker-memory", "2GiB", "--max-worker-memory", "1GiB"), "is more than --max-worker-memory"),
        (("--autoscale", "--total-cpu", "2"), "--total-cpu: needs --ps-cpu and --worker-cpu"),
        (("--autoscale", "--ps-cpu", "1", "--worker-cpu", "1", "--total-cpu", "1.5"), "exceeds the quota of 1.5 cores"),
    ],
)
def test_ceilings_that_cannot_be_met_are_refused(tmp_path, flags, what):
    with pytest.raises(UsageError, match=what):
        plan(tmp_path, *flags)
