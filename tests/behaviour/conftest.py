"""Real jobs end with their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.behaviour.jobs import COUNT, RealJob


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., RealJob]]:
    """`begin("--ps", "1", command=…)` starts a real job; it is stopped after the test."""
    pytest.importorskip("tensorflow")
    jobs: list[RealJob] = []

    def start(*flags: str, command: tuple[str, ...] = COUNT) -> RealJob:
        jobs.append(RealJob(tmp_path / f"run{len(jobs)}", flags, command))
        return jobs[-1]

    yield start
    for job in jobs:
        job.close()
