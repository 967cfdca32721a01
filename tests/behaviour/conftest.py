"""Real jobs end with their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deeprec_ext.errors import UsageError
from deeprec_ext.launch.resources import Requests, Resources
from deeprec_ext.launch.roles.containers import open_containers
from deeprec_ext.launch.roles.guard import remove_groups
from tests.behaviour.jobs import COUNT, RealJob


@pytest.fixture
def groups_can_be_made() -> None:
    """Skips the test where roles cannot be held to limits, with the reason."""
    try:
        made = open_containers(Requests(Resources(1.0, 1 << 30), Resources()))
    except UsageError as error:
        pytest.skip(str(error))
    remove_groups(made.paths)


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


@pytest.fixture
def begin_command(tmp_path: Path) -> Iterator[Callable[..., RealJob]]:
    """`begin_command("train", "--model-def", …)` starts the job of that command; it is stopped after the test."""
    pytest.importorskip("tensorflow")
    jobs: list[RealJob] = []

    def start(verb: str, *flags: str) -> RealJob:
        jobs.append(RealJob(tmp_path / f"run{len(jobs)}", flags, verb=verb))
        return jobs[-1]

    yield start
    for job in jobs:
        job.close()
