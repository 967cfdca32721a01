"""Which kills are drawn, and what counts as trouble."""

from __future__ import annotations

import random

from benchmarks.kills import PS_MAX, Outcome, Result, draw, moment_of, summary


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
    good = Outcome(0, "scale-up", "PAUSE", "COMMIT", "ps-0", 2, by="promotion", missing_updates=3, oldest_seconds=0.4)
    bad = Outcome(
        1,
        "scale-up",
        "COMMIT",
        "COMMIT",
        "ps-0",
        2,
        by="checkpoint",
        generation=2,
        trouble="it went back to a checkpoint",
    )
    unneeded = Outcome(2, "scale-up", "ACQUIRE", "ACQUIRE", "ps-2", 2, by="nothing to recover")
    found = summary(Result([good, bad, unneeded], ["seed 1: /x"]), 1.0)
    assert found["by"] == {"promotion": 1, "checkpoint": 1, "nothing to recover": 1}
    assert (found["kills"], found["of_the_view"], found["missing_updates_max"]) == (3, 2, 3)
    assert [one["number"] for one in found["trouble"]] == [1]
    assert found["moments"] == {"scale-up, ACQUIRE": 1, "scale-up, COMMIT": 2}, "as it was, not as it was wanted"
    assert found["wanted"] == {"scale-up, ACQUIRE": 1, "scale-up, COMMIT": 1, "scale-up, PAUSE": 1}


def test_a_kill_is_counted_by_the_state_that_was_told_before_it() -> None:
    states = {1.0: "ACQUIRE", 2.0: "PREPARE", 2.5: "PAUSE", 2.6: "FINAL_COPY"}
    events = [{"type": "scaling_state", "time": time, "scaling": 7, "state": state} for time, state in states.items()]
    events += [
        {"type": "scaling_state", "time": 2.55, "scaling": 8, "state": "ACQUIRE"},
        {"type": "failure", "time": 2.7},
    ]
    events += [{"type": "scaling_ended", "time": 3.0, "scaling": 7, "outcome": "rolled_back"}]
    assert [moment_of(events, 7, struck) for struck in (0.5, 1.5, 2.55, 2.7, 3.5)] == [
        "queued", "ACQUIRE", "PAUSE", "FINAL_COPY", "ended",
    ]  # fmt: skip
    assert moment_of(events, 0, 2.0) == "none"
