"""What people see of a cluster."""

from __future__ import annotations

import json

from deeprec_ext.arbiter.deciding import decide
from deeprec_ext.arbiter.observed import Cluster, Quota, Resources
from deeprec_ext.arbiter.telling import rows, table
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


def test_names_cannot_move_the_terminal():
    odd = cluster([job("a\x1b[2J\nb" + "x" * 200)], nodes(1))
    assert "\x1b" not in table(odd, decide(odd)) and max(map(len, table(odd, decide(odd)).splitlines())) < 300


def test_a_cluster_without_jobs_or_nodes_is_told():
    empty = Cluster(NOW, (), (), (), ())
    assert table(empty, decide(empty)).endswith("no elastic job")
    stopping = cluster([job("a", allowed=(0, 3), on="node-000")], nodes(1), [pod("serving", 9, 3.0)])
    assert rows(stopping, decide(stopping))[0]["state"] == "stops"
