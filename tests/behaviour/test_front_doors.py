"""Every way into training is elastic: PS and workers are scaled, and stock TensorFlow reads the checkpoint."""

from __future__ import annotations

import pytest

from tests.behaviour.fitting import fit_through_changes
from tests.behaviour.jobs import COUNT, ROOT

pytestmark = pytest.mark.slow


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "words",
    [
        ("--hook",),
        # In every run tests/compat has both, but not in one script.
        pytest.param(("--monitored", "--one-shot"), marks=pytest.mark.long),
        pytest.param(("--monitored", "--v1"), marks=pytest.mark.long),
    ],
    ids=["hooks in the script", "server and one-shot iterator", "server and reference variables"],
)  # fmt: skip
@pytest.mark.long
def test_a_script_is_scaled_whichever_way_it_trains(begin, words):
    job = begin("--ps", "1", "--workers", "1", "--setting", "verify_copies=true", command=(*COUNT, *words))
    job.wait_scalable()
    before = job.running()
    for request in ({"ps": 2}, {"workers": 2}, {"ps": 1}):
        assert job.scale(**request).outcome == "committed"
        job.wait_training(*(name for name in job.running() if name.startswith(("chief", "worker"))))
    after = job.running()
    assert all(after[name] == pid for name, pid in before.items())
    assert job.finish() == 0, job.output
    job.check_counts()
    assert all(role["restarted"] == 0 for role in job.summary()["roles"].values())


@pytest.mark.smoke
@pytest.mark.timeout(400)
def test_a_keras_model_is_scaled_and_evaluated_by_its_chief(begin, tmp_path):
    import tensorflow as tf

    events = tmp_path / "events.yaml"
    events.write_text("- {at_step: 50, scale: {ps: 2}}\n- {at_step: 50, scale: {workers: 1}}\n")
    script = str(ROOT / "examples" / "keras_to_estimator" / "train.py")
    job = begin("--ps", "1", "--workers", "0", "--events", str(events),
                command=("python", script, "--steps", "4000"))  # fmt: skip
    assert job.end(300) == 0, job.output
    summary = job.summary()
    assert [one["outcome"] for one in summary["scaling"]] == ["committed", "committed"]
    assert summary["metrics"]["accuracy"] > 0.6
    assert tf.train.load_checkpoint(str(job.directory / "model")).get_tensor("global_step") >= 4000


@pytest.mark.smoke
@pytest.mark.timeout(600)
def test_fit_goes_on_while_ps_and_workers_change_and_a_ps_is_killed(begin, tmp_path):
    import tensorflow as tf

    job = fit_through_changes(begin, tmp_path)
    model = tf.keras.models.load_model(str(job.directory / "wide_deep.keras"))
    steps = job.summary()["steps"]
    assert 0.9 * steps < int(model.optimizer.iterations) <= steps, "but for what the promoted PS had not heard of"
