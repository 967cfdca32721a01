"""What was estimated before a job's start, and what came of it, as people read it."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from pathlib import Path

import pytest

from deeprec_ext.aimaster.reporting.estimated import foretold, sentences
from deeprec_ext.aimaster.state.declared import ESTIMATED
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.autoscaler.history.estimates import Estimates, Figure, Like
from deeprec_ext.autoscaler.observe.observed import Size
from deeprec_ext.autoscaler.policy.record import NAME
from deeprec_ext.cli.main import main
from tests.unit.launch.test_history import workdir  # noqa: F401 # a fixture

TOLD = Estimates(
    Size(1, 0),
    (
        Figure("ps_memory", "ps", 0.9e9, 8e8, 1.2e9, "computed"),
        Figure("examples_per_second", "job", 900.0, 800.0, 1000.0, "ridge"),
    ),
    like=(Like("ctr-3", "train", 0.92),),
)  # fmt: skip
"""The job of the fixture had this size, a PS of 1 GB, and 600 examples per second."""


@pytest.fixture
def ended(workdir: Path) -> Path:  # noqa: F811
    store = Store(workdir / "aimaster.db")
    store.put(**{ESTIMATED: dataclasses.asdict(TOLD)})
    store.close()
    return workdir


def test_each_figure_stands_beside_what_was_used(ended: Path) -> None:
    with contextlib.closing(Store(ended / "aimaster.db", read_only=True)) as store:
        assert [came for _, came in foretold(store, ended)] == [1e9, 600.0]
        size, memory, speed = sentences(store, ended)
        assert [came for _, came in foretold(store, None)] == ["nothing was measured of the job"] * 2
    assert size == "it begins with 1 PS and 0 workers; by ctr-3 (92% alike)"
    assert memory == (
        "memory of the fullest PS: 900 MB, 800 MB to 1.2 GB in nine of ten jobs; it was 1.0 GB, 11% more; computed"
    )
    assert "; it was 600, 33% less, outside of that; ridge" in speed


def test_of_a_job_that_runs_it_is_said_how_it_is_so_far(ended: Path) -> None:
    with contextlib.closing(Store(ended / "aimaster.db", read_only=True)) as store:
        _, memory, _ = sentences(store, ended, running=True)
        assert "; so far it is 1.0 GB, 11% more; computed" in memory
        _, memory, _ = sentences(store, None, running=True)
        assert memory.endswith("in nine of ten jobs; computed"), "nothing is final of it"


def test_a_job_that_nobody_estimated_says_nothing_of_it(workdir: Path) -> None:  # noqa: F811
    with contextlib.closing(Store(workdir / "aimaster.db", read_only=True)) as store:
        assert sentences(store, workdir) == [] and foretold(store, workdir) == []


def test_the_decisions_of_a_job_end_with_its_estimate(ended: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (ended / NAME).touch()
    assert main(["decisions", str(ended)]) == 0
    told = capsys.readouterr().out
    assert "Estimated before the start:\n- it begins with 1 PS" in told and "it was 1.0 GB" in told
    shutil.copy(__file__, ended / "aimaster.db")  # no store
    assert main(["decisions", str(ended)]) == 0
    assert "Estimated" not in capsys.readouterr().out
