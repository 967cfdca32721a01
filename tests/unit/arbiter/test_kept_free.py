"""Room that is kept free for pods of others as they came lately."""

from __future__ import annotations

import dataclasses
import json

import pytest

from deeprec_ext.arbiter.arrivals import AT_ONCE_SECONDS, KINDS_MAX, LATELY_SECONDS, Arrivals
from deeprec_ext.arbiter.deciding import decide
from deeprec_ext.arbiter.observed import Cluster
from deeprec_ext.arbiter.record import Record, recorded
from deeprec_ext.arbiter.rules import Rules
from tests.unit.arbiter.clusters import NOW, cluster, given, job, nodes, pod, sizes

HALF = Rules(kept_share=0.5)


def seen(*jobs, on=nodes(2), expected=()) -> Cluster:  # noqa: B008
    return dataclasses.replace(cluster(jobs, on), expected=tuple(expected))


def test_who_grows_leaves_room_that_others_asked_for_lately():
    jobs = [job("a", allowed=(0, 2), on="node-000")]
    assert sizes(seen(*jobs), HALF) == {"a": (0, 7)}
    assert sizes(seen(*jobs, expected=[pod("", 9)] * 3), HALF) == {"a": (0, 4)}
    assert sizes(seen(*jobs, expected=[pod("", 9, 4.0)] * 3), HALF) == {"a": (0, 3)}, (
        "a whole node, and no more than half"
    )


def test_nobody_gives_back_for_who_may_come():
    full = seen(job("a", allowed=(0, 7), on="node-000"), on=nodes(1, 8.0), expected=[pod("", 9)] * 3)
    assert sizes(full, HALF) == {"a": (0, 7)}


def test_the_least_of_a_job_that_waits_goes_before():
    jobs = job("a", allowed=(0, 5), on="node-000"), job("comes")
    assert sizes(seen(*jobs, on=nodes(1, 8.0), expected=[pod("", 9)] * 2), HALF)["comes"] is not None


@pytest.mark.parametrize(("priority", "size"), [(8, (0, 5)), (9, (0, 7)), (10, (0, 7))])
def test_only_lower_priorities_leave_it(priority, size):
    assert sizes(seen(job("a", priority=priority), expected=[pod("", 9)] * 2), HALF) == {"a": size}


def test_a_higher_priority_may_have_it_and_the_lower_one_leaves_the_rest():
    jobs = job("high", most=(0, 3), priority=9), job("low", priority=0)
    assert sizes(seen(*jobs, expected=[pod("", 5)] * 2), HALF) == {"high": (0, 3), "low": (0, 1)}


def test_no_more_than_a_share_of_the_cluster_is_kept():
    found = seen(job("a", most=(0, 99)), on=nodes(10, 10.0), expected=[pod("", 9)] * 50)
    assert sizes(found, Rules(kept_share=0.03)) == {"a": (0, 96)}
    assert sizes(found, Rules(kept_share=0.0)) == {"a": (0, 99)}


def test_it_is_decided_once_and_recorded(tmp_path):
    found = seen(job("a"), expected=[pod("", 9)] * 2)
    first = decide(found, HALF)
    assert decide(given(found, first), HALF).changed == ()
    kept = Record(tmp_path / "record.jsonl", HALF)
    assert kept.add(found, first)
    assert [(one, rules) for one, rules, _ in recorded(kept.path)] == [(found, HALF)]
    older = json.loads(kept.path.read_text())
    del older["cluster"]["expected"], older["rules"]["kept_share"]
    kept.path.write_text(json.dumps(older) + "\n")
    ((one, rules, _),) = recorded(kept.path)
    assert one.expected == () and rules == Rules()


def test_as_many_are_expected_as_came_at_once():
    arrivals = Arrivals()
    for late, count in ((0.0, 2), (60.0, 3), (60.0 + AT_ONCE_SECONDS / 2, 1), (600.0, 2)):
        for number in range(count):
            arrivals.came(pod(f"web-{number}", 9), NOW + late)
    arrivals.came(pod("batch", 3, 2.0), NOW)
    found = [(one.priority, one.resources.cpu) for one in arrivals.expected(NOW + 600.0)]
    assert sorted(found) == [(3, 2.0)] + [(9, 1.0)] * 4
    assert len(arrivals.expected(NOW + 61.0 + LATELY_SECONDS)) == 2, "an hour later the four are forgotten"
    assert arrivals.expected(NOW + 601.0 + LATELY_SECONDS) == ()


def test_kinds_are_bounded_and_a_clock_that_goes_back_expects_nobody():
    arrivals = Arrivals()
    for number in range(3 * KINDS_MAX):
        arrivals.came(pod("", 9, 1.0 + number), NOW)
    assert len(arrivals.expected(NOW)) == KINDS_MAX
    assert len(arrivals.expected(NOW, most=5)) == 5
    assert arrivals.expected(NOW - 100.0) == ()
