"""Many random changes in one run: nothing is lost, nothing is done twice, nobody is restarted."""

from __future__ import annotations

import random

import pytest

from tests.behaviour.jobs import COUNT

pytestmark = pytest.mark.slow

PS_MAX, WORKERS_MAX = 4, 3
SIX = ["both", "ps", "rebalance", "replace ps", "workers", "replace worker"]
TWENTY = ["both"] * 3 + ["ps"] * 5 + ["rebalance"] * 2 + ["replace ps"] * 3 + ["workers"] * 5 + ["replace worker"] * 2
"""The kinds of the changes; every kind is there."""


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kinds", [SIX, pytest.param(TWENTY, marks=pytest.mark.long)], ids=["six", "twenty"])
def test_random_changes_lose_no_update_and_restart_nobody(begin, kinds):
    dice = random.Random(1)
    kinds = dice.sample(kinds, len(kinds))
    job = begin("--ps", "2", "--workers", "2", "--setting", "verify_copies=true", command=COUNT)
    job.wait_scalable()
    ps, workers, step, moved = 2, 2, 0, 0

    def another(present: int, least: int, most: int) -> int:
        return dice.choice([count for count in range(least, most + 1) if count != present])

    for kind in kinds:
        before, sizes = job.running(), (ps, workers)
        request: dict[str, object] = {}
        if kind in ("ps", "both"):
            request["ps"] = ps = another(ps, 1, PS_MAX)
        if kind in ("workers", "both") or (kind == "replace worker" and not workers):
            request["workers"] = workers = another(workers, 0, WORKERS_MAX)
        if kind == "rebalance":
            request["rebalance"] = True
        elif not request:
            request["replace"] = dice.choice(job.roles_of("ps" if kind == "replace ps" else "worker"))
        ended = job.scale(**request)
        assert ended is not None, request
        assert ended.outcome == "committed", (request, ended)
        assert ended.slots_moved or ended.role == "worker" or ended.reason or kind == "rebalance", ended
        moved += ended.slots_moved
        after = job.running()
        assert len([name for name in after if name.startswith("ps")]) == ps
        assert len([name for name in after if name.startswith("worker")]) == workers
        drained = before.keys() - after.keys()
        same = {name for name in before if name in after}
        assert all(before[name] == after[name] for name in same), (request, before, after)
        fewer = max(0, sizes[0] - ps) + max(0, sizes[1] - workers)
        assert len(drained) == (1 if "replace" in request else fewer)
        job.wait_training(*(name for name in after if name.startswith(("chief", "worker"))))
        assert job.step() >= step
        step = job.step()
    assert moved >= len(kinds) // 2
    assert job.finish() == 0, job.output
    assert job.check_counts() > 100
    summary = job.summary()
    assert [one["outcome"] for one in summary["scaling"]] == ["committed"] * len(kinds)
    assert all(role["restarted"] == 0 for role in summary["roles"].values()), summary["roles"]
    assert summary["failures"] == []
