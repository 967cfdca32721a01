"""Who starts, who waits, and who gives way for it."""

from __future__ import annotations

import dataclasses

import pytest

from deeprec_ext.arbiter.deciding import decide
from deeprec_ext.arbiter.observed import Allowance, Amount, Cluster, Count, Node, Pods, Quota, Resources
from deeprec_ext.arbiter.rules import Rules
from deeprec_ext.arbiter.seating import Seating
from tests.unit.arbiter.clusters import GIB, NOW, cluster, cores, given, job, nodes, pod, sizes, why, workers


def test_a_job_that_wants_more_than_is_free_starts_with_what_there_is():
    assert workers(cluster([job("a", most=(0, 20))], nodes(2))) == [7]


def test_a_second_job_starts_at_once_beside_one_that_has_everything_and_both_have_the_same():
    first = job("first", allowed=(0, 7), on="node-000", most=(0, 7))
    assert workers(cluster([first, job("second")], nodes(1, 8.0))) == [3, 3]


def test_the_least_is_a_gang_nothing_of_it_is_allowed_where_one_pod_has_no_room():
    seen = cluster([job("large", least=(2, 6), most=(2, 6))], nodes(2))
    assert sizes(seen) == {"large": None}
    assert decide(seen).used_share == 0.0


def test_fragments_are_counted():
    """Six cores are free, on no node more than three."""
    wide = job("wide", least=(0, 1), most=(0, 1), pod=4.0)
    assert workers(cluster([wide], nodes(2, 3.0))) == [None]
    assert workers(cluster([wide], nodes(2, 4.0))) == [1]


def test_large_pods_are_placed_before_small_ones():
    """A worker of 4 cores needs a whole node: small pods go to the other."""
    mixed = job("mixed", least=(0, 1), most=(0, 1), pods=Pods(cores(1.0), cores(1.0), cores(4.0), Resources()))
    assert workers(cluster([mixed], nodes(2))) == [1]


@pytest.mark.parametrize("what", ["memory", "devices", "pods"])
def test_what_lacks_need_not_be_cores(what):
    room = Resources(16.0, 3 * GIB if what == "memory" else 64 * GIB, (Amount("nvidia.com/gpu", 2.0),))
    needs = Resources(1.0, GIB, (Amount("nvidia.com/gpu", 1.0),) if what == "devices" else ())
    one = job("a", pods=Pods(cores(0.5), Resources(), needs, Resources()))
    seen = cluster([one], [Node("n", room, pods=3 if what == "pods" else 0)])
    assert workers(seen) == [2]


def test_pods_that_have_a_node_stay_there():
    """`spread` has a pod on each node: four cores are free, but not on one."""
    spread = job("spread", most=(0, 1), allowed=(0, 1), on="node-000")
    spread = dataclasses.replace(
        spread, placed=(spread.placed[0], dataclasses.replace(spread.placed[1], node="node-001"))
    )
    assert workers(cluster([spread, job("wide", least=(0, 0), most=(0, 0), pod=4.0)], nodes(2))) == [1, None]


def test_of_nodes_where_a_pod_fits_it_is_placed_on_the_cheaper_one_then_on_one_that_stays():
    dear, cheap, spot, unknown = (
        dataclasses.replace(node, name=name, price=price, spot=name == "b-spot")
        for node, name, price in zip(nodes(4), ("a-dear", "c-cheap", "b-spot", "a-unknown"), (2.0, 1.0, 1.0, 0.0))
    )
    for there, first in (((dear, cheap), "c-cheap"), ((spot, cheap), "c-cheap"), ((unknown, dear), "a-dear")):
        small = job("small", least=(0, 1), most=(0, 1))
        seating = Seating(cluster([small], there), Rules(), {})
        assert seating.add_all(seating.parties[0], seating.parties[0].missing((0, 1))) is None
        names = sorted((one.name for one in there), key=lambda name: name != first)
        assert seating.parties[0].seats == {"chief": [0], "ps": [], "worker": [0], "other": []}
        assert [node.name for node in seating.nodes] == names


def test_jobs_of_lower_priority_give_back_workers_before_ps_down_to_their_least():
    low = job("low", least=(1, 1), most=(3, 12), allowed=(3, 12), on="node-000")
    high = [job("high", least=(0, count), most=(0, count), priority=5) for count in (8, 12)]
    seen = [cluster([low, one], nodes(1, 16.0)) for one in high]
    assert sizes(seen[0]) == {"low": (3, 3), "high": (0, 8)}
    assert sizes(seen[1]) == {"low": (1, 1), "high": (0, 12)}


def test_the_least_important_job_stops_where_giving_back_is_not_enough_and_says_why():
    jobs = [job("older", most=(0, 1), allowed=(0, 1), on="node-000"),
            job("younger", most=(0, 1), allowed=(0, 1), on="node-000", arrived=NOW - 100.0)]  # fmt: skip
    seen = cluster([*jobs, job("high", least=(0, 1), most=(0, 1), priority=5)], nodes(1))
    assert workers(seen) == [1, None, 1]
    assert why(seen, "younger") == (
        "waits for 2.0 cores: 0.0 of 4.0 cores free, 2.0 cores with higher priorities; first in line"
    )


def test_nobody_stops_where_nothing_brings_stopped_jobs_back():
    seen = cluster(
        [job("low", allowed=(0, 3), on="node-000"), job("high", least=(0, 2), most=(0, 2), priority=5)], nodes(1)
    )
    assert workers(seen) == [None, 2]
    assert workers(seen, Rules(stops=False)) == [3, None]


def test_nobody_stops_for_what_would_not_fit_anyway():
    low = job("low", most=(0, 3), allowed=(0, 3), on="node-000")
    assert workers(cluster([low, job("high", least=(0, 7), most=(0, 7), priority=5)], nodes(1))) == [3, None]


def test_only_those_give_back_whose_pods_are_where_room_is_needed():
    """A pod of four cores fits on a node as soon as the job there is gone; the other keeps what it has."""
    jobs = [job(f"on-{at}", least=(0, 0), most=(0, 3), allowed=(0, 3), on=f"node-00{at}") for at in range(2)]
    wide = job("wide", least=(0, 0), most=(0, 0), pod=3.0, priority=5)
    assert sorted(count for count in workers(cluster([*jobs, wide], nodes(2))) if count is not None) == [0, 0, 3]


def test_a_job_that_runs_never_stops_for_one_of_its_own_priority():
    assert workers(
        cluster([job("a", most=(0, 3), allowed=(0, 3), on="node-000"), job("b", least=(0, 3))], nodes(1))
    ) == [3, None]


def test_minimums_go_before_what_a_higher_priority_has_beyond_its_own():
    seen = cluster([job("high", allowed=(0, 3), on="node-000", priority=5), job("low")], nodes(1))
    assert workers(seen) == [1, 1]
    assert workers(seen, Rules(minimums_first=False)) == [3, None]


# ---------------------------------------------------------------------------------------------------- pods of others


def test_a_pod_of_others_with_a_higher_priority_gets_room():
    low = job("low", allowed=(0, 3), on="node-000")
    seen = cluster([low], nodes(1), [pod("serving-1", 100, 2.0)])
    assert workers(seen) == [1]
    assert why(seen, "low").endswith("gave way to waiting pod serving-1 of priority 100")


def test_pods_of_others_with_the_same_or_a_lower_priority_do_not_push():
    for priority in (0, -5):
        assert workers(cluster([job("low", allowed=(0, 3), on="node-000")], nodes(1), [pod("other", priority)])) == [3]


def test_a_job_stops_for_a_pod_of_others_that_has_no_room_otherwise():
    low = job("low", allowed=(0, 3), on="node-000")
    assert workers(cluster([low], nodes(1), [pod("serving-1", 100, 3.0)])) == [None]
    assert workers(cluster([low], nodes(1), [pod("serving-1", 100, 5.0)])) == [3]


def test_a_pod_of_others_gets_room_only_on_nodes_to_which_it_may_go():
    """And whoever is elsewhere gives nothing."""
    jobs = [job(f"on-{at}", least=(0, 0), most=(0, 3), allowed=(0, 3), on=f"node-00{at}") for at in range(2)]
    waits = dataclasses.replace(pod("serving", 100, 2.0), nodes=("node-001", "of-another-pool"))
    assert workers(cluster(jobs, nodes(2), [waits])) == [3, 1]
    assert workers(cluster(jobs, nodes(3), [waits])) == [3, 1], "what is free on the third is of no use to it"
    strange = dataclasses.replace(waits, nodes=("of-another-pool",))
    assert workers(cluster(jobs, nodes(2), [strange])) == [3, 3]
    both = [strange, dataclasses.replace(waits, name="another")]
    assert workers(cluster(jobs, nodes(2), both)) == [3, 1], "that one has no room says nothing of the other"


def test_a_gang_that_was_admitted_keeps_its_least_and_its_room_is_given_to_nobody_else():
    low = job("low", least=(0, 1), most=(0, 3), allowed=(0, 3), on="node-000", admitted=True)
    for wants in (3, 4):
        high = job("high", least=(0, wants - 1), most=(0, wants - 1), priority=5)
        assert workers(cluster([low, high], nodes(1))) == [3, None]
        assert workers(cluster([low], nodes(1), [pod("serving", 100, float(wants))])) == [3]
    assert workers(cluster([low], nodes(1), [pod("serving", 100, 2.0)])) == [1], "above its least it gives"
    for count, left in ((1, 1), (3, 3)):
        new = job("new", least=(0, count), most=(0, count), admitted=True)
        assert workers(cluster([low, new], nodes(1))) == [left, count], "a new one starts, whatever room there is"
    stopped = Allowance("low", False, 0, 0, NOW - 1000.0, "no room")
    again = dataclasses.replace(low, placed=(), allowance=stopped)
    seen = cluster([again, job("other", allowed=(0, 3), on="node-000")], nodes(1))
    assert workers(seen) == [1, 1]
    assert decide(given(seen, decide(seen))).changed == ()


def test_what_others_no_longer_need_is_taken_back():
    seen = cluster([job("low", allowed=(0, 3), on="node-000")], nodes(1), [pod("serving-1", 100, 2.0)])
    after = dataclasses.replace(given(seen, decide(seen), later=60.0), waiting=())
    assert workers(after) == [3]


def test_a_stopped_job_waits_a_moment_before_it_starts_again_and_a_new_one_does_not():
    """Whoever observes a stopped job says that it is there since then."""
    for since, started, starts in ((1.0, True, False), (20.0, True, True), (1.0, False, True)):
        allowance = Allowance("a", False, 0, 0, NOW - since, "waits")
        one = job("a", most=(0, 1), allowance=allowance, started=started, arrived=NOW - since)
        assert workers(cluster([one], nodes(1))) == [1 if starts else None]
    moved = job("a", most=(0, 1), allowance=Allowance("a", False, 0, 0, NOW - 1.0, "stopped before it trained"))
    assert workers(cluster([moved], nodes(1))) == [None]


# ------------------------------------------------------------------------------------------------------ who waits


def test_a_job_waits_with_its_figures_and_its_place():
    seen = cluster(
        [
            job("a", most=(0, 1), allowed=(0, 1), on="node-000"),
            job("b", least=(0, 2)),
            job("c", least=(0, 2), arrived=NOW),
        ],
        nodes(1),
    )
    assert why(seen, "b") == "waits for 3.0 cores: 2.0 of 4.0 cores free; first in line"
    assert why(seen, "c") == "waits for 3.0 cores: 2.0 of 4.0 cores free; behind 1 other"


def test_room_that_no_single_node_has_is_said():
    assert why(cluster([job("wide", least=(0, 1), pod=3.0), *[
        job(f"on-{at}", least=(0, 0), most=(0, 0), allowed=(0, 0), on=f"node-00{at}", pod=2.0) for at in range(3)
    ]], nodes(3)), "wide") == (
        "waits for 3.0 cores and 3 GiB on one node for a worker: 6.0 of 12.0 cores free, at most 2.0 cores on a node; "
        "first in line"
    )  # fmt: skip


def test_a_least_that_never_fits_is_said_with_the_figures_and_holds_up_nobody():
    seen = cluster([job("big", least=(0, 39), most=(0, 39), arrived=0.0), job("small")], nodes(4))
    assert why(seen, "big") == "never fits: its least of 40.0 cores, and all nodes together have 16.0 cores"
    assert workers(seen) == [None, 7]
    wide = cluster([job("wide", pod=8.0)], nodes(4))
    assert why(wide, "wide") == "never fits: a worker of 8.0 cores, and the largest node has 4.0 cores"
    assert why(cluster([job("a")], ()), "a") == "never fits: its least of 2.0 cores, and there is no node"


def test_a_smaller_job_starts_before_a_larger_that_waits_until_that_has_waited_long():
    runs = job("runs", most=(0, 1), allowed=(0, 1), on="node-000")
    jobs = [
        runs,
        job("large", least=(0, 3), most=(0, 3), arrived=NOW - 60.0),
        job("small", least=(0, 1), most=(0, 1), arrived=NOW),
    ]
    assert workers(cluster(jobs, nodes(1))) == [1, None, 1]
    jobs[1] = dataclasses.replace(jobs[1], arrived=NOW - 601.0)
    seen = cluster(jobs, nodes(1))
    assert workers(seen) == [1, None, None]
    assert why(seen, "small") == "waits: room is kept for large; behind 1 other"


def test_kept_room_is_used_by_who_gives_it_back_at_once():
    jobs = [job("runs", allowed=(0, 1), on="node-000"), job("large", least=(0, 3), most=(0, 3), arrived=NOW - 700.0)]
    assert workers(cluster(jobs, nodes(1))) == [3, None]


def test_who_waits_for_its_quota_holds_up_its_own_queue_alone():
    quota = Quota("team", Resources(cpu=4.0), ("cpu",))
    runs = job("runs", most=(0, 1), allowed=(0, 1), on="node-000", queue="team")
    large = job("large", least=(0, 2), most=(0, 2), arrived=NOW - 700.0, queue="team")
    small = [job(f"small-{queue}", most=(0, 1), queue=queue, arrived=NOW) for queue in ("team", "")]
    assert workers(cluster([runs, large, *small], nodes(4), quotas=[quota])) == [1, None, None, 1]


def test_who_waits_goes_in_the_order_of_its_arrival_within_a_priority():
    jobs = [
        job("late", least=(0, 3), arrived=NOW),
        job("early", least=(0, 3)),
        job("high", least=(0, 3), arrived=NOW, priority=1),
    ]
    assert workers(cluster(jobs, nodes(1))) == [None, None, 3]
    assert workers(cluster(jobs, nodes(2))) == [None, 3, 3]


# --------------------------------------------------------------------------------------------- quotas, strict, lost


def test_a_quota_holds_for_all_jobs_of_its_queue_together():
    quota = Quota("team", Resources(cpu=6.0), ("cpu",))
    jobs = [job("a", queue="team"), job("b", queue="team"), job("c", queue="team", least=(0, 5)), job("free")]
    seen = cluster(jobs, nodes(4), quotas=[quota])
    assert workers(seen) == [2, 2, None, 7]
    assert why(seen, "c") == "waits for 6.0 cores of quota team: 0.0 of 6.0 cores free; first in line"
    assert why(cluster([job("d", queue="team", least=(0, 6))], nodes(4), quotas=[quota]), "d") == (
        "never fits: its least of 7.0 cores is more than quota team has, 6.0 cores"
    )


def test_a_new_job_of_a_full_queue_gets_its_least_from_its_own_queue():
    quota = Quota("team", Resources(cpu=6.0), ("cpu",))
    jobs = [
        job("a", queue="team", allowed=(0, 5), on="node-000"),
        job("b", queue="team"),
        job("c", allowed=(0, 5), on="node-001"),
    ]
    assert workers(cluster(jobs, nodes(2, 6.0), quotas=[quota])) == [2, 2, 5]


def test_a_strict_job_has_all_that_it_wants_or_waits():
    strict = job("strict", most=(0, 5), strict=True)
    assert workers(cluster([strict], nodes(1))) == [None]
    assert workers(cluster([strict], nodes(2))) == [5]
    assert workers(cluster([dataclasses.replace(strict, bid=None, written=Count(0, 2))], nodes(1))) == [2]


def test_a_strict_job_stops_where_it_has_lost_room_and_another_goes_on_with_what_it_has():
    lost = {"most": (0, 3), "least": (0, 3), "allowed": (0, 3), "on": "node-000"}
    pods = job("a", **lost).placed[:2]
    assert workers(cluster([job("a", **lost, placed=pods, strict=True)], nodes(1, 2.0))) == [None]
    seen = cluster([job("a", **lost, placed=pods)], nodes(1, 2.0))
    assert workers(seen) == [3]
    assert why(seen, "a") == "goes on with what it has: no room for a worker of 1.0 cores and 1 GiB"


def test_who_lacks_some_of_its_least_gives_to_higher_priorities_what_is_beyond_it_then_stops():
    """`low` has lost one of its two PS, and its node has no room for another."""
    low = job("low", least=(2, 0), most=(2, 3), allowed=(2, 3), on="node-000")
    low = dataclasses.replace(low, placed=(low.placed[0], *low.placed[2:]))
    lost = dataclasses.replace(low, pods=Pods(cores(1.0), cores(4.0), cores(1.0), Resources()))
    whole = nodes(1, 8.0)
    assert why(cluster([lost], whole), "low") == "goes on with what it has: no room for a PS of 4.0 cores and 4 GiB"
    first, second = (cluster([lost], whole, [pod("urgent", 1000, size)]) for size in (2.0, 8.0))
    assert sizes(first) == {"low": (2, 1)}, "two workers for it, and the third stays"
    assert sizes(second) == {"low": None}
    waits = [job("high", least=(0, least), most=(0, least), priority=1000) for least in (1, 6)]
    assert [sizes(cluster([lost, one], whole)) for one in waits] == [
        {"low": (2, 1), "high": (0, 1)},
        {"low": None, "high": (0, 6)},
    ]
    assert sizes(cluster([lost, job("equal", least=(0, 1), most=(0, 1))], whole)) == {"low": (2, 3), "equal": None}


def test_pods_without_room_are_given_up_when_a_node_is_gone():
    a = job("a", allowed=(0, 6), on="node-000")
    seen = cluster([dataclasses.replace(a, placed=a.placed[:3])], nodes(1))
    assert workers(seen) == [3]
    assert why(seen, "a").endswith("the room of some of its pods is gone")


def test_a_node_that_has_shrunk_is_unloaded():
    assert workers(cluster([job("a", allowed=(0, 3), on="node-000")], nodes(1, 3.0))) == [2]


def test_pods_beyond_an_allowance_count_as_leaving_for_some_minutes():
    slow = job("slow", allowed=(0, 7), on="node-000")
    for age, second in ((10.0, 3), (400.0, None)):
        assert slow.allowance is not None
        allowance = dataclasses.replace(slow.allowance, workers=3, since=NOW - age)
        jobs = [
            dataclasses.replace(slow, allowance=allowance, most=Count(0, 3)),
            job("second", least=(0, 3), most=(0, 3)),
        ]
        assert workers(cluster(jobs, nodes(1, 8.0))) == [3, second]


def test_a_cluster_without_anything_is_decided_on():
    assert decide(Cluster(NOW, (), (), (), ())).allowances == ()
