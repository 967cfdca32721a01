"""The rules one by one: what is decided, and that the sentence tells the evidence."""

from __future__ import annotations

import dataclasses

import pytest

from deeprec_ext.autoscaler.observe.observed import Change, Host, Limits, Loss, Progress, Size, Window
from deeprec_ext.autoscaler.policy import hysteresis
from deeprec_ext.autoscaler.policy.cpu import unused
from deeprec_ext.autoscaler.policy.decide import decide
from deeprec_ext.autoscaler.policy.decision import Decision, Proposal
from deeprec_ext.autoscaler.policy.evidence import Evidence
from deeprec_ext.autoscaler.policy.memory import ps_memory, with_memory_for
from tests.unit.autoscaler.facts import fact
from tests.unit.autoscaler.policy.jobs import LIMITS, POLICY, seen, uses, windows

SIZE = Size(2, 3, 1.0, 1.0, 1 << 30, 1 << 30)
RESIZABLE = Limits(1, 8, 0, 16, 4.0, 4.0, 4 << 30, 4 << 30, resizable=True)
HIGH = {"busy_share": 0.95}


def changes(*of: Change) -> tuple[Change, ...]:
    return of


# ------------------------------------------------------------------------------------------------ what ends it all


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"hold": True}, "held by the user"),
        ({"busy": True}, "under way"),
        ({"limits": Limits(5, 2, 0, 4)}, "at least 5 PS and at most 2"),
        ({"limits": Limits(1, 4, 9, 3)}, "at least 9 workers"),
        ({"limits": Limits(1, 4, 0, 4, total_cpu=0.5)}, "quota of 0.5 cores"),
        ({"limits": Limits(1, float("nan"), 0, 4)}, "max_ps is nan"),
        ({"time": float("nan")}, "time that was observed"),
        ({"progress": Progress(10**8 - 2000, 10**8)}, "ends in about 2.0 s"),
        ({"windows": ()}, "no throughput was measured yet"),
    ],
)
def test_nothing_is_changed_and_the_reason_says_why(given, part):
    decision = decide(seen(SIZE, **given), POLICY)
    assert decision.action == "keep" and decision.size == SIZE
    assert part in decision.reason


def test_a_size_that_is_none_is_left_alone():
    assert decide(seen(dataclasses.replace(SIZE, ps=0), windows=()), POLICY).action == "keep"


def test_noise_is_not_answered():
    wild = tuple(fact(Window, 100.0 + 10 * n, 10.0, SIZE, rate, 100.0) for n, rate in enumerate((100, 3000, 700, 9000)))
    decision = decide(seen(SIZE, windows=wild), POLICY)
    assert decision.action == "keep" and "noise" in decision.reason


def test_decision_0_is_the_estimated_size_within_the_limits():
    decision = decide(seen(Size(20, 3), number=0, windows=()), POLICY)
    assert (decision.action, decision.size) == ("start", Size(8, 3))
    assert "cut from 20 PS" in decision.reason


def test_a_size_outside_of_the_limits_is_brought_within():
    decision = decide(seen(Size(2, 30)), POLICY)
    assert (decision.action, decision.size) == ("scale", Size(2, 16))
    quota = dataclasses.replace(LIMITS, total_cpu=4.0)
    assert decide(seen(SIZE, limits=quota), POLICY).size == dataclasses.replace(SIZE, workers=1)


# ------------------------------------------------------------------------------------------------ memory


def killed(name: str = "ps-1", time: float = 150.0) -> dict:
    return {"losses": (fact(Loss, time, name, "oom: killed by the kernel", 1 << 30),)}


def test_a_ps_killed_for_lack_of_memory_gets_more():
    decision = decide(seen(SIZE, limits=RESIZABLE, **killed()), POLICY)
    assert decision.action == "resize" and decision.size.ps_memory_bytes == 3 << 29
    assert "ps-1 was killed for lack of memory" in decision.reason


def test_where_requests_cannot_be_changed_more_ps_share_the_slots():
    decision = decide(seen(SIZE, **killed()), POLICY)
    assert (decision.action, decision.size.ps) == ("scale", 3)


@pytest.mark.parametrize("limit", [0, 1 << 30])
def test_where_the_machine_is_out_of_memory_more_ps_are_no_answer(limit):
    """Each would bring a TensorFlow of its own, and copies. What has a limit of its own may be one of more."""
    size = Size(2, 1)
    limits = {name: {"memory_limit_bytes": limit} for name in ("ps_0", "ps_1")}
    decision = decide(seen(size, one_host=True, roles=uses(size, **limits), **killed()), POLICY)
    assert (decision.action == "scale") == bool(limit)
    assert limit or "the machine has no more" in decision.reason


def test_a_kill_is_answered_once():
    resized = fact(Change, 155.0, "resize", "ps", 2, 2, "committed")
    decision = decide(seen(SIZE, limits=RESIZABLE, changes=(resized,), **killed()), POLICY)
    assert "lack of memory" not in decision.reason


def test_memory_that_cannot_be_given_is_told():
    full = dataclasses.replace(LIMITS, max_ps=2)
    decision = decide(seen(SIZE, limits=full, **killed()), POLICY)
    assert "no more memory can be given within the limits" in decision.reason


def test_a_worker_killed_for_lack_of_memory_is_not_answered_with_more_workers():
    decision = decide(seen(SIZE, limits=dataclasses.replace(LIMITS, max_workers=3), **killed("worker-1")), POLICY)
    assert decision.size.workers == 3
    assert decide(seen(SIZE, limits=RESIZABLE, **killed("worker-1")), POLICY).size.worker_memory_bytes == 3 << 29


ALONE = Size(1, 1, 1.0, 1.0, 2 << 30, 2 << 30)
TO_ONE = dataclasses.replace(ALONE, ps=2)
COPIES = {"copies_bytes": 900 << 20}


def test_where_no_trainer_has_room_for_the_copies_of_a_single_ps_trainers_get_it():
    full = uses(ALONE, chief_0={"working_set_bytes": 1 << 30}, worker_0={"working_set_bytes": 1 << 30})
    decision = decide(seen(ALONE, limits=RESIZABLE, roles=full, **COPIES), POLICY)
    assert decision.action == "resize" and decision.size.worker_memory_bytes >= (1924 << 20) / 0.9
    assert "no trainer has room for the copies of the single PS" in decision.reason
    held = uses(ALONE, chief_0={"working_set_bytes": 1900 << 20, **COPIES}, worker_0={"working_set_bytes": 1 << 30})
    assert "has room" not in decide(seen(ALONE, limits=RESIZABLE, roles=held, **COPIES), POLICY).reason
    assert "has room" not in decide(seen(ALONE, limits=RESIZABLE, roles=full), POLICY).reason, "none is to be kept"


def test_memory_that_any_trainer_may_need_for_the_copies_is_not_given_back():
    generous = dataclasses.replace(ALONE, worker_memory_bytes=4 << 30, ps_memory_bytes=1200 << 20)
    small = uses(generous, chief_0={"working_set_bytes": 500 << 20}, worker_0={"working_set_bytes": 500 << 20})
    more = {"limits": RESIZABLE, "roles": small, "time": 400.0, "windows": tuple(windows(generous, 1000.0, 340.0, 6))}
    without, with_copies = (unused(Evidence(seen(generous, **more, **copies), POLICY)) for copies in ({}, COPIES))
    assert isinstance(without, Proposal) and isinstance(with_copies, Proposal)
    assert without.size.worker_memory_bytes < 1400 << 20 <= with_copies.size.worker_memory_bytes


def test_one_ps_is_not_scaled_down_to_where_no_trainer_has_room_for_its_copies():
    busy = {"working_set_bytes": 1800 << 20}
    roles = uses(TO_ONE, ps_0={"working_set_bytes": 500 << 20}, ps_1={"working_set_bytes": 500 << 20},
                 chief_0=busy, worker_0=busy)  # fmt: skip
    sizes = {}
    for limits in (LIMITS, RESIZABLE):
        for copies in (0, 900 << 20):
            evidence = Evidence(seen(TO_ONE, limits=limits, roles=roles, copies_bytes=copies), POLICY)
            sizes[limits.resizable, copies] = with_memory_for(evidence, ps_memory(evidence), ALONE)
    assert sizes[False, 0] == sizes[True, 0] == ALONE
    assert sizes[False, 900 << 20] is None
    more = sizes[True, 900 << 20]
    assert more is not None and more.worker_memory_bytes >= 2700 << 20


def test_growth_is_answered_before_the_limit_is_reached():
    growing = {"working_set_bytes": 9 << 26, "memory_slope_bytes_per_second": 3e6, "memory_limit_bytes": 1 << 30}
    soon = decide(seen(SIZE, limits=RESIZABLE, roles=uses(SIZE, ps_0=growing)), POLICY)
    assert soon.action == "resize" and soon.size.ps_memory_bytes > 1 << 30
    assert "grows by" in soon.reason
    slow = {**growing, "memory_slope_bytes_per_second": 1e5}
    later = decide(seen(SIZE, limits=RESIZABLE, roles=uses(SIZE, ps_0=slow)), POLICY)
    assert "grows by" not in later.reason


def test_fewer_ps_are_not_taken_where_they_would_lack_memory():
    """One PS would be enough for the throughput, but holds all variables."""
    size, limits = Size(2, 0, 0, 0, 4 << 30, 1 << 30), Limits(1, 2, 0, 0)
    heavy = {"working_set_bytes": 3 << 30, "busy_share": 0.01}
    given = {"limits": limits, "windows": tuple(windows(size, 1000.0, 0.0, 12) + windows(Size(1, 0), 1000.0, 120.0)
                                                 + windows(size, 1000.0, 150.0))}  # fmt: skip
    decision = decide(seen(size, time=400.0, roles=uses(size, ps_0=heavy, ps_1=heavy), **given), POLICY)
    assert decision.size.ps == 2


# ------------------------------------------------------------------------------------------------ processes


def test_a_role_whose_host_is_reclaimed_is_replaced_even_when_a_size_was_set_by_hand():
    by_hand = fact(Change, 150.0, "scale-up", "ps", 1, 2, "committed", manual=True)
    decision = decide(seen(SIZE, reclaimed=("worker-2",), changes=(by_hand,)), POLICY)
    assert (decision.action, decision.replace) == ("replace", "worker-2")
    assert decide(seen(SIZE, reclaimed=("chief-0",)), POLICY).action != "replace"


def test_a_failed_replacement_waits_before_it_is_tried_again():
    failed = fact(Change, 150.0, "replace", "worker", 3, 3, "rolled_back")
    decision = decide(seen(SIZE, reclaimed=("worker-2",), changes=(failed,)), POLICY)
    assert decision.action != "replace" and "rolled back; the next try is in" in decision.reason
    assert decide(seen(SIZE, time=215.0, reclaimed=("worker-2",), changes=(failed,)), POLICY).action == "replace"


SLOW = {"step_seconds": 0.3, "step_seconds_lasting": 0.3, "steps_per_second": 3.3}

HUNG = {"stepless_seconds": 130.0, "steps_per_second": 0.0023}  # the rate falls, and never to 0


@pytest.mark.parametrize(
    ("made", "hours", "again"), [(1, 0.5, True), (2, 1.5, False), (2, 3, True), (4, 3, False), (4, 9, True)]
)
def test_who_is_slow_in_each_new_process_is_replaced_ever_more_seldom(made, hours, again):
    now = 1e6
    changes = tuple(fact(Change, now - 3600 * hours + at, "replace", "worker", 3, 3, "committed") for at in range(made))
    measured = tuple(windows(SIZE, 1000.0, now - 40.0))
    decision = decide(seen(SIZE, time=now, roles=uses(SIZE, worker_1=SLOW), changes=changes, windows=measured), POLICY)
    assert (decision.action == "replace") == again, decision.reason


@pytest.mark.parametrize(
    ("use", "replaced"),
    [
        (SLOW, True),
        ({**SLOW, "step_seconds_lasting": 0.1}, False),  # slow for the last minute only
        ({**SLOW, "step_seconds": 0.1}, False),  # not any more
        ({**SLOW, "age_seconds": 30.0}, False),  # just started
        ({**SLOW, "input_wait_share": 0.8}, False),  # it waits for data
        ({**SLOW, "step_seconds_lasting": 0.0}, False),  # for how long nobody knows
        (HUNG, True),
        ({**HUNG, "stepless_seconds": 60.0}, False),
        ({**HUNG, "input_wait_share": 1.0}, False),
        ({}, False),
    ],
)
def test_a_worker_that_is_slow_for_long_is_replaced(use, replaced):
    decision = decide(seen(SIZE, roles=uses(SIZE, worker_1=use)), POLICY)
    assert (decision.action == "replace") == replaced
    assert not replaced or (decision.replace == "worker-1" and "worker-1" in decision.reason)


def test_nobody_hangs_where_all_stand_still_or_steps_are_long():
    everybody = dict.fromkeys(("chief_0", "worker_0", "worker_1", "worker_2"), HUNG)
    assert decide(seen(SIZE, roles=uses(SIZE, **everybody)), POLICY).action != "replace"
    long = {name: {"step_seconds": 20.0, "step_seconds_lasting": 20.0} for name in ("chief_0", "worker_0", "worker_2")}
    assert decide(seen(SIZE, roles=uses(SIZE, worker_1=HUNG, **long)), POLICY).action != "replace"


def test_a_straggler_is_left_where_replacing_it_would_not_pay():
    near = Progress(10**8 - 38_000, 10**8)  # 38 seconds
    decision = decide(seen(SIZE, roles=uses(SIZE, worker_1=SLOW), progress=near), POLICY)
    assert decision.action == "keep" and "would not pay" in decision.reason


def test_a_replacement_that_may_be_as_slow_is_a_trial_whose_price_is_limited():
    """On cores that are full, where every process that starts takes from all."""
    host = fact(Host, "host-0", 2.0, 1.95, 0.0, SIZE.ps, SIZE.trainers)

    def answer(seconds: int, **use) -> Decision:
        left = Progress(10**8 - 1000 * seconds, 10**8)
        roles = uses(SIZE, worker_1={**SLOW, **use})
        return decide(seen(SIZE, roles=roles, progress=left, hosts=(host,), one_host=True), POLICY)

    assert answer(3600).action == "replace"
    short = answer(300)
    assert short.action != "replace" and "a new process may be as slow" in short.reason
    assert answer(300, **HUNG).action == "replace", "who hangs will not hang in a new process"


def test_when_many_are_slow_only_a_few_are_replaced_within_an_hour():
    done = changes(*(fact(Change, time, "replace", "worker", 3, 3, "committed") for time in (60.0, 120.0)))
    decision = decide(seen(SIZE, roles=uses(SIZE, worker_1=SLOW), changes=done), POLICY)
    assert decision.action != "replace"


def test_of_two_trainers_nobody_knows_which_one_is_the_slow_one():
    size = Size(1, 1)
    assert decide(seen(size, roles=uses(size, worker_0=SLOW)), POLICY).action != "replace"


def test_a_ps_on_a_host_short_of_cpu_is_replaced():
    size = Size(4, 3, 2.0, 1.0)
    slow = {"busy_share": 0.95, "cpu_cores": 0.2}
    decision = decide(seen(size, roles=uses(size, ps_2=slow)), POLICY)
    assert (decision.action, decision.replace) == ("replace", "ps-2")
    throttled = {**slow, "throttled_share": 0.5}  # by its own limit: another host would not help
    assert decide(seen(size, roles=uses(size, ps_2=throttled)), POLICY).action != "replace"


# ------------------------------------------------------------------------------------------------ calm


def test_a_scaling_by_hand_is_left_alone_for_its_time():
    by_hand = tuple(
        fact(Change, 100.0, "scale-down", role, 9, 3, "committed", manual=True) for role in ("ps", "worker")
    )
    now = decide(seen(SIZE, changes=by_hand), POLICY)
    assert now.action == "keep" and "by hand 1:00 ago, and is left alone for 29:00 more" in now.reason
    assert "`deeprec-ext scale DIR --workers N` changes it now" in now.reason
    later = 100.0 + POLICY.manual_seconds + 1
    then = decide(seen(SIZE, time=later, windows=tuple(windows(SIZE, 1000.0, later - 40)), changes=by_hand), POLICY)
    assert "by hand" not in then.reason


def test_only_the_role_that_was_scaled_by_hand_is_left_alone():
    by_hand = fact(Change, 100.0, "scale-down", "worker", 9, 3, "committed", manual=True)
    evidence = Evidence(seen(SIZE, changes=(by_hand,), time=100.0 + POLICY.reverse_seconds), POLICY)
    assert "the number of workers was set by hand" in hysteresis.blocked(evidence, dataclasses.replace(SIZE, workers=4))
    assert "--workers 4`" in hysteresis.blocked(evidence, dataclasses.replace(SIZE, workers=4))
    assert not hysteresis.blocked(evidence, dataclasses.replace(SIZE, ps=SIZE.ps + 1)) and not hysteresis.any_change(
        evidence
    )


@pytest.mark.parametrize(("kind", "held_up"), [("rebalance", True), ("replace", False)])
def test_hosts_that_go_do_not_use_up_the_changes_of_an_hour(kind, held_up):
    """Of a hundred pods on hosts that may be taken away, sixteen an hour are no rarity."""
    made = [fact(Change, 60.0 * n, kind, "ps", 3, 3, "committed", decision=n) for n in range(POLICY.changes_per_hour)]
    now = made[-1].time + 600.0
    observed = seen(SIZE, time=now, windows=tuple(windows(SIZE, 1000.0, now - 40.0)), changes=tuple(made))
    assert ("changes were made within the hour" in decide(observed, POLICY).reason) == held_up


def test_growth_that_was_rolled_back_waits_longer_each_time():
    def after(count: int, seconds: float) -> str:
        row = tuple(fact(Change, 100.0 + n, "scale-up", "worker", 3, 6, "rolled_back") for n in range(count))
        now = row[-1].time + seconds
        return decide(
            seen(SIZE, time=now, windows=tuple(windows(SIZE, 1000.0, now - 40.0)), changes=row), POLICY
        ).action

    assert after(1, 30.0) == "keep" and after(1, 90.0) == "explore"
    assert after(3, 90.0) == "keep" and after(3, 300.0) == "explore"


def test_a_starved_job_gets_no_more_ps():
    """Though the PS are busy too: nobody asks them for more."""
    size = Size(1, 3)
    starved = uses(size, ps_0=HIGH, **{name: {"input_wait_share": 0.8} for name in ("chief_0", "worker_0", "worker_1",
                                                                                    "worker_2")})  # fmt: skip
    decision = decide(seen(size, roles=starved, limits=Limits(1, 8, 0, 3)), POLICY)
    assert decision.size.ps == 1
    assert "wait for input 80%" in decision.reason


def test_the_sentence_tells_what_was_measured_what_is_predicted_and_how_sure_it_is():
    decision = decide(seen(SIZE, 1234.0, windows=tuple(windows(SIZE, 1234.0, 120.0, scatter=0.0))), POLICY)
    assert decision.action == "explore"
    for part in ("1,234 examples/s at 2 PS, 3 workers", "is predicted to train +", "more cost", "held-out error"):
        assert part in decision.reason
    assert "\n" not in decision.reason
    assert decision.prediction.before == 1234.0 and decision.prediction.examples_per_second > 1234.0


def test_where_no_error_is_known_one_process_is_tried_and_its_price_told():
    decision = decide(seen(Size(1, 1)), POLICY)
    size = decision.size
    assert decision.action == "explore"
    assert (size.ps - 1) + (size.workers - 1) == 1
    assert decision.prediction.price_seconds > 0 and "it may cost" in decision.reason


def test_what_the_arbiter_takes_and_gives_back_counts_as_no_change_of_mind() -> None:
    size = Size(1, 3)
    for arbiter in (True, False):
        turns = changes(*(
            fact(Change, 150.0 * n, "scale-up", "worker", 1, 3, "committed", arbiter=arbiter) if n % 2
            else fact(Change, 150.0 * n, "scale-down", "worker", 3, 1, "committed", arbiter=arbiter) for n in range(20)
        ))  # fmt: skip
        known = tuple(windows(size, 1000.0, 3200.0, count=9))
        evidence = Evidence(seen(size, time=3300.0, changes=turns, windows=known), POLICY)
        assert bool(hysteresis.flips(evidence, "worker", POLICY.reversals_per_hour)) is not arbiter
        assert ("within the hour" in hysteresis.any_change(evidence)) is not arbiter
