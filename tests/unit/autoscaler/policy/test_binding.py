"""The machine in decisions: nothing is predicted that free cores cannot train, and the reason names what binds."""

from __future__ import annotations

import dataclasses

import pytest

from deeprec_ext.autoscaler.observe.observed import Host, Limits, Observed, Size
from deeprec_ext.autoscaler.policy.decide import decide
from deeprec_ext.autoscaler.policy.evidence import Evidence
from tests.unit.autoscaler.policy.jobs import POLICY, seen, uses, windows

SMALL = Limits(1, 4, 0, 4)


def full(*measured: tuple[Size, float, float, float], others: float = 0.1, one_host: bool = True) -> Observed:
    """(size, examples per second, cores of each trainer, of all PS), half a minute of each on a machine of two cores."""
    found = []
    for number, (size, rate, trainer, ps) in enumerate(measured):
        more = {"trainer_cpu_cores": trainer, "ps_cpu_cores": ps, "ps_cpu_most_cores": ps / size.ps, "host_cores": 2.0,
                "others_cores": others}  # fmt: skip
        found += windows(size, rate, 30.0 + 60 * number, count=4, **more)
    size, _, trainer, ps = measured[-1]
    host = Host("host-0", 2.0, trainer * size.trainers + ps, others, size.ps, size.trainers, 0)
    return seen(
        size, time=80.0 + 60 * len(measured), windows=tuple(found), limits=SMALL, roles=uses(size), hosts=(host,),
        one_host=one_host,
    )  # fmt: skip


FIRST = (Size(1, 0), 22_900.0, 1.25, 0.6)
"""The README's own line on two cores: they are full from the first minute."""


def test_on_a_full_machine_no_size_is_predicted_to_train_faster():
    evidence = Evidence(full(FIRST), POLICY)
    for ps in (1, 2, 4):
        for workers in (0, 1, 4):
            assert evidence.expected(Size(ps, workers)) < 1.04 * 22_900
            assert evidence.hoped(Size(ps, workers)) < 1.04 * 22_900


def test_the_reason_says_that_both_cores_are_in_use():
    four = (
        FIRST,
        (Size(1, 1), 24_600.0, 0.65, 0.6),
        (Size(2, 1), 20_800.0, 0.65, 0.6),
        (Size(1, 1), 24_600.0, 0.65, 0.6),
    )
    decision = decide(full(*four), POLICY)
    assert decision.action == "keep"
    assert (
        "both cores of this machine are in use: no size within the limits is predicted to train faster"
        in decision.reason
    )


def test_between_processes_of_one_machine_no_network_binds():
    idle = full((Size(1, 0), 1000.0, 0.05, 0.05))
    assert Evidence(idle, POLICY).model.binding(Size(1, 0))[0] == "network", "what no CPU shortens"
    assert (
        Evidence(idle, POLICY).binding(Size(1, 0)) == Evidence(idle, POLICY).forecast(Size(1, 0)).binding == "waiting"
    )


def test_a_limit_of_the_container_counts_as_the_machine_does():
    """Half of a core is all there is: what 64 processors could do does not matter."""
    observed = full((Size(1, 0), 5_000.0, 0.3, 0.15))
    half = tuple(dataclasses.replace(window, host_cores=0.5, others_cores=0.0) for window in observed.windows)
    evidence = Evidence(dataclasses.replace(observed, windows=half), POLICY)
    assert evidence.capacity(Size(4, 4)) == pytest.approx(5_000 * 0.5 / 0.45, rel=1e-3)


def test_a_limit_that_nobody_requested_but_each_process_tells_of_counts():
    observed = full((Size(1, 0), 5_000.0, 0.3, 0.45), one_host=False)
    held = {"ps_0": {"cpu_limit_cores": 0.5, "cpu_cores": 0.45}, "chief_0": {"cpu_cores": 0.3, "cpu_limit_cores": 0.5}}
    observed = dataclasses.replace(observed, hosts=(), roles=uses(Size(1, 0), **held))
    assert Evidence(observed, POLICY).capacity(Size(1, 4)) == pytest.approx(0.95 * 5_000 * 0.5 / 0.45)


def test_processes_to_come_on_other_hosts_are_not_held_up_by_this_one():
    here, elsewhere = full(FIRST), full(FIRST, one_host=False)
    assert Evidence(here, POLICY).capacity(Size(2, 1)) < 1.04 * 22_900
    assert Evidence(elsewhere, POLICY).capacity(Size(2, 1)) == pytest.approx(2 * 22_900, rel=0.05)


def test_what_others_use_is_not_free_and_is_told():
    observed = full((Size(1, 0), 10_000.0, 0.6, 0.3), others=1.1)
    assert Evidence(observed, POLICY).capacity(Size(2, 2)) == pytest.approx(10_000, rel=0.01)
    sizes = [(Size(2, 1), 9_000.0, 0.3, 0.3), (Size(1, 1), 10_000.0, 0.3, 0.3), (Size(1, 0), 10_000.0, 0.6, 0.3)]
    reason = decide(full(*sizes, others=1.1), POLICY).reason
    assert "both cores of this machine are in use, 1.1 of them by others" in reason


def test_a_machine_with_room_lets_a_job_grow():
    observed = full((Size(1, 0), 5_000.0, 0.25, 0.1))
    assert Evidence(observed, POLICY).capacity(Size(1, 1)) == pytest.approx(5_000 * 1.9 / 0.35, rel=0.01)
    assert decide(observed, POLICY).size != Size(1, 0)


def test_a_forecast_has_an_interval_and_what_binds():
    evidence = Evidence(full(FIRST), POLICY)
    found = evidence.forecast(Size(2, 3))
    assert found is not None and found.binding == "host CPU"
    assert found.low < found.examples_per_second <= found.high <= 1.04 * 22_900
    assert Evidence(seen(Size(1, 1), windows=()), POLICY).forecast(Size(2, 1)) is None
