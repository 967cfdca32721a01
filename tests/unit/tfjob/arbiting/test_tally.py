"""Sums that are kept are those that would be made anew."""

from __future__ import annotations

import random

from tests.unit.tfjob.arbiting.clusters import pod
from tfjob.arbiting.scopes import Scope
from tfjob.arbiting.seen import PodSeen, pod_seen
from tfjob.arbiting.tally import Pods
from tfjob.model.names import JOB_LABEL

SCOPES = ((), (Scope("PriorityClass", "In", ("gold",)),), (Scope("NotTerminating", "Exists", ()),))


def any_pod(chance: random.Random) -> PodSeen:
    node = chance.choice(["", "n1", "n2"])
    labels = {JOB_LABEL: chance.choice(["a", "b"])} if chance.random() < 0.4 else {}
    waits = "1 Insufficient cpu" if not node and chance.random() < 0.5 else None
    made = pod(
        f"p{chance.randrange(12)}", node, f"{chance.randrange(1, 4000)}m", namespace=chance.choice(["x", "y"]),
        labels=labels, waits=waits, priorityClassName=chance.choice(["", "gold"]),
    )  # fmt: skip
    found = pod_seen(made)
    assert found is not None
    return found


def test_after_any_life_of_pods_sums_are_as_if_they_were_made_anew():
    chance = random.Random(1)
    kept, there = Pods(), dict[tuple[str, str], PodSeen]()
    for _ in range(1500):
        one = any_pod(chance)
        if chance.random() < 0.4:
            assert kept.drop(one.key) == (there.pop(one.key, None) is not None)
        else:
            assert kept.put(one) == (there.get(one.key) != one)
            there[one.key] = one
        if chance.random() < 0.1:
            fresh = Pods(there.values())
            assert len(kept) == len(there) and kept.waiting == fresh.waiting and kept.of_jobs == fresh.of_jobs
            assert [kept.on(node) for node in ("n1", "n2")] == [fresh.on(node) for node in ("n1", "n2")]
            assert [kept.within(name, scopes) for name in "xy" for scopes in SCOPES] == [
                fresh.within(name, scopes) for name in "xy" for scopes in SCOPES
            ]
    for key in list(there):
        kept.drop(key)
    assert not kept.of_jobs and not kept.waiting and kept.on("n1").pods == 0 and kept.within("x").pods == 0
