"""Which kills are drawn, and what counts as trouble."""

from __future__ import annotations

import random

from benchmarks.kills import PS_MAX, Outcome, Result, draw, summary


def test_only_what_can_be_done_is_asked_for_and_every_kind_and_moment_comes() -> None:
    seen = set()
    for seed in range(400):
        one = random.Random(seed)
        ps, workers = one.randint(1, PS_MAX), one.randint(1, 2)
        names = [f"ps-{index}" for index in range(ps)]
        kill = draw(one, ps, workers, names)
        request = kill.change.request
        assert kill.change.kind != "scale-up" or ps < request["ps"] <= PS_MAX
        assert kill.change.kind != "scale-down" or 1 <= request["ps"] < ps
        assert kill.change.kind != "replace" or request["replace"] in names
        assert kill.change.kind != "worker" or abs(request["workers"] - workers) == 1
        seen.add((kill.change.kind, kill.state or kill.after_seconds))
    assert len(seen) == 4 * 10 + 7, sorted(seen, key=str)


def test_the_same_seed_draws_the_same() -> None:
    assert draw(random.Random(5), 2, 1, ["ps-0"]) == draw(random.Random(5), 2, 1, ["ps-0"])


def test_a_summary_names_what_failed() -> None:
    good = Outcome(0, "scale-up", "COMMIT", "ps-0", 2, by="promotion", missing_updates=3, oldest_seconds=0.4)
    bad = Outcome(
        1, "scale-up", "COMMIT", "ps-0", 2, by="checkpoint", generation=2, trouble="it went back to a checkpoint"
    )
    unneeded = Outcome(2, "scale-up", "ACQUIRE", "ps-2", 2, by="nothing to recover")
    found = summary(Result([good, bad, unneeded], ["seed 1: /x"]), 1.0)
    assert found["by"] == {"promotion": 1, "checkpoint": 1, "nothing to recover": 1}
    assert (found["kills"], found["of_the_view"], found["missing_updates_max"]) == (3, 2, 3)
    assert [one["number"] for one in found["trouble"]] == [1]
