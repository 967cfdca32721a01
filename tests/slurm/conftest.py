"""A Slurm for the whole session; without one the tests are skipped, and say why."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.behaviour.jobs import COUNT, RealJob
from tests.slurm import slurm


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """Its configuration is in the environment."""
    if why := slurm.why_not():
        pytest.skip(why)
    with tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp") as directory:
        with pytest.MonkeyPatch.context() as patch, slurm.running(Path(directory)) as environment:
            for name, value in environment.items():
                patch.setenv(name, value)
            yield


class SlurmJob(RealJob):
    def pid(self, role: str) -> int:
        """The node is this machine."""
        return super().pid(role) if role == "aimaster" else self.running().get(role, 0)


@pytest.fixture
def begin(cluster: None, tmp_path: Path) -> Iterator[Callable[..., RealJob]]:
    """A real job whose roles are jobs of Slurm; it is stopped after the test."""
    pytest.importorskip("tensorflow")
    jobs: list[RealJob] = []

    def start(*flags: str, command: tuple[str, ...] = COUNT) -> RealJob:
        jobs.append(SlurmJob(tmp_path / f"run{len(jobs)}", ("--backend", "slurm", *flags), command))
        return jobs[-1]

    yield start
    for job in jobs:
        job.close()
