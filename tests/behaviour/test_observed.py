"""Whatever a rule of the autoscaler reads is measured: a real job fills every such field, and none says only "not known"."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from deeprec_ext.autoscaler.observe.observed import Observed
from tests.behaviour.jobs import SCRIPTS, RealJob
from tests.unit.autoscaler.policy.reads import FACTS, read_fields

ROOT = Path(__file__).resolve().parents[2]
SHARDS = ("python", str(SCRIPTS / "shards.py"), "--records", "100000", "--epochs", "0")
"""Its records are leased, for ever, and its table is large enough to be tracked by rows."""
PATIENCE_SECONDS = 300.0

ELSEWHERE = {
    "Observed.reclaimed": "tests/unit/aimaster/kubernetes/test_following.py::"
    "test_the_autoscaler_sees_whose_node_goes_and_that_it_stays_after_all",  # no machine of ours is taken away
    "Observed.start": "tests/unit/autoscaler/loop/test_autoscaler.py::"
    "test_a_whole_aimaster_with_autoscale_starts_decides_records_and_tells",  # of decision 0 alone
    "Observed.stood": "tests/unit/autoscaler/loop/test_autoscaler.py::"
    "test_time_in_which_a_job_stood_is_known_and_what_sizes_did_on_another_machine_is_not",  # nobody stops it
    "Observed.backups": "tests/unit/autoscaler/loop/test_autoscaler.py::"
    "test_where_no_trainer_keeps_copies_none_is_planned_for",  # they are on, as they are by default
    "Window.preparing": "tests/unit/autoscaler/loop/test_autoscaler.py::"
    "test_a_window_in_which_a_trainer_builds_sessions_for_long_says_so",  # for twenty seconds on end: seldom
    **dict.fromkeys(
        ("Window.own_seconds", "Window.sum_seconds", "RoleUse.sum_seconds"),
        "tests/behaviour/test_autoscale_in_step.py::"
        "test_a_job_whose_workers_share_what_is_to_be_computed_grows_and_stays",  # of jobs without PS
    ),
    "Observed.local_batch": "tests/unit/autoscaler/loop/test_observing.py::"
    "test_what_a_step_without_ps_consists_of_is_the_slowest_worker_and_the_shortest_sum",  # likewise
    **dict.fromkeys(
        ("Change.decision", "Change.foretold"),
        "tests/unit/autoscaler/loop/test_observing.py::"
        "test_a_change_of_a_decision_has_its_number_and_what_it_was_to_bring",
    ),  # its size is fixed: all changes are by hand
    "Change.arbiter": "tests/unit/autoscaler/loop/test_obeying.py::"
    "test_the_arbiter_s_change_is_neither_by_hand_nor_counted_as_a_change_of_mind",  # there is none
}
"""What this job cannot show, and who does."""


class Seen:
    """The fields of which something was seen that `ABSENT` does not say."""

    def __init__(self) -> None:
        self.filled: set[str] = set()

    def look(self, observed: Observed) -> None:
        parts = (
            [observed, observed.model, observed.progress],
            observed.windows, observed.roles, observed.hosts, observed.slots, observed.changes, observed.losses,
        )  # fmt: skip
        for one in (one for part in parts for one in part):
            for name, value in vars(one).items():
                if name not in one.ABSENT or value != one.ABSENT[name]:
                    self.filled.add(f"{type(one).__name__}.{name}")

    @property
    def missing(self) -> set[str]:
        wanted = {f"{kind.__name__}.{name}" for kind, names in read_fields().items() for name in names}
        return wanted - self.filled - set(ELSEWHERE)


def test_what_this_job_cannot_show_is_shown_elsewhere():
    read = {f"{kind.__name__}.{name}" for kind, names in read_fields().items() for name in names}
    assert set(ELSEWHERE) <= read and len(read) > 40 and len(FACTS) == 9
    for place in ELSEWHERE.values():
        path, _, name = place.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("groups_can_be_made")
@pytest.mark.long
def test_every_field_that_a_rule_reads_is_filled_from_life(begin: Callable[..., RealJob]):
    job = begin(
        "--autoscale", "--history", "off", "--objective", "deadline", "--deadline", "2h", "--ps", "2", "--workers", "2",
        "--max-ps", "2", "--min-workers", "2", "--max-workers", "2", "--ps-cpu", "0.5", "--worker-cpu", "0.4",
        "--ps-memory", "1500MiB", "--worker-memory", "1500MiB", *settings(decide=1, window=2, gazer=2, trace=2),
        "--setting", "trace_budget=1", command=SHARDS,
    )  # fmt: skip
    seen = Seen()

    def looked(condition: Callable[[], Any] = lambda: True) -> Any:
        with contextlib.suppress(grpc.RpcError):  # it has not begun to decide, or is held up for a moment
            seen.look(job.observed())
        return condition()

    def until(condition: Callable[[], Any], what: str) -> None:
        job.until(lambda: looked(condition), what, PATIENCE_SECONDS, every=0.5)

    job.until(
        lambda: (status := job.status()) is not None and status.live and status.step > 0, "training", PATIENCE_SECONDS
    )
    for count in (1, 2):  # one PS has its copies with a trainer; a change of PS by hand has a pause
        job.until(lambda count=count: asked(job, ps=count), f"the request for {count} PS", PATIENCE_SECONDS, every=1.0)
        until(lambda count=count: len(job.events("scaling_ended")) == count, f"{count} PS")
        if count == 1:
            until(lambda: "RoleUse.copies_bytes" in seen.filled, "the copies of the single PS")
    job.kill("worker-1")
    until(lambda: job.events("failure"), "the failure")
    job.hold(True)
    until(lambda: "Observed.hold" in seen.filled, "the user's veto")
    job.hold(False)
    with contextlib.suppress(AssertionError, pytest.fail.Exception):  # what is missing says more than that time is up
        until(lambda: not seen.missing, "all there is to see")
    assert seen.missing == set()


def asked(job: RealJob, **size: int) -> bool:
    try:
        return bool(job.ask(**size).scaling_id)
    except grpc.RpcError:
        return False  # the model is not known yet


def settings(**seconds: float) -> list[str]:
    return [word for name, value in seconds.items() for word in ("--setting", f"{name}_seconds={value}")]
