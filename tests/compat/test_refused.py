"""What does not work ends at once, with one line that says what to do: `SyncReplicasOptimizer` and `Supervisor`."""

from __future__ import annotations

import pytest

from tests.compat.unchanged import SCRIPTS, accuracy_in, counted_in, stock

pytestmark = pytest.mark.slow


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("words", "what", "remedy"),
    [
        (("sync_replicas.py", "--replicas", "2"), "SyncReplicasOptimizer", "pass the inner optimizer itself"),
        (("supervisor.py",), "Supervisor", "use tf.compat.v1.train.MonitoredTrainingSession"),
    ],
    ids=["sync_replicas", "supervisor"],
)
def test_it_is_refused_by_name_with_the_remedy(begin, tmp_path, words, what, remedy):
    model = tmp_path / "run0" / "model"
    script, *more = words
    command = (
        "python",
        str(SCRIPTS / script),
        "--model_dir" if script == "supervisor.py" else "--model-dir",
        str(model),
        *more,
    )
    job = begin("--ps", "1", "--workers", "1", "--quiet", command=command)
    assert job.end(600) == 2, job.output
    said = [line for line in job.output.splitlines() if what in line]
    assert len(said) == 1, job.output
    assert remedy in said[0]
    assert "Traceback" not in job.output
    assert job.summary()["status"] == "failed"
    assert job.summary()["steps"] == 0


@pytest.mark.long
@pytest.mark.timeout(600)
def test_synchronous_replicas_train_with_stock_tensorflow(tmp_path):
    words = (str(SCRIPTS / "sync_replicas.py"), "--model-dir", str(tmp_path / "model"), "--steps", "100")
    told = stock(words, tmp_path, 500)
    assert float(told.split("loss: ")[-1]) < 0.1, told


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_supervisor_trains_with_stock_tensorflow(tmp_path):
    words = (str(SCRIPTS / "supervisor.py"), "--model_dir", str(tmp_path / "model"), "--steps", "400")
    told = stock(words, tmp_path, 500)
    assert counted_in(told) == 400
    assert accuracy_in(told) > 0.5
