"""What people see of a cluster."""

from __future__ import annotations

import dataclasses
import functools
import json
from typing import Any

import pytest

from deeprec_ext.arbiter.deciding import decide
from deeprec_ext.arbiter.observed import Allowance, Bid, Cluster, Count, Decision, Job, Quota, Resources, Worth
from deeprec_ext.arbiter.telling import rows, summary, table
from tests.unit.arbiter.clusters import NOW, cluster, job, nodes, pod


def seen() -> Cluster:
    low = job("team/low", allowed=(0, 5), on="node-000", power=None)
    high = job("team/high", least=(1, 1), most=(1, 1), priority=9)
    return cluster(
        [low, high, job("team/big", least=(0, 90)), job("team/next", least=(0, 6), arrived=NOW, priority=-1)], nodes(1, 8.0),
        [pod("serving-1", 100)], [Quota("team", Resources(cpu=12.0), ("cpu",))],
    )  # fmt: skip


def test_who_runs_comes_first_by_priority_then_who_waits_in_its_order():
    one = seen()
    found = rows(one, decide(one))
    assert [(row["job"], row["state"]) for row in found] == [
        ("team/high", "starts"), ("team/low", "gives back"), ("team/big", "waits"), ("team/next", "waits"),
    ]  # fmt: skip
    assert found[1]["has"] == {"ps": 0, "workers": 5} and found[1]["allowed"] == {"ps": 0, "workers": 3}
    assert found[1]["worth"] is None and found[2]["allowed"] is None
    worth = found[0]["worth"]
    assert 0 < worth["examples_per_second"] == worth["wanted_examples_per_second"]
    json.dumps(found)


def test_the_table_says_what_there_is_who_waits_and_why():
    one = seen()
    text = table(one, decide(one))
    assert text.splitlines()[:4] == [
        "8.0 cores on 1 node for elastic jobs: 7.0 used (88 %), 1.0 free; 2 jobs run, 2 wait",
        "1 pod of others waits for 1.0 cores, the most important is serving-1 of priority 100",
        "quota team: 12.0 cores",
        "sizes are PS + workers beside the chief",
    ]
    assert "team/low   0         gives back  0 + 5  0 + 3" in text
    assert "never fits: its least of 91.0 cores, and all nodes together have 8.0 cores" in text


def test_a_long_list_is_cut_and_says_so():
    many = cluster([job(f"j-{at}") for at in range(30)], nodes(2))
    text = table(many, decide(many), most=5)
    assert text.splitlines()[-1] == "and 25 other jobs" and text.count("j-") == 5


@functools.lru_cache
def with_names_of(length: int) -> tuple[Cluster, Decision]:
    name = "n" * length
    bid = Bid(NOW, Count(12, 100), Count(100, 2000), (Worth(12, 100, 1234567.0), Worth(100, 2000, 7654321.0)))
    large = job(f"{name}-0", least=(1, 1), most=(100, 2000), on="node-000", allowed=(12, 100), priority=2_000_000_000)
    others = [job(f"{name}-1", least=(0, 90)), job(f"{name}-2", least=(0, 6), arrived=NOW, priority=-1), job("small")]
    one = cluster([dataclasses.replace(large, bid=bid), *others], nodes(2, 8.0))
    return one, decide(one)


@pytest.mark.parametrize("length", [1, 12, 30, 47, 90])
def test_a_table_fits_its_terminal_and_leaves_nothing_out(length: int):
    one, decision = with_names_of(length)
    for width in range(80, 260, 3):
        text = table(one, decision, width=width)
        body = text.splitlines()[len(summary(one, decision)) :]
        assert max(map(len, body)) <= width, "no line is longer"
        said = "".join(text.split())
        for row in rows(one, decision):
            assert "".join(row["why"].split()) in said, (width, row["why"])
            assert row["job"][-11:] in said and "".join(row["state"].split()) in said and str(row["priority"]) in said


def test_a_wide_terminal_has_a_line_for_each_job_and_a_narrow_one_the_reason_below():
    one = seen()
    wide, narrow = (table(one, decide(one), width=width).splitlines() for width in (250, 80))
    assert wide == table(one, decide(one)).splitlines() and len(wide) < len(narrow)
    assert narrow[5].split() == ["job", "priority", "state", "has", "allowed", "wants"]
    at = next(at for at, line in enumerate(narrow) if line.startswith("team/big"))
    assert narrow[at + 1].startswith("  ") and "never fits: its least of 91.0 cores" in narrow[at + 1]


def test_who_runs_is_told_what_keeps_it_there_now():
    def why(*jobs: Job, cores: float = 8.0, others: bool = True) -> str:
        one = cluster(list(jobs), nodes(1, cores) if others else [])
        waits = "waits for 3.0 cores: 1.0 of 8.0 cores free"
        given = tuple(it.allowance or Allowance(it.name, False, 0, 0, NOW, waits) for it in jobs)
        return rows(one, Decision(NOW, given, (), 0.0))[0]["why"]

    def runs(name: str, workers: int, wants: int, said: str = "started with its least", **more: Any) -> Job:
        it = job(name, allowed=(0, workers), on="node-000", most=(0, 9), power=None, **more)
        return dataclasses.replace(
            it, written=Count(0, wants), allowance=Allowance(name, True, 0, workers, NOW - 3600, said)
        )  # fmt: skip

    assert why(runs("a", 3, 3)) == "has all that it wants", "whatever it started with an hour ago"
    full = "a worker more needs 1 core, and 0 of 4 cores are free"
    assert why(runs("a", 3, 5), cores=4.0) == f"has 3 workers of the 5 workers that it wants: {full}"
    held = why(runs("a", 2, 5, priority=1), runs("high", 1, 1, priority=0), cores=5.0)
    assert held.endswith("0 of 5 cores are free; 2 with lower ones")
    assert "which it gets a moment after" in why(runs("a", 2, 5))
    given = dataclasses.replace(runs("a", 3, 3, "went from 3 workers to 1: gave way to b of priority 9"))
    less = dataclasses.replace(given, allowance=dataclasses.replace(given.allowance, workers=1))  # type: ignore[type-var]
    assert why(less) == "gives back 2 workers: gave way to b of priority 9"
    more = dataclasses.replace(given, allowance=dataclasses.replace(given.allowance, workers=5))  # type: ignore[type-var]
    assert why(dataclasses.replace(more, written=Count(0, 6))) == "may have 2 workers more, and takes them"
    assert why(runs("a", 1, 5, "went from 3 workers to 1: gave way to b of priority 9"), others=False).endswith(
        "of the 5 workers that it wants: gave way to b of priority 9"
    ), "where nodes are not seen, the last reason with what is lacking"
    assert why(job("w")) == "needs 3.0 cores: 1.0 of 8.0 cores free", "`waits` stands beside it already"
    assert (
        rows(cluster([runs("a", 3, 3)], nodes(1, 8.0)), Decision(NOW, (runs("a", 3, 3).allowance,), (), 0.0))[0][  # type: ignore[arg-type]
            "changed_why"
        ]
        == "started with its least"
    )


def test_names_cannot_move_the_terminal():
    odd = cluster([job("a\x1b[2J\nb" + "x" * 200)], nodes(1))
    assert "\x1b" not in table(odd, decide(odd)) and max(map(len, table(odd, decide(odd)).splitlines())) < 300


def test_a_cluster_without_jobs_or_nodes_is_told():
    empty = Cluster(NOW, (), (), (), ())
    assert table(empty, decide(empty)).endswith("no elastic job")
    stopping = cluster([job("a", allowed=(0, 3), on="node-000")], nodes(1), [pod("serving", 9, 3.0)])
    assert rows(stopping, decide(stopping))[0]["state"] == "stops"
