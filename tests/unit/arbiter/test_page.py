"""The page of what jobs have had: from a record, whatever stands in it."""

from __future__ import annotations

import re

from deeprec_ext.arbiter.observed import Allowance, Cluster, Count, Decision, Job, Node, Placed, Pods, Resources
from deeprec_ext.arbiter.page import CHANGES_MAX, SHOWN_MAX, document, page
from deeprec_ext.gazer.report.document import GREY, Stack, Table
from deeprec_ext.gazer.report.markdown import render as markdown

ONE = Resources(1.0)


def a_job(name: str, workers: int | None, arrived: float = 0.0) -> Job:
    """`workers`: that run; None: it waits."""
    roles = [] if workers is None else ["chief", "ps", *["worker"] * workers]
    return Job(
        name=name, priority=0, weight=1.0, least=Count(1, 0), most=Count(4, 4), pods=Pods(ONE, ONE, ONE, Resources()),
        placed=tuple(Placed(role, "machine") for role in roles), queue="", arrived=arrived, started=workers is not None,
        strict=False, written=Count(1, 3), allowance=None, bid=None, silent_seconds=0.0,
    )  # fmt: skip


def at(time: float, **workers: int | None) -> tuple[Cluster, Decision]:
    jobs = tuple(a_job(f"/runs/{name}", count) for name, count in workers.items())
    told = tuple(Allowance(job.name, job.started, 1, count or 0, time, f"because of {time:g}")
                 for job, count in zip(jobs, workers.values()))  # fmt: skip
    return Cluster(time, (Node("machine", Resources(6.0)),), (), (), jobs), Decision(time, told, (), 1.0)


def stack_of(*recorded: tuple[Cluster, Decision], now: float) -> Stack:
    found = document("pool ads", recorded, now).sections[0].blocks[0]
    assert isinstance(found, Stack)
    return found


def test_each_job_has_an_area_of_the_cores_that_it_had_from_time_to_time() -> None:
    stack = stack_of(at(100.0, a=3), at(110.0, a=1, b=None), at(120.0, a=1, b=1), at(140.0, b=2), now=150.0)
    assert [(layer.name, list(layer.values)) for layer in stack.layers] == [
        ("a", [5.0, 3.0, 3.0, 0.0]),
        ("b", [0.0, 0.0, 3.0, 4.0]),
    ]
    assert (list(stack.times), stack.end, stack.top) == ([100.0, 110.0, 120.0, 140.0], 150.0, 6.0)


def test_use_is_of_all_cores_all_the_time() -> None:
    found = document("pool ads", [at(0.0, a=4), at(10.0, a=1, b=None), at(20.0, a=1, b=1)], 30.0)
    figures = dict(found.figures)
    assert figures["given to jobs, of all the time"] == "83%", "6, 3 and 6 of 6 cores"
    table = found.sections[0].blocks[1]
    assert isinstance(table, Table)
    assert {row[0]: row[3] for row in table.rows} == {"a": "2.0", "b": "0.5"}, "core-minutes"
    assert found.state == "running" and document("pool ads", [at(0.0, a=4), at(9.0)], 0.0).state == "ended"


def test_what_was_decided_is_told_once_for_each_change_the_last_first() -> None:
    found = document("pool ads", [at(0.0, a=3), at(5.0, a=3), at(10.0, a=1)], 30.0).sections[1].blocks[0]
    assert isinstance(found, Table)
    assert [row[:3] for row in found.rows] == [
        ["0:10", "a", "1 PS, 3 workers → 1 PS, 1 worker"], ["0:00", "a", "1 PS, 3 workers"],
    ]  # fmt: skip


def test_many_jobs_are_a_page_that_can_be_read() -> None:
    names = {f"job{number}": number for number in range(400)}
    recorded = [at(0.0, **names), at(10.0, **dict.fromkeys(names, 1))]
    stack = stack_of(*recorded, now=20.0)
    assert len(stack.layers) == SHOWN_MAX + 1 and stack.layers[-1].kind == GREY
    assert stack.layers[-1].name == f"{400 - SHOWN_MAX} more"
    changes = document("pool ads", recorded, 20.0).sections[1].blocks[0]
    assert isinstance(changes, Table) and len(changes.rows) == CHANGES_MAX


def test_it_is_one_file_without_a_script_whatever_jobs_are_called() -> None:
    cluster, decision = at(0.0, **{"<script>alert(1)": 2})
    text = page("pool <b>", [(cluster, decision), at(5.0)], 9.0)
    assert "<script" not in text and "&lt;script&gt;alert(1)" in text
    assert "<b>" not in text.split("</title>")[0] and "default-src &#x27;none&#x27;" in text
    assert not re.search(r"(src|href)=\"?https?:", text)
    paths = re.findall(r'class="fill c0" d="([^"]+)"', text)
    assert paths == ["M0 33.33L555.6 33.33L555.6 100L1000 100L1000 100L555.6 100L555.6 100L0 100Z"]


def test_nothing_recorded_is_a_page_too() -> None:
    assert "Nothing was decided yet" in page("pool ads", [], 0.0)
    assert "Nothing was decided yet" in markdown(document("pool ads", [], 0.0))


def test_as_markdown_each_job_is_a_line() -> None:
    text = markdown(document("pool ads", [at(0.0, a=3), at(10.0, a=1, b=2)], 20.0))
    assert "cores that jobs may have, of" in text and "- a `" in text and "- b `" in text
