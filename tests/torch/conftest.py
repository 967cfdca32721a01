"""Real jobs of PyTorch scripts; they end with their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.behaviour.jobs import RealJob


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., RealJob]]:
    """`begin("--workers", "1", command=…)` starts a real job without PS; it is stopped after the test."""
    pytest.importorskip("torch")
    jobs: list[RealJob] = []

    def start(*flags: str, command: tuple[str, ...]) -> RealJob:
        jobs.append(RealJob(tmp_path / f"run{len(jobs)}", ("--strategy", "allreduce", *flags), command))
        return jobs[-1]

    yield start
    for job in jobs:
        job.close()
