"""`SyncReplicasOptimizer` does not work: its state on the PS cannot move. The job ends with one line that says what to do."""

from __future__ import annotations

import pytest

from tests.compat.unchanged import SCRIPTS, stock

pytestmark = pytest.mark.slow


@pytest.mark.timeout(600)
def test_synchronous_replicas_are_refused_by_name_with_the_remedy(begin, tmp_path):
    model = tmp_path / "run0" / "model"
    command = ("python", str(SCRIPTS / "sync_replicas.py"), "--model-dir", str(model), "--replicas", "2")
    job = begin("--ps", "1", "--workers", "1", "--quiet", command=command)
    assert job.end(300) == 2, job.output
    said = [line for line in job.output.splitlines() if "SyncReplicasOptimizer" in line]
    assert len(said) == 1, job.output
    assert "pass the inner optimizer itself" in said[0]
    assert "Traceback" not in job.output
    assert job.summary()["status"] == "failed"
    assert not (model / "checkpoint").exists()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_same_script_runs_with_stock_tensorflow(tmp_path):
    words = (str(SCRIPTS / "sync_replicas.py"), "--model-dir", str(tmp_path / "model"), "--steps", "100")
    told = stock(words, tmp_path, 500)
    assert float(told.split("loss: ")[-1]) < 0.1, told
