"""What is said of accuracies."""

from __future__ import annotations

import math

import pytest

from benchmarks.accuracy_in_step import apart


def test_a_difference_is_given_with_what_seeds_make_of_it() -> None:
    found, error = apart([0.80, 0.82], [0.90, 0.90])
    assert (found, error) == (pytest.approx(-0.09), pytest.approx(2 * math.sqrt(0.0002 / 2)))
    assert apart([0.8], [0.9, 0.9])[1] == math.inf, "of one value nobody knows"
