"""The slope of memory: found where there is one, and zero where nothing is known."""

from __future__ import annotations

import pytest

from deeprec_ext.autoscaler.observe.growth import FEWEST, POINTS_MAX, Growth


def test_a_growing_process_has_its_slope_and_a_steady_one_none():
    growth = Growth()
    for now in range(120):
        growth.observe(float(now), {"grows": 1e9 + 5e6 * now, "steady": 1e9})
    assert growth.slope("grows") == pytest.approx(5e6, rel=1e-6)
    assert growth.slope("steady") == 0.0


def test_little_evidence_is_none():
    growth = Growth()
    for now in range(FEWEST - 1):
        growth.observe(10.0 * now, {"young": 1e6 * now})
    assert growth.slope("young") == 0.0 == growth.slope("unknown")


def test_old_samples_and_processes_are_forgotten():
    growth = Growth()
    for now in range(1000):
        growth.observe(float(now), {"one": 1e6 * min(now, 500)})
    assert growth.slope("one") == 0.0
    assert len(growth._points["one"]) <= POINTS_MAX
    growth.observe(1001.0, {})
    assert not growth._points
