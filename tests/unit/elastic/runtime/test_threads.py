"""TensorFlow's servers stay until the process ends; what one of a test costs is bounded all the same."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("tensorflow")

from tests.unit.elastic.cluster import server


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def test_a_server_that_a_test_has_made_leaves_few_threads():
    server()  # the first brings those of the process
    before = threads()
    server()
    assert 0 < threads() - before < 50, "see tests/unit/conftest.py"
