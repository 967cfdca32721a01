"""Use against limits, waste, and the rules about both."""

from __future__ import annotations

import pytest

from deeprec_ext.gazer.report.findings import resources as rules
from deeprec_ext.gazer.report.sections.cluster import cost
from deeprec_ext.gazer.report.story import Request
from deeprec_ext.gazer.report.usage import uses
from tests.unit.gazer.report.stories import SECONDS, case

OWN = {"ps": Request(2.0, 1e9)}


def ps(memory=5e8, cpu=0.5, requests=OWN, **more):
    """A run with one PS that has limits of its own."""
    values = {"cpu_cores": cpu, "rss_bytes": 4e8, "working_set_bytes": memory, "memory_limit_bytes": 1e9,
              "cpu_limit_cores": 2.0, **more}  # fmt: skip
    return case({"ps-0": values}, requests=requests)


def test_waste_is_what_was_requested_and_not_used():
    found = ps()
    [use] = uses(found.story, found.lines)
    assert (use.memory.peak, use.memory.limit, use.memory.share) == (5e8, 1e9, 0.5)
    assert use.memory.wasted == pytest.approx(5e8 * SECONDS)
    assert use.cpu.wasted == pytest.approx(1.5 * SECONDS)


def test_without_a_request_limits_are_everybodys_and_nothing_is_wasted():
    found = ps(requests={})
    [use] = uses(found.story, found.lines)
    assert (use.memory.peak, use.memory.limit, use.memory.wasted) == (4e8, 0.0, 0.0)
    assert (use.cpu.limit, use.throttled) == (0.0, 0.0)


def test_a_request_counts_where_no_limit_was_measured():
    found = case({"ps-0": {"cpu_cores": 0.5}}, requests=OWN)
    [use] = uses(found.story, found.lines)
    assert (use.cpu.limit, use.memory) == (2.0, None)


def test_waste_follows_a_limit_that_changes():
    found = ps(memory_limit_bytes=lambda time: 1e9 if time <= 100 else 6e8)
    [use] = uses(found.story, found.lines)
    assert use.memory.wasted == pytest.approx(100 * 5e8 + 200 * 1e8, rel=0.02)


# ------------------------------------------------------------------------------------------------------------- memory


def test_a_process_near_its_limit():
    [finding] = rules.near_limit(ps(memory=lambda time: 9.5e8 if time == 100 else 5e8))
    assert finding.text == "ps-0 used 95 % of its memory limit: it is near an OOM kill"
    assert finding.level == "problem"


@pytest.mark.parametrize("found", [ps(memory=8.5e8), case({"ps-0": {"rss_bytes": 9.9e8}}), case({})])
def test_no_process_near_its_limit(found):
    assert not list(rules.near_limit(found))


def test_processes_that_share_the_memory_are_judged_together_and_once():
    values = {
        name: {"rss_bytes": 1e8, "working_set_bytes": 9.5e9, "memory_limit_bytes": 1e10} for name in ("ps-0", "chief-0")
    }
    [finding] = rules.near_limit(case(values))
    assert finding.text.startswith("All processes together used 95 %")
    for use in values.values():
        use["working_set_bytes"] = 5e9
    assert not list(rules.near_limit(case(values)))


def test_memory_that_grows_towards_its_limit():
    [finding] = rules.growing(ps(memory=lambda time: 4e8 + 1e6 * time))
    assert finding.text == "Memory of ps-0 grows by 60 MB a minute: at this rate it reaches its limit in 5:00"


@pytest.mark.parametrize(
    "found",
    [
        ps(),  # steady
        ps(memory=lambda time: 4e8 + 3e8 * min(1.0, time / 100)),  # filled, then steady
        ps(memory=lambda time: 4e8 + 1e6 * (time % 50)),  # filled and emptied again
        ps(memory=lambda time: 4e8 + 1e6 * (time % 34)),
        ps(memory=lambda time: 4e8 + 100 * time),  # reaches it in months
        ps(memory=lambda time: 9.1e8 + 1e5 * time),  # near it already: another rule
        ps(memory=lambda time: 4e8 + 1e6 * time, requests={}),  # no limit of its own
    ],
)
def test_no_growth(found):
    assert not list(rules.growing(found))


# ---------------------------------------------------------------------------------------------------------- oversized


def test_requests_of_more_than_twice_the_use():
    found = list(rules.oversized(ps(memory=2e8)))
    assert [finding.text for finding in found] == [
        "The PS has 1.0 GB and never used more than 200 MB: 260 MB would do",
        "The PS has 2 cores and never used more than 0.5 cores: 0.65 cores would do",
    ]


def test_requests_that_fit_are_not_oversized():
    assert not list(rules.oversized(ps(memory=6e8, cpu=1.2)))
    assert not list(rules.oversized(ps(requests={})))


def test_too_short_a_run_says_nothing_about_requests(monkeypatch):
    monkeypatch.setattr(rules, "OVERSIZED_SECONDS_MIN", SECONDS + 1)
    assert not list(rules.oversized(ps(memory=1e8)))


# ---------------------------------------------------------------------------------------------------------- throttled


def test_a_throttled_container():
    [finding] = rules.throttled(ps(throttled_share=0.3))
    assert finding.text == "ps-0 is throttled for 30 % of the time: its CPU limit is too low"


@pytest.mark.parametrize("found", [ps(throttled_share=0.05), ps(), ps(throttled_share=0.3, requests={})])
def test_not_throttled(found):
    assert not list(rules.throttled(found))


def test_what_a_job_cost_is_a_section_of_its_own_where_it_is_known():
    assert cost(case()) is None
    told = {"pod_hours": {"chief": 2.0, "worker": 1.0}, "static_pod_hours": {"chief": 2.0, "worker": 4.0}, "cost": 1.5,
            "priced_share": 1.0, "static_cost": 6.0, "saved": 4.5}  # fmt: skip
    section = cost(case(cost=told))
    assert section is not None
    [table] = section.blocks
    assert list(table.rows) == [["chief", "2", "2"], ["worker", "1", "4"]]
    assert table.note == "The cost is 1.5. Pods of the written size on demand would have cost 6 in the same time."
    hours = cost(case(cost={**told, "cost": None, "saved": None, "priced_share": 0.0}))
    assert hours is not None and hours.blocks[0].note == "No price of a node is known."
