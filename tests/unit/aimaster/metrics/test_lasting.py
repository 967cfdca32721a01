"""How long a step has taken for minutes."""

from __future__ import annotations

from deeprec_ext.aimaster.metrics.lasting import SECONDS, SHORTEST_SECONDS, VALUES_MAX, Lasting


def test_nothing_is_said_about_minutes_before_they_are_over():
    lasting = Lasting()
    for now in range(0, int(SHORTEST_SECONDS), 5):
        lasting.add(float(now), 0.1)
        assert lasting.median(float(now)) == 0.0
    lasting.add(SHORTEST_SECONDS, 0.1)
    assert lasting.median(SHORTEST_SECONDS) == 0.1


def test_a_slow_minute_does_not_count_and_what_is_long_past_neither():
    lasting = Lasting()
    for now in range(0, 300, 5):
        lasting.add(float(now), 0.3 if 100 <= now < 160 else 0.1)
    assert lasting.median(299.0) == 0.1
    for now in range(300, 600, 5):
        lasting.add(float(now), 0.3)
    assert lasting.median(599.0) == 0.3
    assert lasting.median(599.0 + 2 * SECONDS) == 0.0


def test_it_remembers_a_bounded_number_whatever_comes():
    lasting = Lasting()
    for count in range(100_000):
        lasting.add(count * 0.01, 0.1)
    assert len(lasting._values) <= VALUES_MAX and lasting.median(1000.0) == 0.1
