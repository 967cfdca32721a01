"""Real jobs that may take their time: a script and stock TensorFlow are imported by each of up to seven processes."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.behaviour.jobs import PatientJob, RealJob
from tests.compat.unchanged import WITH_KERAS_2


@pytest.fixture(autouse=True)
def _keras_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the processes that are started."""
    for name, value in WITH_KERAS_2.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def own_keras(_keras_2: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Keras of this TensorFlow, from 2.16 on Keras 3; not `tf_keras`, which the scripts with `tf.layers` have."""
    monkeypatch.delenv("TF_USE_LEGACY_KERAS", raising=False)


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., RealJob]]:
    """`begin("--ps", "1", command=…)` starts a real job; it is stopped after the test."""
    if importlib.util.find_spec("tensorflow") is None:  # not imported here, which takes seconds: the jobs do it
        pytest.skip("no TensorFlow")
    jobs: list[RealJob] = []

    def start(*flags: str, command: tuple[str, ...]) -> RealJob:
        jobs.append(PatientJob(tmp_path / f"run{len(jobs)}", flags, command))
        return jobs[-1]

    yield start
    for job in jobs:
        job.close()
